"""The outbox of one outgoing channel: what waits for company, what waits for credit (E3, E4, W11).

A part of `task.py`. Small pieces are joined while the channel is busy: a channel with nothing
outstanding sends at once, a busy one waits for a full envelope, for its peer, or `LINGER_MS`.
Where the operator behind the channel asks for batches (E9), an idle channel waits like a busy one,
for as long as that operator allows.

    give ─▶ open envelope ─close─▶ queue ─credit─▶ Emit

Control takes its place behind the data before it and overtakes nothing (W11). Between two data
envelopes at most one watermark or idle waits (the newer replaces the older), and the barrier of
one round: a newer round means that the older ones have failed. Where no rows flow, a watermark is
held until `WATERMARK_INTERVAL_MS` after the one before (W13).
"""

from collections import deque
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa

from arkflow_kernel.channel import CreditLedger
from arkflow_kernel.envelope import (
    Barrier,
    Data,
    EndOfStream,
    Envelope,
    Idle,
    Reset,
    Watermark,
)
from arkflow_kernel.ids import ChainId, MonotonicMs, OutputId, Sequence
from arkflow_kernel.limits import (
    COALESCING_BYTES_MAX,
    FRAME_BYTES_TARGET,
    LINGER_MS,
    OUTBOX_QUEUED_MAX,
    SLICE_BYTES_MAX,
    SLICE_ROWS_MAX,
    STALL_TIMEOUT_MS,
    WATERMARK_INTERVAL_MS,
)
from arkflow_kernel.metrics import ChannelStatistics, Wait
from arkflow_kernel.plan import ChannelPlan
from arkflow_kernel.protocol import CreditGranted, Emit


class _Open:
    """The envelope that still takes pieces."""

    __slots__ = ("_limits", "pieces", "rows", "since_ms", "size")

    def __init__(self, limits: "_Limits", since_ms: MonotonicMs) -> None:
        self._limits = limits
        self.pieces: list[pa.RecordBatch] = []
        self.rows = 0
        self.size = 0
        self.since_ms = since_ms

    def room_for(self, batch: pa.RecordBatch, size_bytes: int) -> int:
        """How many of the batch's first rows fit in, by rows, bytes and schema.

        All or none of them, unless batches are to be filled.
        """
        same = self.pieces[0].schema.equals(batch.schema, check_metadata=True)
        if not same or self.size + size_bytes > SLICE_BYTES_MAX:
            return 0
        room = self._limits.rows - self.rows
        return min(room, batch.num_rows) if self._limits.fills or batch.num_rows <= room else 0

    @property
    def full(self) -> bool:
        """Large enough to leave."""
        return self.rows >= self._limits.rows or self.size >= self._limits.size


class _Limits:
    """When an envelope is large enough, and how long it waits for that (E3, E9)."""

    __slots__ = ("fills", "rows", "size", "wait_ms")

    def __init__(self, plan: ChannelPlan) -> None:
        self.rows = min(plan.batch_rows, SLICE_ROWS_MAX)
        self.fills = plan.batch_wait_ms is not None
        self.wait_ms = LINGER_MS if plan.batch_wait_ms is None else plan.batch_wait_ms
        self.size = SLICE_BYTES_MAX if self.fills else FRAME_BYTES_TARGET


class Outbox:
    """What one channel was given, what left, and what its peer has taken and settled."""

    def __init__(self, plan: ChannelPlan) -> None:
        self._plan = plan
        self._limits = _Limits(plan)
        self._ledger = CreditLedger(plan.channel, plan.capacity, plan.capacity_bytes)
        self._open: _Open | None = None
        self._behind: Watermark | Idle | None = None
        self._held: Watermark | None = None
        self._rows_since = False
        self._said_ms: MonotonicMs | None = None
        self._queue: deque[Envelope] = deque()
        self._queued = 0
        self._queued_bytes = 0
        self._closed = Sequence(0)
        self._progress_ms: MonotonicMs | None = None

    @property
    def output(self) -> OutputId:
        """The channel, as an output of the chain."""
        return self._plan.output

    @property
    def peer(self) -> ChainId:
        """The chain that receives."""
        return self._plan.target

    @property
    def last_sequence(self) -> Sequence:
        """Number of the envelope that holds the last batch that was given."""
        return Sequence(self._closed + (self._open is not None))

    @property
    def confirmed_upto(self) -> Sequence:
        """Number up to which everything is settled (F3)."""
        return self._ledger.settled

    @property
    def has_room(self) -> bool:
        """Whether another batch may be given."""
        return self._queued < OUTBOX_QUEUED_MAX

    @property
    def holds(self) -> bool:
        """Whether something waits here."""
        return bool(self._queue) or self._open is not None or self._held is not None

    @property
    def settled(self) -> bool:
        """Nothing waits, and the peer has settled everything."""
        waits = bool(self._queue) or self._held is not None
        return not waits and self._ledger.settled == self.last_sequence

    @property
    def open_bytes(self) -> int:
        """Bytes that wait for company."""
        return 0 if self._open is None else self._open.size

    @property
    def held_bytes(self) -> int:
        """Bytes that wait here: not yet sent."""
        return self._queued_bytes + self.open_bytes

    def give(self, batch: pa.RecordBatch, size_bytes: int, now_ms: MonotonicMs) -> None:
        """Queue a batch that is not empty; only when `has_room`."""
        assert self.has_room
        assert batch.num_rows
        self._release()
        room = self._room_for(batch, size_bytes)
        if 0 < room < batch.num_rows:
            share = size_bytes * room // batch.num_rows
            self._join(batch.slice(0, room), share, now_ms)
            batch, size_bytes = batch.slice(room), size_bytes - share
        elif not room:
            self.close_open()
        self._join(batch, size_bytes, now_ms)

    def _room_for(self, batch: pa.RecordBatch, size_bytes: int) -> int:
        """How many of its rows may join the open envelope.

        A watermark that waits behind that may wait for more rows, if they are to be joined: it
        holds for them, too. After `Idle` the rows must not pass for earlier ones (W2).
        """
        if self._open is None:
            return batch.num_rows
        if self._behind is not None and not (
            self._limits.fills and isinstance(self._behind, Watermark)
        ):
            return 0
        return self._open.room_for(batch, size_bytes)

    def _join(self, batch: pa.RecordBatch, size_bytes: int, now_ms: MonotonicMs) -> None:
        if self._open is None:
            self._open = _Open(self._limits, now_ms)
        self._open.pieces.append(batch)
        self._open.rows += batch.num_rows
        self._open.size += size_bytes
        if self._open.full:
            self.close_open()

    def say(self, said: Watermark | Idle, now_ms: MonotonicMs) -> None:
        """Queue what is to be said of time behind everything that was given."""
        if self._open is not None:
            self._behind = said
        elif isinstance(said, Watermark) and not self._queue and self._said_lately(now_ms):
            self._held = said
        else:
            self._held = None
            self._append(said)

    def _said_lately(self, now_ms: MonotonicMs) -> bool:
        """A watermark has left, no rows since, and not long ago. Idle is ended at once (W2)."""
        if self._rows_since or self._said_ms is None:
            return False
        return now_ms - self._said_ms < WATERMARK_INTERVAL_MS

    def _release(self) -> None:
        """What is held takes its place, before anything that follows it."""
        held, self._held = self._held, None
        if held is not None:
            self._append(held)

    def put(self, control: Barrier | Reset | EndOfStream) -> None:
        """Queue control behind everything that was given."""
        self._release()
        self.close_open()
        if isinstance(control, Barrier) and any(isinstance(e, Barrier) for e in self._queue):
            # The rounds of those that still wait here have failed: a newer one has been opened.
            waiting, self._queue = self._queue, deque()
            for envelope in waiting:
                if not isinstance(envelope, Barrier):
                    self._append(envelope)
        self._queue.append(control)

    def _append(self, envelope: Envelope) -> None:
        """At the end of the queue, where a watermark or idle gives way to a newer one."""
        light = isinstance(envelope, Watermark | Idle)
        self._rows_since &= not light
        if light and self._queue and isinstance(self._queue[-1], Watermark | Idle):
            self._queue[-1] = envelope
        else:
            self._queue.append(envelope)

    def close_open(self) -> None:
        """The open envelope takes no more pieces; what waits behind it follows."""
        opened, self._open = self._open, None
        if opened is not None:
            self._closed = Sequence(self._closed + 1)
            self._queue.append(Data(self._closed, tuple(opened.pieces), opened.size))
            self._queued += 1
            self._queued_bytes += opened.size
            self._rows_since = True
        if self._behind is not None:
            self._append(self._behind)
            self._behind = None

    def emits(self, now_ms: MonotonicMs) -> Iterator[Emit]:
        """Take off what may leave now."""
        if self._open is not None and self._due(self._open, now_ms):
            self.close_open()
        if self._held is not None and not self._said_lately(now_ms):
            self._release()
        while self._queue:
            envelope = self._queue[0]
            if isinstance(envelope, Data):
                if not self._ledger.can_send(envelope.size_bytes):
                    return
                sequence = self._ledger.send(envelope.size_bytes)
                assert sequence == envelope.sequence
                self._queued -= 1
                self._queued_bytes -= envelope.size_bytes
                self._progress_ms = now_ms
            elif isinstance(envelope, Watermark):
                self._said_ms = now_ms
            elif isinstance(envelope, Idle):
                self._said_ms = None
            self._queue.popleft()
            yield Emit(self._plan.channel, envelope)

    def granted(self, event: CreditGranted) -> None:
        """The peer's word. `ChannelError` if it cannot be true."""
        if self._ledger.granted(event.taken_upto, event.settled_upto):
            self._progress_ms = event.at.now_ms

    def deadline_ms(self) -> MonotonicMs | None:
        """When the open envelope leaves without company, or the held watermark."""
        if self._held is not None and self._said_ms is not None:
            return MonotonicMs(self._said_ms + WATERMARK_INTERVAL_MS)
        if self._open is None or self._queued:
            return None
        return MonotonicMs(self._open.since_ms + self._limits.wait_ms)

    def wait(self, now_ms: MonotonicMs) -> Wait | None:
        """What it has waited for, for too long (E5): credit only; to be settled may take long."""
        if self._progress_ms is None or not self._queued:
            return None
        waited = now_ms - self._progress_ms
        if waited < STALL_TIMEOUT_MS:
            return None
        ledger, plan = self._ledger, self._plan
        detail = (
            f"chain '{plan.target}' gives no credit: {ledger.outstanding} of {plan.capacity} "
            f"envelopes and {ledger.outstanding_bytes:,} of {plan.capacity_bytes:,} bytes are out"
        )
        return Wait(f"channel {plan.channel}", detail, waited)

    def statistics(self) -> ChannelStatistics:
        """An immutable snapshot."""
        ledger = self._ledger
        return ChannelStatistics(
            self._plan.channel,
            int(ledger.sent),
            int(ledger.taken),
            int(ledger.settled),
            self.held_bytes,
            ledger.outstanding_bytes,
        )

    def validate(self) -> None:
        """Assert the bounds of E3 and E4."""
        self._ledger.validate()
        assert self._queued <= OUTBOX_QUEUED_MAX + 1
        data = [envelope for envelope in self._queue if isinstance(envelope, Data)]
        assert len(data) == self._queued
        assert sum(envelope.size_bytes for envelope in data) == self._queued_bytes
        assert self._behind is None or self._open is not None
        assert self._held is None or not (self._queue or self._open)
        assert sum(isinstance(e, Barrier) for e in self._queue) <= 1
        kinds = [isinstance(envelope, Watermark | Idle) for envelope in self._queue]
        assert not any(a and b for a, b in pairwise(kinds))

    def _due(self, opened: _Open, now_ms: MonotonicMs) -> bool:
        """Waiting control is no reason to wait: it leaves before the data that follow it."""
        idle = not self._queued and self._ledger.outstanding == 0
        if idle and not self._limits.fills:
            return True
        return now_ms - opened.since_ms >= self._limits.wait_ms


def limit_open_bytes(outboxes: list[Outbox]) -> None:
    """Keep what all outboxes of a chain hold back below `COALESCING_BYTES_MAX` (E3)."""
    while sum(outbox.open_bytes for outbox in outboxes) > COALESCING_BYTES_MAX:
        max(outboxes, key=lambda outbox: outbox.open_bytes).close_open()


__all__ = ["Outbox", "limit_open_bytes"]
