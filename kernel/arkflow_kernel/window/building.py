"""Which operator runs a window: by its kind, and by whether aggregates or the rows leave."""

from arkflow_kernel.plan import OperatorPlan
from arkflow_kernel.ports import TimedOperator
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates


def window_operator(
    plan: OperatorPlan, journal: CommitOnAck, states: ChainStates | None = None
) -> TimedOperator:
    """The operator of a plan that has a `window`, with its states in the chain's journal.

    `states` are those of the chain, if it takes snapshots or spills.
    """
    raise NotImplementedError


__all__ = ["window_operator"]
