"""`stateful: true`: the running row count of a row's key, before the inner processor (C.2)."""

import pyarrow as pa

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.ids import OperatorId
from arkflow_kernel.plan import StatePlan
from arkflow_kernel.ports import Operator, OperatorResult
from arkflow_kernel.state.api import KeyedState, StateAddress
from arkflow_kernel.state.arrow_numpy import AnyArray
from arkflow_kernel.state.memory import MemoryState
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates

COUNT_STATE = "count"
"""Name of the state that holds the counts."""

COUNT_TYPE = pa.int64()
"""Type of the state and of the column."""


class RunningCount:
    """Adds the column `plan.count_field`: 1 for the first row of a key, then 2, across batches.

    A null is a key like others. A column of that name that comes in is replaced in its place: it
    is what an operator of the same name before this one has left, and two columns of one name
    would break the next processor.
    """

    def __init__(self, inner: Operator, state: KeyedState, plan: StatePlan) -> None:
        assert plan.count_field is not None
        self._inner = inner
        self._state = state
        self._field = pa.field(plan.count_field, COUNT_TYPE, nullable=False)

    def open(self) -> None:
        """Open the inner processor; the state needs nothing."""
        self._inner.open()

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:
        """Count, then process. Raises `ProcessingError` for a key that is missing or changed."""
        counts = self._state.increment(self._state.keys(batch))
        return self._inner.process(self._with(batch, counts), origin)

    def _with(self, batch: pa.RecordBatch, counts: AnyArray) -> pa.RecordBatch:
        places = batch.schema.get_all_field_indices(self._field.name)
        if places:
            return batch.set_column(places[0], self._field, counts)
        return batch.append_column(self._field, counts)

    def finish(self) -> OperatorResult:
        """Counts hold no rows back."""
        return self._inner.finish()

    def close(self) -> None:
        """Close the inner processor."""
        self._inner.close()


def counted(
    inner: Operator,
    operator: OperatorId,
    plan: StatePlan,
    journal: CommitOnAck,
    states: ChainStates | None = None,
) -> RunningCount:
    """The operator behind its running count, with a state of its own in the chain's journal.

    `states` are those of the chain, if it takes snapshots or spills.
    """
    state = MemoryState(
        StateAddress(plan.namespace, operator, COUNT_STATE),
        plan.key_fields,
        COUNT_TYPE,
        journal,
        ttl_ms=plan.ttl_ms,
        max_bytes=plan.max_bytes,
        max_parallelism=plan.max_parallelism,
        memory_bytes=plan.memory_bytes,
    )
    journal.joined(state)
    if states is not None:
        states.joined(state)
    return RunningCount(inner, state, plan)


__all__ = ["COUNT_STATE", "COUNT_TYPE", "RunningCount", "counted"]
