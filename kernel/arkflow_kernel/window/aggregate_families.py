"""Families: partial columns that are grouped together, and how their tables become one."""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.window.aggregate_groups import Finish, Grouping
from arkflow_kernel.window.aggregate_types import TAG, as_type, widened
from arkflow_kernel.window.partials_numbers import Partial


class Family:
    """Partial columns that are grouped together: tables go in, tables come out."""

    def __init__(self, name: str, partials: Seq[Partial]) -> None:
        self.name = name
        self._partials = tuple(partials)
        readable = [name for partial in partials for name in partial.names]
        self.columns: tuple[str, ...] = tuple(f"p{i}" for i in range(len(readable)))
        self._readable = dict(zip(self.columns, _distinct(readable), strict=True))

    @property
    def extra(self) -> tuple[str, ...]:
        """Columns by which it groups beside those of the caller."""
        return ()

    @property
    def names(self) -> Mapping[str, str]:
        """What each of its own columns, `extra` too, is called in runs, as `price_sum`."""
        return self._readable

    def columns_of(self, partial: Partial) -> tuple[str, ...]:
        """The columns of one of its partials."""
        before = self._partials[: self._partials.index(partial)]
        first = sum(len(each.names) for each in before)
        return self.columns[first : first + len(partial.names)]

    def group(self, raw: pa.Table, by: Seq[str]) -> pa.Table:
        """Partials of raw rows: one row for each group of `by` and `extra`, in no order."""
        asked = Grouping(raw, by)
        return self._table(asked, [partial.of_rows(asked) for partial in self._partials])

    def combine(self, partials: pa.Table, by: Seq[str]) -> pa.Table:
        """Partials of partials, by fewer columns or the same; others are left out."""
        asked = Grouping(partials, by)
        finishes = [each.of_partials(asked, self.columns_of(each)) for each in self._partials]
        return self._table(asked, finishes)

    def _table(self, asked: Grouping, finishes: Seq[Finish]) -> pa.Table:
        groups = asked.run()
        made = [column for finish in finishes for column in finish(groups)]
        return groups.with_columns(dict(zip(self.columns, made, strict=True)))

    def concat(self, tables: Iterable[pa.Table]) -> pa.Table:
        """The rows of tables, at least one; see `concatenated`."""
        return concatenated(list(tables))


class DistinctFamily(Family):
    """The values of a field, each once a group: for count_distinct. Nulls are no values.

    Its columns are group columns: the canonical value, and its tag (`state.key_form`).
    """

    def __init__(self, name: str, column: str, field: str) -> None:
        super().__init__(name, ())
        self._column = column
        self._readable = {column: f"{field}_value", column + TAG: f"{field}_value{TAG}"}

    @property
    def extra(self) -> tuple[str, ...]:
        """The value and its tag."""
        return self._column, self._column + TAG

    def group(self, raw: pa.Table, by: Seq[str]) -> pa.Table:
        """The distinct values of each group."""
        if raw.column(self._column).null_count:
            raw = raw.filter(pc.is_valid(raw.column(self._column)))
        return self.combine(raw, by)

    def combine(self, partials: pa.Table, by: Seq[str]) -> pa.Table:
        """The distinct values of each group."""
        return self._table(Grouping(partials, (*by, *self.extra)), ())


def concatenated(tables: Seq[pa.Table]) -> pa.Table:
    """The rows of tables with the columns of the first, each in its widest type.

    For raw tables and partial ones. Raises `ValueTypeError` for types that have no widest.
    """
    first = tables[0]
    if all(table.schema.equals(first.schema) for table in tables):
        return pa.concat_tables(tables)
    kinds: dict[str, pa.DataType] = {field.name: field.type for field in first.schema}
    for table in tables[1:]:
        for name, kind in kinds.items():
            kinds[name] = widened(kind, table.schema.field(name).type)
    return pa.concat_tables(
        pa.table({name: as_type(table.column(name), kind) for name, kind in kinds.items()})
        for table in tables
    )


def distinct_counts(groups: pa.Table, values: pa.Table, by: Seq[str]) -> Any:
    """How many rows of `values` each row of `groups` has; both have the columns `by`."""
    if not by:
        return pa.array(np.full(groups.num_rows, values.num_rows, np.int64))
    places = pa.array(np.arange(groups.num_rows))
    mine = groups.select(by).append_column("place", places)
    other = values.select(by).append_column("place", pa.nulls(values.num_rows, pa.int64()))
    asked = Grouping(concatenated([mine, other]), by)
    place = asked.ask(asked.column("place"), "max")
    rows = asked.ask_count()
    found = asked.run()
    of = found.answer(place)
    counts = np.zeros(groups.num_rows, np.int64)
    known = np.asarray(of.is_valid(), dtype=np.bool_)
    counts[np.asarray(of.fill_null(0))[known]] = np.asarray(found.answer(rows))[known] - 1
    return pa.array(counts)


def _distinct(names: Seq[str]) -> list[str]:
    """The names, those that came before with a number."""
    found: dict[str, None] = {}
    for name in names:
        free, n = name, 2
        while free in found:
            free, n = f"{name}_{n}", n + 1
        found[free] = None
    return list(found)


__all__ = ["DistinctFamily", "Family", "concatenated", "distinct_counts"]
