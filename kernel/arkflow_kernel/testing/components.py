"""Scripted source, operator and sink, whose every behaviour a test chooses.

Rows are `(split, n)`: n counts from 0 in its split, so order, loss and repetition can be seen in
any result. They keep what happened to them (`opened`, `closed`, `committed`, `published`, ...).
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from arkflow_kernel.bad_rows import NOWHERE, Origin, bad_row_batch
from arkflow_kernel.checkpoint_ports import EpochSink, Staging
from arkflow_kernel.ids import MonotonicMs, Sequence, SplitId
from arkflow_kernel.plan import ONLY_SUBTASK, OperatorPlan, SinkPlan, SourcePlan, Subtask
from arkflow_kernel.ports import (
    NothingYet,
    Operator,
    OperatorResult,
    ReadResult,
    ReplayKind,
    SinkWriter,
    SourceBatch,
    SourceEnded,
    SourceReader,
    Split,
    SplitPosition,
    WriteReceipt,
)

_FIELDS: list["pa.Field[Any]"] = [pa.field("split", pa.string()), pa.field("n", pa.int64())]
ROW_SCHEMA: pa.Schema = pa.schema(_FIELDS)

Row = tuple[str, int]


def rows_batch(split: str, numbers: Seq[int]) -> pa.RecordBatch:
    """A batch of scripted rows."""
    arrays: list[pa.Array[Any]] = [
        pa.array([split] * len(numbers), pa.string()),
        pa.array(numbers, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA)


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """The scripted rows of a batch, bad rows (`split:n` as their raw value) included."""
    if "n" in batch.schema.names:
        pairs = zip(batch.column("split").to_pylist(), batch.column("n").to_pylist(), strict=True)
        return [(str(split), int(n or 0)) for split, n in pairs]
    raw = [(value or b"").decode() for value in batch.column("__value__").to_pylist()]
    return [(split, int(n)) for split, _, n in (text.rpartition(":") for text in raw)]


def bad_rows(split: str, numbers: Seq[int], operator: str = "source") -> pa.RecordBatch:
    """Bad rows that `rows_of` can read back."""
    values = [f"{split}:{n}".encode() for n in numbers]
    origin = Origin(split, None, numbers[0] if numbers else None)
    return bad_row_batch(values, ["scripted"] * len(numbers), operator=operator, origin=origin)


@dataclass
class ScriptedSource:
    """Reads its splits in turn, `sizes[split]` rows a batch each; restores inside a batch too.

    `bad(split, n)`: the row cannot be decoded. Every `pause_every`-th read yields nothing for
    `pause_ms`. The `fail_read_at`-th read raises (from 1); `fail_open`, `fail_commit_at` likewise.
    """

    sizes: dict[str, tuple[int, ...]]
    bad: Callable[[str, int], bool] = lambda _split, _n: False
    pause_every: int = 0
    pause_ms: int | None = None
    fail_open: bool = False
    fail_read_at: int = 0
    fail_commit_at: int = 0
    commits: bool = False
    replay: ReplayKind = ReplayKind.POSITION
    opened: int = 0
    closed: int = 0
    reads: int = 0
    committed: list[tuple[SplitPosition, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._next: dict[str, int] = dict.fromkeys(self.sizes, 0)
        self._commits = 0

    def rows(self, split: str) -> int:
        """How many rows the split has."""
        return sum(self.sizes[split])

    def list_splits(self, restored: Seq[SplitPosition]) -> Seq[Split]:
        """All of the script; each is as large as it has rows."""
        del restored
        return tuple(Split(SplitId(split), self.rows(split)) for split in self.sizes)

    def open(self, restored: Seq[SplitPosition], assigned: Seq[SplitId] | None = None) -> None:
        """Continue at the restored positions, in the assigned splits alone."""
        self.opened += 1
        if self.fail_open:
            raise OSError("the scripted source does not open")
        if assigned is not None:
            self._next = dict.fromkeys(assigned, 0)
        for position in restored:
            row = position.position["row"]
            assert isinstance(row, int)
            self._next[position.split] = row

    def splits(self) -> Seq[SplitId]:
        """Those that are not read to their end."""
        return tuple(SplitId(s) for s, n in self._next.items() if n < self.rows(s))

    def read(self, now_ms: MonotonicMs) -> ReadResult:
        """The next batch of the split that is least far, or a pause."""
        self.reads += 1
        if self.reads == self.fail_read_at:
            raise OSError("the scripted source does not read")
        if self.pause_every and self.reads % self.pause_every == 0:
            resume = None if self.pause_ms is None else MonotonicMs(now_ms + self.pause_ms)
            return NothingYet(resume)
        open_splits = [s for s, n in self._next.items() if n < self.rows(s)]
        if not open_splits:
            return SourceEnded()
        return self._batch(min(open_splits, key=lambda split: (self._next[split], split)))

    def commit(self, positions: Seq[SplitPosition]) -> None:
        """Keep what was committed."""
        self._commits += 1
        if self._commits == self.fail_commit_at:
            raise OSError("the scripted source does not commit")
        self.committed.append(tuple(positions))

    def close(self) -> None:
        """Count."""
        self.closed += 1

    def _batch(self, split: str) -> SourceBatch:
        first = self._next[split]
        end = 0
        for size in self.sizes[split]:
            end += size
            if end > first:
                break
        self._next[split] = end
        numbers = range(first, end)
        good = [n for n in numbers if not self.bad(split, n)]
        bad = [n for n in numbers if self.bad(split, n)]
        return SourceBatch(
            SplitId(split),
            rows_batch(split, good),
            {"row": end},
            Origin(split, None, first),
            bad_rows(split, bad) if bad else None,
            split_ended=end == self.rows(split),
        )


@dataclass
class ScriptedOperator:
    """Passes rows on, in `pieces` batches; `drops` and `rejects` pick rows; `fails` raises.

    `fails(split, n)` is asked for the first row of each batch. `violations` of the port are kept:
    raised, they would pass for failures of an operator.
    """

    pieces: int = 1
    drops: Callable[[str, int], bool] = lambda _split, _n: False
    rejects: Callable[[str, int], bool] = lambda _split, _n: False
    fails: Callable[[str, int], bool] = lambda _split, _n: False
    fail_open: bool = False
    at_finish: tuple[pa.RecordBatch, ...] = ()
    bad_at_finish: pa.RecordBatch | None = None
    fail_finish: bool = False
    opened: int = 0
    closed: int = 0
    finished: int = 0
    processed: int = 0
    violations: list[str] = field(default_factory=list)

    def open(self) -> None:
        """Count."""
        self.opened += 1
        if self.fail_open:
            raise OSError("the scripted operator does not open")

    def process(self, batch: pa.RecordBatch, origin: Origin = NOWHERE) -> OperatorResult:
        """Apply the script."""
        del origin
        if self.finished:
            self.violations.append("process after finish")
        self.processed += 1
        rows = rows_of(batch)
        if rows and self.fails(*rows[0]):
            raise ValueError(f"the scripted operator fails on {rows[0]}")
        bad = [row for row in rows if self.rejects(*row)]
        good = [i for i, row in enumerate(rows) if not self.rejects(*row) and not self.drops(*row)]
        kept = batch.take(pa.array(good, pa.int64()))
        size = max(1, -(-kept.num_rows // self.pieces))
        batches = tuple(kept.slice(i, size) for i in range(0, kept.num_rows, size))
        rejected = bad_rows(bad[0][0], [n for _, n in bad], "operator") if bad else None
        return OperatorResult(batches, rejected)

    def finish(self) -> OperatorResult:
        """What the script holds back to the end."""
        self.finished += 1
        if self.finished > 1:
            self.violations.append("finished twice")
        if self.fail_finish:
            raise ValueError("the scripted operator does not finish")
        return OperatorResult(self.at_finish, self.bad_at_finish)

    def close(self) -> None:
        """Count."""
        self.closed += 1


@dataclass
class ScriptedSink:
    """Confirms `lag` writes late, or when `roll_ms` passed or `flush` came; then rows are visible.

    `on_write(rows)` and `on_publish(rows)` are told. The `fail_write_at`-th write raises.
    """

    lag: int = 0
    roll_ms: int | None = None
    fail_open: bool = False
    fail_write_at: int = 0
    fail_close: bool = False
    on_write: Callable[[list[Row]], None] = lambda _rows: None
    on_publish: Callable[[list[Row]], None] = lambda _rows: None
    opened: int = 0
    closed: int = 0
    writes: int = 0
    rolls: int = 0
    flushes: int = 0
    published: list[Row] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._pending: list[tuple[Sequence, list[Row]]] = []
        self._confirmed = Sequence(0)
        self._roll_at: MonotonicMs | None = None

    def open(self) -> None:
        """Count."""
        self.opened += 1
        if self.fail_open:
            raise OSError("the scripted sink does not open")

    def write(self, sequence: Sequence, batch: pa.RecordBatch, now_ms: MonotonicMs) -> WriteReceipt:
        """Keep the rows back as scripted."""
        self.writes += 1
        if sequence != self.writes:
            self.violations.append(f"write {sequence} came as number {self.writes}")
        if self.writes == self.fail_write_at:
            raise OSError("the scripted sink does not write")
        rows = rows_of(batch)
        self.on_write(rows)
        self._pending.append((sequence, rows))
        if self.roll_ms is not None:
            if self._roll_at is None:
                self._roll_at = MonotonicMs(now_ms + self.roll_ms)
            return self._receipt()
        return self._publish(keep=self.lag)

    def roll(self, now_ms: MonotonicMs) -> WriteReceipt:
        """The time asked for has come."""
        if self._roll_at is None or now_ms < self._roll_at:
            self.violations.append("rolled before its time")
        self.rolls += 1
        self._roll_at = None
        return self._publish(keep=0)

    def flush(self, now_ms: MonotonicMs) -> WriteReceipt:
        """Confirm everything."""
        del now_ms
        self.flushes += 1
        self._roll_at = None
        return self._publish(keep=0)

    def close(self) -> None:
        """Discard what was not confirmed."""
        self.closed += 1
        self._pending.clear()
        if self.fail_close:
            raise OSError("the scripted sink does not close")

    def _publish(self, keep: int) -> WriteReceipt:
        while len(self._pending) > keep:
            self._confirmed, rows = self._pending.pop(0)
            self.published += rows
            self.on_publish(rows)
        return self._receipt()

    def _receipt(self) -> WriteReceipt:
        return WriteReceipt(self._confirmed, self._roll_at)


@dataclass
class ScriptedComponents:
    """A `ComponentFactory` over components that a test made: by operator id."""

    sources: dict[str, SourceReader]
    operators: dict[str, Operator] = field(default_factory=dict)
    sinks: dict[str, SinkWriter] = field(default_factory=dict)

    def source(self, plan: SourcePlan) -> SourceReader:
        """The source of that name."""
        return self.sources[plan.operator]

    def operator(self, plan: OperatorPlan, workers: int) -> Operator:
        """The operator of that name."""
        del workers
        return self.operators[plan.operator]

    def sink(
        self, plan: SinkPlan, staging: Staging | None = None, subtask: Subtask = ONLY_SUBTASK
    ) -> SinkWriter | EpochSink:
        """The sink of that name; none of them stages."""
        del subtask
        assert staging is None, "see `staged_components`"
        return self.sinks[plan.operator]


__all__ = [
    "ROW_SCHEMA",
    "Row",
    "ScriptedComponents",
    "ScriptedOperator",
    "ScriptedSink",
    "ScriptedSource",
    "bad_rows",
    "rows_batch",
    "rows_of",
]
