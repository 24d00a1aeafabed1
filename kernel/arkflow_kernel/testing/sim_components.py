"""A `ComponentFactory` over the scripts of a simulated job, for one chain."""

from arkflow_kernel.plan import ChainPlan, OperatorPlan, SinkPlan, SourcePlan
from arkflow_kernel.ports import Operator, SinkWriter, SourceReader
from arkflow_kernel.testing.sim_parts import SimOperator, SimSink, SimSource
from arkflow_kernel.testing.sim_world import World


class SimComponents:
    """What it made is kept, for the checkers."""

    def __init__(self, plan: ChainPlan, world: World) -> None:
        self._plan, self._world = plan, world
        self.operators: list[SimOperator] = []
        self.read: SimSource | None = None

    def source(self, plan: SourcePlan) -> SourceReader:
        """The source as drawn for this subtask."""
        del plan
        self.read = SimSource(self._world.scenario.sources[self._plan.chain])
        return self.read

    def operator(self, plan: OperatorPlan, workers: int) -> Operator:
        """The operator as drawn."""
        del workers
        rows = self._world.finish_rows(self._plan.chain, plan.operator)
        script = self._world.scenario.operators[plan.operator]
        made = SimOperator(script, rows, self._world.misuses)
        self.operators.append(made)
        return made

    def sink(self, plan: SinkPlan) -> SinkWriter:
        """The sink as drawn. The error sink is told rows of several operators, in no order."""
        world, place = self._world, f"{plan.operator}@{self._plan.chain}"
        order = world.order
        unordered: frozenset[int] = frozenset()
        ordered = order.ordered(self._plan.chain)
        ordered = unordered if plan.output == self._plan.error_output else ordered
        return SimSink(
            world.scenario.sinks[plan.operator],
            lambda rows: order.passed(place, ordered, rows),
            world.lineage.done,
        )


__all__ = ["SimComponents"]
