"""Sinks and channels of a chain under one roof: numbers, confirmation, ends (E1, E2, F3, F5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.envelope import Data, EndOfStream, Reset
from arkflow_kernel.errors import ChannelError, SinkError
from arkflow_kernel.ids import (
    ChannelId,
    Generation,
    MonotonicMs,
    OutputId,
    RequestToken,
    Sequence,
    WallMs,
)
from arkflow_kernel.limits import LINGER_MS, STALL_TIMEOUT_MS
from arkflow_kernel.output_lanes import OutputLanes
from arkflow_kernel.ports import Moment, WriteReceipt
from arkflow_kernel.protocol import CreditGranted, FlushSink, Piece, Write
from arkflow_kernel.testing.components import rows_batch
from arkflow_kernel.testing.plans import chain_plan, channel_plan

SINKS = (OutputId("s1"), OutputId("s2"))
CHANNELS = (OutputId("c1[0-0]"), OutputId("c2[0-0]"))
OUTPUTS = (*SINKS, *CHANNELS)
NOW = MonotonicMs(0)
BATCH = rows_batch("a", [1, 2])


class Lanes:
    """Two sinks and two channels; requests and envelopes are kept for the test to answer."""

    def __init__(self, capacity: int = 2) -> None:
        channels = [channel_plan(name, capacity=capacity) for name in ("c1", "c2")]
        self.lanes = OutputLanes(chain_plan(sinks=SINKS, channels=channels))
        self.tokens = 0
        self.writes: dict[OutputId, Write | FlushSink] = {}
        self.sent: dict[OutputId, list[object]] = {output: [] for output in CHANNELS}

    def _token(self) -> RequestToken:
        self.tokens += 1
        return RequestToken(self.tokens)

    def give(self, output: OutputId) -> bool:
        return self.lanes.give(Piece(output, BATCH, 10), NOW)

    def move(self, now_ms: int = 0) -> None:
        for request in self.lanes.requests(self._token, MonotonicMs(now_ms)):
            assert isinstance(request, Write | FlushSink)
            assert request.output not in self.writes, "one request is outstanding per sink"
            self.writes[request.output] = request
        for emit in self.lanes.emits(MonotonicMs(now_ms)):
            self.sent[OutputId(emit.channel)].append(emit.envelope)
        self.lanes.validate()

    def written(self, output: OutputId, upto: int) -> None:
        self.writes.pop(output, None)
        self.lanes.written(output, WriteReceipt(Sequence(upto)), NOW)

    def granted(self, output: OutputId, upto: int, settled: int) -> None:
        at = Moment(NOW, WallMs(0))
        event = CreditGranted(at, ChannelId(output), Sequence(upto), Sequence(settled))
        self.lanes.granted(event)


def test_outputs_stand_in_the_order_of_the_plan_sinks_first() -> None:
    lanes = Lanes().lanes
    assert len(lanes) == 4
    assert tuple(lanes.rows_to) == OUTPUTS
    assert all(lanes.has_sink(output) for output in SINKS)
    assert not any(lanes.has_sink(output) for output in CHANNELS)


steps = st.lists(
    st.tuples(st.sampled_from(["give", "give", "confirm", "move"]), st.integers(0, 3)), min_size=30
)


@given(steps)
def test_marks_and_confirmations_are_those_of_a_plain_count_per_output(
    script: list[tuple[str, int]],
) -> None:
    """Capacity 99 and one batch an envelope at most: each batch that leaves has its own number."""
    given_, confirmed = [0] * 4, [0] * 4
    all_ = Lanes(capacity=99)
    for what, index in script:
        output = OUTPUTS[index]
        if what == "give" and all_.give(output):
            given_[index] += 1
            all_.move(now_ms=given_[index] * LINGER_MS)
        elif what == "confirm" and index < 2 and output in all_.writes:
            confirmed[index] = int(getattr(all_.writes[output], "sequence", 0))
            all_.written(output, confirmed[index])
        elif what == "confirm" and index >= 2 and all_.sent[output]:
            data = [each for each in all_.sent[output] if isinstance(each, Data)]
            confirmed[index] = int(data[-1].sequence)
            all_.granted(output, confirmed[index], confirmed[index])
        all_.move(now_ms=10**6)
        marks = all_.lanes.marks()
        assert marks[:2] == tuple(given_[:2])
        assert all(mark <= count for mark, count in zip(marks, given_, strict=True))
        assert list(all_.lanes.confirmed()) == confirmed
        assert all_.lanes.settled == (list(marks) == confirmed)
        assert all_.lanes.confirmed_writes == sum(confirmed[:2])
        assert list(all_.lanes.rows_to.values()) == [2 * count for count in given_]


@pytest.mark.parametrize("output", OUTPUTS)
def test_an_output_without_room_takes_nothing_and_counts_nothing(output: OutputId) -> None:
    lanes = Lanes(capacity=1)
    taken = 0
    while lanes.give(output):
        lanes.move(now_ms=taken * LINGER_MS)
        taken += 1
        assert taken < 99
    assert lanes.lanes.rows_to[output] == 2 * taken
    assert lanes.lanes.held_bytes == (10 * taken if output in SINKS else 10 * (taken - 1))
    others = [other for other in OUTPUTS if other != output]
    assert all(lanes.give(other) for other in others), "the others go on"


def test_every_channel_starts_with_a_reset_and_ends_with_the_end_of_the_stream() -> None:
    lanes = Lanes()
    lanes.lanes.start(Generation(3))
    lanes.give(CHANNELS[0])
    lanes.lanes.end(stopped=True)
    lanes.move()
    first, second = (lanes.sent[output] for output in CHANNELS)
    assert [first[0], first[-1], len(first)] == [Reset(Generation(3)), EndOfStream(stopped=True), 3]
    assert second == [Reset(Generation(3)), EndOfStream(stopped=True)]


def test_a_flush_reaches_the_sinks_that_have_not_confirmed_everything() -> None:
    lanes = Lanes()
    lanes.give(SINKS[0])
    lanes.move()
    lanes.written(SINKS[0], 0)
    lanes.lanes.flush()
    assert not lanes.lanes.settled
    lanes.move()
    assert list(lanes.writes) == [SINKS[0]]
    assert isinstance(lanes.writes[SINKS[0]], FlushSink)
    lanes.written(SINKS[0], 1)
    assert lanes.lanes.settled


def test_faults_of_a_sink_and_of_a_peer_are_told_apart() -> None:
    lanes = Lanes()
    lanes.give(SINKS[0])
    lanes.move()
    with pytest.raises(SinkError, match="s1"):
        lanes.written(SINKS[0], 2)
    with pytest.raises(ChannelError, match="c2"):
        lanes.granted(CHANNELS[1], 1, 0)


def test_waits_name_every_output_that_stalls() -> None:
    lanes = Lanes(capacity=1)
    for output in (SINKS[0], CHANNELS[0]):
        lanes.give(output)
    lanes.move()
    lanes.give(CHANNELS[0])
    lanes.move(now_ms=LINGER_MS)
    names = [wait.on for wait in lanes.lanes.waits(MonotonicMs(STALL_TIMEOUT_MS))]
    assert names == ["sink 's1'", "channel c1[0-0]"]
    (first, second) = lanes.lanes.channel_statistics()
    assert (first.sent, first.taken, first.waiting_bytes) == (1, 0, 10)
    assert second.sent == 0


def test_the_earliest_deadline_of_all_outputs_counts() -> None:
    lanes = Lanes()
    assert lanes.lanes.deadline_ms() is None
    lanes.give(CHANNELS[1])
    lanes.move()
    lanes.give(CHANNELS[1])
    lanes.move()
    assert lanes.lanes.deadline_ms() == LINGER_MS
    lanes.give(SINKS[0])
    lanes.move()
    lanes.lanes.written(SINKS[0], WriteReceipt(Sequence(0), MonotonicMs(3)), NOW)
    assert lanes.lanes.deadline_ms() == 3
