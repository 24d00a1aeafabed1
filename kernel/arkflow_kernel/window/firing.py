"""Result rows of windows out of their panes: of windows that fire, and of fired ones that changed.

Everything is made in parts: some neighbouring windows that are small, or the keys of some key
groups of a large one. A part is grouped at once; it never holds more than a few batches of results.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from arkflow_kernel.state.arrow_numpy import as_array
from arkflow_kernel.window.aggregates import PANES, Aggregates
from arkflow_kernel.window.assign import DUE_MAX, FixedPanes, Panes, Times, Windows
from arkflow_kernel.window.keys import KeyLedger
from arkflow_kernel.window.pane_runs import PaneRuns
from arkflow_kernel.window.pane_tables import AFTER, PANE, int64s
from arkflow_kernel.window.results import RESULT_ROWS_MAX
from arkflow_kernel.window.rows_of_keys import rows_of_keys

_SPREAD_MAX = 16
"""Overlapping windows of one part: each row of a slice is grouped at most so often at a time."""

_CORRECTED_MAX = 1 << 18
"""Keys times windows of one part of the corrections."""


@dataclass(frozen=True, slots=True)
class WindowTable:
    """Final aggregates, one row a window and key, in order of the windows."""

    table: pa.Table
    starts: Times
    ends: Times


class _Read(Protocol):
    """Reads panes first <= pane < end of one family, grouped by some columns."""

    def __call__(self, runs: PaneRuns, first: int, end: int, by: Seq[str]) -> pa.Table: ...


@dataclass(frozen=True, slots=True)
class _OfPart:
    """One of several parts of the keys."""

    part: int
    parts: int

    def __call__(self, runs: PaneRuns, first: int, end: int, by: Seq[str]) -> pa.Table:
        return runs.rows(first, end, self.part, self.parts, by)


@dataclass(frozen=True, slots=True)
class _OfKeys:
    """Some keys; None: all rows of an operator without keys."""

    keys: pa.Table | None

    def __call__(self, runs: PaneRuns, first: int, end: int, by: Seq[str]) -> pa.Table:
        if self.keys is None:
            return runs.rows(first, end, 0, 1, by)
        return runs.rows_of(self.keys, first, end, by)


class Firing:
    """Reads the panes of one operator. `runs` are by family; all have the same keys."""

    def __init__(
        self,
        windows: Panes,
        aggregates: Aggregates,
        ledger: KeyLedger,
        runs: Mapping[str, PaneRuns],
    ) -> None:
        self._windows = windows
        # Only fixed windows overlap; the panes of all others are windows.
        self._sliced = windows if isinstance(windows, FixedPanes) and windows.overlapping else None
        self._aggregates = aggregates
        self._ledger = ledger
        self._runs = runs
        self._at_once = _SPREAD_MAX if self._sliced else DUE_MAX
        self._families = {family.name: family for family in aggregates.families}

    def fired(self, due: Windows) -> Iterator[WindowTable]:
        """The rows of some windows, in order."""
        for windows, parts in self._parts(due):
            for part in range(parts):
                for some, tables in self._tables(windows, _OfPart(part, parts)):
                    made = self._made(tables, some)
                    if made is not None:
                        yield made

    def corrected(self, touched: pa.Table, above: int, upto: int) -> Iterator[WindowTable]:
        """The rows of the windows with above < end <= upto that some rows have changed.

        `touched` are the key columns of these rows, with `pane` and perhaps `after`.
        """
        affected = self._affected(touched, above, upto)
        if not affected.num_rows:
            return
        starts = np.unique(int64s(affected))
        windows = Windows(starts, self._ends(starts))
        step = max(1, _CORRECTED_MAX // affected.num_rows)
        for first in range(0, len(windows), min(step, self._at_once)):
            part = windows.part(first, first + min(step, self._at_once))
            for some, tables in self._tables(part, _OfKeys(self._keys_in(affected, part))):
                made = self._made(tables, some, _between(affected, some))
                if made is not None:
                    yield made

    def _keys_in(self, affected: pa.Table, windows: Windows) -> pa.Table | None:
        """The keys that have changed in some windows; None where there are no keys."""
        names = list(self._ledger.names)
        return _distinct(_between(affected, windows), names) if names else None

    # --- which ---------------------------------------------------------------------------------

    def _parts(self, due: Windows) -> Iterator[tuple[Windows, int]]:
        """Neighbouring windows that are read at once, and in how many parts by key group."""
        open_ = [(0, len(due))]
        while open_:
            first, end = open_.pop()
            windows = due.part(first, end)
            if end - first <= self._at_once:
                parts = max(runs.parts(*self._span(windows)) for runs in self._runs.values())
                if parts == 1 or end - first == 1:
                    yield windows, parts
                    continue
            middle = (first + end) // 2
            open_ += [(middle, end), (first, middle)]

    def _span(self, windows: Windows) -> tuple[int, int]:
        """The first pane of the windows, and the end of their last one."""
        first = int(windows.starts[0])
        if self._sliced:
            return first, int(windows.ends[-1])
        return first, int(windows.starts[-1]) + 1

    def _affected(self, touched: pa.Table, above: int, upto: int) -> pa.Table:
        """Distinct windows (their start as `pane`) and keys that the rows have changed."""
        by = [PANE, *self._ledger.names]
        if self._sliced:
            more = [AFTER] if AFTER in touched.column_names else []
            touched = _distinct(touched, [*by, *more])
            touched = _spread_all(touched, self._sliced, above, upto)
        else:
            ends = self._windows.last_ends(int64s(touched))
            touched = touched.filter(as_array((ends > above) & (ends <= upto)))
        return _distinct(touched, by)

    def _ends(self, starts: Times) -> Times:
        if self._sliced:
            return starts + self._sliced.size
        return self._windows.last_ends(starts)

    # --- made of what --------------------------------------------------------------------------

    def _tables(
        self, windows: Windows, read: "_Read"
    ) -> Iterator[tuple[Windows, dict[str, pa.Table]]]:
        """Partials by window and key, of each family; of some windows at a time, in order."""
        first, end = self._span(windows)
        keys = list(self._ledger.names)
        by = [PANE, *keys]
        if not self._sliced:
            yield windows, {name: read(runs, first, end, by) for name, runs in self._runs.items()}
            return
        if len(windows) == 1:
            yield windows, {name: self._one(name, first, end, read) for name in self._runs}
            return
        cut = [PANE, AFTER, *keys]
        slices = {name: read(runs, first, end, cut) for name, runs in self._runs.items()}
        rows = max(table.num_rows for table in slices.values())
        step = max(1, RESULT_ROWS_MAX // max(1, rows))
        for at in range(0, len(windows), step):
            some = windows.part(at, at + step)
            made = {
                name: self._families[name].combine(_spread(table, self._sliced, some), by)
                for name, table in slices.items()
            }
            yield some, made

    def _one(self, name: str, first: int, end: int, read: "_Read") -> pa.Table:
        """Partials of one window: its slices need not be told apart."""
        keys = list(self._ledger.names)
        table = read(self._runs[name], first, end, [AFTER, *keys])
        if AFTER in table.column_names:
            table = table.filter(as_array(int64s(table, AFTER) < end))
            table = self._families[name].combine(table, keys)
        if PANE in table.column_names:
            table = table.drop_columns([PANE])
        return table.add_column(0, PANE, as_array(np.full(table.num_rows, first, np.int64)))

    def _made(
        self, tables: dict[str, pa.Table], windows: Windows, wanted: pa.Table | None = None
    ) -> WindowTable | None:
        """Final rows of some windows; of `wanted` windows and keys only, if it is given."""
        by = [PANE, *self._ledger.names]
        final = self._aggregates.final(tables, by, lambda row: self._where(tables[PANES], row))
        if wanted is not None and wanted.num_rows != final.num_rows:
            final = rows_of_keys(final, wanted, by)
        if not final.num_rows:
            return None
        starts = int64s(final)
        if len(windows) > 1:
            order = np.argsort(starts, kind="stable")
            final, starts = final.take(as_array(order)), starts[order]
        return WindowTable(final, starts, windows.ends[np.searchsorted(windows.starts, starts)])

    def _where(self, table: pa.Table, row: int) -> str:
        """Window and key of a row of the main table, for errors."""
        one = table.slice(row, 1)
        start = int64s(one)
        key = self._ledger.texts(one)[0].as_py()
        return f"window [{start[0]}, {self._ends(start)[0]}), key {key!r}"


def _distinct(table: pa.Table, by: Seq[str]) -> pa.Table:
    return table.group_by(list(by), use_threads=False).aggregate([])


def _between(table: pa.Table, windows: Windows) -> pa.Table:
    """Rows of windows from the first to the last of some neighbours."""
    starts = int64s(table)
    return table.filter(as_array((starts >= windows.starts[0]) & (starts <= windows.starts[-1])))


def _spread(table: pa.Table, panes: FixedPanes, windows: Windows) -> pa.Table:
    """Each row once for each of the windows that its slice is of; `pane` is the window's start."""
    slices = int64s(table)
    lows = np.searchsorted(windows.starts, slices + panes.width - panes.size, side="left")
    counts = np.searchsorted(windows.starts, slices, side="right") - lows
    rows, nth = _repeated(counts)
    starts = windows.starts[lows[rows] + nth]
    if AFTER in table.column_names:
        kept = int64s(table, AFTER)[rows] < starts + panes.size
        rows, starts = rows[kept], starts[kept]
    return _taken(table, rows, starts)


def _spread_all(table: pa.Table, panes: FixedPanes, above: int, upto: int) -> pa.Table:
    """Each row once for each window of its slice with above < end <= upto."""
    slices = int64s(table)
    lows: Times = np.full(len(slices), above, np.int64)
    if AFTER in table.column_names:
        lows = np.maximum(lows, int64s(table, AFTER))
    before = panes.first_ends(slices) - panes.slide
    firsts = panes.end_upto(np.maximum(lows, before)) + panes.slide
    highs = np.maximum(np.minimum(panes.last_ends(slices), upto), before)
    counts = np.maximum((panes.end_upto(highs) - firsts) // panes.slide + 1, 0)
    rows, nth = _repeated(counts)
    return _taken(table, rows, firsts[rows] + nth * panes.slide - panes.size)


def _repeated(counts: Times) -> tuple[Times, Times]:
    """Each index as often as it counts, and which of its repetitions each is, from 0."""
    rows = np.repeat(np.arange(len(counts)), counts)
    return rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)


def _taken(table: pa.Table, rows: Times, starts: Times) -> pa.Table:
    """Rows of slices as rows of windows: they count in all of them that they are given for."""
    if AFTER in table.column_names:
        table = table.drop_columns([AFTER])
    place = table.schema.get_field_index(PANE)
    return table.take(as_array(rows)).set_column(place, PANE, as_array(starts))


__all__ = ["Firing", "WindowTable"]
