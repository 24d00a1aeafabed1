"""A table with an index on its key: which of its rows has the key of each row of a batch.

Immutable. Keys are equal as they are in keyed state (G3): integers of any width, a float with an
integral value, text whatever its layout. A null is no key: it is equal to nothing, as in SQL.
"""

from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.errors import ComponentError, ProcessingError
from arkflow_kernel.state.key_index import KeyIndex
from arkflow_kernel.state.key_rows import KeyRows, key_rows
from arkflow_kernel.state.key_types import KeyTypeError, key_type, widened

Column = Any
"""A pyarrow array, or one in pieces; the stubs do not know what every function returns."""

Rows = npt.NDArray[np.int64]


class LookupTable:
    """The columns of `table` that are added to rows, found by its columns `key`."""

    def __init__(
        self,
        operator: str,
        table: pa.Table,
        key: tuple[str, ...],
        added: Seq[str] | None,
        *,
        last_counts: bool,
    ) -> None:
        """`added` None: all but the keys.

        Raises `ComponentError` for a column whose type cannot be a key, and for a key that is
        there twice, unless the last row of each counts.
        """
        self._operator = operator
        self._key = key
        columns = [name for name in table.column_names if name not in key]
        self._table = _with_keys(table, key)
        self._index = KeyIndex(len(key))
        keys = self._keys()
        if not (last_counts or keys.distinct):
            raise self._twice(keys)
        self._index.insert(keys, np.arange(keys.count))
        self._types = keys.types
        self._rows = keys.last()
        self._added = self._table.select(columns if added is None else list(added))

    @property
    def keys(self) -> int:
        """How many keys it has."""
        return self._index.size

    @property
    def names(self) -> list[str]:
        """The columns that it adds."""
        return list(self._added.column_names)

    def find(self, names: Seq[str], columns: Seq[Column]) -> Rows:
        """The table's row for each row of these columns of a batch, -1 where there is none.

        Raises `ProcessingError` for a column whose values cannot be compared with the key's.
        """
        for name, column, own, known in zip(names, columns, self._key, self._types, strict=True):
            self._check(name, column, own, known)
        keys = key_rows(columns)
        slots = self._index.find(keys)
        if not self.keys:
            return slots[keys.codes]
        return np.where(slots < 0, -1, self._rows[slots])[keys.codes]

    def take(self, rows: Rows) -> list[Column]:
        """The added columns of these rows, nulls for -1."""
        places: Column = pa.array(rows, mask=rows < 0)
        return [_in_one(column.take(places)) for column in self._added.columns]

    def _keys(self) -> KeyRows:
        columns = [_in_one(self._table.column(name)) for name in self._key]
        try:
            return key_rows(columns)
        except KeyTypeError as error:
            named = ", ".join(f"'{name}'" for name in self._key)
            raise ComponentError(f"lookup '{self._operator}': `key` {named}: {error}") from error

    def _check(self, name: str, column: Column, own: str, known: pa.DataType) -> None:
        try:
            widened(known, key_type(column.type))
        except KeyTypeError as error:
            raise ProcessingError(
                self._operator,
                f"column '{name}' is {column.type} and the table's '{own}' is {known}: no value "
                "of the one is a value of the other; cast the column before, or give the table's "
                "`types`",
            ) from error

    def _twice(self, keys: KeyRows) -> ComponentError:
        """Which key is there more than once."""
        row = int(np.setdiff1d(np.arange(keys.rows), keys.first)[0])
        values = [f"{name}={self._table.column(name)[row].as_py()!r}" for name in self._key]
        return ComponentError(
            f"lookup '{self._operator}': the key {', '.join(values)} is in the table more than "
            "once; remove all but one of its rows, or set `on_duplicate: last`"
        )


def _with_keys(table: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """The rows without a null in their key."""
    for name in key:
        if table.column(name).null_count:
            table = table.filter(pc.is_valid(table.column(name)))
    return table


def _in_one(column: Column) -> Column:
    """A column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


__all__ = ["LookupTable"]
