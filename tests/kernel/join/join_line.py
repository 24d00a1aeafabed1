"""Joins that are given batches and watermarks, as a job's subtasks are: by key group, restored from
snapshots by more or fewer of them.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from arkflow_kernel.graph import key_group_range
from arkflow_kernel.ids import CheckpointId, EventTimeMs, Generation, OperatorId, WallMs
from arkflow_kernel.join.building import join_operator
from arkflow_kernel.key_groups import key_groups
from arkflow_kernel.outlet import owners_of_key_groups
from arkflow_kernel.plan import (
    ComponentPlan,
    JoinPlan,
    JoinSidePlan,
    LatePolicy,
    OperatorPlan,
    StatePlan,
)
from arkflow_kernel.ports import OperatorResult
from arkflow_kernel.snapshot import Epoch, ObjectRef, StateSnapshot
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from tests.kernel.state.snapshot_bench import PLAN, Objects
from tests.kernel.window.timeline import in_slices

KEY_GROUPS = 8
LEFT, RIGHT = "l", "r"
"""The edges."""

Rows = list[dict[str, Any]]


def join_of(
    window_ms: int = 10,
    ttl_ms: int = 0,
    *,
    kind: str = "inner",
    late: str = "drop",
    keys: tuple[str, str] = ("k", "k"),
    **more: Any,
) -> JoinPlan:
    """A join of rows with `k` and `ts`."""
    return JoinPlan(
        JoinSidePlan(LEFT, keys[0], "ts", outer=kind in ("left_outer", "full_outer")),
        JoinSidePlan(RIGHT, keys[1], "ts", outer=kind in ("right_outer", "full_outer")),
        window_ms,
        ttl_ms,
        late=LatePolicy(late),
        **more,
    )


@dataclass
class Totals:
    """What all operators have counted."""

    rows: Rows = field(default_factory=list)
    late_rows: int = 0
    absorbed: int = 0
    evicted: int = 0
    routed: list[pa.RecordBatch] = field(default_factory=list)

    def take(self, result: OperatorResult) -> None:
        """Add a result."""
        self.late_rows += result.late_rows
        self.absorbed += result.absorbed
        self.evicted += result.evicted
        if result.late is not None:
            self.routed.append(result.late)
        for batch in result.batches:
            batch.validate(full=True)
            self.rows += batch.to_pylist()


class JoinTask:
    """One subtask: the operator, its states, and what a driver does with them."""

    def __init__(self, plan: JoinPlan, objects: Objects, generation: int, **state: Any) -> None:
        self.journal = CommitOnAck(lambda: WallMs(0))
        chain = replace(PLAN, chain=type(PLAN.chain)(f"join-{generation}"))
        self.states = ChainStates(chain, Generation(generation), objects)
        keys = plan.left.key, plan.right.key
        kept = StatePlan("joins", keys, max_parallelism=KEY_GROUPS, **state)
        operator = OperatorPlan(
            OperatorId("pair"), "join", ComponentPlan("", {}), None, kept, join=plan
        )
        self.operator = join_operator(operator, self.journal, self.states)
        self.keys, self.sides = self.operator.keys, self.operator.sides

    def batch(self, edge: str, batch: pa.RecordBatch) -> Iterator[OperatorResult]:
        """What leaves for a batch, slice by slice, as the lane does it."""
        with self.journal.item(), self.journal.part():
            results = self.operator.process_edge(edge, batch)
        yield from in_slices(self.journal, results)

    def advance(self, watermark: int) -> Iterator[OperatorResult]:
        """What leaves by time."""
        yield from in_slices(self.journal, self.operator.advance(EventTimeMs(watermark)))

    def end(self) -> Iterator[OperatorResult]:
        """What leaves at the end."""
        yield from in_slices(self.journal, self.operator.end())


class JoinLine:
    """All subtasks of a join, and what they have answered so far."""

    def __init__(
        self,
        plan: JoinPlan,
        parallelism: int = 1,
        spool: Path | None = None,
        **state: Any,
    ) -> None:
        self.plan = plan
        self.totals = Totals()
        self._objects = Objects(spool or Path())
        self._state = state
        self._saves = self._generation = 0
        self._snapshots: list[tuple[StateSnapshot, ...]] = []
        self._start(parallelism)

    def _start(self, parallelism: int) -> None:
        self.tasks = []
        for number in range(parallelism):
            self._generation += 1
            task = JoinTask(self.plan, self._objects, self._generation, **self._state)
            if self._snapshots:
                own = key_group_range(number, parallelism, KEY_GROUPS)
                mine = [_clipped(s, own[0], own[-1]) for each in self._snapshots for s in each]
                task.states.restore(mine, _listed(mine, self._objects.written))
            self.tasks.append(task)

    def batch(self, edge: str, batch: pa.RecordBatch) -> None:
        """Rows of a side, each to the subtask that owns its key."""
        key = self.plan.left.key if edge == LEFT else self.plan.right.key
        groups = key_groups(batch, (key,), KEY_GROUPS)
        owners = owners_of_key_groups(len(self.tasks), KEY_GROUPS)[groups]
        for number, task in enumerate(self.tasks):
            mine = batch.filter(pa.array(owners == number))
            if mine.num_rows:
                self._taken(task.batch(edge, mine))

    def batch_whole(self, edge: str, batch: pa.RecordBatch) -> None:
        """Rows of a side, all to the first subtask."""
        self._taken(self.tasks[0].batch(edge, batch))

    def advance(self, watermark: int) -> None:
        """The watermark of all inputs rises."""
        for task in self.tasks:
            self._taken(task.advance(watermark))

    def end(self) -> Rows:
        """The data end; everything that has left."""
        for task in self.tasks:
            self._taken(task.end())
        return self.totals.rows

    def _taken(self, results: Iterator[OperatorResult]) -> None:
        for result in results:
            self.totals.take(result)

    def checkpoint(self) -> None:
        """Take a snapshot and go on."""
        self._saves += 1
        number = CheckpointId(self._saves)
        self._snapshots = []
        for task in self.tasks:
            task.states.seal(number)
            epoch = Epoch(Generation(self._generation), number)
            self._snapshots.append(task.states.upload(epoch)[0])
            task.states.maintain()

    def checkpoint_rows(self) -> dict[str, int]:
        """Take a snapshot; how many entries the runs of each state have in it."""
        self.checkpoint()
        counts: Counter[str] = Counter()
        for state in (state for each in self._snapshots for state in each):
            counts[state.name] += sum(run.rows for run in state.runs)
        return dict(counts)

    def restart(self, parallelism: int) -> None:
        """Go on from a snapshot in new operators."""
        self.checkpoint()
        self._start(parallelism)


def _clipped(state: StateSnapshot, first: int, last: int) -> StateSnapshot:
    runs = [
        replace(run, first_group=max(first, run.first_group), last_group=min(last, run.last_group))
        for run in state.runs
        if run.first_group <= last and run.last_group >= first
    ]
    return replace(state, runs=tuple(runs))


def _listed(states: list[StateSnapshot], objects: list[ObjectRef]) -> list[ObjectRef]:
    names = {run.object for state in states for run in state.runs}
    return [ref for ref in objects if ref.name in names]


def canonical(rows: Rows) -> list[str]:
    """Rows as a multiset; a null counts as a column that is not there, 1.0 as 1."""
    shown = [
        {name: int(v) if isinstance(v, float) and v == int(v) else v for name, v in row.items()}
        for row in ({n: v for n, v in row.items() if v is not None} for row in rows)
    ]
    return sorted(repr(sorted(row.items())) for row in shown)


__all__ = ["KEY_GROUPS", "LEFT", "RIGHT", "JoinLine", "JoinTask", "Totals", "canonical", "join_of"]
