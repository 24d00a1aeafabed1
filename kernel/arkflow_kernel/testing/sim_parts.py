"""Source, operator and sink of the simulation: what they do is drawn, and costs next to nothing.

Unlike those of `components.py` they are not told what to do by functions but by small numbers:
every `n`-th row is dropped, rejected or failed on, 0 for none.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import pyarrow as pa

from arkflow_kernel.bad_rows import NOWHERE, Origin
from arkflow_kernel.ids import MonotonicMs, Sequence, SplitId
from arkflow_kernel.ports import (
    NothingYet,
    OperatorResult,
    ReadResult,
    ReplayKind,
    SourceBatch,
    SourceEnded,
    Split,
    SplitPosition,
    WriteReceipt,
)
from arkflow_kernel.testing.sim_rows import (
    BAD_SCHEMA,
    SPLIT_ROWS,
    batch_of,
    rows_of,
    split_name,
    split_number,
)
from arkflow_kernel.testing.sim_times import TimeScript

Cached = tuple[pa.RecordBatch, pa.RecordBatch | None]


def every(step: int, row: int) -> bool:
    """Whether the row is the last of every `step` rows of its split; never if 0."""
    return step > 0 and row % SPLIT_ROWS % step == step - 1


@dataclass(frozen=True)
class SourceScript:
    """One subtask of a source: `sizes` are the rows of each batch, by split.

    An `unbounded` one does not end: it has nothing more for now. With `time`, rows have times.
    """

    sizes: dict[int, tuple[int, ...]]
    commits: bool = False
    pause_every: int = 0
    pause_ms: int | None = None
    bad: int = 0
    unbounded: bool = False
    time: TimeScript | None = None
    cache: dict[tuple[int, int, int], Cached] = field(default_factory=dict)

    def rows(self, split: int) -> int:
        """How many rows the split has."""
        return sum(self.sizes[split])

    def splits(self) -> tuple[Split, ...]:
        """All of them; each is as large as it has rows."""
        return tuple(Split(split_name(each), self.rows(each)) for each in sorted(self.sizes))

    def batch(self, split: int, first: int, end: int) -> Cached:
        """The good and the bad rows from `first` to before `end`; made once a job."""
        known = self.cache.get((split, first, end))
        if known is None:
            rows = [split * SPLIT_ROWS + n for n in range(first, end)]
            bad = [row for row in rows if every(self.bad, row)]
            good = [row for row in rows if not every(self.bad, row)]
            batch = batch_of(good)
            batch = batch if self.time is None else self.time.with_times(batch, good)
            known = batch, batch_of(bad, BAD_SCHEMA) if bad else None
            self.cache[split, first, end] = known
        return known


@dataclass(frozen=True)
class OperatorScript:
    """One operator, the same in all subtasks. `at_finish`: so many rows does `finish` yield."""

    pieces: int = 1
    drops: int = 0
    rejects: int = 0
    fails: int = 0
    at_finish: int = 0


@dataclass(frozen=True)
class SinkScript:
    """One sink. A `slow` one is worked off only once in so many times that its turn comes."""

    lag: int = 0
    roll_ms: int | None = None
    slow: int = 1


class SimSource:
    """Reads its splits in turn; restores at any row."""

    replay = ReplayKind.POSITION

    def __init__(self, script: SourceScript) -> None:
        self._script = script
        self._next = dict.fromkeys(script.sizes, 0)
        self._reads = 0
        self.committed: list[tuple[SplitPosition, ...]] = []

    @property
    def commits(self) -> bool:
        """As drawn."""
        return self._script.commits

    def list_splits(self, restored: Seq[SplitPosition]) -> Seq[Split]:
        """All splits of the script."""
        del restored
        return self._script.splits()

    def open(self, restored: Seq[SplitPosition], assigned: Seq[SplitId] | None = None) -> None:
        """Continue at the restored positions, in the assigned splits alone."""
        if assigned is not None:
            self._next = {split_number(split): 0 for split in assigned}
        for position in restored:
            row = position.position["row"]
            assert isinstance(row, int)
            assert split_number(position.split) in self._next, "a position of a foreign split"
            self._next[split_number(position.split)] = row

    def splits(self) -> Seq[SplitId]:
        """Those that are not read to their end; all of an unbounded source."""
        script = self._script
        left = sorted(s for s, n in self._next.items() if script.unbounded or n < script.rows(s))
        return tuple(split_name(split) for split in left)

    def read(self, now_ms: MonotonicMs) -> ReadResult:
        """The next batch of the split that is least far, or a pause."""
        script = self._script
        self._reads += 1
        if script.pause_every and self._reads % script.pause_every == 0:
            pause = script.pause_ms
            return NothingYet(None if pause is None else MonotonicMs(now_ms + pause))
        left = [(n, split) for split, n in self._next.items() if n < script.rows(split)]
        if not left:
            return NothingYet(MonotonicMs(now_ms + 40)) if script.unbounded else SourceEnded()
        resting = self._resting()
        left = [place for place in left if place[1] not in resting]
        if not left:
            return NothingYet(MonotonicMs(now_ms + 5))
        first, split = min(left)
        end = 0
        for size in script.sizes[split]:
            end += size
            if end > first:
                break
        self._next[split] = end
        good, bad = script.batch(split, first, end)
        name = split_name(split)
        ended = end == script.rows(split) and not script.unbounded
        origin = Origin(name, None, first)
        quiet = tuple(split_name(each) for each in resting)
        return SourceBatch(name, good, {"row": end}, origin, bad, split_ended=ended, quiet=quiet)

    def _resting(self) -> tuple[int, ...]:
        """Splits in which there is nothing just now, where idleness plays a part (W2): some of
        them for a while, then all, then none.
        """
        time, phase = self._script.time, self._reads // 6 % 3
        if time is None or time.idle_timeout_ms is None or phase == 2:
            return ()
        rows = self._script.rows
        return tuple(s for s, n in self._next.items() if (phase or s % 2) and n < rows(s))

    def commit(self, positions: Seq[SplitPosition]) -> None:
        """Keep what was committed."""
        self.committed.append(tuple(positions))

    def close(self) -> None:
        """Nothing is open."""


class SimOperator:
    """Passes rows on as its script says."""

    def __init__(self, script: OperatorScript, finish_rows: list[int], misuses: list[str]) -> None:
        self._script = script
        self._finish_rows = finish_rows
        self._misuses = misuses  # raised, they would pass for failures of an operator
        self.finished = 0

    def open(self) -> None:
        """Nothing to open."""

    def process(self, batch: pa.RecordBatch, origin: Origin = NOWHERE) -> OperatorResult:
        """Drop, reject, fail, cut."""
        del origin
        if self.finished:
            self._misuses.append("process after finish")
        script = self._script
        bad = None
        if script.drops or script.rejects or script.fails:
            rows = rows_of(batch)
            if every(script.fails, rows[0]):
                raise ValueError("the script says so")
            rejected = [row for row in rows if every(script.rejects, row)]
            good = [
                i
                for i, row in enumerate(rows)
                if not every(script.drops, row) and not every(script.rejects, row)
            ]
            bad = batch_of(rejected, BAD_SCHEMA) if rejected else None
            if len(good) < len(rows):
                batch = batch.take(pa.array(good, pa.int64()))
        if script.pieces == 1 or batch.num_rows < 2:
            return OperatorResult((batch,), bad)
        size = -(-batch.num_rows // script.pieces)
        cut = tuple(batch.slice(i, size) for i in range(0, batch.num_rows, size))
        return OperatorResult(cut, bad)

    def finish(self) -> OperatorResult:
        """One batch for each row that is left to the end."""
        self.finished += 1
        if self.finished > 1:
            self._misuses.append("finished twice")
        return OperatorResult(tuple(batch_of([row]) for row in self._finish_rows))

    def close(self) -> None:
        """Nothing is open."""


class SimSink:
    """Confirms `lag` writes late, or when `roll_ms` passed or `flush` came."""

    def __init__(
        self,
        script: SinkScript,
        on_write: Callable[[list[int]], None],
        on_publish: Callable[[list[int]], None],
    ) -> None:
        self._script = script
        self._on_write, self._on_publish = on_write, on_publish
        self._pending: list[tuple[Sequence, list[int]]] = []
        self._writes = 0
        self._confirmed = Sequence(0)
        self._roll_at: MonotonicMs | None = None

    def open(self) -> None:
        """Nothing to open."""

    def write(self, sequence: Sequence, batch: pa.RecordBatch, now_ms: MonotonicMs) -> WriteReceipt:
        """Keep the rows back as scripted."""
        self._writes += 1
        assert sequence == self._writes, f"write {sequence} came as number {self._writes}"
        rows = rows_of(batch)
        self._on_write(rows)
        self._pending.append((sequence, rows))
        if self._script.roll_ms is None:
            return self._publish(self._script.lag)
        if self._roll_at is None:
            self._roll_at = MonotonicMs(now_ms + self._script.roll_ms)
        return WriteReceipt(self._confirmed, self._roll_at)

    def roll(self, now_ms: MonotonicMs) -> WriteReceipt:
        """The time asked for has come."""
        assert self._roll_at is not None, "nobody asked for a roll"
        assert now_ms >= self._roll_at, "rolled before its time"
        self._roll_at = None
        return self._publish(0)

    def flush(self, now_ms: MonotonicMs) -> WriteReceipt:
        """Confirm everything."""
        del now_ms
        self._roll_at = None
        return self._publish(0)

    def close(self) -> None:
        """What was not confirmed is gone."""
        self._pending.clear()

    def _publish(self, keep: int) -> WriteReceipt:
        while len(self._pending) > keep:
            self._confirmed, rows = self._pending.pop(0)
            self._on_publish(rows)
        return WriteReceipt(self._confirmed, self._roll_at)


__all__ = [
    "OperatorScript",
    "SimOperator",
    "SimSink",
    "SimSource",
    "SinkScript",
    "SourceScript",
    "every",
]
