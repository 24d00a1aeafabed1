"""The outbox of a channel against a plain list: order, company, credit (E3, E4, E5, W11)."""

from collections import deque
from typing import ClassVar

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

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
from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import ChannelId, CheckpointId, EventTimeMs, Generation, MonotonicMs, WallMs
from arkflow_kernel.ids import Sequence as Number
from arkflow_kernel.limits import (
    COALESCING_BYTES_MAX,
    FRAME_BYTES_TARGET,
    LINGER_MS,
    MIB,
    SLICE_BYTES_MAX,
    SLICE_ROWS_MAX,
    STALL_TIMEOUT_MS,
    WATERMARK_INTERVAL_MS,
)
from arkflow_kernel.outbox import Outbox, limit_open_bytes
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import CreditGranted
from arkflow_kernel.testing.components import rows_batch
from arkflow_kernel.testing.plans import channel_plan

BASE = rows_batch("a", range(2 * SLICE_ROWS_MAX))
SCHEMAS = (BASE.schema, BASE.schema.with_metadata({"version": "2"}))
CHANNEL = ChannelId("edge[0-0]")
G1 = Generation(1)


def _batch(rows: int, schema: int = 0) -> pa.RecordBatch:
    return BASE.slice(0, rows).replace_schema_metadata(SCHEMAS[schema].metadata)


def _credit(now_ms: int, taken: int, settled: int = 0) -> CreditGranted:
    at = Moment(MonotonicMs(now_ms), WallMs(0))
    return CreditGranted(at, CHANNEL, Number(taken), Number(settled))


def _emitted(outbox: Outbox, now_ms: int) -> list[Envelope]:
    emits = list(outbox.emits(MonotonicMs(now_ms)))
    assert all(emit.channel == CHANNEL for emit in emits)
    return [emit.envelope for emit in emits]


class Given:
    """A batch that was given: when, and the number of the envelope that is to hold it."""

    def __init__(self, batch: pa.RecordBatch, size: int, at_ms: int, mark: int) -> None:
        self.batch, self.size, self.at_ms, self.mark = batch, size, at_ms, mark


class OutboxMachine(RuleBasedStateMachine):
    """What was given and has not left is a plain list; what leaves must be its beginning."""

    capacity: ClassVar[int] = 3
    capacity_bytes: ClassVar[int] = 3 * MIB

    def __init__(self) -> None:
        super().__init__()
        plan = channel_plan(capacity=self.capacity, capacity_bytes=self.capacity_bytes)
        self.outbox = Outbox(plan)
        self.pending: deque[Given | Envelope] = deque()
        self.now_ms = self.sent = self.taken = self.settled = self.rounds = 0
        self.sizes: list[int] = []
        self.said_ms: int | None = None
        self.refused: list[tuple[int, int]] = []
        self.put(Reset(G1))

    # --- what may happen -----------------------------------------------------------------------

    @precondition(lambda self: self.outbox.has_room)
    @rule(
        rows=st.sampled_from([1, 100, SLICE_ROWS_MAX // 2, SLICE_ROWS_MAX - 1, SLICE_ROWS_MAX]),
        size=st.sampled_from([10, 1_000, MIB // 3, MIB - 1, MIB, SLICE_BYTES_MAX, 20 * MIB]),
        schema=st.sampled_from([0, 0, 0, 1]),
    )
    def give(self, rows: int, size: int, schema: int) -> None:
        batch = _batch(rows, schema)
        self.outbox.give(batch, size, MonotonicMs(self.now_ms))
        mark = int(self.outbox.last_sequence)
        self.pending.append(Given(batch, size, self.now_ms, mark))

    @rule(time_ms=st.integers(0, 99))
    def watermark(self, time_ms: int) -> None:
        self.say(Watermark(EventTimeMs(time_ms)))

    @rule()
    def idle(self) -> None:
        self.say(Idle())

    def say(self, said: Watermark | Idle) -> None:
        self.outbox.say(said, MonotonicMs(self.now_ms))
        self.expect(said)

    @rule()
    def barrier(self) -> None:
        """A newer round means that the older ones have failed."""
        self.rounds += 1
        waiting, self.pending = self.pending, deque()
        for each in waiting:
            if isinstance(each, Given):
                self.pending.append(each)
            elif not isinstance(each, Barrier):
                self.expect(each)
        self.put(Barrier(CheckpointId(self.rounds), G1, RoundKind.PERIODIC))

    def put(self, control: Barrier | Reset | EndOfStream) -> None:
        self.outbox.put(control)
        self.expect(control)

    def expect(self, control: Envelope) -> None:
        light = isinstance(control, Watermark | Idle)
        if light and self.pending and isinstance(self.pending[-1], Watermark | Idle):
            self.pending.pop()  # the newer replaces the older
        self.pending.append(control)

    @rule(taken=st.integers(0, 4), settled=st.integers(0, 4))
    def grant(self, taken: int, settled: int) -> None:
        self.taken = min(self.taken + taken, self.sent)
        self.settled = min(self.settled + settled, self.taken)
        self.outbox.granted(_credit(self.now_ms, self.taken, self.settled))

    @rule(by_ms=st.sampled_from([0, 0, 1, LINGER_MS - 1, LINGER_MS, WATERMARK_INTERVAL_MS]))
    def emit(self, by_ms: int) -> None:
        self.now_ms += by_ms
        for envelope in _emitted(self.outbox, self.now_ms):
            if isinstance(envelope, Data):
                self._data_left(envelope)
            else:
                assert self.pending.popleft() == envelope
                if isinstance(envelope, Watermark | Idle):
                    self.said_ms = self.now_ms if isinstance(envelope, Watermark) else None
        self._nothing_more_could_leave()

    # --- what must hold ------------------------------------------------------------------------

    def _data_left(self, data: Data) -> None:
        count, size = self.sent - self.taken, sum(self.sizes[self.taken :])
        assert self._credit_for(count, size, data.size_bytes)
        assert not any(self._credit_for(*was, data.size_bytes) for was in self.refused)
        self.refused.clear()
        self.sent += 1
        self.sizes.append(data.size_bytes)
        assert data.sequence == self.sent
        held = [self.pending.popleft() for _ in data.pieces]
        total = 0
        for piece, each in zip(data.pieces, held, strict=True):
            assert isinstance(each, Given), "control was overtaken"
            assert piece is each.batch
            assert each.mark == data.sequence
            total += each.size
        assert total == data.size_bytes
        assert len({piece.schema.metadata is None for piece in data.pieces}) == 1
        if len(data.pieces) > 1:
            assert data.num_rows <= SLICE_ROWS_MAX
            assert data.size_bytes <= SLICE_BYTES_MAX

    def _credit_for(self, count: int, size: int, more: int) -> bool:
        return count == 0 or (count < self.capacity and size + more <= self.capacity_bytes)

    def _nothing_more_could_leave(self) -> None:
        if not self.pending:
            assert self.outbox.deadline_ms() is None
            return
        head = self.pending[0]
        if isinstance(head, Watermark):
            assert len(self.pending) == 1
            assert self.said_ms is not None, "nothing was said before, or the edge was idle"
            assert self.now_ms < self.said_ms + WATERMARK_INTERVAL_MS, "held too long (W13)"
            assert self.outbox.deadline_ms() == self.said_ms + WATERMARK_INTERVAL_MS
            return
        assert isinstance(head, Given), "control takes no credit"
        count, size = self.sent - self.taken, sum(self.sizes[self.taken :])
        assert count > 0, "an idle channel sends at once"
        if self.outbox.held_bytes > self.outbox.open_bytes:
            self.refused.append((count, size))  # by its size, when it leaves
            assert self.outbox.deadline_ms() is None, "only credit can help"
            return
        given_ = [each for each in self.pending if isinstance(each, Given)]
        assert sum(each.batch.num_rows for each in given_) < SLICE_ROWS_MAX
        assert sum(each.size for each in given_) < FRAME_BYTES_TARGET
        assert self.now_ms < head.at_ms + LINGER_MS, "waited long enough for company"
        assert self.outbox.deadline_ms() == head.at_ms + LINGER_MS

    @invariant()
    def the_bounds_hold(self) -> None:
        self.outbox.validate()
        waiting = [each for each in self.pending if isinstance(each, Given)]
        assert self.outbox.held_bytes == sum(each.size for each in waiting)
        assert self.outbox.last_sequence == (waiting[-1].mark if waiting else self.sent)
        assert self.outbox.confirmed_upto == self.settled
        assert self.outbox.settled == (not self.pending and self.settled == self.sent)
        assert len({each.mark for each in waiting}) <= 4
        statistics = self.outbox.statistics()
        told = statistics.sent, statistics.taken, statistics.settled
        assert told == (self.sent, self.taken, self.settled)
        assert statistics.outstanding_bytes == sum(self.sizes[self.taken :])

    def teardown(self) -> None:
        """Nothing is lost: with the end of the stream and credit, all of it leaves."""
        self.put(EndOfStream())
        assert self.outbox.open_bytes == 0
        while self.pending:
            self.grant(99, 99)
            self.emit(0)
        assert self.outbox.has_room
        self.grant(99, 99)
        assert self.outbox.settled


class NarrowMachine(OutboxMachine):
    """One envelope may be out."""

    capacity = 1
    capacity_bytes = MIB


class WideMachine(OutboxMachine):
    """Credit never runs out in so few steps: company is all that batches wait for."""

    capacity = 1_000
    capacity_bytes = 10_000 * MIB


RELAXED = settings(
    deadline=None,
    max_examples=60,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)
TestOutbox = OutboxMachine.TestCase
TestNarrowOutbox = NarrowMachine.TestCase
TestWideOutbox = WideMachine.TestCase
TestOutbox.settings = TestNarrowOutbox.settings = TestWideOutbox.settings = RELAXED


# --- single facts ------------------------------------------------------------------------------


def _outbox(capacity: int = 2, edge: str = "edge") -> Outbox:
    return Outbox(channel_plan(edge, capacity=capacity))


def _give(outbox: Outbox, now_ms: int = 0, size: int = 10) -> None:
    outbox.give(_batch(1), size, MonotonicMs(now_ms))


def test_small_pieces_leave_together_when_the_channel_gets_idle() -> None:
    outbox = _outbox()
    for _ in range(3):
        _give(outbox)
        sent = _emitted(outbox, 0)
    assert sent == []
    outbox.granted(_credit(1, 1))
    (data,) = _emitted(outbox, 1)
    assert isinstance(data, Data)
    assert len(data.pieces) == 2


def test_control_behind_an_open_envelope_waits_with_it_and_lets_nothing_join() -> None:
    outbox = _outbox(capacity=9)
    _give(outbox)
    _emitted(outbox, 0)
    _give(outbox)
    outbox.say(Watermark(EventTimeMs(1)), MonotonicMs(0))
    outbox.say(Idle(), MonotonicMs(0))
    outbox.say(Watermark(EventTimeMs(2)), MonotonicMs(0))
    assert _emitted(outbox, 0) == []
    _give(outbox)
    first, mark = _emitted(outbox, 0)
    assert isinstance(first, Data)
    assert len(first.pieces) == 1
    assert mark == Watermark(EventTimeMs(2))
    assert _emitted(outbox, LINGER_MS - 1) == []
    assert len(_emitted(outbox, LINGER_MS)) == 1


def test_a_credit_that_cannot_be_true_is_the_peers_fault() -> None:
    outbox = _outbox()
    _give(outbox)
    _emitted(outbox, 0)
    with pytest.raises(ChannelError):
        outbox.granted(_credit(0, 2))


def test_a_sender_without_credit_says_after_thirty_seconds_what_it_waits_for() -> None:
    outbox = _outbox(capacity=1)
    _give(outbox)
    _emitted(outbox, 5)
    _give(outbox)
    _emitted(outbox, 100)
    assert outbox.wait(MonotonicMs(5 + STALL_TIMEOUT_MS - 1)) is None
    wait = outbox.wait(MonotonicMs(5 + STALL_TIMEOUT_MS))
    assert wait is not None
    assert wait.on == "channel edge[0-0]"
    assert wait.waited_ms == STALL_TIMEOUT_MS
    assert wait.detail == (
        "chain 'chain-1' gives no credit: 1 of 1 envelopes and 10 of 33,554,432 bytes are out"
    )
    outbox.granted(_credit(40_000, 1))
    _emitted(outbox, 40_000)
    assert outbox.wait(MonotonicMs(10**9)) is None, "what is out may take long to be settled"


def test_what_all_outboxes_of_a_chain_keep_back_is_bounded_and_the_largest_goes_first() -> None:
    boxes = [_outbox(9, f"e{n}") for n in range(20)]
    for box in boxes:
        _give(box)
        list(box.emits(MonotonicMs(0)))
        _give(box, size=FRAME_BYTES_TARGET - 1)
    _give(boxes[7], size=0)
    boxes[3].close_open()
    _give(boxes[3], size=100)
    open_before = sum(box.open_bytes for box in boxes)
    assert open_before > COALESCING_BYTES_MAX
    limit_open_bytes(boxes)
    left = [box.open_bytes for box in boxes]
    assert sum(left) <= COALESCING_BYTES_MAX
    assert sum(left) + FRAME_BYTES_TARGET > COALESCING_BYTES_MAX, "no more than needed"
    assert left[3] == 100, "the small one was left alone"
    limit_open_bytes(boxes)
    assert [box.open_bytes for box in boxes] == left
