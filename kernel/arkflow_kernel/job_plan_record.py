"""What a claim and a record say of a job's plan: who was there, never how it was configured (M8).

Configurations go in as one digest; secrets in them are references, and even those stay out.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from itertools import pairwise

from arkflow_kernel.graph import key_group_range
from arkflow_kernel.ids import ChainId, OperatorId, TaskId
from arkflow_kernel.plan import ChainPlan, ExecutionGraph
from arkflow_kernel.ports import JsonValue
from arkflow_kernel.record_json import Fields, Json, MalformedError

ROLES = ("source", "operator", "sink")


@dataclass(frozen=True, slots=True)
class PlannedOperator:
    """An operator of a chain. `role`: source, operator or sink; `stateful`: it keeps state."""

    operator: OperatorId
    role: str
    stateful: bool = False
    exactly_once: bool = False


@dataclass(frozen=True, slots=True)
class PlannedChain:
    """One chain: its operators in order, and the key groups it owns, both ends included (G3)."""

    chain: ChainId
    tasks: tuple[TaskId, ...]
    operators: tuple[PlannedOperator, ...]
    subtask: int
    parallelism: int
    first_group: int
    last_group: int


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The plan of a job as its log holds it. `digest` changes with every change of the plan."""

    digest: str
    max_parallelism: int
    chains: tuple[PlannedChain, ...]

    def operators(self) -> Iterator[PlannedOperator]:
        """Every operator once, in the order of the chains."""
        seen: set[OperatorId] = set()
        for chain in self.chains:
            for operator in chain.operators:
                if operator.operator not in seen:
                    seen.add(operator.operator)
                    yield operator

    def hosts(self) -> dict[OperatorId, tuple[PlannedChain, ...]]:
        """The chains that run each operator, by subtask, and so by their key groups."""
        found: defaultdict[OperatorId, list[PlannedChain]] = defaultdict(list)
        for chain in sorted(self.chains, key=lambda chain: chain.subtask):
            for each in chain.operators:
                found[each.operator].append(chain)
        return {operator: tuple(chains) for operator, chains in found.items()}

    @property
    def exactly_once(self) -> tuple[OperatorId, ...]:
        """Its exactly-once sinks."""
        return tuple(each.operator for each in self.operators() if each.exactly_once)

    @property
    def tasks(self) -> frozenset[tuple[ChainId, tuple[TaskId, ...]]]:
        """Every planned task, by chain: what a record of this plan must hold (M2)."""
        return frozenset((chain.chain, chain.tasks) for chain in self.chains)


def plan_of(graph: ExecutionGraph) -> JobPlan:
    """What the log holds of a plan."""
    chains = tuple(_chain(plan, graph.max_parallelism) for plan in graph.chains)
    text = json.dumps(
        _plain((graph.mode, graph.chains, graph.edges, graph.max_parallelism)), sort_keys=True
    )
    digest = hashlib.sha256(text.encode()).hexdigest()
    return JobPlan(digest, graph.max_parallelism, chains)


def lost_lanes(plans: Seq[JobPlan]) -> bool:
    """Whether an exactly-once sink had fewer subtasks than before, ever; newest plan first (X5)."""
    counts = [{name: len(chains) for name, chains in plan.hosts().items()} for plan in plans]
    return any(
        newer.get(sink, 0) < older[sink]
        for plan, (newer, older) in zip(plans[1:], pairwise(counts), strict=True)
        for sink in plan.exactly_once
    )


def plan_json(plan: JobPlan) -> Json:
    """A plan without its digest and `max_parallelism`, which stand in the record itself."""
    return {"chains": [planned_json(chain) for chain in plan.chains]}


def planned_json(chain: PlannedChain) -> Json:
    """One chain of a plan."""
    return {
        "chain": chain.chain,
        "tasks": list(chain.tasks),
        "operators": [
            {
                "operator": each.operator,
                "role": each.role,
                "stateful": each.stateful,
                "exactly_once": each.exactly_once,
            }
            for each in chain.operators
        ],
        "subtask": chain.subtask,
        "parallelism": chain.parallelism,
        "key_groups": [chain.first_group, chain.last_group],
    }


def read_planned(fields: Fields) -> PlannedChain:
    """What `planned_json` wrote."""
    first, last = fields.groups("key_groups")
    return PlannedChain(
        chain=ChainId(fields.text("chain")),
        tasks=tuple(TaskId(task) for task in fields.texts("tasks")),
        operators=fields.each("operators", _read_operator),
        subtask=fields.number("subtask"),
        parallelism=fields.number("parallelism"),
        first_group=first,
        last_group=last,
    )


def _read_operator(fields: Fields) -> PlannedOperator:
    role = fields.text("role")
    if role not in ROLES:
        raise MalformedError(f"an operator's role is '{role}'")
    return PlannedOperator(
        OperatorId(fields.text("operator")),
        role,
        fields.flag("stateful"),
        fields.flag("exactly_once"),
    )


def _chain(plan: ChainPlan, max_parallelism: int) -> PlannedChain:
    operators = [] if plan.source is None else [PlannedOperator(plan.source.operator, "source")]
    operators += [
        PlannedOperator(each.operator, "operator", each.state is not None)
        for each in plan.operators
    ]
    operators += [
        PlannedOperator(each.operator, "sink", exactly_once=each.exactly_once)
        for each in plan.sinks
    ]
    groups = key_group_range(plan.subtask, plan.parallelism, max_parallelism)
    return PlannedChain(
        plan.chain,
        plan.tasks,
        tuple(operators),
        plan.subtask,
        plan.parallelism,
        groups.start,
        groups.stop - 1,
    )


def _plain(value: object) -> JsonValue:
    """Anything in a plan as JSON, so that equal plans give equal texts."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return f"{type(value).__name__}:{value}"


__all__ = [
    "JobPlan",
    "PlannedChain",
    "PlannedOperator",
    "lost_lanes",
    "plan_json",
    "plan_of",
    "planned_json",
    "read_planned",
]
