"""Watermarks of a chain: merged over channels and splits, idle and awake, never back (W1, W2)."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.envelope import Data, EndOfStream, Envelope, Idle, Watermark
from arkflow_kernel.ids import EARLIEST, ChannelId, EventTimeMs, MonotonicMs, Sequence, SplitId
from arkflow_kernel.plan import TimePlan
from arkflow_kernel.ports import NothingYet, SourceBatch
from arkflow_kernel.snapshot import SplitTime
from arkflow_kernel.testing.components import rows_batch
from arkflow_kernel.watermark import ChainTime, ChannelTimes, Part, SplitTimes, all_idle

CHANNELS = tuple(ChannelId(name) for name in "abc")
ROWS = Data(Sequence(1), (rows_batch("a", range(1)),), 8)

Heard = tuple[int, Envelope]


def _time(value: int) -> EventTimeMs:
    return EventTimeMs(value)


ENVELOPES: st.SearchStrategy[Envelope] = st.one_of(
    st.integers(-50, 50).map(lambda value: Watermark(_time(value))),
    st.just(Idle()),
    st.just(ROWS),
    st.booleans().map(EndOfStream),
)


@dataclass
class Told:
    """What a channel said last, by a plain reading of the rules."""

    watermark: int | None = None
    idle: bool = False
    ended: bool = False


def _expected(heard: list[Heard]) -> tuple[int | None, bool]:
    """The highest minimum there ever was, and whether all are idle now."""
    told = [Told() for _ in CHANNELS]
    risen: int | None = None
    for number, envelope in heard:
        channel = told[number]
        if isinstance(envelope, Watermark):
            channel.watermark = max(envelope.time_ms, channel.watermark or envelope.time_ms)
        if isinstance(envelope, EndOfStream):
            channel.ended = not envelope.stopped
        else:
            channel.idle = isinstance(envelope, Idle)
        active = [each.watermark for each in told if not each.idle and not each.ended]
        if active and None not in active:
            low = min(each for each in active if each is not None)
            risen = low if risen is None else max(risen, low)
    left = [each for each in told if not each.ended]
    return risen, bool(left) and all(each.idle for each in left)


def _said(heard: list[Heard], times: ChannelTimes, time: ChainTime) -> list[Watermark | Idle]:
    """Everything that a chain says meanwhile; what it says is taken at once."""
    said: list[Watermark | Idle] = []
    for number, envelope in heard:
        times.delivered(CHANNELS[number], envelope)
        while (each := time.next()) is not None:
            time.took(each)
            time.validate()
            said.append(each)
    return said


def _check(heard: list[Heard], times: ChannelTimes, time: ChainTime) -> None:
    said = _said(heard, times, time)
    risen, idle = _expected(heard)
    marks = [each.time_ms for each in said if isinstance(each, Watermark)]
    known = [mark for mark in marks if mark != EARLIEST]
    assert known == sorted(known), "a watermark went back"
    assert (known[-1] if known else None) == risen
    assert time.watermark == risen
    assert (bool(said) and isinstance(said[-1], Idle)) == idle


def _ends_last(heard: list[Heard]) -> list[Heard]:
    """Nothing follows the end of a channel."""
    ended: set[int] = set()
    kept: list[Heard] = []
    for number, envelope in heard:
        if number not in ended:
            kept.append((number, envelope))
        if isinstance(envelope, EndOfStream):
            ended.add(number)
    return kept


HEARD = st.lists(st.tuples(st.integers(0, 2), ENVELOPES), max_size=25)


@given(HEARD)
def test_a_chain_says_the_highest_minimum_of_its_active_inputs(heard: list[Heard]) -> None:
    times = ChannelTimes(CHANNELS)
    _check(_ends_last(heard), times, ChainTime(times, None))


class _CountsTheIdle(ChannelTimes):
    def delivered(self, channel: ChannelId, envelope: Envelope) -> None:
        if not isinstance(envelope, Idle):
            super().delivered(channel, envelope)


class _ForgetsTheStopped(ChannelTimes):
    def delivered(self, channel: ChannelId, envelope: Envelope) -> None:
        stopped = isinstance(envelope, EndOfStream)
        super().delivered(channel, EndOfStream() if stopped else envelope)


class _WakesByWatermarksOnly(ChannelTimes):
    def delivered(self, channel: ChannelId, envelope: Envelope) -> None:
        if not isinstance(envelope, Data):
            super().delivered(channel, envelope)


class _GoesBack(ChannelTimes):
    def delivered(self, channel: ChannelId, envelope: Envelope) -> None:
        if isinstance(envelope, Watermark):
            self.at(channel).watermark = None
        super().delivered(channel, envelope)


@pytest.mark.parametrize(
    ("planted", "heard"),
    [
        (_CountsTheIdle, [(0, Watermark(_time(5))), (1, Idle()), (2, Idle())]),
        (
            _ForgetsTheStopped,
            [(0, Watermark(_time(5))), (1, EndOfStream(stopped=True)), (2, EndOfStream())],
        ),
        (_WakesByWatermarksOnly, [(0, Idle()), (1, Idle()), (2, Idle()), (1, ROWS)]),
        (
            _GoesBack,
            [
                (0, Watermark(_time(5))),
                (1, Watermark(_time(9))),
                (0, Watermark(_time(3))),
                (2, Watermark(_time(9))),
            ],
        ),
    ],
)
def test_the_property_finds_planted_mistakes(
    planted: Callable[[tuple[ChannelId, ...]], ChannelTimes], heard: list[Heard]
) -> None:
    times = ChannelTimes(CHANNELS)
    _check(heard, times, ChainTime(times, None))
    broken = planted(CHANNELS)
    with pytest.raises(AssertionError):
        _check(heard, broken, ChainTime(broken, None))


def test_an_input_that_wakes_is_told_before_its_rows_and_does_not_lower_the_watermark() -> None:
    """Field fault: an idle input holds back the watermark of a union for ever."""
    times = ChannelTimes(CHANNELS)
    time = ChainTime(times, None)
    heard: list[Heard] = [
        (0, Watermark(_time(10))),
        (1, Idle()),
        (2, Idle()),
        (1, Watermark(_time(4))),
        (0, Watermark(_time(20))),
        (1, Watermark(_time(15))),
    ]
    assert _said(heard, times, time) == [Watermark(_time(10)), Watermark(_time(15))]


def test_a_chain_that_was_idle_says_its_watermark_again_before_it_goes_on() -> None:
    times = ChannelTimes(CHANNELS[:1])
    time = ChainTime(times, None)
    heard: list[Heard] = [(0, Watermark(_time(10))), (0, Idle()), (0, ROWS)]
    assert _said(heard, times, time) == [Watermark(_time(10)), Idle(), Watermark(_time(10))]


def test_a_chain_that_was_idle_and_knows_no_time_says_that_it_is_awake() -> None:
    times = ChannelTimes(CHANNELS[:1])
    time = ChainTime(times, None)
    assert _said([(0, Idle()), (0, ROWS)], times, time) == [Idle(), Watermark(EARLIEST)]
    assert time.watermark is None


def test_a_restored_watermark_does_not_go_back() -> None:
    times = ChannelTimes(CHANNELS[:1])
    time = ChainTime(times, _time(100))
    assert _said([(0, Watermark(_time(50)))], times, time) == []
    assert _said([(0, Watermark(_time(101)))], times, time) == [Watermark(_time(101))]


# --- splits ------------------------------------------------------------------------------------

PLAN = TimePlan("ts", bound_ms=10, idle_timeout_ms=100)
A, B = SplitId("a"), SplitId("b")


def _at(value: int) -> MonotonicMs:
    return MonotonicMs(value)


def _batch(split: SplitId, quiet: tuple[SplitId, ...] = ()) -> SourceBatch:
    return SourceBatch(split, rows_batch("a", range(1)), {}, quiet=quiet)


def _reads(times: SplitTimes, split: SplitId, max_ms: int, now_ms: int) -> None:
    times.answered(_batch(split), _at(now_ms))
    times.submitted(split, _time(max_ms), ended=False)


def test_a_split_that_has_not_begun_holds_the_source_and_an_ended_one_does_not() -> None:
    times = SplitTimes(PLAN, (A, B))
    _reads(times, A, 50, 0)
    assert ChainTime(times, None).next() is None
    _reads(times, B, 30, 0)
    assert ChainTime(times, None).next() == Watermark(_time(20))
    times.submitted(B, _time(30), ended=True)
    assert ChainTime(times, None).next() == Watermark(_time(40))


def test_with_splits_in_order_of_time_only_the_first_unfinished_one_holds() -> None:
    times = SplitTimes(TimePlan("ts", bound_ms=10, ordered_splits=True), (A, B))
    _reads(times, A, 50, 0)
    assert ChainTime(times, None).next() == Watermark(_time(40))
    times.submitted(A, _time(50), ended=True)
    assert ChainTime(times, None).next() is None
    _reads(times, B, 60, 0)
    assert ChainTime(times, None).next() == Watermark(_time(50))


def test_idle_is_what_the_source_finds_empty_for_the_timeout_and_not_what_nobody_asks() -> None:
    """Field fault: idleness was measured while backpressure kept the source from being read."""
    times = SplitTimes(PLAN, (A, B))
    _reads(times, A, 50, 0)
    assert times.deadline_ms() is None, "nobody asked for 3 s: that says nothing"
    times.passed(_at(3_000))
    assert ChainTime(times, None).next() is None
    times.answered(_batch(A, quiet=(B,)), _at(3_000))
    times.answered(_batch(A, quiet=(B,)), _at(3_099))
    assert ChainTime(times, None).next() is None
    times.answered(_batch(A, quiet=(B,)), _at(3_100))
    assert ChainTime(times, None).next() == Watermark(_time(40))


def test_a_source_that_rests_is_idle_when_the_timeout_has_passed() -> None:
    """Field fault: a source that is idle from its start gives no output."""
    times = SplitTimes(PLAN, (A,))
    times.answered(NothingYet(_at(10_000)), _at(5))
    assert times.deadline_ms() == 105
    times.passed(_at(104))
    assert not all_idle(times.parts)
    times.passed(_at(105))
    assert all_idle(times.parts)
    assert times.deadline_ms() is None
    _reads(times, A, 7, 10_000)
    assert not all_idle(times.parts)


def test_a_rest_that_ends_before_the_timeout_says_nothing_of_what_comes_after_it() -> None:
    times = SplitTimes(PLAN, (A,))
    times.answered(NothingYet(_at(50)), _at(0))
    assert times.deadline_ms() is None, "the next read will say"
    times.passed(_at(5_000))
    assert not all_idle(times.parts)


def test_a_source_without_splits_is_idle_at_once_and_one_that_ended_is_not() -> None:
    assert all_idle(SplitTimes(PLAN, ()).parts)
    assert not all_idle([Part(ended=True)])


def test_a_cut_holds_what_was_submitted_and_a_restore_goes_on_from_it() -> None:
    times = SplitTimes(PLAN, (A, B))
    _reads(times, A, 50, 0)
    times.answered(_batch(A, quiet=(B,)), _at(0))
    times.answered(_batch(A, quiet=(B,)), _at(100))
    cut = times.cut()
    assert cut == (SplitTime(A, _time(50)), SplitTime(B, None, idle=True))
    again = SplitTimes(PLAN, (A, B), cut)
    assert ChainTime(again, _time(40)).next() is None
    assert again.cut() == cut


@given(
    st.lists(
        st.tuples(st.sampled_from("rqRs"), st.sampled_from([A, B]), st.integers(0, 120)),
        max_size=30,
    )
)
def test_no_split_is_idle_unless_it_was_found_empty_that_long(
    script: list[tuple[str, SplitId, int]],
) -> None:
    """`r`: rows of a split; `q`: the other one has rows, this one nothing; `R`: nothing in both
    for a while; `s`: time passes, and nobody asks.
    """
    times, now_ms = SplitTimes(PLAN, (A, B)), 0
    empty_since: dict[SplitId, int | None] = {A: None, B: None}
    for kind, split, step in script:
        other = B if split == A else A
        now_ms += step
        if kind == "s":
            times.passed(_at(now_ms))
            continue
        if kind == "r":
            _reads(times, split, now_ms, now_ms)
            empty_since[split] = None
        elif kind == "q":
            times.answered(_batch(other, quiet=(split,)), _at(now_ms))
            empty_since[other] = None
            empty_since[split] = empty_since[split] if empty_since[split] is not None else now_ms
        else:
            times.answered(NothingYet(), _at(now_ms))
            for each in (A, B):
                empty_since[each] = empty_since[each] if empty_since[each] is not None else now_ms
        for each, part in zip((A, B), times.parts, strict=True):
            since = empty_since[each]
            if kind == "R" or (kind == "q" and each == split):
                assert since is not None
                assert part.idle == (now_ms - since >= 100)
            elif part.idle:
                assert since is not None
