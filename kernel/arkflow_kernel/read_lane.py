"""The read lane, the reading side of a chain's machine (B3): one read at once, one batch ahead.

A part of `task.py`, without commands of its own: it says whether to read, and keeps what was
read until the lane takes it. Sequences count the batches of each split that went to the lane; a
batch that was read ahead has none yet, so it is in no cut and no frontier.
"""

from collections import deque
from typing import NamedTuple

from arkflow_kernel.ids import MonotonicMs, RequestToken, Sequence, SplitId
from arkflow_kernel.limits import READ_AHEAD_BATCHES_MAX
from arkflow_kernel.metrics import Stopwatch
from arkflow_kernel.ports import NothingYet, SourceBatch, SourceEnded
from arkflow_kernel.protocol import BatchTime, SourceRead


class ReadBatch(NamedTuple):
    """A batch that was read, its bytes, and its event time if it has one."""

    batch: SourceBatch
    size_bytes: int
    time: BatchTime | None


class ReadLane:
    """Decides when to read. `rows_per_second` spaces the reads; None: as fast as possible.

    `nothing`: the chain has no source, so this one has ended before it began.
    """

    def __init__(self, rows_per_second: float | None = None, *, nothing: bool = False) -> None:
        self._rows_per_second = rows_per_second
        self._outstanding: RequestToken | None = None
        self._ahead: deque[ReadBatch] = deque()
        self._sequences: dict[SplitId, Sequence] = {}
        self._resume_ms: MonotonicMs | None = None
        self._due_ms = 0.0
        self._stopped = False
        self._ended = nothing
        self._held = Stopwatch()

    @property
    def exhausted(self) -> bool:
        """The source has ended and everything that was read is taken."""
        return self._ended and not self._ahead

    @property
    def quiet(self) -> bool:
        """No read is outstanding and none will follow."""
        return self._outstanding is None and (self._stopped or self._ended)

    @property
    def waiting(self) -> int:
        """Batches read and not yet taken."""
        return len(self._ahead)

    def wants_read(self, now_ms: MonotonicMs) -> bool:
        """Whether a read may be ordered now."""
        if self._stopped or self._ended or self._outstanding is not None:
            return False
        if len(self._ahead) >= READ_AHEAD_BATCHES_MAX:
            return False
        return self._resume_ms is None or now_ms >= self._resume_ms

    def reading(self, token: RequestToken) -> None:
        """A read was ordered."""
        assert self._outstanding is None
        self._outstanding = token

    @property
    def held_bytes(self) -> int:
        """Their bytes."""
        return sum(read.size_bytes for read in self._ahead)

    def answered(self, event: SourceRead) -> None:
        """The outstanding read was answered. What arrives after `stop` is left unread."""
        result, now_ms = event.result, event.at.now_ms
        self._outstanding = None
        self._resume_ms = None
        if self._stopped:
            return
        if isinstance(result, SourceEnded):
            self._ended = True
        elif isinstance(result, NothingYet):
            self._resume_ms = result.resume_ms
        else:
            self._ahead.append(ReadBatch(result, event.size_bytes, event.time))
            self._pace(result.batch.num_rows, now_ms)

    def take(self) -> tuple[ReadBatch, Sequence] | None:
        """The next batch for the lane, and its number in its split, or None."""
        if not self._ahead:
            return None
        read = self._ahead.popleft()
        split = read.batch.split
        sequence = self._sequences[split] = Sequence(self._sequences.get(split, 0) + 1)
        return read, sequence

    def look(self, now_ms: MonotonicMs) -> None:
        """The lane has taken what it had room for: what is left is held back (K6)."""
        self._held.look(so=bool(self._ahead), now_ms=now_ms)

    def held_ms(self, now_ms: MonotonicMs) -> int:
        """How long rows that were read waited for room so far."""
        return self._held.passed_ms(now_ms)

    def stop(self) -> None:
        """Read no further and forget what was read ahead: it was never in a frontier."""
        self._stopped = True
        self._ahead.clear()

    def deadline_ms(self) -> MonotonicMs | None:
        """When a read becomes possible that is not possible now, or None."""
        blocked = self._stopped or self._ended or self._outstanding is not None or self._ahead
        return None if blocked else self._resume_ms

    def validate(self) -> None:
        """Assert the bounds."""
        assert len(self._ahead) <= READ_AHEAD_BATCHES_MAX
        assert not (self._stopped and self._ahead)

    def _pace(self, rows: int, now_ms: MonotonicMs) -> None:
        if self._rows_per_second is None:
            return
        self._due_ms = max(self._due_ms, float(now_ms)) + rows * 1000.0 / self._rows_per_second
        self._resume_ms = MonotonicMs(int(self._due_ms))


__all__ = ["ReadBatch", "ReadLane"]
