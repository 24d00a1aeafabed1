"""count_distinct without an end: which values of a field a key has had (N3).

Each (key, value) is an entry of a keyed state, so equal values are equal as keys are (G3). A row
counts one if its value is new for its key; nulls are no values.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_kernel.aggregate.keyed_rows import at, distinct, memory_state
from arkflow_kernel.aggregate.told_state import ToldState
from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import OperatorId
from arkflow_kernel.limits import STAGED_BYTES_MAX
from arkflow_kernel.plan import StatePlan
from arkflow_kernel.state.api import StateLayout
from arkflow_kernel.state.arrow_numpy import AnyArray, as_array, nulls_of
from arkflow_kernel.state.key_columns import key_columns
from arkflow_kernel.state.key_rows import KeyRows
from arkflow_kernel.state.memory import MemoryState
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from arkflow_kernel.window.aggregate_types import decoded
from arkflow_kernel.window.assign import Times

_BORN = pa.int64()
"""Type of the entries: when the key came to be that the value is of."""

_SWEPT_BYTES_MAX = STAGED_BYTES_MAX // 4


class ValuesState(ToldState):
    """Snapshots tell the operator's keys; of the values they tell the type apart from these."""

    def told(self, layout: StateLayout) -> StateLayout:
        """With the value's name and type beside the keys."""
        *keys, name = layout.key_fields
        *types, kind = layout.key_types
        return replace(
            layout,
            key_fields=tuple(keys),
            key_types=tuple(types),
            value_type=json.dumps({"values": name, "type": kind}, sort_keys=True),
        )

    def meant(self, layout: StateLayout) -> StateLayout:
        """The inverse; the state itself refuses other keys."""
        said = json.loads(layout.value_type)
        return replace(
            layout,
            key_fields=(*layout.key_fields, said["values"]),
            key_types=(*layout.key_types, said["type"]),
            value_type=str(_BORN),
        )


class DistinctValues:
    """The values of one field by key. `key_fields` are the operator's; the state has one more."""

    def __init__(self, field: str, key_fields: tuple[str, ...], state: MemoryState) -> None:
        self._field = field
        self._key_fields = key_fields
        self._names = (*key_fields, value_name(field, key_fields))
        self._state = state

    def added(self, batch: pa.RecordBatch, born: Times) -> AnyArray:
        """Int64, a row each: 1 where the value is new for the key, else 0; takes note of them.

        `born` is when the key of each row came to be: what a key of that name had before is none
        of it.
        Raises `ProcessingError` for a field that is missing, or of a type that does not follow.
        """
        columns = self._columns(batch)
        new: npt.NDArray[np.int64] = np.zeros(batch.num_rows, np.int64)
        rows = np.flatnonzero(~nulls_of(columns[-1]))
        if len(rows):
            arrays = [decoded(column).take(as_array(rows)) for column in columns]
            pairs = pa.RecordBatch.from_arrays(arrays, names=list(self._names))
            keys = self._keys(pairs)
            each = distinct(keys)
            mine = born[rows[keys.first]]
            found: Any = self._state.get(each).values
            missing = np.flatnonzero(np.asarray(found.fill_null(-1)) != mine)
            new[rows[keys.first[missing]]] = 1
            if len(missing):
                self._state.put(at(each, missing), as_array(mine[missing]))
        return as_array(new)

    def sweep(self, born_of: Callable[[pa.RecordBatch], Times]) -> None:
        """Forget values of keys that are not there any more, or are others: not all at once.

        `born_of` tells when the keys of a batch came to be.
        """
        swept = 0
        for entries in list(self._state.entries()):
            pairs = pa.RecordBatch.from_arrays(list(entries.keys), names=list(self._names))
            keys = pairs.select(list(self._key_fields))
            dead = np.asarray(entries.values, dtype=np.int64) != born_of(keys)
            if dead.any():
                gone = self._state.keys(pairs.filter(as_array(dead)))
                self._state.delete(gone)
                swept += int(gone.sizes.sum())
            if swept > _SWEPT_BYTES_MAX:
                return

    def _columns(self, batch: pa.RecordBatch) -> list[AnyArray]:
        """The key columns, then the field."""
        operator, field = self._state.operator, self._field
        columns = key_columns(batch, self._key_fields, operator)
        if field not in batch.schema.names:
            text = f"the field '{field}' of its aggregates is not in the batch; the columns are"
            raise ProcessingError(operator, f"{text} {', '.join(batch.schema.names)}")
        return [*columns, batch.column(field)]

    def _keys(self, pairs: pa.RecordBatch) -> KeyRows:
        try:
            return self._state.keys(pairs)
        except ProcessingError as error:
            text = f"the field '{self._field}' cannot be counted by its values: {error.cause}"
            raise ProcessingError(self._state.operator, text) from error


def value_name(field: str, key_fields: tuple[str, ...]) -> str:
    """What the values are called in runs: a name that no key field has."""
    name = f"{field}_value"
    while name in key_fields:
        name += "_"
    return name


def distinct_values(
    field: str,
    operator: OperatorId,
    plan: StatePlan,
    journal: CommitOnAck,
    states: ChainStates | None,
) -> DistinctValues:
    """With a state in the chain's journal, under the key groups of the keys alone."""
    names = (*plan.key_fields, value_name(field, plan.key_fields))
    state = memory_state(operator, f"distinct-{field}", plan, _BORN, journal, names, ttl=False)
    if states is not None:
        states.joined(ValuesState(state))
    return DistinctValues(field, plan.key_fields, state)


__all__ = ["DistinctValues", "distinct_values", "value_name"]
