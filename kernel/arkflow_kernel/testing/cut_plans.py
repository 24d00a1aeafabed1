"""What one job of the simulation of rescales is: a drawn job, and other plans of it (K2).

Drawn like the jobs of `cut_scenario.py`, only that what keeps state is always behind a partitioned
edge, so that it may have any parallelism. The other plans differ in the parallelism of some
operators; what is fused may differ by that, too.
"""

from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from arkflow_kernel.graph import build_graph
from arkflow_kernel.ids import ChainId
from arkflow_kernel.job import JobSpec
from arkflow_kernel.plan import ChainPlan, ExecutionGraph
from arkflow_kernel.snapshot import RestoredChain
from arkflow_kernel.split_assignment import SplitShare, assigned
from arkflow_kernel.testing.cut_scenario import (
    CHAINS_MAX,
    CHANNELS_MAX,
    DrawnCounts,
    checkpointed_like,
    with_checkpoints,
    with_cut_parts,
)
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.scenario import Scenario
from arkflow_kernel.testing.sim_order import Head, head_of
from arkflow_kernel.testing.sim_parts import SourceScript

PLANS_MAX: Final = 4
"""Plans of one job."""

TRIES: Final = 12
"""So often is another plan drawn."""


class DrawnPlans(DrawnCounts):
    """Maps that may be rescaled, and sinks with several lanes."""

    MAPS = (1, 1, 2, 2, 3)

    def _operator(self, kind: str, number: int) -> str:
        name = super()._operator(kind, number)
        if kind == "sink":
            self._operators[-1]["parallelism"] = self._dice.pick([1, 2, 2, 3])
        return name

    def _edge_kinds(self, above: str, below: str) -> list[str]:
        if self._spec(below).get("stateful"):
            return ["partitioned"]
        return super()._edge_kinds(above, below)


@dataclass(frozen=True)
class RescaleScenario(Scenario):
    """A job that may be rescaled: all its plans, and its sources with all their splits."""

    plans: tuple[ExecutionGraph, ...] = ()
    whole: dict[Head, SourceScript] = field(default_factory=dict)

    def script(self, chain: ChainId) -> SourceScript:
        """Any subtask may be given any split of its source."""
        return self.whole[head_of(chain)]

    def _share(self, plan: ChainPlan, restored: RestoredChain) -> SplitShare:
        finished = restored.finished_subtasks
        found = self.script(plan.chain).splits() if len(finished) < plan.parallelism else ()
        return assigned(found, restored.sources, plan.parallelism, finished)[plan.subtask]


def draw_rescale_scenario(dice: Dice) -> RescaleScenario:
    """Everything that is decided before the first step."""
    while True:
        job = DrawnPlans(dice).job()
        graph = _planned(job)
        if not _fits(graph, CHAINS_MAX, CHANNELS_MAX):
            continue
        graph = with_checkpoints(dice, graph)
        others = _others(dice, job, graph)
        if others:
            break
    drawn = with_cut_parts(dice, graph)
    known = {each.name: getattr(drawn, each.name) for each in fields(drawn)}
    whole = _whole(drawn.sources)
    known["sources"] = {
        chain: replace(whole[head_of(chain)], sizes=script.sizes)
        for chain, script in drawn.sources.items()
    }
    return RescaleScenario(**known, plans=(graph, *others), whole=whole)


def _whole(sources: dict[ChainId, SourceScript]) -> dict[Head, SourceScript]:
    """By source, the script of its first subtask with the splits of all of them."""
    found: dict[Head, SourceScript] = {}
    for chain, script in sources.items():
        known = found.setdefault(head_of(chain), script)
        found[head_of(chain)] = replace(known, sizes={**known.sizes, **script.sizes})
    return found


def _others(dice: Dice, job: dict[str, Any], graph: ExecutionGraph) -> list[ExecutionGraph]:
    found: list[ExecutionGraph] = []
    for _ in range(TRIES):
        changed = deepcopy(job)
        for _ in range(dice.pick([1, 1, 2])):
            _rescale(dice, changed)
        if not _valid(changed):
            continue
        planned = checkpointed_like(graph, _planned(changed))
        new = planned not in (graph, *found)
        if new and _fits(planned, CHAINS_MAX + 3, CHANNELS_MAX + 8):
            found.append(planned)
        if len(found) + 1 == PLANS_MAX:
            break
    return found


def _planned(job: dict[str, Any]) -> ExecutionGraph:
    return build_graph(JobSpec.model_validate(job))


def _fits(graph: ExecutionGraph, chains: int, channels: int) -> bool:
    entered = sum(len(plan.inputs) for plan in graph.chains)
    return len(graph.chains) <= chains and entered <= channels


def _rescale(dice: Dice, job: dict[str, Any]) -> None:
    """Give another parallelism to one operator, and to those that stand one to one with it."""
    specs = {spec["id"]: spec for spec in job["operators"]}
    name = dice.pick([spec["id"] for spec in job["operators"]])
    before, after = specs[name]["parallelism"], dice.pick([1, 2, 3])
    alike, found = {name}, [name]
    while found:
        at = found.pop()
        for edge in job["edges"]:
            if edge.get("type") == "forward" and at in (edge["from"], edge["to"]):
                for other in (edge["from"], edge["to"]):
                    if other not in alike and specs[other]["parallelism"] == before:
                        alike.add(other)
                        found.append(other)
    for each in alike:
        specs[each]["parallelism"] = after


def _valid(job: dict[str, Any]) -> bool:
    """Whether its edges allow it (G2, G4)."""
    many = {spec["id"]: spec["parallelism"] for spec in job["operators"]}
    for edge in job["edges"]:
        below, above = many[edge["to"]], many[edge["from"]]
        if edge.get("type") == "error" and below != 1:
            return False
        if edge.get("type") == "forward" and below not in (1, above):
            return False
    return True


__all__ = ["RescaleScenario", "draw_rescale_scenario"]
