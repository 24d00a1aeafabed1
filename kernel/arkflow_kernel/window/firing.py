"""Result rows of windows out of their panes: of windows that fire, and of fired ones that changed.

Everything is made in parts: some neighbouring windows that are small, or the keys of some key
groups of a large one. A part is grouped at once; it never holds more than a few batches of results.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from arkflow_kernel.state.arrow_numpy import as_array
from arkflow_kernel.window.aggregates import PANES, Aggregates
from arkflow_kernel.window.assign import FixedPanes, Panes, Times, Windows
from arkflow_kernel.window.keys import KeyLedger
from arkflow_kernel.window.pane_runs import PaneRuns
from arkflow_kernel.window.pane_tables import AFTER, PANE

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
        self._aggregates = aggregates
        self._ledger = ledger
        self._runs = runs
        self._families = {family.name: family for family in aggregates.families}

    def fired(self, due: Windows) -> Iterator[WindowTable]:
        """The rows of some windows, in order."""
        for windows, parts in self._parts(due):
            for part in range(parts):
                tables = {name: self._part(name, windows, part, parts) for name in self._runs}
                made = self._made(tables, windows)
                if made is not None:
                    yield made

    def corrected(self, touched: pa.Table, above: int, upto: int) -> Iterator[WindowTable]:
        """The rows of the windows with above < end <= upto that some rows have changed.

        `touched` are the key columns of these rows, with `pane` and perhaps `after`.
        """
        affected = self._affected(touched, above, upto)
        if not affected.num_rows:
            return
        starts = np.unique(_numbers(affected, PANE))
        windows = Windows(starts, self._ends(starts))
        keys = list(self._ledger.names)
        step = max(1, _CORRECTED_MAX // affected.num_rows)
        if self._windows.overlapping:
            step = min(step, _SPREAD_MAX)
        for first in range(0, len(windows), step):
            part = windows.part(first, first + step)
            wanted = _between(affected, int(part.starts[0]), int(part.starts[-1]) + 1)
            whose = _distinct(wanted, keys) if keys else None
            tables = {name: self._of(name, whose, part) for name in self._runs}
            made = self._made(tables, part, wanted)
            if made is not None:
                yield made

    # --- which ---------------------------------------------------------------------------------

    def _parts(self, due: Windows) -> Iterator[tuple[Windows, int]]:
        """Neighbouring windows that are read at once, and in how many parts by key group."""
        most = _SPREAD_MAX if self._windows.overlapping else len(due)
        open_ = [(0, len(due))]
        while open_:
            first, end = open_.pop()
            windows = due.part(first, end)
            if end - first <= most:
                parts = max(runs.parts(*self._span(windows)) for runs in self._runs.values())
                if parts == 1 or end - first == 1:
                    yield windows, parts
                    continue
            middle = (first + end) // 2
            open_ += [(middle, end), (first, middle)]

    def _span(self, windows: Windows) -> tuple[int, int]:
        """The first pane of the windows, and the end of their last one."""
        first = int(windows.starts[0])
        if self._windows.overlapping:
            return first, int(windows.ends[-1])
        return first, int(windows.starts[-1]) + 1

    def _affected(self, touched: pa.Table, above: int, upto: int) -> pa.Table:
        """Distinct windows (their start as `pane`) and keys that the rows have changed."""
        by = [PANE, *self._ledger.names]
        if isinstance(self._windows, FixedPanes) and self._windows.overlapping:
            more = [AFTER] if AFTER in touched.column_names else []
            touched = _distinct(touched, [*by, *more])
            touched = _spread_all(touched, self._windows, above, upto)
        else:
            ends = self._windows.last_ends(_numbers(touched, PANE))
            touched = touched.filter(as_array((ends > above) & (ends <= upto)))
        return _distinct(touched, by)

    def _ends(self, starts: Times) -> Times:
        if isinstance(self._windows, FixedPanes):
            return starts + self._windows.size
        return self._windows.last_ends(starts)

    # --- made of what --------------------------------------------------------------------------

    def _part(self, name: str, windows: Windows, part: int, parts: int) -> pa.Table:
        """Partials of a family by window and key: of one part of the keys."""
        first, end = self._span(windows)
        runs, overlapping = self._runs[name], self._windows.overlapping
        if not overlapping or len(windows) > 1:
            table = runs.rows(first, end, part, parts, self._pane_columns())
            return self._by_window(name, table, windows)
        # Of one window: its slices need not be told apart.
        table = runs.rows(first, end, part, parts, [AFTER, *self._ledger.names])
        if AFTER in table.column_names:
            table = table.filter(as_array(_numbers(table, AFTER) < end))
            table = self._families[name].combine(table, self._ledger.names)
        if PANE in table.column_names:
            table = table.drop_columns([PANE])
        return table.add_column(0, PANE, as_array(np.full(table.num_rows, first, np.int64)))

    def _of(self, name: str, keys: pa.Table | None, windows: Windows) -> pa.Table:
        """The same of some keys; of all rows where there are no keys."""
        first, end = self._span(windows)
        runs, by = self._runs[name], self._pane_columns()
        if keys is None:
            table = runs.rows(first, end, 0, 1, by)
        else:
            table = runs.rows_of(keys, first, end, by)
        return self._by_window(name, table, windows)

    def _by_window(self, name: str, table: pa.Table, windows: Windows) -> pa.Table:
        """Partials of slices as those of windows."""
        if not (isinstance(self._windows, FixedPanes) and self._windows.overlapping):
            return table
        by = [PANE, *self._ledger.names]
        return self._families[name].combine(_spread(table, self._windows, windows), by)

    def _pane_columns(self) -> list[str]:
        """By what panes are grouped: the pane, what its rows count in, and the key."""
        return [PANE, *([AFTER] if self._windows.overlapping else []), *self._ledger.names]

    def _made(
        self, tables: dict[str, pa.Table], windows: Windows, wanted: pa.Table | None = None
    ) -> WindowTable | None:
        """Final rows of some windows; of `wanted` windows and keys only, if it is given."""
        by = [PANE, *self._ledger.names]
        final = self._aggregates.final(tables, by, lambda row: self._where(tables[PANES], row))
        if wanted is not None and wanted.num_rows != final.num_rows:
            final = final.take(as_array(_matching(final, wanted, by)))
        if not final.num_rows:
            return None
        starts = _numbers(final, PANE)
        if len(windows) > 1:
            order = np.argsort(starts, kind="stable")
            final, starts = final.take(as_array(order)), starts[order]
        return WindowTable(final, starts, windows.ends[np.searchsorted(windows.starts, starts)])

    def _where(self, table: pa.Table, row: int) -> str:
        """Window and key of a row of the main table, for errors."""
        one = table.slice(row, 1)
        start = _numbers(one, PANE)
        key = self._ledger.texts(one)[0].as_py()
        return f"window [{start[0]}, {self._ends(start)[0]}), key {key!r}"


def _numbers(table: pa.Table, name: str) -> Times:
    column: Any = table.column(name)
    return np.asarray(column, dtype=np.int64)


def _distinct(table: pa.Table, by: Seq[str]) -> pa.Table:
    return table.group_by(list(by), use_threads=False).aggregate([])


def _between(table: pa.Table, first: int, end: int) -> pa.Table:
    panes = _numbers(table, PANE)
    return table.filter(as_array((panes >= first) & (panes < end)))


def _spread(table: pa.Table, panes: FixedPanes, windows: Windows) -> pa.Table:
    """Each row once for each of the windows that its slice is of; `pane` is the window's start."""
    slices = _numbers(table, PANE)
    lows = np.searchsorted(windows.starts, slices + panes.width - panes.size, side="left")
    counts = np.searchsorted(windows.starts, slices, side="right") - lows
    rows, nth = _repeated(counts)
    starts = windows.starts[lows[rows] + nth]
    if AFTER in table.column_names:
        kept = _numbers(table, AFTER)[rows] < starts + panes.size
        rows, starts = rows[kept], starts[kept]
    return _taken(table, rows, starts)


def _spread_all(table: pa.Table, panes: FixedPanes, above: int, upto: int) -> pa.Table:
    """Each row once for each window of its slice with above < end <= upto."""
    slices = _numbers(table, PANE)
    lows: Times = np.full(len(slices), above, np.int64)
    if AFTER in table.column_names:
        lows = np.maximum(lows, _numbers(table, AFTER))
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


def _matching(table: pa.Table, wanted: pa.Table, by: Seq[str]) -> Times:
    """Which rows of a table have one of the wanted combinations; both have each once at most.

    By grouping, as a join would take no null for another.
    """
    rows = np.concatenate([np.arange(table.num_rows), np.full(wanted.num_rows, -1)])
    both = pa.concat_tables([table.select(by), wanted.select(by)]).append_column(
        "row", as_array(rows)
    )
    found = both.group_by(list(by), use_threads=False).aggregate([("row", "max"), ("row", "count")])
    matched = (_numbers(found, "row_count") == 2) & (_numbers(found, "row_max") >= 0)
    return np.sort(_numbers(found, "row_max")[matched])


__all__ = ["Firing", "WindowTable"]
