"""The simulation of checkpoints for jobs with event time: sources with times, a window, idleness.

Jobs are drawn like those of `cut_scenario.py`, with times at their sources. In most of them one
map is a window instead, keyed and in parallel subtasks behind a partitioned edge; in the others
splits become idle and awake, and there is no window, whose results would depend on when.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from arkflow_kernel import item_work
from arkflow_kernel.operator_config import STATE_OUTPUT_KEY
from arkflow_kernel.plan import (
    ChainPlan,
    ExecutionGraph,
    OperatorPlan,
    TimePlan,
    WindowKind,
    WindowPlan,
)
from arkflow_kernel.testing.cut_scenario import DrawnCounts, draw_cut_scenario
from arkflow_kernel.testing.cut_simulation import Ask, CutSimulation
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.scenario import Scenario
from arkflow_kernel.testing.sim_epochs import COUNTS
from arkflow_kernel.testing.sim_times import TIME_FIELD, TimeScript
from arkflow_kernel.testing.sim_world import Machines
from arkflow_kernel.testing.simulation import SLICE_ROWS, Report
from arkflow_kernel.testing.time_chain import TimeJob, with_scripted_windows

PROBES: Final = (
    *("window", "window in subtasks", "window is the second map", "window in a source's chain"),
    *("several splits", "idle splits", "late rows", "rows without a time", "two inputs"),
    *("advance", "tick of a window", "said Watermark", "said Idle", "said EndOfStream", "slices"),
    *("watermark in a cut", "open windows in a cut", "result published", "published again"),
    *("restored", "drain", "stop", "savepoint", "run stopped", "power failure"),
)
"""What the fixed seeds together must reach."""


class _DrawnWindow(DrawnCounts):
    """A job whose map of a drawn number, if it has so many, is to be a window."""

    SOURCES = (1, 2, 2)
    MAPS = (1, 1, 2, 2, 3)

    def __init__(self, dice: Dice) -> None:
        super().__init__(dice)
        self._window = f"map{dice.pick([0, 0, 1])}"

    def _operator(self, kind: str, number: int) -> str:
        name = super()._operator(kind, number)
        if name == self._window:
            spec = self._operators[-1]
            spec["stateful"] = True
            spec["config"] = {**spec["config"], STATE_OUTPUT_KEY: f"{COUNTS}{name}"}
            spec["config"]["window"] = True
            spec["parallelism"] = self._dice.pick([1, 2, 2, 3])
        return name


def draw_time_scenario(dice: Dice) -> Scenario:
    """Everything that is decided before the first step."""
    drawn = draw_cut_scenario(dice, _DrawnWindow)
    operators = (op for plan in drawn.graph.chains for op in plan.operators)
    window = next((op.operator for op in operators if _is_window(op)), None)
    idle = dice.one_in(3)
    time = TimeScript(
        seed=dice.below(1_000),
        bound_ms=dice.pick([0, 15, 40]),
        size_ms=dice.pick([20, 50, 100]),
        idle_timeout_ms=dice.pick([1, 2, 9]) if idle else None,
        nulls=dice.pick([0, 9]),
        strays=dice.pick([0, 5, 11]),
        window=None if idle else window,
    )
    sources = {name: replace(script, time=time) for name, script in drawn.sources.items()}
    scripts = {name: replace(script, at_finish=0) for name, script in drawn.operators.items()}
    graph = _with_time(drawn.graph, time)
    return replace(drawn, graph=graph, sources=sources, operators=scripts, time=time)


def _is_window(plan: OperatorPlan) -> bool:
    config: Mapping[str, Any] = plan.component.config
    return bool(config.get("window"))


def _with_time(graph: ExecutionGraph, time: TimeScript) -> ExecutionGraph:
    return replace(graph, chains=tuple(_timed(plan, time) for plan in graph.chains))


def _timed(plan: ChainPlan, time: TimeScript) -> ChainPlan:
    operators = tuple(_windowed(op, time) for op in plan.operators)
    if plan.source is None:
        return replace(plan, operators=operators)
    at_source = TimePlan(
        TIME_FIELD, time.bound_ms, time.idle_timeout_ms, stamps=time.window is not None
    )
    return replace(plan, operators=operators, source=replace(plan.source, time=at_source))


def _windowed(plan: OperatorPlan, time: TimeScript) -> OperatorPlan:
    if plan.operator != time.window or plan.state is None:
        return plan
    window = WindowPlan(WindowKind.TUMBLING, TIME_FIELD, size_ms=time.size_ms)
    return replace(plan, window=window, state=replace(plan.state, count_field=None))


class TimeSimulation(CutSimulation):
    """One seed."""

    job_kind = TimeJob
    asks = (*[Ask.STOP] * 4, *Ask)
    file = "tests/simulation/test_time_simulation.py"

    def __init__(self, seed: int, machines: Machines | None = None) -> None:
        known = machines or Machines()
        super().__init__(seed, replace(known, work=with_scripted_windows(known.work)))

    def run(self) -> Report:
        """Run the seed to its end; a firing leaves in several slices, as batches do."""
        known = vars(item_work)["SLICE_ROWS_MAX"]
        vars(item_work)["SLICE_ROWS_MAX"] = SLICE_ROWS
        try:
            return super().run()
        finally:
            vars(item_work)["SLICE_ROWS_MAX"] = known

    def _drawn(self) -> Scenario:
        scenario = draw_time_scenario(self._dice)
        _probe(scenario, self.probes)
        return scenario


def _probe(scenario: Scenario, probes: "dict[str, int] | Any") -> None:
    time = scenario.time
    assert time is not None
    probes["idle splits"] += time.idle_timeout_ms is not None
    probes["several splits"] += sum(len(s.sizes) for s in scenario.sources.values()) > 1
    probes["late rows"] += bool(time.strays) and time.window is not None
    probes["rows without a time"] += bool(time.nulls)
    windows = [
        plan
        for plan in scenario.graph.chains
        if any(operator.window is not None for operator in plan.operators)
    ]
    probes["window"] += bool(windows)
    probes["window in subtasks"] += len(windows) > 1
    probes["window is the second map"] += time.window == "map1"
    for plan in windows[:1]:
        probes["window in a source's chain"] += plan.source is not None


__all__ = ["PROBES", "TimeSimulation", "draw_time_scenario"]
