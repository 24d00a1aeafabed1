"""What a driver and its components implement. The kernel calls nothing else.

Every method below runs in one of a chain's lanes, never in a machine: reads in the read lane,
operators in the lane, writes in the sink's write lane, commits behind the reads. One object is
called from one thread at a time, except `Operator.process` of a chain with several workers (T2).
A method that fails raises; the driver turns it into the one answer of the request.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import pyarrow as pa

from arkflow_kernel.bad_rows import NOWHERE, Origin
from arkflow_kernel.ids import EventTimeMs, MonotonicMs, Sequence, SplitId, WallMs

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]

Position = Mapping[str, JsonValue]
"""Where one split continues: a JSON object that only its source understands. Never mutated."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One reading of both clocks (T7): `now_ms` for deadlines, `wall_ms` for TTL and windows."""

    now_ms: MonotonicMs
    wall_ms: WallMs


class Clock(Protocol):
    """The driver's clock; the inline and simulation drivers pass a virtual one."""

    def moment(self) -> Moment:
        """Both clocks, now."""
        ...

    def wait_until(self, deadline_ms: MonotonicMs | None) -> None:
        """Return at the deadline at the latest, earlier after a `wake`. None: only then."""
        ...

    def wake(self) -> None:
        """Let a `wait_until` in progress, or the next one, return. From any thread."""
        ...


class ReplayKind(Enum):
    """What a source can repeat after a failure (B7)."""

    POSITION = "position"
    ACK = "ack"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class SplitPosition:
    """A split and where it continues. `ended`: nothing is left in it."""

    split: SplitId
    position: Position
    ended: bool = False


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """What one read yields: rows of one split, in order, and the position after the last of them.

    `batch` may have no rows (all were bad or blank): the position moves all the same.
    `bad` are rows that could not be decoded (`bad_rows.BAD_ROW_SCHEMA`), `skipped` counts rows
    that the codec was told to leave out. `quiet` are splits in which this read found nothing (W2);
    a split that it did not look at is not among them. `untimed` are rows that the gate took out:
    their time is null or invalid, and they leave by the late route (W5); no source sets it.
    """

    split: SplitId
    batch: pa.RecordBatch
    position: Position
    origin: Origin = NOWHERE
    bad: pa.RecordBatch | None = None
    skipped: int = 0
    split_ended: bool = False
    quiet: tuple[SplitId, ...] = ()
    untimed: pa.RecordBatch | None = None


@dataclass(frozen=True, slots=True)
class NothingYet:
    """Nothing to read now. Ask again at `resume_ms`, or at once if None.

    `quiet` are the splits in which there was nothing; None: in all of them (W2).
    """

    resume_ms: MonotonicMs | None = None
    quiet: tuple[SplitId, ...] | None = None


@dataclass(frozen=True, slots=True)
class SourceEnded:
    """All splits are read to their end; no read follows."""


ReadResult = SourceBatch | NothingYet | SourceEnded


@dataclass(frozen=True, slots=True)
class Split:
    """Something that one subtask of a source reads alone: a file, a range of one, of numbers (K5).

    `size` in any unit that is the same for all splits of the source; it only serves balance.
    """

    split: SplitId
    size: int = 1


class SplitLister(Protocol):
    """A `SourceReader` that may have several subtasks (K5)."""

    def list_splits(self, restored: Seq[SplitPosition]) -> Seq[Split]:
        """All splits there are, in reading order. Called on a reader that is never opened.

        `restored` are all positions that are known of the source: raises `SourceError` if one of
        them cannot be continued because what it stands in is gone, or is split otherwise now.
        Ended splits may be left out. It leaves nothing open. What a split is does not depend on
        the number of subtasks.
        """
        ...


class SourceReader(Protocol):
    """A source. Called in the read lane only."""

    @property
    def replay(self) -> ReplayKind:
        """What it can repeat after a failure."""
        ...

    @property
    def commits(self) -> bool:
        """Whether it wants `commit` calls (a broker's offsets, a WAL's cursor)."""
        ...

    def open(self, restored: Seq[SplitPosition], assigned: Seq[SplitId] | None = None) -> None:
        """Connect; continue at the restored positions, at the beginning for unlisted splits.

        `assigned`: this subtask reads these splits alone, in this order, but for those that are
        ended, and all positions are of them (K5). None: it reads all splits that there are.
        """
        ...

    def splits(self) -> Seq[SplitId]:
        """Splits that are known and not ended, in reading order; asked once, after `open` (W1)."""
        ...

    def read(self, now_ms: MonotonicMs) -> ReadResult:
        """The next batch. May block up to about 100 ms, never longer without an answer."""
        ...

    def commit(self, positions: Seq[SplitPosition]) -> None:
        """Tell the source's own system that everything below these positions is settled (F3)."""
        ...

    def close(self) -> None:
        """Release everything. Called once, also after a failed `open` or `read`."""
        ...


@dataclass(frozen=True, slots=True)
class OperatorResult:
    """What an operator made of one batch: its rows, and the input rows that it could not take.

    `late` are input rows for the late route (W6); `late_rows` counts all that were late, also if
    they were dropped. `absorbed` counts input rows that the operator keeps (T6), `evicted` those
    that it had kept and has let go of for want of room, without a result (N6).
    """

    batches: tuple[pa.RecordBatch, ...]
    bad: pa.RecordBatch | None = None
    skipped: int = 0
    late: pa.RecordBatch | None = None
    late_rows: int = 0
    absorbed: int = 0
    evicted: int = 0


class Operator(Protocol):
    """A fused operator. Called in the lane (T1b)."""

    def open(self) -> None:
        """Load models, start what it needs."""
        ...

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:
        """Transform one batch. Several threads at once if the chain has several workers (T2)."""
        ...

    def finish(self) -> OperatorResult:
        """The end of the data: what it still holds. Called once, after the last `process`."""
        ...

    def close(self) -> None:
        """Release everything. Called once, also after a failure."""
        ...


class TimedOperator(Operator, Protocol):
    """An operator that acts on time, too: a window or a join. Its chain has one worker.

    The iterators yield results piece by piece, so that a large firing needs little memory (T1c).
    What changes in its state changes before the first piece is yielded (N5); each is exhausted
    before the next call.
    """

    def advance(self, watermark: EventTimeMs) -> Iterator[OperatorResult]:
        """The operator's watermark rises; what it fires, before it lets go of anything (W6)."""
        ...

    def tick(self, wall_ms: WallMs) -> Iterator[OperatorResult]:
        """The moment that `timer` asked for has come, or any other; what is due fires."""
        ...

    def end(self) -> Iterator[OperatorResult]:
        """The data have ended: everything open fires, once (W10). `finish` follows."""
        ...

    def timer(self) -> WallMs | None:
        """When it wants a `tick`; None: never. Asked after each item."""
        ...


class TwoSided(TimedOperator, Protocol):
    """An operator of two inputs, a join. It is the head of its chain; rows come by edges."""

    def process_edge(self, edge: str, batch: pa.RecordBatch) -> Iterator[OperatorResult]:
        """Take the rows of an edge. The call itself changes the state, or raises; the results, of
        which the first accounts for the rows, are made piece by piece as they are asked for.
        """
        ...


@dataclass(frozen=True, slots=True)
class WriteReceipt:
    """How far a sink's writes are confirmed, and when it wants to be called without a write.

    `confirmed_upto`: every write up to this sequence is where a reader sees it, or will after a
    crash. It may lag behind what was written (a file part that has not rolled). `roll_at_ms`: the
    moment at which `roll` is due although nothing was written; None: not before the next write.
    """

    confirmed_upto: Sequence
    roll_at_ms: MonotonicMs | None = None


class SinkWriter(Protocol):
    """A sink. Called in its own write lane, one call at a time."""

    def open(self) -> None:
        """Connect, create folders, probe that writing will work."""
        ...

    def write(self, sequence: Sequence, batch: pa.RecordBatch, now_ms: MonotonicMs) -> WriteReceipt:
        """Take a batch. Sequences rise by one. Raises `SinkError` when it cannot be written."""
        ...

    def roll(self, now_ms: MonotonicMs) -> WriteReceipt:
        """The moment asked for by `roll_at_ms` has come."""
        ...

    def flush(self, now_ms: MonotonicMs) -> WriteReceipt:
        """Confirm everything written so far: the end of the data, or a stop."""
        ...

    def close(self) -> None:
        """Release everything; what was not confirmed is discarded. Called once."""
        ...


class LineOutput(Protocol):
    """Where `stdout` sinks put their lines: the driver's stdout, near or far (P9)."""

    def put(self, lines: bytes) -> None:
        """Hand over whole lines; returns when they are printed. `SinkError` if nobody reads."""
        ...


__all__ = [
    "Clock",
    "JsonValue",
    "LineOutput",
    "Moment",
    "NothingYet",
    "Operator",
    "OperatorResult",
    "Position",
    "ReadResult",
    "ReplayKind",
    "SinkWriter",
    "SourceBatch",
    "SourceEnded",
    "SourceReader",
    "Split",
    "SplitLister",
    "SplitPosition",
    "TimedOperator",
    "TwoSided",
    "WriteReceipt",
]
