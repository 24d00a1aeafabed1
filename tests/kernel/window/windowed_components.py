"""A source that reads its partitions as dice say, and a sink that keeps whole rows.

For jobs with windows: what must not matter is drawn here.
"""

import json
import random
from collections.abc import Mapping, MutableMapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.checkpoint_ports import Staging
from arkflow_kernel.ids import MonotonicMs, Sequence, SplitId
from arkflow_kernel.plan import SinkPlan
from arkflow_kernel.ports import (
    NothingYet,
    ReadResult,
    ReplayKind,
    SourceBatch,
    SourceEnded,
    Split,
    SplitPosition,
    WriteReceipt,
)
from arkflow_kernel.protocol import CommitPermit
from arkflow_kernel.snapshot import Epoch, SinkToken, StagedObject
from tests.kernel.window.window_oracle import Row

PAUSE_MS = 20
"""Of a source that has nothing just now; checkpoints come in such pauses."""

Rows = list[dict[str, Any]]

Shown = MutableMapping[tuple[str, Epoch, int], Rows]
"""What readers of the sinks see, by sink, epoch and lane."""


@dataclass(frozen=True)
class Plan:
    """How a job is cut: everything that results must not depend on.

    `sources` gives for each source operator which partitions it reads. `batch_rows` bounds each
    batch, the dice of `seed` choose its size and its partition. A fused window is in the chain of
    the one source, and knows no keys. `memory_bytes` is what the window may hold in memory.
    `reading` is the number of subtasks of each source: its partitions are their splits (K5).
    """

    sources: tuple[tuple[int, ...], ...] = ((0,),)
    parallelism: int = 1
    batch_rows: int = 8_192
    exact_batches: bool = False
    fused: bool = False
    seed: int = 0
    pause_every: int = 0
    memory_bytes: int | None = None
    reading: int = 1


class PartitionedSource:
    """Reads its partitions in an order and in batches that the dice choose."""

    replay = ReplayKind.POSITION
    commits = False

    def __init__(self, partitions: Mapping[int, Seq[Row]], plan: Plan, seed: int) -> None:
        self._partitions = partitions
        self._plan = plan
        self._dice = random.Random(seed)
        self._next = dict.fromkeys(partitions, 0)
        self._reads = 0

    def list_splits(self, restored: Seq[SplitPosition]) -> Seq[Split]:
        """The partitions."""
        del restored
        return [Split(SplitId(str(n)), len(rows)) for n, rows in self._partitions.items()]

    def open(self, restored: Seq[SplitPosition], assigned: Seq[SplitId] | None = None) -> None:
        """Continue."""
        if assigned is not None:
            self._next = dict.fromkeys(map(int, assigned), 0)
        for position in restored:
            row = position.position["row"]
            assert isinstance(row, int)
            self._next[int(position.split)] = row

    def splits(self) -> Seq[SplitId]:
        """Those that are not at their end."""
        return tuple(SplitId(str(number)) for number in self._open())

    def read(self, now_ms: MonotonicMs) -> ReadResult:
        """The next batch of some partition, or a pause."""
        self._reads += 1
        if self._plan.pause_every and self._reads % self._plan.pause_every == 0:
            return NothingYet(MonotonicMs(now_ms + PAUSE_MS))
        there = self._open()
        if not there:
            return SourceEnded()
        number = self._dice.choice(there)
        most = self._plan.batch_rows
        size = most if self._plan.exact_batches else self._dice.randint(1, most)
        first = self._next[number]
        rows = self._partitions[number][first : first + size]
        self._next[number] = first + len(rows)
        return SourceBatch(
            SplitId(str(number)),
            batch_of(rows),
            {"row": first + len(rows)},
            Origin(str(number), None, first),
            split_ended=first + len(rows) == len(self._partitions[number]),
        )

    def commit(self, positions: Seq[SplitPosition]) -> None:
        """Nobody asks."""

    def close(self) -> None:
        """Nothing is held."""

    def _open(self) -> list[int]:
        return [n for n, row in self._next.items() if row < len(self._partitions[n])]


def batch_of(rows: Seq[Row]) -> pa.RecordBatch:
    """Rows as the columns n, ts, k, v."""
    names = ("n", "ts", "k", "v")
    arrays = [pa.array([getattr(row, name) for row in rows], pa.int64()) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


class KeepingSink:
    """An exactly-once sink that keeps whole rows; `shown` outlives it, as a folder does."""

    def __init__(self, plan: SinkPlan, staging: Staging, shown: Shown) -> None:
        self._operator, self._staging, self._shown = plan.operator, staging, shown
        self._rows: Rows = []
        self._sealed: list[tuple[Epoch, Rows]] = []
        self._objects = 0

    def open(self) -> None:
        """Nothing to connect to."""

    def write(self, sequence: Sequence, batch: pa.RecordBatch, now_ms: MonotonicMs) -> WriteReceipt:
        """Keep."""
        self._rows += batch.to_pylist()
        return WriteReceipt(Sequence(0))

    def roll(self, now_ms: MonotonicMs) -> WriteReceipt:
        """Nobody asked for it."""
        raise NotImplementedError

    def seal(self, epoch: Epoch) -> None:
        """End the epoch."""
        self._sealed.append((epoch, self._rows))
        self._rows = []

    def stage(self, upto: Epoch) -> tuple[SinkToken, ...]:
        """An object for each epoch that has rows."""
        tokens = []
        while self._sealed and self._sealed[0][0] <= upto:
            epoch, rows = self._sealed.pop(0)
            if rows:
                self._objects += 1
                name = f"{self._staging.name}-{self._objects}.sink"
                ref = self._staging.objects.put(name, [json.dumps(rows).encode()])
                staged = StagedObject(ref, len(rows))
                tokens.append(SinkToken(self._operator, self._staging.lane, epoch, (staged,)))
        return tuple(tokens)

    def publish(self, token: SinkToken, permit: CommitPermit) -> None:
        """Show the rows; again changes nothing."""
        data = [self._staging.objects.read(staged.object) for staged in token.objects]
        rows = [row for each in data for row in json.loads(each.to_pybytes())]
        self._shown.setdefault((str(token.sink), token.epoch, token.lane), rows)

    def close(self) -> None:
        """Nothing is held."""


__all__ = ["PAUSE_MS", "KeepingSink", "PartitionedSource", "Plan", "Rows", "Shown", "batch_of"]
