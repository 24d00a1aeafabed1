"""Numbers for the keys of kept rows: equal keys have one, whatever their Arrow layout (G3, S10)."""

from collections.abc import Sequence as Seq

import numpy as np
import pyarrow as pa

from arkflow_kernel.bad_rows import VALUE_COLUMN
from arkflow_kernel.key_encoding import KeyColumnError
from arkflow_kernel.key_groups import key_column
from arkflow_kernel.state.arrow_numpy import AnyArray
from arkflow_kernel.state.growing import Slots
from arkflow_kernel.state.key_index import KeyIndex
from arkflow_kernel.state.key_rows import KeyRows, key_rows
from arkflow_kernel.state.key_types import key_type, widened


class KeySlots:
    """Keys by slot, counted up from 0; without fields all rows are of slot 0."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self.fields = fields
        self._index = KeyIndex(len(fields))

    @property
    def size(self) -> int:
        """Slots that are given away."""
        return self._index.size if self.fields else 1

    @property
    def memory_bytes(self) -> int:
        """Memory that the keys take."""
        return self._index.size_bytes if self.fields else 0

    def of(self, batch: pa.RecordBatch) -> Slots:
        """The slot of each row's key, new ones for new keys.

        Raises `KeyColumnError` or `KeyTypeError` for a field that is missing or cannot be a key.
        """
        if not self.fields:
            return np.broadcast_to(np.int64(0), batch.num_rows)
        if not batch.num_rows:
            return np.zeros(0, np.int64)
        keys: KeyRows = key_rows([_column(batch, name) for name in self.fields])
        slots = self._index.find(keys)
        missing = np.flatnonzero(slots < 0)
        if len(missing):
            slots[missing] = self._index.insert(keys, missing)
        return slots[keys.codes]

    def truncate(self, size: int) -> None:
        """Take back the slots from `size` on."""
        if self.fields:
            self._index.truncate(size)

    def keep(self, slots: Slots) -> None:
        """Only these slots stay, renumbered from 0 in this order."""
        self._index.keep(slots)


KeyTypes = tuple[pa.DataType, ...]


def ledger(fields: Seq[str], known: KeyTypes, batch: pa.RecordBatch) -> KeyTypes:
    """The types of the key columns after a batch (S10). Raises as `KeySlots.of` does."""
    found = [key_type(_column(batch, name).type) for name in fields]
    return tuple(widened(mine, other) for mine, other in zip(known, found, strict=True))


def _column(batch: pa.RecordBatch, name: str) -> AnyArray:
    names = batch.schema.names
    if name in names:
        return key_column(batch, name)
    advice = "set `key_field` to one of them"
    if names == [VALUE_COLUMN]:
        advice = "the window sees messages as they were read: set a `codec` on the input"
    raise KeyColumnError(
        f"key field '{name}' is missing from the batch, whose columns are "
        f"{', '.join(names)}; {advice}"
    )


__all__ = ["KeySlots", "KeyTypes", "ledger"]
