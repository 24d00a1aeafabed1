"""Numbers for the keys of rows: equal keys have one, whatever their Arrow layout (G3, S10)."""

from collections.abc import Sequence as Seq

import numpy as np
import pyarrow as pa

from arkflow_kernel.state.arrow_numpy import AnyArray, as_array
from arkflow_kernel.state.growing import Slots
from arkflow_kernel.state.key_form import KeyPart, canonical, combined_hashes
from arkflow_kernel.state.key_index import KeyIndex
from arkflow_kernel.state.key_rows import KeyRows, key_rows, key_sizes
from arkflow_kernel.window.aggregate_types import one_array
from arkflow_kernel.window.keys import KeyForm


class KeyNumbers:
    """Keys of so many fields, numbered from 0; without fields all rows have key 0."""

    def __init__(self, fields: int) -> None:
        self._fields = fields
        self._index = KeyIndex(fields)

    @property
    def size(self) -> int:
        """Numbers that are given away."""
        return self._index.size if self._fields else 1

    @property
    def memory_bytes(self) -> int:
        """Memory that the keys take."""
        return self._index.size_bytes if self._fields else 0

    def of_columns(self, columns: Seq[AnyArray], rows: int) -> Slots:
        """The number of each row's key, new ones for new keys; of key columns as they came.

        Read-only. Raises `KeyTypeError` for a column that cannot be a key.
        """
        if not rows or not self._fields:
            return np.broadcast_to(np.int64(0), rows)
        return self._numbered(key_rows(columns))

    def of_table(self, table: pa.Table, form: KeyForm) -> Slots:
        """The same for the key columns of a table in this form."""
        if not table.num_rows or not self._fields:
            return np.broadcast_to(np.int64(0), table.num_rows)
        # Columns of one form are equal where their keys are: by them each key is found once.
        found = key_rows([one_array(table.column(name)) for name in form.names])
        first = table.select(list(form.names)).take(as_array(found.first))
        parts = tuple(
            part if isinstance(part, KeyPart) else canonical(part) for part in form.parts(first)
        )
        hashes, sizes = combined_hashes(parts), key_sizes(parts)
        return self._numbered(KeyRows(found.codes, found.first, parts, hashes, sizes, form.types))

    def _numbered(self, keys: KeyRows) -> Slots:
        numbers = self._index.find(keys)
        missing = (numbers < 0).nonzero()[0]
        if len(missing):
            numbers[missing] = self._index.insert(keys, missing)
        return numbers[keys.codes]

    def truncate(self, size: int) -> None:
        """Take back the numbers from `size` on."""
        if self._fields:
            self._index.truncate(size)

    def keep(self, numbers: Slots) -> None:
        """Only these stay, numbered from 0 in this order."""
        if self._fields:
            self._index.keep(numbers)


__all__ = ["KeyNumbers"]
