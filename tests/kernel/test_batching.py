"""Batches made for the operator behind a channel: filled, cut, never held too long (E9)."""

from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.bad_rows import NOWHERE, Origin
from arkflow_kernel.envelope import (
    Barrier,
    Data,
    EndOfStream,
    Envelope,
    Idle,
    Reset,
    RoundKind,
    Watermark,
)
from arkflow_kernel.ids import ChannelId, CheckpointId, EventTimeMs, Generation, MonotonicMs, WallMs
from arkflow_kernel.ids import Sequence as Number
from arkflow_kernel.inline import InlineJob
from arkflow_kernel.limits import FRAME_BYTES_TARGET, LINGER_MS, MIB, SLICE_BYTES_MAX
from arkflow_kernel.outbox import Outbox
from arkflow_kernel.outlet import OutletRouter
from arkflow_kernel.plan import ChannelPlan, EdgeKind, OutletPlan
from arkflow_kernel.ports import Moment, OperatorResult
from arkflow_kernel.protocol import CreditGranted, OutcomeKind
from arkflow_kernel.testing.components import (
    Row,
    ScriptedComponents,
    ScriptedOperator,
    ScriptedSink,
    ScriptedSource,
    rows_batch,
    rows_of,
)
from arkflow_kernel.testing.plans import chain_plan, channel_plan, job_plan
from arkflow_kernel.testing.virtual_clock import VirtualClock

WAIT_MS = 50
ROWS = 8
G1 = Generation(1)
CHANNEL = ChannelId("edge[0-0]")


def _plan(rows: int = ROWS, wait_ms: int | None = WAIT_MS) -> ChannelPlan:
    return replace(channel_plan(), batch_rows=rows, batch_wait_ms=wait_ms)


def _give(outbox: Outbox, first: int, rows: int, now_ms: int = 0, size: int = 80) -> None:
    batch = rows_batch("a", range(first, first + rows))
    outbox.give(batch, size, MonotonicMs(now_ms))


def _left(outbox: Outbox, now_ms: int) -> list[Envelope]:
    return [emit.envelope for emit in outbox.emits(MonotonicMs(now_ms))]


def _numbers(envelopes: list[Envelope]) -> list[list[int]]:
    """The rows of each envelope of data."""
    return [
        [n for piece in each.pieces for _, n in rows_of(piece)]
        for each in envelopes
        if isinstance(each, Data)
    ]


def test_a_lone_row_waits_though_its_channel_is_idle_and_leaves_after_its_time() -> None:
    outbox = Outbox(_plan())
    _give(outbox, 0, 1, now_ms=3)
    assert _left(outbox, 3) == []
    assert outbox.deadline_ms() == 3 + WAIT_MS
    assert _left(outbox, 2 + WAIT_MS) == []
    assert _numbers(_left(outbox, 3 + WAIT_MS)) == [[0]]


def test_small_batches_fill_one_to_the_row_and_what_is_over_begins_the_next() -> None:
    outbox = Outbox(_plan())
    _give(outbox, 0, 5, now_ms=0)
    assert _left(outbox, 0) == []
    _give(outbox, 5, 5, now_ms=9)
    assert _numbers(_left(outbox, 9)) == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert outbox.deadline_ms() == 9 + WAIT_MS, "the rest came at 9"
    _give(outbox, 10, 6, now_ms=10)
    assert _numbers(_left(outbox, 10)) == [[8, 9, 10, 11, 12, 13, 14, 15]]


def test_a_batch_that_is_torn_is_as_large_as_its_parts() -> None:
    outbox = Outbox(_plan())
    _give(outbox, 0, 7, size=70)
    _give(outbox, 7, 7, size=71)
    (full,) = _left(outbox, 0)
    assert isinstance(full, Data)
    assert full.size_bytes + outbox.open_bytes == 141
    assert outbox.last_sequence == 2, "it is settled with the last of its rows"


def test_rows_of_many_bytes_fill_a_batch_beyond_a_frame_but_not_beyond_a_slice() -> None:
    outbox = Outbox(_plan(1_000))
    _give(outbox, 0, 1, size=FRAME_BYTES_TARGET)
    _give(outbox, 1, 1, size=FRAME_BYTES_TARGET)
    assert _left(outbox, 0) == []
    _give(outbox, 2, 1, size=SLICE_BYTES_MAX - MIB)
    assert _numbers(_left(outbox, 0)) == [[0, 1]]


def test_nothing_is_held_over_a_barrier_or_the_end() -> None:
    outbox = Outbox(_plan())
    barrier = Barrier(CheckpointId(1), G1, RoundKind.PERIODIC)
    _give(outbox, 0, 1)
    outbox.put(barrier)
    _give(outbox, 1, 1)
    outbox.put(EndOfStream())
    data, cut, more, end = _left(outbox, 0)
    assert (cut, end) == (barrier, EndOfStream())
    assert _numbers([data, more]) == [[0], [1]]


def test_a_watermark_waits_for_the_rows_that_fill_the_batch_before_it() -> None:
    """Else a source that says its time after every batch would let nothing be joined (W11)."""
    outbox = Outbox(_plan())
    for n in range(3):
        _give(outbox, n, 1)
        outbox.say(Watermark(EventTimeMs(n)), MonotonicMs(0))
    assert _left(outbox, 0) == []
    data, said = _left(outbox, WAIT_MS)
    assert _numbers([data]) == [[0, 1, 2]]
    assert said == Watermark(EventTimeMs(2))


def test_rows_that_end_an_idleness_do_not_join_those_before_it() -> None:
    outbox = Outbox(_plan())
    _give(outbox, 0, 1)
    outbox.say(Idle(), MonotonicMs(0))
    _give(outbox, 1, 1)
    assert _numbers(_left(outbox, 0)) == [[0]]
    assert _numbers(_left(outbox, WAIT_MS)) == [[1]]


def test_without_a_wait_batches_are_only_kept_small() -> None:
    outbox = Outbox(_plan(wait_ms=None))
    _give(outbox, 0, 1)
    assert _numbers(_left(outbox, 0)) == [[0]], "an idle channel sends at once"
    for n in range(1, 12):
        _give(outbox, n, 1)
    assert _numbers(_left(outbox, 0)) == [list(range(1, 9))]
    assert outbox.deadline_ms() == LINGER_MS


def test_rows_of_another_schema_begin_a_batch_of_their_own() -> None:
    outbox = Outbox(_plan())
    _give(outbox, 0, 3)
    other = rows_batch("a", [3]).replace_schema_metadata({"version": "2"})
    outbox.give(other, 10, MonotonicMs(0))
    assert _numbers(_left(outbox, 0)) == [[0, 1, 2]]


@given(
    rows=st.integers(1, 9),
    wait_ms=st.sampled_from([None, 1, 20]),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["give", "give", "give", "time", "watermark", "idle", "barrier"]),
            st.integers(1, 9),
        ),
        max_size=40,
    ),
)
def test_whatever_comes_rows_keep_their_order_and_no_batch_is_too_large_or_too_late(
    rows: int, wait_ms: int | None, steps: list[tuple[str, int]]
) -> None:
    outbox, now_ms, given_, left = Outbox(_plan(rows, wait_ms)), 0, 0, 0
    came_ms: list[int] = []
    outbox.put(Reset(G1))
    for round_, (what, number) in enumerate(steps):
        match what:
            case "give" if number <= rows:
                _give(outbox, given_, number, now_ms)
                given_, came_ms = given_ + number, [*came_ms, *[now_ms] * number]
            case "time":
                now_ms += number
            case "watermark":
                outbox.say(Watermark(EventTimeMs(given_)), MonotonicMs(now_ms))
            case "idle":
                outbox.say(Idle(), MonotonicMs(now_ms))
            case "barrier":
                outbox.put(Barrier(CheckpointId(round_ + 1), G1, RoundKind.PERIODIC))
        for envelope in _left(outbox, now_ms):
            if isinstance(envelope, Data):
                (numbers,) = _numbers([envelope])
                assert len(numbers) <= rows
                assert numbers == list(range(left, left + len(numbers)))
                left += len(numbers)
            elif isinstance(envelope, Watermark):
                assert envelope.time_ms <= left, "it was said of rows that have not left"
            elif isinstance(envelope, Barrier):
                assert left == given_, "rows are held over a barrier"
        outbox.validate()
        longest_ms = LINGER_MS if wait_ms is None else wait_ms
        assert all(now_ms - at < longest_ms for at in came_ms[left:]), "a row waits too long"
        at = Moment(MonotonicMs(now_ms), WallMs(0))
        outbox.granted(CreditGranted(at, CHANNEL, Number(_sent(outbox)), Number(0)))


def _sent(outbox: Outbox) -> int:
    return outbox.statistics().sent


def test_a_batch_that_is_larger_is_cut_before_it_leaves() -> None:
    outlet = OutletPlan(_plan().output, EdgeKind.FORWARD, (_plan(),))
    pieces = OutletRouter(outlet, "op").route(rows_batch("a", range(20)))
    assert [piece.batch.num_rows for piece in pieces] == [8, 8, 4]


def test_a_rebalanced_batch_is_dealt_in_pieces_of_that_size() -> None:
    channels = (_plan(), replace(_plan(), channel=ChannelId("edge[0-1]")))
    outlet = OutletPlan(_plan().output, EdgeKind.REBALANCE, channels)
    pieces = OutletRouter(outlet, "op").route(rows_batch("a", range(20)))
    assert [(piece.output, piece.batch.num_rows) for piece in pieces] == [
        ("edge[0-0]", 8),
        ("edge[0-1]", 8),
        ("edge[0-0]", 4),
    ]


class Noting(ScriptedOperator):
    """Notes when each batch came, and how many rows it had."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.clock = clock
        self.batches: list[tuple[int, int]] = []

    def process(self, batch: pa.RecordBatch, origin: Origin = NOWHERE) -> OperatorResult:
        self.batches.append((self.clock.now_ms, batch.num_rows))
        return super().process(batch, origin)


def _run(source: ScriptedSource, *, rows: int, wait_ms: int) -> tuple[Noting, list[Row]]:
    """A job of two chains, the second of which asks for batches; in virtual time."""
    clock, sink = VirtualClock(), ScriptedSink()
    operator = Noting(clock)
    channel = replace(
        channel_plan("edge", "read-0", "call-0"), batch_rows=rows, batch_wait_ms=wait_ms
    )
    graph = job_plan(
        chain_plan("read-0", sinks=(), channels=(channel,)),
        chain_plan("call-0", operators=("op",), inputs=(channel,)),
    )
    components = ScriptedComponents({"source": source}, {"op": operator}, {"sink": sink})
    outcome = InlineJob(graph, components, clock).wait()
    assert outcome.kind is OutcomeKind.FINISHED, outcome
    return operator, sink.published


def test_rows_that_come_one_by_one_reach_the_operator_in_batches() -> None:
    """One row each 20 ms, of which the first of each batch waits for 50 ms."""
    source = ScriptedSource({"a": (1,) * 9}, pause_every=2, pause_ms=20)
    operator, published = _run(source, rows=8, wait_ms=50)
    assert operator.batches == [(50, 3), (110, 3), (170, 3)]
    assert published == [("a", n) for n in range(9)]


def test_a_batch_that_is_full_does_not_wait() -> None:
    source = ScriptedSource({"a": (3,) * 4}, pause_every=2, pause_ms=20)
    operator, published = _run(source, rows=4, wait_ms=60_000)
    assert operator.batches == [(20, 4), (40, 4), (60, 4)]
    assert published == [("a", n) for n in range(12)]
