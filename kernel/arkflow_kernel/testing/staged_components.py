"""An exactly-once sink that a test scripts, its target, and a store of objects in memory (X1).

The target outlives sinks and jobs, as a folder does: rows are there once a token is published.
"""

import json
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from arkflow_kernel.checkpoint_ports import EpochSink, JobStore, ObjectStore, Staging
from arkflow_kernel.errors import SinkError, StoreError
from arkflow_kernel.ids import MonotonicMs, OperatorId, Sequence
from arkflow_kernel.job_log import JobLog
from arkflow_kernel.plan import ONLY_SUBTASK, ExecutionGraph, SinkPlan, SourcePlan, Subtask
from arkflow_kernel.ports import SinkWriter, SourceReader, WriteReceipt
from arkflow_kernel.protocol import CommitPermit
from arkflow_kernel.snapshot import Epoch, ObjectRef, SinkToken, StagedObject
from arkflow_kernel.testing.components import ScriptedComponents, rows_of
from arkflow_kernel.testing.sim_files import SimFiles
from arkflow_kernel.testing.sim_store import SimObjects, SimStore, Trouble
from arkflow_kernel.testing.virtual_clock import VirtualClock

StagedRow = tuple[str, int, int | None]
"""A scripted row, and its running count if an operator gave it one in the column `count`."""


class _Calm:
    """A way to a store on which nothing happens."""

    def trouble(self, verb: str) -> Trouble:
        del verb
        return Trouble.NONE

    def reached(self, point: str) -> None:
        del point


class MemoryObjects(SimObjects):
    """The objects of a job below `objects/` of these files: an `ObjectStore` without faults."""

    def __init__(self, files: dict[str, bytes]) -> None:
        store = SimStore()
        store.files = files
        super().__init__(store, _Calm())

    def is_copy(self, ref: ObjectRef, path: Path) -> bool:
        """Nothing lies on a disk."""
        raise NotImplementedError


def memory_store(
    graph: ExecutionGraph,
    files: SimFiles,
    clock: VirtualClock,
    *,
    nonce: str = "run",
    objects: ObjectStore | None = None,
) -> JobStore:
    """Log and objects of one run on the inline driver, both in these files."""
    log = JobLog(
        graph,
        files,
        nonce=nonce,
        coordinator="inline",
        wall_ms=lambda: clock.moment().wall_ms,
    )
    return JobStore(log, MemoryObjects(files.store.files) if objects is None else objects)


@dataclass
class Target:
    """What readers see: rows by token. `order` tells of every publication, repeated ones too."""

    shown: MutableMapping[tuple[OperatorId, int, Epoch], list[StagedRow]] = field(
        default_factory=dict
    )
    order: list[Epoch] = field(default_factory=list)

    def rows(self) -> list[StagedRow]:
        """All rows, in the order of publication."""
        return [row for rows in self.shown.values() for row in rows]


@dataclass
class ScriptedEpochSink:
    """Stages rows as JSON. The `fail_stage_at`-th `stage` and the `fail_publish_at`-th `publish`
    fail (from 1), the latter after the rows are shown; `stage_error` is what staging raises.
    """

    operator: OperatorId
    staging: Staging
    target: Target
    fail_stage_at: int = 0
    fail_publish_at: int = 0
    stage_error: type[Exception] = StoreError
    opened: int = 0
    closed: int = 0

    def __post_init__(self) -> None:
        self._rows: list[StagedRow] = []
        self._sealed: list[tuple[Epoch, list[StagedRow]]] = []
        self._calls = {"stage": 0, "publish": 0, "object": 0}

    def open(self) -> None:
        """Count."""
        self.opened += 1

    def write(self, sequence: Sequence, batch: pa.RecordBatch, now_ms: MonotonicMs) -> WriteReceipt:
        """Spool."""
        del sequence, now_ms
        names = batch.schema.names
        counts = batch.column("count").to_pylist() if "count" in names else [None] * batch.num_rows
        rows = rows_of(batch)
        self._rows += [(*row, count) for row, count in zip(rows, counts, strict=True)]
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
        self._count("stage", self.fail_stage_at, self.stage_error)
        tokens = []
        while self._sealed and self._sealed[0][0] <= upto:
            epoch, rows = self._sealed.pop(0)
            if rows:
                self._calls["object"] += 1
                name = f"{self.staging.name}-{self._calls['object']}.sink"
                ref = self.staging.objects.put(name, [json.dumps(rows).encode()])
                staged = StagedObject(ref, len(rows))
                tokens.append(SinkToken(self.operator, self.staging.lane, epoch, (staged,)))
        return tuple(tokens)

    def publish(self, token: SinkToken, permit: CommitPermit) -> None:
        """Show the rows; again changes nothing."""
        assert isinstance(permit, CommitPermit)
        data = [self.staging.objects.read(staged.object) for staged in token.objects]
        rows = [tuple(row) for each in data for row in json.loads(each.to_pybytes())]
        self.target.shown.setdefault((token.sink, token.lane, token.epoch), rows)
        self.target.order.append(token.epoch)
        self._count("publish", self.fail_publish_at, SinkError)

    def close(self) -> None:
        """Count."""
        self.closed += 1

    def _count(self, call: str, fails_at: int, error: type[Exception]) -> None:
        self._calls[call] += 1
        if self._calls[call] == fails_at:
            raise error(f"scripted: {call} fails")


@dataclass
class StagedComponents(ScriptedComponents):
    """Scripted components with one exactly-once sink; `new_source` makes a source per attempt."""

    target: Target = field(default_factory=Target)
    new_source: Callable[[], SourceReader] | None = None
    script: Callable[[ScriptedEpochSink], None] = lambda _sink: None
    epoch_sinks: list[ScriptedEpochSink] = field(default_factory=list)

    def source(self, plan: SourcePlan) -> SourceReader:
        """A new source if it can be made."""
        if self.new_source is not None:
            self.sources[plan.operator] = self.new_source()
        return super().source(plan)

    def sink(
        self, plan: SinkPlan, staging: Staging | None = None, subtask: Subtask = ONLY_SUBTASK
    ) -> SinkWriter | EpochSink:
        """An exactly-once sink if it is to stage; `script` is told of each that is made."""
        if staging is None:
            return super().sink(plan, None, subtask)
        sink = ScriptedEpochSink(plan.operator, staging, self.target)
        self.script(sink)
        self.epoch_sinks.append(sink)
        return sink


__all__ = [
    "MemoryObjects",
    "ScriptedEpochSink",
    "StagedComponents",
    "StagedRow",
    "Target",
    "memory_store",
]
