"""A keyed operator in several subtasks: batches in by key, rows out; snapshots, and restores from
them by as many subtasks as are wanted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.graph import key_group_range
from arkflow_kernel.ids import CheckpointId, Generation, OperatorId, WallMs
from arkflow_kernel.kernel_operators import kernel_operator
from arkflow_kernel.key_groups import key_groups
from arkflow_kernel.plan import ComponentPlan, KeyedPlan, OperatorPlan, StatePlan
from arkflow_kernel.ports import Operator, OperatorResult, TimedOperator
from arkflow_kernel.snapshot import Epoch, StateSnapshot
from arkflow_kernel.state.arrow_numpy import as_array
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from tests.kernel.state.snapshot_bench import PLAN, Objects

Rows = list[dict[str, Any]]

GROUPS = 8
"""Key groups of every job here."""


@dataclass
class Subtask:
    """One operator with its own journal and states."""

    operator: Operator
    journal: CommitOnAck
    states: ChainStates


@dataclass
class KeyedLine:
    """Subtasks of one operator, and what they counted. `state` are fields of the `StatePlan`."""

    plan: KeyedPlan
    keys: tuple[str, ...] = ("k",)
    subtasks: int = 1
    wall_ms: int = 0
    folder: Path = Path()
    state: dict[str, Any] = field(default_factory=dict)
    absorbed: int = 0
    late_rows: int = 0

    def __post_init__(self) -> None:
        self._objects = Objects(self.folder)
        self._saves = 0
        self._start()

    def _start(self) -> None:
        self.parts = [self._subtask(number) for number in range(self.subtasks)]

    def _subtask(self, number: int) -> Subtask:
        journal = CommitOnAck(lambda: WallMs(self.wall_ms))
        generation = Generation(self._saves * GROUPS + number + 1)
        states = ChainStates(PLAN, generation, self._objects)
        state = StatePlan("keyed", self.keys, max_parallelism=GROUPS, **self.state)
        plan = OperatorPlan(
            OperatorId("per_key"), "aggregate", ComponentPlan("", {}), None, state, None, self.plan
        )
        operator = kernel_operator(plan, journal, states)
        assert operator is not None
        return Subtask(operator, journal, states)

    def batch(self, batch: pa.RecordBatch) -> Rows:
        """What the subtasks answer to the rows of a batch, each to those of its keys."""
        groups = key_groups(batch, self.keys, GROUPS)
        rows: Rows = []
        for number, part in enumerate(self.parts):
            owned = key_group_range(number, self.subtasks, GROUPS)
            mine = batch.filter(as_array(np.isin(groups, list(owned))))
            if mine.num_rows:
                with part.journal.item():
                    rows += self._taken(part.operator.process(mine, NOWHERE))
        return rows

    def tick(self, wall_ms: int) -> Rows:
        """What they answer to a tick at a moment."""
        self.wall_ms = wall_ms
        return self._drained(lambda each: each.tick(WallMs(wall_ms)))

    def end(self) -> Rows:
        """What they answer to the end of the data."""
        return self._drained(lambda each: each.end())

    def _drained(self, call: Any) -> Rows:
        rows: Rows = []
        for part in self.parts:
            results: Iterator[OperatorResult] = call(cast(TimedOperator, part.operator))
            while True:
                with part.journal.item():
                    result = next(results, None)
                if result is None:
                    break
                rows += self._taken(result)
        return rows

    def _taken(self, result: OperatorResult) -> Rows:
        self.absorbed += result.absorbed
        self.late_rows += result.late_rows
        return [row for batch in result.batches for row in batch.to_pylist()]

    def snapshots(self) -> list[StateSnapshot]:
        """What a checkpoint says of all subtasks now."""
        self._saves += 1
        number = CheckpointId(self._saves)
        found: list[StateSnapshot] = []
        for part in self.parts:
            part.states.seal(number)
            found += part.states.upload(Epoch(Generation(1), number))[0]
        return found

    def save(self, subtasks: int | None = None) -> None:
        """Go on in operators that were restored from a snapshot; in so many if it is said."""
        snapshots = self.snapshots()
        self.subtasks = subtasks or self.subtasks
        self._start()
        for number, part in enumerate(self.parts):
            owned = key_group_range(number, self.subtasks, GROUPS)
            part.states.restore([_within(each, owned) for each in snapshots], self._objects.written)

    @property
    def live_keys(self) -> int:
        """Entries of all states."""
        return sum(state.live_keys for part in self.parts for state in part.journal._states)


def _within(snapshot: StateSnapshot, owned: range) -> StateSnapshot:
    """A snapshot of some key groups only."""
    runs = [
        replace(
            run,
            first_group=max(run.first_group, owned.start),
            last_group=min(run.last_group, owned.stop - 1),
        )
        for run in snapshot.runs
        if run.first_group < owned.stop and run.last_group >= owned.start
    ]
    return replace(snapshot, runs=tuple(runs))


__all__ = ["GROUPS", "KeyedLine", "Rows"]
