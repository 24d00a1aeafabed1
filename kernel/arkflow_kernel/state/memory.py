"""Keyed state in memory: an index from key to slot, and columns by slot.

Writes are made in place, with what they replace kept by the transaction: that is the same as
staging them aside, since nobody but the item itself reads before it ends, and costs one pass.
An entry that is deleted keeps its slot, in case its key returns, until half of the slots are such.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from arkflow_kernel.errors import ComponentError, ProcessingError
from arkflow_kernel.ids import WallMs
from arkflow_kernel.key_groups import key_groups
from arkflow_kernel.limits import MAX_PARALLELISM_DEFAULT, SLICE_ROWS_MAX
from arkflow_kernel.state.api import Found, StateAddress, StateEntries, StateJournal
from arkflow_kernel.state.arrow_numpy import AnyArray, as_array, taken
from arkflow_kernel.state.counting import Increments
from arkflow_kernel.state.growing import Growing, Mask, Slots
from arkflow_kernel.state.key_form import inexact, restored
from arkflow_kernel.state.key_index import KeyIndex
from arkflow_kernel.state.key_rows import KeyRows, key_rows
from arkflow_kernel.state.key_types import KeyTypeError, key_type, widened
from arkflow_kernel.state.value_columns import FixedColumn, encoded_sizes, value_column

_COMPACT_SLOTS_MIN = 1_024
_NEVER = np.int64(2**63 - 1)


class MemoryState:
    """One named state of one operator (`api.KeyedState`)."""

    def __init__(
        self,
        address: StateAddress,
        key_fields: tuple[str, ...],
        value_type: pa.DataType,
        journal: StateJournal,
        *,
        ttl_ms: int | None = None,
        max_bytes: int | None = None,
        max_parallelism: int = MAX_PARALLELISM_DEFAULT,
    ) -> None:
        assert key_fields
        self.address = address
        self.operator = address.operator
        self.live_keys = 0
        self.live_bytes = 0
        self._fields = key_fields
        self._journal = journal
        self._ttl_ms = ttl_ms
        self._max_bytes = max_bytes
        self._max_parallelism = max_parallelism
        self._types: tuple[pa.DataType, ...] = tuple(pa.null() for _ in key_fields)
        self._index = KeyIndex(len(key_fields))
        self._values = value_column(value_type)
        self._live: Growing[np.bool_] = Growing(np.bool_)
        self._groups: Growing[np.int32] = Growing(np.int32)
        self._key_sizes: Growing[np.int32] = Growing(np.int32)
        self._deadlines: Growing[np.int64] = Growing(np.int64)
        self._sweep_ms = WallMs(0)

    # --- reads ---------------------------------------------------------------------------------

    def keys(self, batch: pa.RecordBatch) -> KeyRows:
        """The keys of a batch's rows."""
        columns = []
        for field in self._fields:
            if field not in batch.schema.names:
                raise self._failure(
                    f"key field '{field}' is missing from the batch, whose columns are "
                    f"{', '.join(batch.schema.names)}; set `key_field` to one of them"
                )
            columns.append(batch.column(field))
        for field, column in zip(self._fields, columns, strict=True):
            try:
                key_type(column.type)
            except KeyTypeError as error:
                raise self._failure(f"key field '{field}': {error}") from error
        keys = key_rows(columns)
        self._widened(keys)
        return keys

    def get(self, keys: KeyRows) -> Found:
        """Values of the rows' keys, writes of this item included."""
        slots = self._index.find(keys)
        present = self._held(slots, self._journal.wall_ms)[keys.codes]
        return Found(self._values.read(slots[keys.codes], present), present)

    def entries(self) -> Iterator[StateEntries]:
        """All entries that are held, by key group, in pieces of at most 8,192."""
        slots = np.flatnonzero(self._live.items)
        apart = np.zeros(len(slots), np.bool_)
        for part, kind in zip(self._index.parts(slots), self._types, strict=True):
            if pa.types.is_floating(kind):
                apart |= inexact(part.tags, part.words)
        order = np.lexsort((slots, apart, self._groups.items[slots]))
        slots, apart = slots[order], apart[order]
        cuts = np.flatnonzero(np.diff(apart)) + 1
        for run, wide in zip(np.split(slots, cuts), np.split(apart, cuts), strict=True):
            for start in range(0, len(run), SLICE_ROWS_MAX):
                yield self._piece(run[start : start + SLICE_ROWS_MAX], exact=bool(wide[0]))

    def _piece(self, slots: Slots, *, exact: bool) -> StateEntries:
        """Entries at these slots. `exact`: integers that a Float64 column cannot hold."""
        kinds = (pa.int64() if exact and pa.types.is_floating(k) else k for k in self._types)
        parts = zip(self._index.parts(slots), kinds, strict=True)
        return StateEntries(
            self._groups.items[slots],
            tuple(restored(part, kind) for part, kind in parts),
            self._values.read(slots, np.ones(len(slots), np.bool_)),
            None if self._ttl_ms is None else self._deadlines.items[slots],
        )

    # --- writes --------------------------------------------------------------------------------

    def put(self, keys: KeyRows, values: AnyArray) -> None:
        """Set the value of each row's key; of rows with one key the last counts."""
        if values.type != self._values.type:
            raise self._failure(f"a value of type {values.type} for {self._values.type}")
        if not keys.distinct:
            values = taken(values, keys.last())
        size = int(encoded_sizes(values).sum())
        slots = self._index.find(keys)
        slots = self._written(keys, slots, size, self._journal.wall_ms)
        self._values.write(slots, values)

    def delete(self, keys: KeyRows) -> None:
        """Forget the rows' keys; those that are not there stay so."""
        slots = self._index.find(keys)
        slots = slots[slots >= 0]
        self._dropped(slots[self._live.items[slots]], int(keys.sizes.sum()))

    def increment(self, keys: KeyRows, by: int | AnyArray = 1) -> AnyArray:
        """Add row by row; the key's value after each row."""
        column = self._values
        if not isinstance(column, FixedColumn) or column.type != pa.int64():
            raise ComponentError(f"operator '{self.operator}' counts in a state of {column.type}")
        wall_ms = self._journal.wall_ms
        slots = self._index.find(keys)
        held = self._held(slots, wall_ms)
        before = np.where(held, column.numbers(slots), 0)
        sums = Increments.of(keys, before, by)
        if sums is None:
            raise self._failure("a count leaves the range of Int64")
        grown = 0 if held.all() and column.all_valid(slots) else None
        slots = self._written(keys, slots, 8 * keys.count, wall_ms, grown)
        column.write_numbers(slots, sums.per_key)
        return as_array(sums.per_row)

    def _written(
        self,
        keys: KeyRows,
        slots: Slots,
        value_bytes: int,
        wall_ms: WallMs,
        grown: int | None = None,
    ) -> Slots:
        """Account for a write and stage it; slots for all keys. The caller sets the values.

        `grown` is by how many bytes the state grows, if the caller knows.
        """
        size = int(keys.sizes.sum()) + value_bytes
        if grown is None:
            grown = self._room_for(slots, size, wall_ms)
        present = slots >= 0
        there, missing = slots[present], np.flatnonzero(~present)
        fresh = keys.count - int(self._live.room[there].sum())
        self._journal.stage(self, size, self._undo(there))
        self._types = self._widened(keys)
        self.live_bytes += grown
        self.live_keys += fresh
        if len(missing):
            slots = slots.copy()
            slots[missing] = self._inserted(keys, missing)
        self._live.room[slots] = True
        if self._ttl_ms is not None:
            self._deadlines.room[slots] = wall_ms + self._ttl_ms
        return slots

    def _room_for(self, slots: Slots, size: int, wall_ms: WallMs) -> int:
        """How many bytes more the state has when these slots hold `size`. Raises (S4)."""
        grown = size - self._bytes_at(slots)
        if self._max_bytes is None or self.live_bytes + grown <= self._max_bytes:
            return grown
        self._drop_expired(wall_ms)
        grown = size - self._bytes_at(slots)
        if self.live_bytes + grown > self._max_bytes:
            raise self._failure(
                f"its state would take {self.live_bytes + grown} bytes of the "
                f"`max_bytes: {self._max_bytes}` that it has; raise it, or set `ttl_ms`"
            )
        return grown

    def _inserted(self, keys: KeyRows, missing: Slots) -> Slots:
        parts = (part.take(missing) for part in keys.parts)
        columns = [restored(*each) for each in zip(parts, keys.types, strict=True)]
        new = pa.RecordBatch.from_arrays(columns, names=list(self._fields))
        groups = key_groups(new, self._fields, self._max_parallelism)
        slots = self._index.insert(keys, missing)
        self._groups.append(groups)
        self._key_sizes.append(keys.sizes[missing])
        self._resize(self._index.size)
        return slots

    def _resize(self, slots: int) -> None:
        """All columns have so many slots."""
        self._values.resize(slots)
        self._groups.truncate(slots)
        self._key_sizes.truncate(slots)
        self._live.extend_to(slots, False)
        self._live.truncate(slots)
        if self._ttl_ms is not None:
            self._deadlines.extend_to(slots, _NEVER)
            self._deadlines.truncate(slots)

    def _dropped(self, slots: Slots, size: int) -> None:
        """Stage that the live entries at these slots are gone."""
        if len(slots):
            self._journal.stage(self, size, self._undo(slots))
            self._forget(slots)

    def _forget(self, slots: Slots) -> None:
        self.live_bytes -= self._bytes_at(slots)
        self.live_keys -= len(slots)
        self._live.room[slots] = False

    def _undo(self, slots: Slots) -> Callable[[], None]:
        """What brings back the entries at these slots, and takes back the slots given since."""
        size, types = self._index.size, self._types
        live_keys, live_bytes = self.live_keys, self.live_bytes
        values, live = self._values.saved(slots), self._live.room[slots]
        deadlines = None if self._ttl_ms is None else self._deadlines.room[slots]

        def undo() -> None:
            self._index.truncate(size)
            self._resize(size)
            self._values.put_back(slots, values)
            self._live.room[slots] = live
            if deadlines is not None:
                self._deadlines.room[slots] = deadlines
            self._types = types
            self.live_keys, self.live_bytes = live_keys, live_bytes

        return undo

    # --- time, space ---------------------------------------------------------------------------

    def settle(self, wall_ms: WallMs) -> None:
        """Drop what is expired, now and then; take back memory of what is gone."""
        if self._ttl_ms is not None and wall_ms >= self._sweep_ms:
            self._sweep_ms = WallMs(wall_ms + max(1, self._ttl_ms // 4))
            self._forget(self._expired(wall_ms))
        if self._index.size > max(_COMPACT_SLOTS_MIN, 2 * self.live_keys):
            self._keep(np.flatnonzero(self._live.items))
        self._values.settle()

    def _keep(self, slots: Slots) -> None:
        self._index.keep(slots)
        self._values.keep(slots)
        for column in (self._live, self._groups, self._key_sizes):
            column.keep(slots)
        if self._ttl_ms is not None:
            self._deadlines.keep(slots)

    @property
    def memory_bytes(self) -> int:
        """Memory that the state takes, its index and what is not yet taken back included."""
        columns = (self._live, self._groups, self._key_sizes, self._deadlines)
        own = sum(column.room.nbytes for column in columns)
        return self._index.size_bytes + self._values.size_bytes + own

    def _held(self, slots: Slots, wall_ms: WallMs) -> Mask:
        """Which slots hold an entry that is not expired."""
        held: Mask = (slots >= 0) & self._live.room[slots]
        if self._ttl_ms is not None:
            held &= self._deadlines.room[slots] > wall_ms
        return held

    def _expired(self, wall_ms: WallMs) -> Slots:
        return np.flatnonzero(self._live.items & (self._deadlines.items <= wall_ms))

    def _drop_expired(self, wall_ms: WallMs) -> None:
        if self._ttl_ms is not None:
            self._dropped(self._expired(wall_ms), 0)

    def _bytes_at(self, slots: Slots) -> int:
        """Encoded bytes of the live entries at these slots; -1 has none."""
        live = slots[(slots >= 0) & self._live.room[slots]]
        return int(self._key_sizes.items[live].sum()) + int(self._values.sizes(live).sum())

    # --- types, errors -------------------------------------------------------------------------

    def _widened(self, keys: KeyRows) -> tuple[pa.DataType, ...]:
        types = []
        for field, known, found in zip(self._fields, self._types, keys.types, strict=True):
            try:
                types.append(known if known == found else widened(known, found))
            except KeyTypeError as error:
                raise self._failure(f"key field '{field}': {error}") from error
        return tuple(types)

    def _failure(self, cause: str) -> ProcessingError:
        return ProcessingError(self.operator, cause, error_class="StateError")


__all__ = ["MemoryState"]
