"""The entries of a state that are in memory: an index from key to slot, and columns by slot.

Not transactional by itself: `saved` gives what stands at some slots, `put_back` brings it back.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_kernel.state.growing import Growing, Mask, Slots
from arkflow_kernel.state.key_index import KeyIndex
from arkflow_kernel.state.key_rows import KeyRows
from arkflow_kernel.state.run_rows import NEVER, RunRows
from arkflow_kernel.state.value_columns import Saved, value_column

Kept = tuple[Saved, Mask, Mask, npt.NDArray[np.int64] | None]
"""What stood at some slots; only the table reads it."""


class HotTable:
    """Columns by slot. A slot that is not `live` is a key that is known to have no entry.

    `dirty`: changed since the last seal. `covered`: a run, sealed or spilled, has an entry of the
    key, so its deletion must be told.
    """

    def __init__(self, fields: int, value_type: pa.DataType, *, timed: bool) -> None:
        self._fields = fields
        self._timed = timed
        self.index = KeyIndex(fields)
        self.values = value_column(value_type)
        self.live: Growing[np.bool_] = Growing(np.bool_)
        self.dirty: Growing[np.bool_] = Growing(np.bool_)
        self.covered: Growing[np.bool_] = Growing(np.bool_)
        self.groups: Growing[np.int32] = Growing(np.int32)
        self.key_sizes: Growing[np.int32] = Growing(np.int32)
        self.deadlines: Growing[np.int64] = Growing(np.int64)

    @property
    def size(self) -> int:
        """Slots that are given away."""
        return self.index.size

    @property
    def size_bytes(self) -> int:
        """Memory that the table takes, what is not yet taken back included."""
        columns = (self.live, self.dirty, self.covered, self.groups, self.key_sizes, self.deadlines)
        own = sum(column.room.nbytes for column in columns)
        return self.index.size_bytes + self.values.size_bytes + own

    def insert(self, keys: KeyRows, missing: Slots, groups: npt.NDArray[Any]) -> Slots:
        """New slots for the distinct keys of these numbers, which are not there yet."""
        slots = self.index.insert(keys, missing)
        self.groups.append(groups)
        self.key_sizes.append(keys.sizes[missing])
        self.resize(self.index.size)
        return slots

    def resize(self, slots: int) -> None:
        """All columns have so many slots."""
        self.values.resize(slots)
        self.groups.truncate(slots)
        self.key_sizes.truncate(slots)
        for flags in (self.live, self.dirty, self.covered):
            flags.extend_to(slots, False)
            flags.truncate(slots)
        if self._timed:
            self.deadlines.extend_to(slots, NEVER)
            self.deadlines.truncate(slots)

    def truncate(self, slots: int) -> None:
        """Take back the slots that were given last."""
        self.index.truncate(slots)
        self.resize(slots)

    def keep(self, slots: Slots) -> None:
        """Only these slots stay, renumbered from 0."""
        self.index.keep(slots)
        self.values.keep(slots)
        for column in (self.live, self.dirty, self.covered, self.groups, self.key_sizes):
            column.keep(slots)
        if self._timed:
            self.deadlines.keep(slots)

    def saved(self, slots: Slots) -> Kept:
        """What stands at these slots."""
        deadlines = self.deadlines.room[slots] if self._timed else None
        return self.values.saved(slots), self.live.room[slots], self.dirty.room[slots], deadlines

    def put_back(self, slots: Slots, kept: Kept) -> None:
        """The inverse of `saved`."""
        values, self.live.room[slots], self.dirty.room[slots], deadlines = kept
        self.values.put_back(slots, values)
        if deadlines is not None:
            self.deadlines.room[slots] = deadlines

    def bytes_at(self, slots: Slots) -> int:
        """Encoded bytes of the live entries at these slots; -1 has none (S4)."""
        live = slots[(slots >= 0) & self.live.room[slots]]
        return int(self.key_sizes.items[live].sum()) + int(self.values.sizes(live).sum())

    def expired(self, wall_ms: int) -> Slots:
        """Live entries whose deadline is reached."""
        return np.flatnonzero(self.live.items & (self.deadlines.items <= wall_ms))

    # --- between the table and runs ------------------------------------------------------------

    def changed(self) -> Slots:
        """What a seal must tell: entries that are new or other, and deleted ones that runs have."""
        slots = np.flatnonzero(self.dirty.items)
        return slots[self.live.items[slots] | self.covered.items[slots]]

    def sealed(self, slots: Slots) -> None:
        """The changes at these slots, which are all, are in a run now."""
        self.covered.room[slots] = self.live.room[slots]
        self.dirty.items[:] = False

    def rows(self, slots: Slots, types: tuple[pa.DataType, ...]) -> RunRows:
        """The entries at these slots, in memory of their own."""
        live = self.live.room[slots]
        values = self.values.read(slots, live)
        return RunRows(
            types,
            self.groups.room[slots],
            self.index.hashes(slots),
            self.index.parts(slots),
            values.cast(_PLAIN.get(values.type, values.type)),
            self.deadlines.room[slots] if self._timed else None,
            ~live,
        )

    def load(self, rows: RunRows) -> Slots:
        """New slots for entries of runs; none of them is deleted or there already."""
        slots = self.insert(rows.keys(), np.arange(len(rows)), rows.groups)
        self.live.room[slots] = True
        self.covered.room[slots] = True
        self.values.write(slots, rows.values)
        if self._timed and rows.deadlines is not None:
            self.deadlines.room[slots] = rows.deadlines
        return slots


_PLAIN: dict[pa.DataType, pa.DataType] = {
    pa.string(): pa.large_string(),
    pa.string_view(): pa.large_string(),
    pa.binary(): pa.large_binary(),
    pa.binary_view(): pa.large_binary(),
}
"""Runs hold texts with offsets of 64 bits, and no views."""


__all__ = ["HotTable", "Kept"]
