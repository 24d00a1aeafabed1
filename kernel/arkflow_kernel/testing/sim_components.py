"""A `ComponentFactory` over the scripts of a simulated job, for one chain."""

from collections.abc import Callable

from arkflow_kernel.checkpoint_ports import EpochSink, Staging
from arkflow_kernel.plan import (
    ONLY_SUBTASK,
    ChainPlan,
    OperatorPlan,
    SinkPlan,
    SourcePlan,
    Subtask,
)
from arkflow_kernel.ports import Operator, SinkWriter, SourceReader
from arkflow_kernel.testing.sim_parts import SimOperator, SimSink, SimSource
from arkflow_kernel.testing.sim_windows import SimWindow
from arkflow_kernel.testing.sim_world import World


class SimComponents:
    """What it made is kept, for the checkers."""

    def __init__(self, plan: ChainPlan, world: World) -> None:
        self._plan, self._world = plan, world
        self.operators: list[SimOperator | SimWindow] = []
        self.read: SimSource | None = None

    def source(self, plan: SourcePlan) -> SourceReader:
        """The source as drawn for this subtask."""
        del plan
        self.read = SimSource(self._world.scenario.script(self._plan.chain))
        return self.read

    def operator(self, plan: OperatorPlan, workers: int) -> Operator:
        """The operator as drawn."""
        del workers
        rows = self._world.finish_rows(self._plan.chain, plan.operator)
        script = self._world.scenario.operators[plan.operator]
        made = SimOperator(script, rows, self._world.misuses)
        self.operators.append(made)
        return made

    def sink(
        self, plan: SinkPlan, staging: Staging | None = None, subtask: Subtask = ONLY_SUBTASK
    ) -> SinkWriter | EpochSink:
        """The sink as drawn."""
        del staging, subtask
        script = self._world.scenario.sinks[plan.operator]
        return SimSink(script, self._on_write(plan), self._world.lineage.done)

    def _on_write(self, plan: SinkPlan) -> Callable[[list[int]], None]:
        """Looks at the order of rows. The error sink gets those of several operators, in none."""
        order, place = self._world.order, f"{plan.operator}@{self._plan.chain}"
        unordered: frozenset[int] = frozenset()
        ordered = order.ordered(self._plan.chain)
        ordered = unordered if plan.output == self._plan.error_output else ordered
        return lambda rows: order.passed(place, ordered, rows)


__all__ = ["SimComponents"]
