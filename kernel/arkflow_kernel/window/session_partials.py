"""Partial aggregates of the fragments of sessions as one table, a row a fragment (N3)."""

from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import pyarrow as pa

from arkflow_kernel.state.arrow_numpy import as_array
from arkflow_kernel.window.aggregate_types import one_array
from arkflow_kernel.window.aggregates import Family
from arkflow_kernel.window.keys import KeyForm
from arkflow_kernel.window.session_merge import Mask, Numbers
from arkflow_kernel.window.session_pieces import HeldRows, Picked, Piece

SESSION = "session"
"""The column by which partial aggregates are grouped: the number of the row's session."""

NO_PARTIAL = "none"
"""A column of nulls, where all aggregates are lists."""


class Partials:
    """Partial aggregates of fragments as one table: a row a fragment.

    The columns of the first family stand as they are. Of the others, which have several rows a
    fragment (its distinct values), each column is a list, named `<family>.<column>`.
    """

    def __init__(self, families: Seq[Family]) -> None:
        self._families = tuple(families)

    def of_rows(
        self, raw: "dict[str, pa.Array[Any]]", fragment_of: Numbers, count: int
    ) -> pa.Table:
        """The partials of `count` fragments of raw rows; row `r` is of `fragment_of[r]`."""
        table = pa.table({**raw, SESSION: as_array(fragment_of)})
        return self._folded({f.name: f.group(table, [SESSION]) for f in self._families}, count)

    def combined(self, tables: Seq[pa.Table], session_of: Numbers, count: int) -> pa.Table:
        """The partials of `count` sessions of the fragments of some tables, in their order."""
        return self._folded(self.grouped(tables, session_of, count), count)

    def grouped(
        self, tables: Seq[pa.Table], session_of: Numbers, count: int
    ) -> dict[str, pa.Table]:
        """The same by family, grouped by the column `SESSION`, in no order."""
        flat = self._flat(tables, session_of)
        if len(session_of) == count:
            return flat
        several = np.bincount(session_of, minlength=count) > 1
        return {f.name: _combined(f, flat[f.name], several) for f in self._families}

    def _flat(self, tables: Seq[pa.Table], session_of: Numbers) -> dict[str, pa.Table]:
        """By family, the rows of all tables with the number of their session."""
        ends = np.cumsum([0, *(table.num_rows for table in tables)])
        found = {}
        for number, family in enumerate(self._families):
            pieces = []
            for table, start, end in zip(tables, ends[:-1], ends[1:], strict=True):
                mine = session_of[start:end]
                pieces.append(self._unfolded(table, family, mine, lists=number > 0))
            found[family.name] = pieces[0] if len(pieces) == 1 else family.concat(pieces)
        return found

    def _folded(self, tables: dict[str, pa.Table], count: int) -> pa.Table:
        columns: dict[str, Any] = {}
        for number, family in enumerate(self._families):
            table = tables[family.name]
            of = np.asarray(one_array(table.column(SESSION)))
            if (of[1:] < of[:-1]).any():
                order = np.argsort(of, kind="stable")
                table, of = table.take(as_array(order)), of[order]
            ends = np.cumsum(np.bincount(of, minlength=count))
            for name in (*family.extra, *family.columns):
                values: Any = one_array(table.column(name))
                if number:
                    offsets: Any = as_array(np.concatenate([[0], ends]))
                    lists = pa.LargeListArray.from_arrays(offsets, values)
                    columns[f"{family.name}.{name}"] = lists
                else:
                    columns[name] = values
        return pa.table(columns or {NO_PARTIAL: pa.nulls(count)})

    def _unfolded(
        self, table: pa.Table, family: Family, session_of: Numbers, *, lists: bool
    ) -> pa.Table:
        if not lists:
            mine = table.select(list(family.columns))
            return mine.append_column(SESSION, as_array(session_of))
        columns: dict[str, Any] = {}
        counts = np.ones(len(session_of), np.int64)
        for name in (*family.extra, *family.columns):
            column: Any = one_array(table.column(f"{family.name}.{name}"))
            columns[name] = column.flatten()
            counts = np.asarray(column.value_lengths())
        return pa.table({**columns, SESSION: as_array(np.repeat(session_of, counts))})


def _combined(family: Family, table: pa.Table, several: Mask) -> pa.Table:
    """Partials by session. Those of a session with one fragment are what they are: grouping costs
    far more than leaving them out of it.
    """
    merging = several[np.asarray(one_array(table.column(SESSION)))]
    if 2 * np.count_nonzero(merging) > len(merging):
        return family.combine(table, [SESSION])
    merged = family.combine(table.filter(as_array(merging)), [SESSION])
    return family.concat([table.filter(as_array(~merging)), merged.select(table.column_names)])


def keys_of(tables: Seq[pa.Table], places: Numbers, form: KeyForm) -> pa.Table:
    """The key columns of some of the rows of all tables."""
    keys = [form.aligned(table).select(list(form.names)) for table in tables]
    table = keys[0] if len(keys) == 1 else pa.concat_tables(keys)
    return table.take(as_array(places))


def merged_piece(picked: Picked, gap_ms: int, partials: Partials, form: KeyForm) -> Piece:
    """One piece of all these fragments: those of one session are one. `form`: their keys' types."""
    found = picked.sessions(gap_ms)
    tables = picked.tables()
    content = partials.combined(tables, found.session_of, found.count)
    keys = keys_of(tables, found.order[found.starts], form)
    for name in keys.column_names:
        content = content.append_column(name, keys.column(name))
    marks = found.any_of(picked.corrects)
    return Piece(found.keys, found.first, found.last, marks, HeldRows(content))


__all__ = ["NO_PARTIAL", "SESSION", "Partials", "keys_of", "merged_piece"]
