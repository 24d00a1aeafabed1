"""What one job of the simulation of checkpoints is: a drawn job that keeps state, and its sinks.

Drawn like the jobs of ack mode (`scenario.py`), only that most maps count rows per key, most sinks
publish exactly once, and rounds are opened often.
"""

from dataclasses import replace
from typing import Any, Final

from arkflow_kernel.ids import OperatorId
from arkflow_kernel.operator_config import STATE_OUTPUT_KEY
from arkflow_kernel.plan import ChainPlan, CheckpointPlan, ExecutionGraph, Mode
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.scenario import (
    DrawnJob,
    Scenario,
    UserAction,
    draw_graph,
    with_parts,
)
from arkflow_kernel.testing.sim_epochs import COUNTS

ENVELOPES: Final = 110
"""About so many batches and envelopes does a whole job move, so that it sees several rounds."""


CHAINS_MAX: Final = 6
"""Subtasks of chains in one job: each takes part in every round."""

CHANNELS_MAX: Final = 9


class DrawnCounts(DrawnJob):
    """Maps that count; what comes to several subtasks of one is partitioned (G4)."""

    MAPS: tuple[int, ...] = (0, 1, 2, 2, 3, 3)

    def _operator(self, kind: str, number: int) -> str:
        name = super()._operator(kind, number)
        if kind == "map":
            self._operators[-1]["parallelism"] = self._dice.pick([1, 1, 1, 2, 3])
        if kind == "map" and not self._dice.one_in(4):
            spec = self._operators[-1]
            spec["stateful"] = True
            spec["config"] = {**spec["config"], STATE_OUTPUT_KEY: f"{COUNTS}{name}"}
        return name

    def _edge_kinds(self, above: str, below: str) -> list[str]:
        if self._spec(below).get("stateful") and self._parallelism(below) > 1:
            return ["partitioned"]
        return super()._edge_kinds(above, below)


def draw_cut_scenario(dice: Dice, kind: type[DrawnCounts] = DrawnCounts) -> Scenario:
    """Everything that is decided before the first step."""
    graph = with_checkpoints(dice, draw_graph(dice, kind, CHAINS_MAX, CHANNELS_MAX))
    return with_cut_parts(dice, graph)


def with_cut_parts(dice: Dice, graph: ExecutionGraph) -> Scenario:
    """A planned job in checkpoint mode, and what its parts do."""
    drawn = with_parts(dice, graph, UserAction.NOTHING, ENVELOPES)
    operators = {name: replace(script, fails=0) for name, script in drawn.operators.items()}
    unbounded = dice.one_in(6)
    sources = {
        chain: replace(script, unbounded=unbounded) for chain, script in drawn.sources.items()
    }
    return replace(drawn, operators=operators, sources=sources)


def with_checkpoints(dice: Dice, graph: ExecutionGraph) -> ExecutionGraph:
    """The plan in checkpoint mode, with most sinks exactly-once."""
    once: dict[OperatorId, bool] = {}
    for plan in graph.chains:
        for sink in plan.sinks:
            once.setdefault(sink.operator, not dice.one_in(4))
    policy: dict[str, Any] = {
        "root": "sim:",
        "interval_ms": dice.pick([5, 30, 100]),
        "retention": dice.pick([1, 2, 3]),
    }
    timeout_ms, failures = dice.pick([(2_500, 100), (60_000, 2), (600_000, 10)])
    policy |= {"timeout_ms": timeout_ms, "tolerable_failures": failures}
    return _checkpointed(graph, once, CheckpointPlan(**policy))


def checkpointed_like(known: ExecutionGraph, graph: ExecutionGraph) -> ExecutionGraph:
    """Another plan of a job in checkpoint mode."""
    assert known.checkpoint is not None
    once = {sink.operator: sink.exactly_once for plan in known.chains for sink in plan.sinks}
    return _checkpointed(graph, once, known.checkpoint)


def _checkpointed(
    graph: ExecutionGraph, once: dict[OperatorId, bool], policy: CheckpointPlan
) -> ExecutionGraph:
    chains = tuple(_in_checkpoint_mode(plan, once) for plan in graph.chains)
    return replace(graph, mode=Mode.CHECKPOINT, chains=chains, checkpoint=policy)


def _in_checkpoint_mode(plan: ChainPlan, once: dict[OperatorId, bool]) -> ChainPlan:
    sinks = tuple(replace(sink, exactly_once=once[sink.operator]) for sink in plan.sinks)
    return replace(plan, mode=Mode.CHECKPOINT, sinks=sinks)


__all__ = [
    "CHAINS_MAX",
    "CHANNELS_MAX",
    "DrawnCounts",
    "checkpointed_like",
    "draw_cut_scenario",
    "with_checkpoints",
    "with_cut_parts",
]
