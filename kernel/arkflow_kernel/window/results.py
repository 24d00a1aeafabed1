"""Result rows of windows and sessions as batches (N3).

ArkFlow's columns (`plain`): `window_start`, `window_end`, `key` as text, `count`, `sum`, `min`,
`max`, `__arkflow_window_update`. With `aggregates:` the keys leave under their own names, and the
aggregates under theirs, in the order of the plan.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from arkflow_kernel.plan import WindowPlan
from arkflow_kernel.state.arrow_numpy import AnyArray, all_null, as_array
from arkflow_kernel.state.growing import Mask
from arkflow_kernel.window.aggregate_types import one_array
from arkflow_kernel.window.aggregates import PLAIN_AGGREGATES, result_column
from arkflow_kernel.window.assign import Times

WINDOW_START = "window_start"
WINDOW_END = "window_end"
KEY = "key"
WINDOW_UPDATE = "__arkflow_window_update"
"""True in a row that corrects one that has left before."""

RESULT_ROWS_MAX = 65_536
"""Rows of one batch of results."""


class ResultKeys(Protocol):
    """What results need of a key ledger (`keys.KeyLedger`)."""

    def restored(self, table: pa.Table) -> "list[pa.Array[Any]]":
        """The keys of a table's rows, one array a key field."""
        ...

    def texts(self, table: pa.Table) -> "pa.Array[Any]":
        """The key of each row as ArkFlow's text."""
        ...


class Results:
    """Makes batches of result rows.

    `key_fields` are the names under which keys leave if the plan is not `plain`.
    """

    def __init__(self, plan: WindowPlan, key_fields: tuple[str, ...], keys: ResultKeys) -> None:
        self._plain = plan.plain
        self._key_fields = key_fields
        self._keys = keys
        self._names = PLAIN_AGGREGATES if plan.plain else tuple(a.name for a in plan.aggregates)

    def batches(
        self,
        table: pa.Table,
        starts: "Times | AnyArray",
        ends: "Times | AnyArray",
        *,
        update: bool | Mask,
    ) -> tuple[pa.RecordBatch, ...]:
        """The rows of a table of final aggregates, in their order, in pieces.

        `table` has the key columns and one column an aggregate; `starts` and `ends` are the bounds
        of each row's window. `update`: whether the rows are corrections, for all or for each.
        """
        if not table.num_rows:
            return ()
        corrected = np.full(table.num_rows, update) if isinstance(update, bool) else update
        columns: list[tuple[str, AnyArray]] = [
            (WINDOW_START, as_array(starts)),
            (WINDOW_END, as_array(ends)),
            *self._key_columns(table),
            *((name, _column(table, result_column(name))) for name in self._names),
            (WINDOW_UPDATE, as_array(corrected)),
        ]
        arrays = [array for _, array in columns]
        batch = pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in columns])
        return tuple(_pieces(batch))

    def _key_columns(self, table: pa.Table) -> Iterator[tuple[str, AnyArray]]:
        if self._plain:
            yield KEY, self._keys.texts(table)
        elif self._key_fields:
            yield from zip(self._key_fields, self._keys.restored(table), strict=True)


def _column(table: pa.Table, name: str) -> AnyArray:
    """A column of a table as one array; ArkFlow's window without a value field has null sums."""
    place = table.schema.get_field_index(name)
    if place < 0:
        return all_null(table.num_rows, pa.int64())
    return one_array(table.column(place))


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, RESULT_ROWS_MAX):
        yield batch.slice(start, RESULT_ROWS_MAX)


__all__ = [
    "KEY",
    "RESULT_ROWS_MAX",
    "WINDOW_END",
    "WINDOW_START",
    "WINDOW_UPDATE",
    "ResultKeys",
    "Results",
]
