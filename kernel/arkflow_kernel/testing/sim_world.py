"""What all parts of one simulated job share: its script, its clock, its dice, its ground truth."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from arkflow_kernel.chain_work import ChainWork
from arkflow_kernel.coordinator import JobCoordinator
from arkflow_kernel.ids import ChainId, OperatorId
from arkflow_kernel.job_log import JobLog
from arkflow_kernel.lane_schedule import LaneSchedule
from arkflow_kernel.plan import ChainPlan, ExecutionGraph
from arkflow_kernel.task import ChainTask
from arkflow_kernel.testing.checkers import ItemCheck, OrderCheck
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.lineage import Lineage
from arkflow_kernel.testing.scenario import Scenario
from arkflow_kernel.testing.sim_store import SimObjects
from arkflow_kernel.testing.virtual_clock import VirtualClock


@dataclass(frozen=True)
class Machines:
    """What runs: the real classes, or ones with a planted bug."""

    task: Callable[..., ChainTask] = ChainTask
    coordinator: Callable[..., JobCoordinator] = JobCoordinator
    schedule: Callable[[int], Any] = LaneSchedule
    work: Callable[..., ChainWork] = ChainWork
    log: Callable[..., JobLog] = JobLog
    objects: Callable[..., SimObjects] = SimObjects

    @classmethod
    def planted(cls, bug: type[Any]) -> "Machines":
        """All real but one: the planted bug, which is a subclass of it."""
        (name,) = (name for name, real in vars(cls()).items() if issubclass(bug, real))
        return cls(**{name: bug})


class World:
    """One job. Orders are judged within an attempt, rows over all of them."""

    def __init__(
        self,
        scenario: Scenario,
        machines: Machines,
        clock: VirtualClock,
        dice: Dice,
        probes: "Counter[str]",
    ) -> None:
        self.scenario, self.machines = scenario, machines
        self.clock, self.dice, self.probes = clock, dice, probes
        self.lineage = Lineage(scenario.ends())
        self.order = OrderCheck(scenario)
        self.items = {plan.chain: ItemCheck(plan, scenario) for plan in scenario.graph.chains}
        self.misuses: list[str] = []

    def replan(self, graph: ExecutionGraph) -> None:
        """Another plan of the job is at work, or the same."""
        if graph != self.scenario.graph:
            self.scenario = self.scenario.under(graph)
            self.items = {plan.chain: ItemCheck(plan, self.scenario) for plan in graph.chains}

    def new_attempt(self) -> None:
        """What was on its way is gone; orders begin anew."""
        self.lineage.new_attempt()
        self.order = OrderCheck(self.scenario)

    def finish_rows(self, chain: ChainId, operator: OperatorId) -> list[int]:
        """The rows that an operator of a chain yields when it is finished."""
        return self.scenario.finish_rows(chain, operator)

    def all_finish_rows(self, plan: ChainPlan) -> list[int]:
        """Those of all operators of a chain."""
        return [row for op in plan.operators for row in self.finish_rows(plan.chain, op.operator)]


__all__ = ["Machines", "World"]
