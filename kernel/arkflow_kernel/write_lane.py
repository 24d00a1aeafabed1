"""The write lane, the writing side of a chain's machine: one per sink (T1, F2).

A part of `task.py`. One request is outstanding per sink and at most two writes are queued behind
it; a seal passes behind the writes before it, and a flush behind all (F4). `confirmed_upto` may lag
behind what was written.
"""

from collections import deque
from dataclasses import dataclass

import pyarrow as pa

from arkflow_kernel.errors import SinkError
from arkflow_kernel.ids import MonotonicMs, OutputId, RequestToken, Sequence
from arkflow_kernel.limits import STALL_TIMEOUT_MS, WRITES_QUEUED_MAX
from arkflow_kernel.metrics import Wait
from arkflow_kernel.ports import WriteReceipt
from arkflow_kernel.protocol import FlushSink, RollSink, SealSink, Write, WriteRequest
from arkflow_kernel.snapshot import Epoch

_VERBS: dict[type, str] = {
    Write: "a write has not returned",
    RollSink: "a roll has not returned",
    FlushSink: "a flush has not returned",
    SealSink: "the seal of a checkpoint has not returned",
}


@dataclass(frozen=True, slots=True)
class _Queued:
    sequence: Sequence
    batch: pa.RecordBatch
    size_bytes: int


class WriteLane:
    """What one sink was given and what it confirmed. `stages`: it confirms nothing, but stages."""

    def __init__(self, output: OutputId, *, stages: bool = False) -> None:
        self._output = output
        self._stages = stages
        self._queue: deque[_Queued | Epoch] = deque()
        self._queued = 0
        self._outstanding: WriteRequest | None = None
        self._since_ms = MonotonicMs(0)
        self._writing_bytes = 0
        self._given = Sequence(0)
        self._written = Sequence(0)
        self._confirmed = Sequence(0)
        self._roll_at_ms: MonotonicMs | None = None
        self._flushing = False

    @property
    def last_sequence(self) -> Sequence:
        """Number of the last batch that it was given."""
        return self._given

    @property
    def confirmed_upto(self) -> Sequence:
        """Number of the last batch that it confirmed, with all before it."""
        return self._confirmed

    @property
    def has_room(self) -> bool:
        """Whether another batch may be given."""
        return self._queued < WRITES_QUEUED_MAX

    @property
    def settled(self) -> bool:
        """Nothing is queued, outstanding or unconfirmed."""
        return not self._queue and self._outstanding is None and self._confirmed == self._given

    @property
    def held_bytes(self) -> int:
        """Bytes of the batches that wait or are being written."""
        waiting = (queued.size_bytes for queued in self._queue if isinstance(queued, _Queued))
        return self._writing_bytes + sum(waiting)

    def give(self, batch: pa.RecordBatch, size_bytes: int, now_ms: MonotonicMs) -> None:
        """Queue a batch; only when `has_room`."""
        del now_ms
        assert self.has_room
        self._given = Sequence(self._given + 1)
        self._queue.append(_Queued(self._given, batch, size_bytes))
        self._queued += 1

    def seal(self, epoch: Epoch) -> None:
        """What was given so far belongs to this epoch: stage or confirm it (F4)."""
        self._queue.append(epoch)

    def flush(self) -> None:
        """Confirm everything that was given, soon. Nothing is given afterwards."""
        self._flushing = True

    def next_request(self, token: RequestToken, now_ms: MonotonicMs) -> WriteRequest | None:
        """The request to order now, or None; `token` is used only if one is returned."""
        if self._outstanding is not None:
            return None
        self._since_ms = now_ms
        if self._roll_due(now_ms):
            self._outstanding = RollSink(token, self._output)
        elif self._queue:
            self._outstanding = self._taken(token, self._queue.popleft())
        elif self._flushing and self._confirmed < self._given:
            self._outstanding = FlushSink(token, self._output)
        return self._outstanding

    def _taken(self, token: RequestToken, queued: _Queued | Epoch) -> WriteRequest:
        if not isinstance(queued, _Queued):
            return SealSink(token, self._output, queued)
        self._queued -= 1
        self._written = queued.sequence
        self._writing_bytes = queued.size_bytes
        return Write(token, self._output, queued.sequence, queued.batch)

    def answered(self, receipt: WriteReceipt, now_ms: MonotonicMs) -> Epoch | None:
        """The outstanding request was answered; the epoch if it was a seal.

        `SinkError` if a seal or a flush confirmed too little.
        """
        request, self._outstanding = self._outstanding, None
        self._since_ms, self._writing_bytes = now_ms, 0
        assert request is not None
        if not self._stages and not self._confirmed <= receipt.confirmed_upto <= self._written:
            raise SinkError(
                f"sink '{self._output}' confirmed write {receipt.confirmed_upto}, outside of "
                f"{self._confirmed} to {self._written}: a fault of this output's code"
            )
        if not self._stages:
            self._confirmed = receipt.confirmed_upto
        self._roll_at_ms = receipt.roll_at_ms
        confirms = isinstance(request, FlushSink | SealSink) and not self._stages
        if confirms and self._confirmed < self._written:
            raise SinkError(
                f"sink '{self._output}' did not confirm all writes when it was flushed: "
                f"{self._confirmed} of {self._written}; a fault of this output's code"
            )
        return request.epoch if isinstance(request, SealSink) else None

    def wait(self, now_ms: MonotonicMs) -> Wait | None:
        """The request that the sink has not answered for too long (E5)."""
        waited = now_ms - self._since_ms
        if self._outstanding is None or waited < STALL_TIMEOUT_MS:
            return None
        return Wait(f"sink '{self._output}'", _VERBS[type(self._outstanding)], waited)

    def deadline_ms(self) -> MonotonicMs | None:
        """When a roll is due; a flush makes every later roll pointless."""
        blocked = self._outstanding is not None or self._flushing
        return None if blocked else self._roll_at_ms

    def _roll_due(self, now_ms: MonotonicMs) -> bool:
        """Before the queued writes: a busy sink would never get to roll."""
        due = self._roll_at_ms is not None and now_ms >= self._roll_at_ms
        return due and not self._flushing

    def validate(self) -> None:
        """Assert the bounds."""
        writes = sum(isinstance(queued, _Queued) for queued in self._queue)
        assert writes == self._queued <= WRITES_QUEUED_MAX
        assert self._confirmed <= self._written <= self._given


__all__ = ["WriteLane"]
