"""Joins out of their plans, with their states in the journal of their chain."""

from typing import TypeVar

from arkflow_kernel.join.join_base import LEFT, RIGHT, JoinBase
from arkflow_kernel.join.join_keys import JoinKeys
from arkflow_kernel.join.join_operator import JoinOperator
from arkflow_kernel.join.side_state import SideState
from arkflow_kernel.join.temporal_operator import TemporalJoinOperator
from arkflow_kernel.join.version_state import VersionState
from arkflow_kernel.plan import OperatorPlan
from arkflow_kernel.state.api import StateAddress
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates

Side = TypeVar("Side", bound=SideState)


def join_operator(
    plan: OperatorPlan, journal: CommitOnAck, states: ChainStates | None = None
) -> JoinBase:
    """The operator of a plan that has a `join`.

    `states` are those of the chain, if it takes snapshots or spills.
    """
    join, state = plan.join, plan.state
    assert join is not None
    assert state is not None
    keys = JoinKeys(plan.operator)

    def side(name: str, kind: type[Side]) -> Side:
        made = kind(
            StateAddress(state.namespace, plan.operator, name),
            join,
            keys,
            journal,
            max_bytes=state.max_bytes,
            memory_bytes=None if state.memory_bytes is None else state.memory_bytes // 2,
            max_parallelism=state.max_parallelism,
        )
        journal.joined(made)
        if states is not None:
            states.joined(made)
        return made

    left = side(LEFT, SideState)
    if join.versions is not None:
        versions = side(RIGHT, VersionState)
        keys.sides = (left, versions)
        return TemporalJoinOperator(plan.operator, join, left, versions, keys)
    right = side(RIGHT, SideState)
    keys.sides = (left, right)
    return JoinOperator(plan.operator, join, left, right, keys)


__all__ = ["join_operator"]
