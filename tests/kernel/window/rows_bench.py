"""A window that releases its rows, with journal, snapshots and a clock, for tests."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.ids import CheckpointId, EventTimeMs, Generation, OperatorId
from arkflow_kernel.plan import (
    ComponentPlan,
    LatePolicy,
    OperatorPlan,
    StatePlan,
    WindowKind,
    WindowPlan,
)
from arkflow_kernel.ports import OperatorResult
from arkflow_kernel.snapshot import Epoch
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from arkflow_kernel.testing.state_bench import Wall
from arkflow_kernel.window.assign import FixedPanes
from arkflow_kernel.window.kept_rows import KeptRows
from arkflow_kernel.window.rows_operator import rows_operator
from tests.kernel.state.snapshot_bench import PLAN, Objects, Taken, uploaded
from tests.kernel.window.timeline import in_slices

SIZE_MS = 10
GAP_MS = 5


def tumbling(
    *,
    keys: tuple[str, ...] = (),
    event_time: bool = False,
    late: LatePolicy = LatePolicy.DROP,
    **state: Any,
) -> OperatorPlan:
    """Windows of 10 ms."""
    window = WindowPlan(
        WindowKind.TUMBLING,
        "ts",
        size_ms=SIZE_MS,
        slide_ms=SIZE_MS,
        event_time=event_time,
        late=late,
        releases_rows=True,
    )
    return _plan(window, keys, state)


def session(
    *,
    keys: tuple[str, ...] = (),
    event_time: bool = False,
    late: LatePolicy = LatePolicy.DROP,
    **state: Any,
) -> OperatorPlan:
    """Sessions with a gap of 5 ms."""
    window = WindowPlan(
        WindowKind.SESSION,
        "ts",
        gap_ms=GAP_MS,
        event_time=event_time,
        late=late,
        releases_rows=True,
    )
    return _plan(window, keys, state)


def _plan(window: WindowPlan, keys: tuple[str, ...], state: dict[str, Any]) -> OperatorPlan:
    kept = StatePlan("default", keys, **({"max_parallelism": 4} | state))
    return OperatorPlan(OperatorId("w"), "window", ComponentPlan("", {}), state=kept, window=window)


class RowsBench:
    """The operator; each call is one lane item. What it releases is a list of windows."""

    def __init__(
        self, plan: OperatorPlan, objects: Objects | None = None, *, wall: Wall | None = None
    ) -> None:
        assert plan.window is not None
        self.plan = plan
        self.objects = objects
        self.wall = wall or Wall(ms=1_000)
        self.journal = CommitOnAck(self.wall)
        self.generation = Generation(1 if objects is None else len(objects.written) + 1)
        self.states = ChainStates(PLAN, self.generation, objects)
        panes = None
        if plan.window.kind is WindowKind.TUMBLING:
            panes = FixedPanes(plan.window.size_ms, plan.window.size_ms)
        self.operator = rows_operator(plan, panes, self.journal, self.states)
        self.rows: KeptRows = self.operator._rows
        self.late: list[pa.RecordBatch] = []
        self.late_rows = 0
        self._checkpoint = 0

    def put(self, batch: pa.RecordBatch) -> OperatorResult:
        """Rows come in."""
        with self.journal.item():
            result = self.operator.process(batch, NOWHERE)
        assert not result.batches
        self.late_rows += result.late_rows
        if result.late is not None:
            self.late.append(result.late)
        return result

    def ids(self, *ids: Any, **columns: list[Any]) -> None:
        """Rows come in, with a column `id` and these columns."""
        self.put(pa.record_batch({"id": list(ids), **columns}))

    def advance(self, watermark: int) -> list[list[pa.RecordBatch]]:
        """The watermark rises."""
        return self._fired(self.operator.advance(EventTimeMs(watermark)))

    def tick(self, ms: int | None = None) -> list[list[pa.RecordBatch]]:
        """A tick, at this time."""
        if ms is not None:
            self.wall.ms = ms
        with self.journal.item():
            wall_ms = self.journal.wall_ms
        return self._fired(self.operator.tick(wall_ms))

    def end(self) -> list[list[pa.RecordBatch]]:
        """The data have ended."""
        fired = self._fired(self.operator.end())
        assert not self.operator.finish().batches
        return fired

    def _fired(self, results: Iterator[OperatorResult]) -> list[list[pa.RecordBatch]]:
        return [list(result.batches) for result in in_slices(self.journal, results)]

    def take(self) -> Taken:
        """Seal and upload a checkpoint."""
        self.seal()
        return self.upload()

    def seal(self) -> None:
        """Seal for a checkpoint, between two items."""
        self._checkpoint += 1
        self.states.seal(CheckpointId(self._checkpoint))

    def upload(self) -> Taken:
        """Upload what is sealed."""
        assert self.objects is not None
        epoch = Epoch(self.generation, CheckpointId(self._checkpoint))
        return uploaded(self.states, epoch, self.objects)

    def restored(self, taken: Taken) -> "RowsBench":
        """Another process that begins at the checkpoint."""
        other = RowsBench(self.plan, self.objects, wall=self.wall)
        other.states.restore(taken.states, taken.objects)
        return other


def id_lists(windows: Iterable[list[pa.RecordBatch]]) -> list[list[Any]]:
    """The ids of each window, in order."""
    return [[i for batch in batches for i in batch.column("id").to_pylist()] for batches in windows]


def spool(tmp_path: Path) -> Objects:
    """A store whose states may spill below a folder."""
    return Objects(tmp_path / "spool")


__all__ = ["GAP_MS", "SIZE_MS", "RowsBench", "id_lists", "session", "spool", "tumbling"]
