"""Operators that the kernel runs itself: windows, and others that keep something per key.

Each is imported where a plan asks for it: the process of a chain starts with what its operators
need, and joins, windows and aggregates are a third of what the kernel's modules cost to load.
"""

from arkflow_kernel.plan import ContinuousPlan, DeduplicatePlan, KeyedPlan, OperatorPlan
from arkflow_kernel.ports import Operator
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates


def kernel_operator(
    plan: OperatorPlan, journal: CommitOnAck, states: ChainStates | None = None
) -> Operator | None:
    """The operator of a plan, with its states in the chain's journal; None: a component runs it.

    `states` are those of the chain, if it takes snapshots or spills. A plan that is `timed` gives
    a `ports.TimedOperator`.
    """
    if plan.join is not None:
        from arkflow_kernel.join.building import join_operator

        return join_operator(plan, journal, states)
    if plan.window is not None:
        from arkflow_kernel.window.building import window_operator

        return window_operator(plan, journal, states)
    return None if plan.keyed is None else _keyed(plan.keyed, plan, journal, states)


def _keyed(
    keyed: KeyedPlan, plan: OperatorPlan, journal: CommitOnAck, states: ChainStates | None
) -> Operator:
    if isinstance(keyed, ContinuousPlan):
        from arkflow_kernel.aggregate.continuous import continuous_aggregate

        return continuous_aggregate(plan, journal, states)
    if isinstance(keyed, DeduplicatePlan):
        from arkflow_kernel.aggregate.deduplicate import deduplicate

        return deduplicate(plan, journal, states)
    from arkflow_kernel.aggregate.top_n import top_n

    return top_n(plan, journal, states)


__all__ = ["kernel_operator"]
