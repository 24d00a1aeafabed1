"""Which process hosts which chain when a job goes on with another plan (K2). Pure.

A process is known by the chain that it ran last, or that it was prepared for. A chain of the new
plan goes where the greatest part of its key groups is already: what moves is fetched, what stays is
not. Each process is used once.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping

from arkflow_kernel.graph import key_group_range
from arkflow_kernel.ids import ChainId, OperatorId
from arkflow_kernel.plan import ChainPlan, ExecutionGraph


def hosts(old: ExecutionGraph, new: ExecutionGraph) -> Mapping[ChainId, ChainId]:
    """The process of each chain of the new plan, in the order of the plan.

    Names that are no chains of the old plan are those of processes that the new plan adds.
    """
    known = {plan.chain for plan in old.chains}
    found: dict[ChainId, ChainId] = {}
    taken: set[ChainId] = set()
    for _, plan, host in sorted(_shares(old, new), key=lambda share: -share[0]):
        if plan.chain not in found and host not in taken:
            found[plan.chain] = host
            taken.add(host)
    added = (plan for plan in new.chains if plan.chain not in known)
    spare = _Spare(plan for plan in (*old.chains, *added) if plan.chain not in taken)
    left = [plan for plan in new.chains if plan.chain not in found]
    own = [plan for plan in left if spare.has(plan.chain)]
    found |= {plan.chain: spare.take(plan.chain) for plan in own}
    found |= {plan.chain: spare.alike(plan) for plan in left if plan.chain not in found}
    return {plan.chain: found[plan.chain] for plan in new.chains}


def parallelism_of(graph: ExecutionGraph) -> dict[OperatorId, int]:
    """How many subtasks each operator has, in the order of the plan."""
    return {name: plan.parallelism for plan in graph.chains for name in _operators(plan)}


class _Spare:
    """Processes that no chain has. There are as many as chains without one, or more."""

    def __init__(self, plans: Iterator[ChainPlan]) -> None:
        self._plans = {plan.chain: _operators(plan) for plan in plans}

    def has(self, name: ChainId) -> bool:
        """Whether the process of this name is free."""
        return name in self._plans

    def take(self, name: ChainId) -> ChainId:
        """It is used."""
        del self._plans[name]
        return name

    def alike(self, plan: ChainPlan) -> ChainId:
        """One for chains of the same operators, else any."""
        wanted = _operators(plan)
        found = (name for name, operators in self._plans.items() if operators == wanted)
        return self.take(next(found, next(iter(self._plans))))


def _shares(old: ExecutionGraph, new: ExecutionGraph) -> Iterator[tuple[int, ChainPlan, ChainId]]:
    """How many key groups a new chain shares with each old one that runs some of its operators."""
    stages: defaultdict[OperatorId, list[tuple[int, int, ChainId]]] = defaultdict(list)
    for plan in old.chains:
        groups = _groups(plan, old)
        for name in _operators(plan):
            stages[name].append((groups.start, groups.stop, plan.chain))
    for plan in new.chains:
        groups = _groups(plan, new)
        for name in _operators(plan):
            stage = stages[name]
            first = max(0, bisect_right(stage, groups.start, key=lambda each: each[0]) - 1)
            for start, stop, host in stage[first:]:
                if start >= groups.stop:
                    break
                yield min(stop, groups.stop) - max(start, groups.start), plan, host


def _operators(plan: ChainPlan) -> tuple[OperatorId, ...]:
    source = () if plan.source is None else (plan.source.operator,)
    operators = (each.operator for each in plan.operators)
    return (*source, *operators, *(sink.operator for sink in plan.sinks))


def _groups(plan: ChainPlan, graph: ExecutionGraph) -> range:
    return key_group_range(plan.subtask, plan.parallelism, graph.max_parallelism)


__all__ = ["hosts", "parallelism_of"]
