"""A job as autoscaling sees it (K6): stages, what flows between them, what changes together.

A stage is one chain of operators over all of its subtasks: busy time is known of no smaller part.
Stages between which rows go one to one (G2) have equal parallelism, so they form one group, which
changes as a whole. A group with a stage that may not change does not change.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from arkflow_kernel.ids import ChainId, EdgeId, OperatorId
from arkflow_kernel.plan import ChainPlan, EdgeKind, EdgePlan, ExecutionGraph

_ONE_TO_ONE: Final = (EdgeKind.FORWARD, EdgeKind.ERROR, EdgeKind.LATE)


@dataclass(frozen=True, slots=True)
class ScaleBounds:
    """How many subtasks an operator may have, both ends included, and how busy they are to be.

    `target_busy` is a share of the time, above 0 and below 1.
    """

    minimum: int
    maximum: int
    target_busy: float = 0.7

    def __post_init__(self) -> None:
        assert 1 <= self.minimum <= self.maximum
        assert 0 < self.target_busy < 1

    def clamped(self, subtasks: int) -> int:
        """The number within the bounds that is nearest."""
        return max(self.minimum, min(self.maximum, subtasks))


@dataclass(frozen=True, slots=True)
class ScaledStage:
    """One chain of operators. `chains` are its subtasks, in order.

    `rows_per_second` is what a source lets through at most, all subtasks together; None: no such
    limit, or no source. `bounds` None: its parallelism is not to be changed.
    """

    name: str
    operators: tuple[OperatorId, ...]
    chains: tuple[ChainId, ...]
    is_source: bool = False
    rows_per_second: float | None = None
    bounds: ScaleBounds | None = None

    @property
    def parallelism(self) -> int:
        """How many subtasks it has."""
        return len(self.chains)


@dataclass(frozen=True, slots=True)
class StageEdge:
    """Rows go from one stage to another. `to_all`: each row goes to every subtask of the target."""

    edge: EdgeId
    source: str
    target: str
    to_all: bool = False


@dataclass(frozen=True, slots=True)
class StageGroup:
    """Stages that have equal parallelism and change together. `bounds` None: they do not."""

    stages: tuple[ScaledStage, ...]
    bounds: ScaleBounds | None

    @property
    def name(self) -> str:
        """For people: the operators that a user knows, of the first stage."""
        return self.stages[0].name

    @property
    def operators(self) -> tuple[OperatorId, ...]:
        """Operators of all its stages."""
        return tuple(operator for stage in self.stages for operator in stage.operators)

    @property
    def parallelism(self) -> int:
        """How many subtasks each of them has."""
        return self.stages[0].parallelism


@dataclass(frozen=True)
class ScalingPlan:
    """The stages of a running plan in the order in which rows flow, their edges, their groups."""

    stages: tuple[ScaledStage, ...]
    edges: tuple[StageEdge, ...]
    groups: tuple[StageGroup, ...] = field(default=())

    @property
    def chains(self) -> frozenset[ChainId]:
        """Subtasks of all stages."""
        return frozenset(chain for stage in self.stages for chain in stage.chains)

    @property
    def parallelism(self) -> dict[OperatorId, int]:
        """Parallelism by operator."""
        return {op: stage.parallelism for stage in self.stages for op in stage.operators}


def scaling_plan(graph: ExecutionGraph, bounds: Mapping[OperatorId, ScaleBounds]) -> ScalingPlan:
    """The stages of a plan. `bounds` names the operators that may change, all others stay.

    A chain may change if one of its operators may; the narrowest bounds of those hold.
    """
    subtasks: dict[str, list[ChainPlan]] = {}
    for chain in graph.chains:
        subtasks.setdefault(_head(chain), []).append(chain)
    stages = {name: _stage(name, chains, bounds) for name, chains in subtasks.items()}
    stage_of = {op: name for name, stage in stages.items() for op in stage.operators}
    carrying = [edge for edge in graph.edges if stage_of[edge.source] != stage_of[edge.target]]
    edges = tuple(
        StageEdge(
            edge.edge,
            stage_of[edge.source],
            stage_of[edge.target],
            edge.kind is EdgeKind.BROADCAST,
        )
        for edge in carrying
    )
    ordered = tuple(stages[name] for name in in_flow_order(tuple(stages), edges))
    ties = [
        (stage_of[edge.source], stage_of[edge.target])
        for edge in carrying
        if _ties(edge, stages[stage_of[edge.target]])
    ]
    return ScalingPlan(ordered, edges, tuple(_groups(ordered, ties)))


def in_flow_order(names: tuple[str, ...], edges: tuple[StageEdge, ...]) -> list[str]:
    """Stages so that each stands behind all that send to it; a valid job has no cycle."""
    waits = {name: {edge.source for edge in edges if edge.target == name} for name in names}
    ordered: list[str] = []
    while waits:
        free = [name for name, above in waits.items() if above.isdisjoint(waits)]
        assert free, "rows flow in a circle"
        ordered += free
        for name in free:
            del waits[name]
    return ordered


def _head(chain: ChainPlan) -> str:
    return chain.chain.removesuffix(f"-{chain.subtask}")


def _stage(
    name: str, chains: list[ChainPlan], bounds: Mapping[OperatorId, ScaleBounds]
) -> ScaledStage:
    first = chains[0]
    source = first.source
    operators = (
        *(() if source is None else (source.operator,)),
        *(operator.operator for operator in first.operators),
        *(sink.operator for sink in first.sinks),
    )
    limits = [plan.source.rows_per_second for plan in chains if plan.source is not None]
    given = [limit for limit in limits if limit is not None]
    return ScaledStage(
        name,
        operators,
        tuple(plan.chain for plan in sorted(chains, key=lambda plan: plan.subtask)),
        source is not None,
        sum(given) if limits and len(given) == len(limits) else None,
        _narrowest([bounds[op] for op in operators if op in bounds]),
    )


def _narrowest(bounds: list[ScaleBounds]) -> ScaleBounds | None:
    """Bounds that hold all of these; None without any, or if they exclude each other."""
    if not bounds:
        return None
    minimum = max(each.minimum for each in bounds)
    maximum = min(each.maximum for each in bounds)
    busy = min(each.target_busy for each in bounds)
    return ScaleBounds(minimum, maximum, busy) if minimum <= maximum else None


def _ties(edge: EdgePlan, target: ScaledStage) -> bool:
    """Whether both ends must change together: one to one, unless all go to one that stays one."""
    stays_one = target.parallelism == 1 and (target.bounds is None or target.bounds.maximum == 1)
    return edge.kind in _ONE_TO_ONE and not stays_one


def _groups(stages: tuple[ScaledStage, ...], ties: list[tuple[str, str]]) -> Iterator[StageGroup]:
    """Stages that are tied to each other, directly or through others; in the order of stages."""
    group_of = {stage.name: stage.name for stage in stages}
    for above, below in ties:
        kept, gone = group_of[above], group_of[below]
        group_of = {name: kept if group == gone else group for name, group in group_of.items()}
    for name in dict.fromkeys(group_of.values()):
        members = tuple(stage for stage in stages if group_of[stage.name] == name)
        given = [stage.bounds for stage in members if stage.bounds is not None]
        yield StageGroup(members, _narrowest(given) if len(given) == len(members) else None)


__all__ = [
    "ScaleBounds",
    "ScaledStage",
    "ScalingPlan",
    "StageEdge",
    "StageGroup",
    "in_flow_order",
    "scaling_plan",
]
