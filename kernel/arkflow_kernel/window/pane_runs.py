"""The panes of a window operator: rows become partial aggregates, partials of one size merge (N1).

Raw rows wait until there are enough to be worth grouping. What changed since the last seal is kept
apart from what a seal has frozen, so that a seal only hands over lists (S6): tables never change.
Beyond the memory budget tables go to local files, in order of bucket, and are read in parts (S5).

Rows that are let go of count until the end of the item that does it; they vanish from tables when
these merge, or when most of a table is such.
"""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from pathlib import Path

import numpy as np
import pyarrow as pa

from arkflow_kernel.ids import EventTimeMs, WallMs
from arkflow_kernel.limits import INT64_MAX, INT64_MIN, MAX_PARALLELISM_DEFAULT
from arkflow_kernel.state.api import Sealed, StateAddress, StateJournal, StateLayout
from arkflow_kernel.state.growing import Mask
from arkflow_kernel.state.key_columns import state_error
from arkflow_kernel.state.run_file import RUN_BYTES
from arkflow_kernel.state.run_format import parsed_type
from arkflow_kernel.timestamps import had_by_all
from arkflow_kernel.window.aggregate_types import widened
from arkflow_kernel.window.assign import Times
from arkflow_kernel.window.keys import KeyForm, KeyLedger
from arkflow_kernel.window.pane_format import PaneFormat, ValueLedger
from arkflow_kernel.window.pane_merge import PaneMerger, PartialFamily
from arkflow_kernel.window.pane_sides import PaneSide, RawLimit, RawRows, Spool
from arkflow_kernel.window.pane_tables import BUCKETS, PANE, Held, PaneTable, read_from
from arkflow_kernel.window.rows_of_keys import rows_of_keys

PIECE_ROWS = 1 << 16
"""Rows of one part of a firing, about."""


Dead = Callable[[Times, int], Mask]
"""Of panes and a watermark: which take no rows and fire no more. A pure function."""


class PaneRuns:
    """The partial aggregates of one family, by pane and key (`api.RunState`, `api.Settling`).

    `max_bytes` bounds the bytes of all partials once they are merged (S4); beyond `memory_bytes`
    they go to local files. `windows` says what the panes are: a snapshot of other ones is refused.
    `dead` tells which panes a run may leave out, `values` goes with the snapshots.
    """

    def __init__(
        self,
        family: PartialFamily,
        ledger: KeyLedger,
        address: StateAddress,
        journal: StateJournal,
        *,
        max_bytes: int | None = None,
        memory_bytes: int | None = None,
        max_parallelism: int = MAX_PARALLELISM_DEFAULT,
        windows: str = "",
        dead: Dead | None = None,
        values: ValueLedger | None = None,
    ) -> None:
        self.operator = address.operator
        self.merge_bytes_max = memory_bytes
        self._family = family
        self._ledger = ledger
        self._journal = journal
        self._max_bytes = max_bytes
        self._budget = memory_bytes
        self._max_parallelism = max_parallelism
        self._dead = dead
        self._values = values
        self._format = PaneFormat(address, ledger.fields, family.names, windows)
        self._watermark: EventTimeMs | None = None
        self._staged: list[RawRows] = []
        self._fresh = PaneSide()
        self._sealed = PaneSide()
        self._let_go_below: int | None = None
        self._low: int | None = None
        self._room = max_bytes
        self._raw_limit = RawLimit(memory_bytes)
        self._spool: Spool | None = None
        self._known_panes: Times | None = None
        self._sample: pa.Table | None = None
        ledger.undone_by(journal, self)

    # --- writes --------------------------------------------------------------------------------

    def add(self, rows: RawRows) -> None:
        """Take raw rows, which have the family's values.

        Raises `ProcessingError` if the budget (S4) or the bound of one item (S3) would be passed.
        """
        if not rows.rows:
            return
        self._make_room(rows)
        staged = len(self._staged)
        self._journal.stage(self, rows.size, lambda: self._take_back(staged))
        self._staged.append(rows)
        known = self._known_panes
        if known is not None and not _all_in(rows.panes, known):
            self._known_panes = None

    def _take_back(self, staged: int) -> None:
        del self._staged[staged:]
        self._known_panes = None

    @property
    def watermark(self) -> EventTimeMs | None:
        """What has fired: every window that ends at it or before. None: nothing yet."""
        return self._watermark

    @watermark.setter
    def watermark(self, watermark: EventTimeMs | None) -> None:
        before = self._watermark

        def undo() -> None:
            self._watermark = before

        self._journal.stage(self, 0, undo)
        self._watermark = watermark

    def drop_below(self, pane: int) -> None:
        """Let go of all panes below; `rows` has them until the end of the item."""
        before = self._let_go_below

        def undo() -> None:
            self._let_go_below = before
            self._known_panes = None

        self._journal.stage(self, 0, undo)
        known = [each for each in (before, self._low, pane) if each is not None]
        self._let_go_below = max(known)
        self._known_panes = None

    @property
    def low(self) -> int | None:
        """Panes below were let go of: they take no rows any more. None: none were."""
        return self._low

    def _make_room(self, raw: RawRows) -> None:
        """Raise if the partials, merged, would pass the budget; that is looked at when it might."""
        if self._max_bytes is None or self._room is None:
            return
        self._room -= raw.size
        if self._room >= 0:
            return
        self._group_raw()
        merger = self._merger()
        held = [each for side in self._sides() for each in side.held]
        if self._let_go_below is not None:
            below = self._let_go_below
            held = [kept for each in held if (kept := each.let_go(below)) is not None]
        fresh = [each.table for each in (*self._staged, raw)]
        size = merger.size([*held, merger.grouped(fresh)])
        self._room = max(0, self._max_bytes - size)
        if size > self._max_bytes:
            cause = (
                f"its windows would take {size} bytes of the `max_bytes: {self._max_bytes}` that "
                "they have; raise it, or make windows, allowed lateness or the number of keys "
                "smaller"
            )
            raise state_error(self.operator, cause)

    # --- reads ---------------------------------------------------------------------------------

    def panes(self) -> Times:
        """The starts of panes that hold rows, in order."""
        if self._known_panes is None:
            found = [each.panes for each in self._staged]
            found += [panes for side in self._sides() for panes in side.panes()]
            panes = np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)
            if self._let_go_below is not None:
                panes = panes[np.searchsorted(panes, self._let_go_below) :]
            self._known_panes = panes
        return self._known_panes

    def parts(self, first: int, last: int) -> int:
        """In how many parts to read the panes first <= pane < last, so that each is small."""
        self._group_raw()
        held = [each for side in self._sides() for each in side.held]
        rows = sum(each.span.rows_between(first, last) for each in held)
        rows += sum(each.rows for each in self._staged)
        return min(BUCKETS, -(-rows // PIECE_ROWS)) or 1

    def rows(self, first: int, last: int, part: int, parts: int, by: Seq[str]) -> pa.Table:
        """Partials of the panes first <= pane < last, grouped by these columns; one part of them.

        All rows of a key are in one part, the same in all families. `after` is left out of `by`
        where no row has it. Nothing that was let go of by this item is missing.
        """
        low, high = part * BUCKETS // parts, (part + 1) * BUCKETS // parts
        return self._combined(self._read(first, last, low, high), by)

    def rows_of(self, keys: pa.Table, first: int, last: int, by: Seq[str]) -> pa.Table:
        """The same of some keys only: those that stand in the key columns of `keys`."""
        merger = self._merger()
        keys = merger.form.aligned(keys)
        found = [merger.form.aligned(table) for table in self._read(first, last)]
        mine = [rows_of_keys(table, keys, merger.form.names) for table in found]
        return self._combined([table for table in mine if table.num_rows], by)

    def _read(self, first: int, last: int, low: int = 0, high: int = BUCKETS) -> list[pa.Table]:
        self._group_raw()
        merger = self._merger()
        staged = PaneSide()
        staged.add(self._staged)
        staged.group(merger, None)
        sides = [*self._sides(), staged]
        if (low, high) != (0, BUCKETS):
            for side in sides:
                side.ordered(merger)
        held = [each for side in sides for each in side.held]
        self._sampled(held)
        return read_from(held, first, last, low, high)

    def _combined(self, tables: list[pa.Table], by: Seq[str]) -> pa.Table:
        merger = self._merger()
        if not tables and self._sample is not None:
            tables = [self._sample]
        if not tables:  # nothing is known of the types
            names = [name for name in by if name in (PANE, *merger.form.names)]
            names += [*self._family.extra, *self._family.columns]
            return pa.table({name: pa.nulls(0) for name in names})
        return merger.combined(tables, by)

    def _sampled(self, held: Seq[Held]) -> None:
        """Keep the types of the last table, for answers without rows."""
        for each in held:
            if isinstance(each, PaneTable):
                self._sample = each.table.slice(0, 0)

    # --- between items -------------------------------------------------------------------------

    @property
    def live_keys(self) -> int:
        """Rows of partials and raw rows: at least the keys of all panes, before they are merged."""
        return self._sealed.rows + self._fresh.rows

    @property
    def live_bytes(self) -> int:
        """Bytes of these rows."""
        return self._sealed.live_bytes + self._fresh.live_bytes

    @property
    def memory_bytes(self) -> int:
        """Memory that tables take."""
        return self._sealed.memory_bytes + self._fresh.memory_bytes

    def settle(self, wall_ms: WallMs) -> None:  # noqa: ARG002  # nothing here expires by the clock
        """Let go, group raw rows if they are many, merge tables, spill."""
        self._fresh.add(self._staged)
        self._staged = []
        if self._let_go_below is not None:
            for side in self._sides():
                side.let_go(self._let_go_below)
            self._low, self._let_go_below = self._let_go_below, None
            self._known_panes = None
        if self._raw_limit.reached(self._sides()):
            self._raw_limit.learn(self._group_raw())
        self._spill()

    def _sides(self) -> tuple[PaneSide, PaneSide]:
        return self._sealed, self._fresh

    def _merger(self) -> PaneMerger:
        return PaneMerger(self._family, self._ledger.form, self._max_parallelism)

    def _group_raw(self) -> float:
        """Partials instead of the raw rows of items that are settled; how many a row became."""
        merge_bytes = None if self._budget is None else self._budget // 4
        return max([side.group(self._merger(), merge_bytes) for side in self._sides()])

    # --- local files (S5) ----------------------------------------------------------------------

    def spill_to(self, folder: Callable[[], Path], prefix: str) -> None:
        """Where tables beyond the budget go; names that begin with `prefix` are this state's."""
        self._spool = Spool(folder, prefix, self.operator)

    def _spill(self) -> None:
        over = self._budget is not None and self.memory_bytes > self._budget
        if over and self._spool is not None:
            self._group_raw()
            for side in self._sides():
                self._sampled(side.held)
                side.spill(self._merger(), self._spool)

    # --- runs (S6) -----------------------------------------------------------------------------

    def track(self) -> None:
        """They always are."""

    @property
    def layout(self) -> StateLayout:
        """Names, types and the watermark now."""
        values = () if self._values is None else self._values.types
        return self._format.layout(self._ledger.types, values, self._watermark, self._low)

    def seal(self) -> Sealed:
        """What came since the last seal, raw rows as they are: lists are handed over."""
        changes = self._fresh.taken()
        self._sealed.add(changes.raw)
        self._sealed.held += changes.held
        return Sealed((changes,) if changes.raw or changes.held else (), self.layout)

    def written(self, sealed: Seq[Sealed]) -> Iterator[pa.RecordBatch]:
        """Runs of what was sealed, some buckets each; without panes that are dead by now."""
        sides: list[PaneSide] = [side for each in sealed for side in each.changes]
        layout = sealed[-1].layout
        merger = self._merger_of(layout)
        held = [each for side in sides for each in side.held]
        raw = [each.table for side in sides for each in side.raw]
        if raw:
            held.append(merger.grouped(raw))
        alive = [each for each in map(self._alive(layout), held) if each is not None]
        parts = min(BUCKETS, -(-sum(each.live_bytes for each in alive) // RUN_BYTES))
        if parts > 1:
            alive = [each.ordered(merger.buckets) for each in alive]
        for part in range(parts):
            low, high = part * BUCKETS // parts, (part + 1) * BUCKETS // parts
            found = read_from(alive, INT64_MIN, INT64_MAX, low, high)
            if found:
                table = merger.combined(found).combine_chunks()
                yield self._format.written(table, merger.form, merger.groups(table))

    def merged(
        self,
        runs: Seq[pa.RecordBatch],
        layout: StateLayout,
        *,
        oldest: bool,  # noqa: ARG002  # nothing here is deleted but by the watermark
        newest: bool,  # noqa: ARG002
    ) -> pa.RecordBatch | None:
        """Partials of partials; without panes that are dead by now."""
        held = [PaneTable.of(self._format.read(run)[0]) for run in runs]
        alive = [each for each in map(self._alive(layout), held) if each is not None]
        merger = self._merger_of(layout)
        table = merger.merged(alive)
        if table is None:
            return None
        return self._format.written(table.table, merger.form, merger.groups(table.table))

    def _merger_of(self, layout: StateLayout) -> PaneMerger:
        form = KeyForm(tuple(parsed_type(kind) for kind in layout.key_types))
        return PaneMerger(self._family, form, self._max_parallelism)

    def _alive(self, layout: StateLayout) -> "Callable[[Held], Held | None]":
        watermark, low = layout.watermark, layout.low

        def alive(found: Held) -> Held | None:
            each = found if low is None else found.let_go(low)
            if each is None:
                return None
            if watermark is None or self._dead is None or not each.span.rows:
                return each
            dead = self._dead(each.span.panes, watermark)
            if not dead.any():
                return each
            # Panes die in order.
            living = each.span.panes[~dead]
            return each.let_go(int(living[0])) if len(living) else None

        return alive

    def restore(self, layouts: Seq[StateLayout], runs: Iterable[pa.RecordBatch]) -> None:
        """Hold what these runs say; before the first item. Spills what is beyond the budget."""
        for layout in layouts:
            values = self._format.values_of(layout)
            self._ledger.learn(tuple(parsed_type(kind) for kind in layout.key_types))
            if self._values is not None:
                known = zip(self._values.types, values, strict=True)
                self._values.types = [widened(*each) for each in known]
        # Subtasks have one watermark at a cut; if not, windows fire twice rather than never.
        self._watermark = had_by_all(layout.watermark for layout in layouts)
        self._low = had_by_all(layout.low for layout in layouts)
        alive = self._alive(self.layout)
        for run in runs:
            held = alive(PaneTable.of(self._format.read(run)[0])) if run.num_rows else None
            if held is not None:
                self._sealed.held.append(held)
                self._spill()


def _all_in(panes: Times, known: Times) -> bool:
    """Whether all panes are known; both are in order."""
    if not len(known) or panes[0] < known[0] or panes[-1] > known[-1]:
        return False
    return bool((known[np.searchsorted(known, panes)] == panes).all())


__all__ = ["PIECE_ROWS", "Dead", "PaneRuns"]
