"""Operators that the kernel runs itself: windows, and others that keep something per key."""

from arkflow_kernel.aggregate.continuous import continuous_aggregate
from arkflow_kernel.aggregate.deduplicate import deduplicate
from arkflow_kernel.aggregate.top_n import top_n
from arkflow_kernel.join.join_operator import join_operator
from arkflow_kernel.plan import ContinuousPlan, DeduplicatePlan, OperatorPlan, TopNPlan
from arkflow_kernel.ports import Operator
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from arkflow_kernel.window.building import window_operator


def kernel_operator(
    plan: OperatorPlan, journal: CommitOnAck, states: ChainStates | None = None
) -> Operator | None:
    """The operator of a plan, with its states in the chain's journal; None: a component runs it.

    `states` are those of the chain, if it takes snapshots or spills. A plan that is `timed` gives
    a `ports.TimedOperator`.
    """
    if plan.join is not None:
        return join_operator(plan, journal, states)
    if plan.window is not None:
        return window_operator(plan, journal, states)
    if isinstance(plan.keyed, ContinuousPlan):
        return continuous_aggregate(plan, journal, states)
    if isinstance(plan.keyed, DeduplicatePlan):
        return deduplicate(plan, journal, states)
    if isinstance(plan.keyed, TopNPlan):
        return top_n(plan, journal, states)
    return None


__all__ = ["kernel_operator"]
