"""The first row of each key passes, in its place among the others; rows of a key that has had one
do not (J6). With a TTL a key is forgotten so long after its first row, whatever came since.
"""

import numpy as np
import pyarrow as pa

from arkflow_kernel.aggregate.keyed_rows import at, distinct, keyed_state
from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.plan import DeduplicatePlan, OperatorPlan
from arkflow_kernel.ports import OperatorResult
from arkflow_kernel.state.api import KeyedState
from arkflow_kernel.state.arrow_numpy import all_null
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from arkflow_kernel.window.row_batches import rows_at

SEEN_STATE = "seen"
"""Name of the state that holds the keys; its values are null."""

_SEEN = pa.bool_()
NOTHING = OperatorResult(())


class Deduplicate:
    """An `Operator` over the keys that have had a row."""

    def __init__(self, state: KeyedState) -> None:
        self._state = state

    def open(self) -> None:
        """The state is opened by whoever restores it."""

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:
        """The rows that are the first of their key.

        Raises `ProcessingError` for a key that is missing or does not fit, and beyond a budget.
        """
        del origin
        keys = self._state.keys(batch)
        each = distinct(keys)
        new = np.flatnonzero(~self._state.get(each).present)
        if not len(new):
            return NOTHING
        self._state.put(at(each, new), all_null(len(new), _SEEN))
        return OperatorResult((rows_at(batch, np.sort(keys.first[new])),))

    def finish(self) -> OperatorResult:
        """No row is held back."""
        return NOTHING

    def close(self) -> None:
        """The state is released by whoever made it."""


def deduplicate(
    plan: OperatorPlan, journal: CommitOnAck, states: ChainStates | None = None
) -> Deduplicate:
    """With its state in the chain's journal. `states` are those of the chain, if it has any."""
    assert isinstance(plan.keyed, DeduplicatePlan)
    assert plan.state is not None
    state = keyed_state(plan.operator, SEEN_STATE, plan.state, _SEEN, journal, states)
    return Deduplicate(state)


__all__ = ["SEEN_STATE", "Deduplicate", "deduplicate"]
