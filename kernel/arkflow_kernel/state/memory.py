"""Keyed state: a table in memory, and local runs for what does not fit its budget.

Writes are made in place; the transaction keeps what they replace, which costs one pass less than
staging them aside: nobody but the item itself reads before it ends.
A deleted entry keeps its slot, in case its key returns, until half of the slots are such. What
changed since the last seal is marked, so that a seal gathers it at once (S6).
"""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_kernel.errors import ComponentError, ProcessingError
from arkflow_kernel.ids import WallMs
from arkflow_kernel.key_groups import key_groups
from arkflow_kernel.limits import MAX_PARALLELISM_DEFAULT
from arkflow_kernel.state.api import (
    Found,
    Sealed,
    StateAddress,
    StateEntries,
    StateJournal,
    StateLayout,
)
from arkflow_kernel.state.arrow_numpy import AnyArray, as_array, taken
from arkflow_kernel.state.counting import Increments
from arkflow_kernel.state.growing import Mask, Slots
from arkflow_kernel.state.hot_table import HotTable
from arkflow_kernel.state.key_columns import key_columns, state_error, widened_ledger
from arkflow_kernel.state.key_form import restored
from arkflow_kernel.state.key_rows import KeyRows, key_rows
from arkflow_kernel.state.keyed_runs import check_fits, layout_of, merged_run, run_of
from arkflow_kernel.state.run_file import runs_of
from arkflow_kernel.state.run_format import RunOwner, parsed_type
from arkflow_kernel.state.run_rows import RunRows, Wanted, joined, widest
from arkflow_kernel.state.sorted_run import SortedRun, live_rows
from arkflow_kernel.state.spilled import SpilledEntries
from arkflow_kernel.state.state_entries import in_pieces
from arkflow_kernel.state.value_columns import FixedColumn, encoded_sizes

_COMPACT_SLOTS_MIN = 1_024


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
        memory_bytes: int | None = None,
        grouped_by: int | None = None,
    ) -> None:
        """`grouped_by`: so many of the first key fields decide the key group (G3); None: all."""
        assert key_fields
        self.address = address
        self.operator = address.operator
        self.live_keys = 0
        self.live_bytes = 0
        self.wall_ms = WallMs(0)
        self.merge_bytes_max: int | None = None
        self.types: tuple[pa.DataType, ...] = tuple(pa.null() for _ in key_fields)
        self.owner = RunOwner(
            address.namespace, address.operator, address.name, key_fields, value_type
        )
        self._fields = key_fields
        self._group_fields = key_fields[:grouped_by]
        self._journal = journal
        self._ttl_ms = ttl_ms
        self._max_bytes = max_bytes
        self._max_parallelism = max_parallelism
        self._budget = memory_bytes
        self._table = self._empty()
        self._sweep_ms = WallMs(0)
        self._compact_above = 0
        self._tracked = False
        self._sealing = False
        self._waiting: list[RunRows | SortedRun] = []
        self._spool: tuple[Callable[[], Path], str] | None = None
        self._spilled: SpilledEntries | None = None

    def _empty(self) -> HotTable:
        timed = self._ttl_ms is not None
        return HotTable(len(self._fields), self.owner.value_type, timed=timed)

    # --- reads ---------------------------------------------------------------------------------

    def keys(self, batch: pa.RecordBatch) -> KeyRows:
        """The keys of a batch's rows."""
        columns = key_columns(batch, self._fields, self.operator)
        keys = key_rows(columns)
        self._widened(keys)
        return keys

    def get(self, keys: KeyRows) -> Found:
        """Values of the rows' keys, writes of this item included."""
        slots = self._find(keys)
        present = self._held(slots, self._journal.wall_ms)[keys.codes]
        return Found(self._table.values.read(slots[keys.codes], present), present)

    def entries(self) -> Iterator[StateEntries]:
        """All entries that are held, spilled ones too, by key group, in pieces of one slice."""
        table = self._table
        rows = table.rows(np.flatnonzero(table.live.items), self.types)
        below = None if self._spilled is None else self._spilled.rows()
        if below is not None:
            rows = joined([rows, below.where(table.index.find(below.keys()) < 0)])
        return in_pieces(rows, self.types, self.owner.value_type)

    def _find(self, keys: KeyRows) -> Slots:
        """The slot of each distinct key; entries that were spilled are brought back."""
        slots = self._table.index.find(keys)
        if self._spilled is None:
            return slots
        missing = np.flatnonzero(slots < 0)
        if not len(missing):
            return slots
        parts = tuple(part.take(missing) for part in keys.parts)
        wanted = Wanted(self._groups_of(keys, missing), keys.hashes[missing], parts)
        for numbers, rows in self._spilled.find(wanted):
            self._journal.stage(self, 0, _nothing)  # so that the item settles this state
            slots[missing[numbers]] = self._table.load(rows)
        return slots

    # --- writes --------------------------------------------------------------------------------

    def put(self, keys: KeyRows, values: AnyArray) -> None:
        """Set the value of each row's key; of rows with one key the last counts."""
        if values.type != self.owner.value_type:
            raise self._failure(f"a value of type {values.type} for {self.owner.value_type}")
        if not keys.distinct:
            values = taken(values, keys.last())
        size = int(encoded_sizes(values).sum())
        slots = self._find(keys)
        slots = self._written(keys, slots, size, self._journal.wall_ms)
        self._table.values.write(slots, values)

    def delete(self, keys: KeyRows) -> None:
        """Forget the rows' keys; those that are not there stay so."""
        slots = self._find(keys)
        slots = slots[slots >= 0]
        self._dropped(slots[self._table.live.items[slots]], int(keys.sizes.sum()))

    def increment(self, keys: KeyRows, by: int | AnyArray = 1) -> AnyArray:
        """Add row by row; the key's value after each row."""
        column = self._table.values
        if not isinstance(column, FixedColumn) or column.type != pa.int64():
            raise ComponentError(f"operator '{self.operator}' counts in a state of {column.type}")
        wall_ms = self._journal.wall_ms
        slots = self._find(keys)
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
        table = self._table
        size = int(keys.sizes.sum()) + value_bytes
        if grown is None:
            grown = self._room_for(slots, size, wall_ms)
        present = slots >= 0
        there, missing = slots[present], np.flatnonzero(~present)
        fresh = keys.count - int(table.live.room[there].sum())
        self._journal.stage(self, size, self._undo(there))
        self.types = self._widened(keys)
        self.live_bytes += grown
        self.live_keys += fresh
        if len(missing):
            slots = slots.copy()
            slots[missing] = table.insert(keys, missing, self._groups_of(keys, missing))
        table.live.room[slots] = True
        if self._tracked:
            table.dirty.room[slots] = True
        if self._ttl_ms is not None:
            table.deadlines.room[slots] = wall_ms + self._ttl_ms
        return slots

    def _room_for(self, slots: Slots, size: int, wall_ms: WallMs) -> int:
        """How many bytes more the state has when these slots hold `size`. Raises (S4)."""
        grown = size - self._table.bytes_at(slots)
        if self._max_bytes is None or self.live_bytes + grown <= self._max_bytes:
            return grown
        self._drop_expired(wall_ms)
        grown = size - self._table.bytes_at(slots)
        if self.live_bytes + grown > self._max_bytes:
            raise self._failure(
                f"its state would take {self.live_bytes + grown} bytes of the "
                f"`max_bytes: {self._max_bytes}` that it has; raise it, or set `ttl_ms`"
            )
        return grown

    def _groups_of(self, keys: KeyRows, numbers: Slots) -> npt.NDArray[np.int32]:
        names, parts = self._group_fields, (part.take(numbers) for part in keys.parts)
        columns = [restored(*each) for each in zip(parts, keys.types, strict=True)]
        batch = pa.RecordBatch.from_arrays(columns[: len(names)], names=list(names))
        return key_groups(batch, names, self._max_parallelism).astype(np.int32)

    def _dropped(self, slots: Slots, size: int) -> None:
        """Stage that the live entries at these slots are gone."""
        if len(slots):
            self._journal.stage(self, size, self._undo(slots))
            self._forget(slots)

    def _forget(self, slots: Slots) -> None:
        self.live_bytes -= self._table.bytes_at(slots)
        self.live_keys -= len(slots)
        self._table.live.room[slots] = False
        if self._tracked:
            self._table.dirty.room[slots] = True

    def _undo(self, slots: Slots) -> Callable[[], None]:
        """What brings back the entries at these slots, and takes back the slots given since."""
        size, types, kept = self._table.size, self.types, self._table.saved(slots)
        live_keys, live_bytes = self.live_keys, self.live_bytes

        def undo() -> None:
            self._table.truncate(size)
            self._table.put_back(slots, kept)
            self.types = types
            self.live_keys, self.live_bytes = live_keys, live_bytes

        return undo

    # --- time, space ---------------------------------------------------------------------------

    def settle(self, wall_ms: WallMs) -> None:
        """Drop what is expired, now and then; take back memory of what is gone; spill."""
        self.wall_ms = wall_ms
        if self._ttl_ms is not None and wall_ms >= self._sweep_ms:
            self._sweep_ms = WallMs(wall_ms + max(1, self._ttl_ms // 4))
            self._load_expired(wall_ms)
            self._forget(self._table.expired(wall_ms))
        self._compact()
        self._table.values.settle()
        over = self._budget is not None and self.memory_bytes > self._budget
        if over and self._spool is not None and self._table.size:
            self._spill()

    def _compact(self) -> None:
        """Take back slots without an entry, but for those whose deletion is still to be told."""
        table = self._table
        live = self.live_keys if self._spilled is None else int(table.live.items.sum())
        if table.size > max(_COMPACT_SLOTS_MIN, 2 * live, self._compact_above):
            untold = table.dirty.items & table.covered.items
            table.keep(np.flatnonzero(table.live.items | untold))
            self._compact_above = 2 * table.size

    @property
    def memory_bytes(self) -> int:
        """Memory that the state takes, its index and what is not yet taken back included."""
        return self._table.size_bytes

    def _held(self, slots: Slots, wall_ms: WallMs) -> Mask:
        """Which slots hold an entry that is not expired."""
        held: Mask = (slots >= 0) & self._table.live.room[slots]
        if self._ttl_ms is not None:
            held &= self._table.deadlines.room[slots] > wall_ms
        return held

    def _drop_expired(self, wall_ms: WallMs) -> None:
        if self._ttl_ms is not None:
            self._load_expired(wall_ms)
            self._dropped(self._table.expired(wall_ms), 0)

    def _load_expired(self, wall_ms: WallMs) -> None:
        """Bring back spilled entries that are expired: then they are dropped like others."""
        rows = None if self._spilled is None else self._spilled.expired(wall_ms)
        if rows is not None:
            rows = rows.where(self._table.index.find(rows.keys()) < 0)
            self._table.load(rows)

    # --- runs (S5, S6) -------------------------------------------------------------------------

    def track(self) -> None:
        """Changes are gathered by `seal` from now on. Before the first item."""
        self._tracked = self._sealing = True

    def spill_to(self, folder: Callable[[], Path], prefix: str) -> None:
        """Where entries beyond the budget go; see `RunState.spill_to`."""
        self._spool = folder, prefix

    @property
    def layout(self) -> StateLayout:
        """Its name, its keys and the type ledger now (S10)."""
        return layout_of(self.owner, self.types)

    def seal(self) -> Sealed:
        """Everything that changed since the last seal, oldest first; between two items."""
        changed = self._gathered()
        if len(changed):
            spilled = self._spilled
            self._waiting.append(changed if spilled is None else spilled.append(changed))
        waiting, self._waiting = tuple(self._waiting), []
        return Sealed(waiting, self.layout)

    def written(self, sealed: Seq[Sealed]) -> Iterator[pa.RecordBatch]:
        """One run of what was sealed."""
        return runs_of(run_of(sealed, self.owner))

    def merged(
        self,
        runs: Seq[pa.RecordBatch],
        layout: StateLayout,  # noqa: ARG002  # nothing here depends on it
        *,
        oldest: bool,
        newest: bool,  # noqa: ARG002
    ) -> pa.RecordBatch | None:
        """The newest entry of each key; tombstones and expired entries go if it is the oldest."""
        return merged_run(runs, self.owner, keep_deleted=not oldest, wall_ms=self.wall_ms)

    def _gathered(self) -> RunRows:
        slots = self._table.changed()
        rows = self._table.rows(slots, self.types)
        self._table.sealed(slots)
        self._compact_above = 0
        return rows

    def _spill(self) -> None:
        """Write what no local run has, and begin with an empty table."""
        table = self._table
        if self._spilled is None:
            self._spilled = self._local_runs()
            clean = np.flatnonzero(table.live.items & ~table.dirty.items)
            if len(clean):
                self._spilled.append(table.rows(clean, self.types))
            self._tracked = True
        changed = self._gathered()
        if len(changed):
            run = self._spilled.append(changed)
            if self._sealing:
                self._waiting.append(run)
        self._table = self._empty()

    def _local_runs(self) -> SpilledEntries:
        assert self._spool is not None
        folder, prefix = self._spool
        return SpilledEntries(folder(), prefix, self.owner)

    def restore(self, layouts: Seq[StateLayout], runs: Iterable[pa.RecordBatch]) -> None:
        """See `RunState.restore`. Runs larger than the budget stay runs, in local files."""
        for layout in layouts:
            check_fits(layout, self.owner)
        self.types = widest([tuple(map(parsed_type, each.key_types)) for each in layouts])
        self._hold([SortedRun(batch) for batch in runs if batch.num_rows])

    def _hold(self, runs: list[SortedRun]) -> None:
        size = sum(run.batch.nbytes for run in runs)
        if self._spool is not None and self._budget is not None and size > self._budget:
            self._spilled = self._local_runs()
            for run in runs:
                self._spilled.adopt(run.batch)
            self.live_keys, self.live_bytes = self._spilled.count()
            self._tracked = True
        else:
            for rows in live_rows(runs):
                self._table.load(rows)
                self.live_keys += len(rows)
                self.live_bytes += rows.size_bytes()

    # --- types, errors -------------------------------------------------------------------------

    def _widened(self, keys: KeyRows) -> tuple[pa.DataType, ...]:
        return widened_ledger(self._fields, self.types, keys.types, self.operator)

    def _failure(self, cause: str) -> ProcessingError:
        return state_error(self.operator, cause)


def _nothing() -> None:
    """Nothing is to be undone: what was read back is the same as before."""


__all__ = ["MemoryState"]
