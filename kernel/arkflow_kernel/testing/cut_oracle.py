"""What a job must have made of the rows before a cut: recomputed from its plan alone, row by row.

The answer to every question about a checkpoint: which rows each sink has, and how often each
stateful operator has seen each key. Routes are followed by chain and not by subtask, so an edge may
distribute rows as it likes; a broadcast multiplies them.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from arkflow_kernel.ids import ChainId, OperatorId, OutputId
from arkflow_kernel.plan import ChainPlan, EdgeKind, OutletPlan
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.snapshot import ChainSnapshot
from arkflow_kernel.testing.lineage import place_in
from arkflow_kernel.testing.scenario import Scenario
from arkflow_kernel.testing.sim_order import Head, head_of
from arkflow_kernel.testing.sim_parts import every
from arkflow_kernel.testing.sim_rows import KEYS, SPLIT_ROWS, split_number


@dataclass(frozen=True)
class Cut:
    """How far each split was read, which chains had finished their operators, and the watermarks
    that operators had been given.
    """

    places: dict[int, int] = field(default_factory=dict)
    finished: frozenset[ChainId] = frozenset()
    watermarks: dict[ChainId, int] = field(default_factory=dict)

    def contains(self, positions: Iterable[SplitPosition]) -> bool:
        """Whether no position stands beyond it."""
        return all(self.places.get(split_number(p.split), 0) >= place_in(p) for p in positions)


NOTHING = Cut()
"""Before the first row."""


def cut_of(chains: Iterable[ChainSnapshot]) -> Cut:
    """The cut that the snapshots of a record claim."""
    places: dict[int, int] = {}
    finished = set()
    watermarks: dict[ChainId, int] = {}
    for snapshot in chains:
        places.update({split_number(p.split): place_in(p) for p in snapshot.sources})
        if snapshot.finished:
            finished.add(snapshot.chain)
        if snapshot.watermark is not None:
            watermarks[snapshot.chain] = snapshot.watermark
    return Cut(places, frozenset(finished), watermarks)


@dataclass
class Came:
    """Rows that came to a place, by where they began: a split, or a chain that was finished."""

    read: dict[int, list[int]] = field(default_factory=dict)
    finished: dict[ChainId, list[int]] = field(default_factory=dict)

    def before(self, cut: Cut) -> list[int]:
        """Those before a cut, in no order."""
        rows: list[int] = []
        for split, found in self.read.items():
            rows += found[: bisect_left(found, split * SPLIT_ROWS + cut.places.get(split, 0))]
        for chain in cut.finished:
            rows += self.finished.get(chain, ())
        return rows


class Oracle:
    """Where every row of a job goes."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._first = {head_of(p.chain): p for p in reversed(scenario.graph.chains)}
        self._sinks: dict[OperatorId, Came] = {}
        self._counted: dict[OperatorId, Came] = {}
        for plan in scenario.graph.chains:
            for sink in plan.sinks:
                self._sinks[sink.operator] = Came()
            for operator in plan.operators:
                if operator.state is not None and operator.window is None:
                    self._counted[operator.operator] = Came()
        self._walk_all()
        self.ends = scenario.ends()

    def written(self, sink: OperatorId, cut: Cut) -> list[int]:
        """The rows that a sink has, in all its subtasks, sorted."""
        return sorted(self._sinks[sink].before(cut))

    def counts(self, operator: OperatorId, cut: Cut) -> dict[int, int]:
        """By key, how many rows a stateful operator has counted, in all its subtasks."""
        return dict(Counter(r % SPLIT_ROWS % KEYS for r in self._counted[operator].before(cut)))

    @property
    def stateful(self) -> Iterable[OperatorId]:
        """The operators that count."""
        return self._counted.keys()

    # --- the ways ------------------------------------------------------------------------------

    def _walk_all(self) -> None:
        for chain, script in self._scenario.sources.items():
            plan = self._first[head_of(chain)]
            for split in script.sizes:
                for place in range(script.rows(split)):
                    row = split * SPLIT_ROWS + place
                    if every(script.bad, row):
                        self._leave(plan, plan.error_output, row, None, 1)
                    elif script.time is None or script.time.time_of(row) is not None:
                        self._enter(plan, 0, row, None, 1)
        for plan in self._scenario.graph.chains:
            for index, operator in enumerate(plan.operators):
                for row in self._scenario.finish_rows(plan.chain, operator.operator):
                    self._enter(plan, index + 1, row, plan.chain, 1)

    def _enter(
        self, plan: ChainPlan, index: int, row: int, began: ChainId | None, times: int
    ) -> None:
        """A row comes to an operator of a chain."""
        for place, operator in enumerate(plan.operators[index:], index):
            if operator.window is not None:
                self._enter_window(plan, place, row, times)
                return
            if operator.operator in self._counted:
                _note(self._counted[operator.operator], row, began, times)
            script = self._scenario.operators[operator.operator]
            if every(script.rejects, row):
                self._leave(plan, plan.error_output, row, began, times)
                return
            if every(script.drops, row):
                return
        for output in plan.outputs:
            self._leave(plan, output, row, began, times)

    def _enter_window(self, plan: ChainPlan, index: int, row: int, times: int) -> None:
        """A row comes to a window; see `time_oracle`."""
        raise NotImplementedError(plan, index, row, times)

    def _leave(
        self,
        plan: ChainPlan,
        output: OutputId | None,
        row: int,
        began: ChainId | None,
        times: int,
    ) -> None:
        assert output is not None
        outlet = next((o for o in plan.outlets if o.output == output), None)
        if outlet is None:
            _note(self._sinks[OperatorId(output)], row, began, times)
            return
        if outlet.kind is EdgeKind.BROADCAST:
            times *= len(outlet.channels)
        self._enter(self._first[_target(outlet)], 0, row, began, times)


def _target(outlet: OutletPlan) -> Head:
    return head_of(outlet.channels[0].target)


def _note(came: Came, row: int, began: ChainId | None, times: int) -> None:
    if began is None:
        came.read.setdefault(row // SPLIT_ROWS, []).extend([row] * times)
    else:
        came.finished.setdefault(began, []).extend([row] * times)


__all__ = ["NOTHING", "Came", "Cut", "Oracle", "cut_of"]
