"""One pass of grouping: what several aggregates ask of it, and what each gets back (N1).

Arrow's hash aggregation does the work, on the calling thread. Finding a row's group costs more
than all aggregates of it together, so a table is grouped once for all of them.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]

_ONE_GROUP = "one_group"


class Grouped:
    """The groups of a table, in an order of their own: their columns, and the answers."""

    def __init__(self, table: pa.Table, by: Seq[str], first: int) -> None:
        self._table = table
        self._by = list(by)
        self._first = first
        self._segments: Segments | None = None

    @property
    def count(self) -> int:
        """How many groups there are."""
        return self._table.num_rows

    def answer(self, number: int) -> Any:
        """What was asked for under this number: one value a group, as a chunked array."""
        return self._table.column(self._first + number)

    def with_columns(self, columns: dict[str, Any]) -> pa.Table:
        """The table of the groups: the columns that they have in common, and these."""
        groups = {name: self._table.column(name) for name in self._by}
        return pa.table({**groups, **columns})

    def segments(self, number: int) -> "Segments":
        """The rows of each group, of the answer to `rows`."""
        if self._segments is None:
            self._segments = Segments(self.answer(number))
        return self._segments


class Segments:
    """Which rows are of which group: `rows` by group, those of group g from `starts[g]` on.

    No group is empty.
    """

    def __init__(self, lists: Any) -> None:
        self.rows: Numbers = np.asarray(pc.list_flatten(lists), dtype=np.int64)
        self.sizes: Numbers = np.asarray(pc.list_value_length(lists), dtype=np.int64)
        ends = np.cumsum(self.sizes)
        self.starts: Numbers = ends - self.sizes

    def summed(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The sum of each group; `values` are in the order of `rows`, here and below."""
        return np.add.reduceat(values, self.starts) if len(self.starts) else values[:0]

    def least(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The least of each group."""
        return np.minimum.reduceat(values, self.starts) if len(self.starts) else values[:0]

    def greatest(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The greatest of each group."""
        return np.maximum.reduceat(values, self.starts) if len(self.starts) else values[:0]

    def group_of(self, places: Numbers) -> Numbers:
        """The group of some places of `rows`."""
        found: Numbers = np.searchsorted(self.starts, places, side="right") - 1
        return found

    def spread(self, per_group: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A value of each group for each of its rows, in the order of `rows`."""
        return np.repeat(per_group, self.sizes)


class Grouping:
    """Gathers what is asked of one table, then groups it by its columns `by`."""

    def __init__(self, table: pa.Table, by: Seq[str]) -> None:
        self._table = table
        self._by = list(by)
        self._held: dict[str, Any] = {}
        self._columns: dict[str, Any] = {}
        self._numbers: dict[int, str] = {}
        self._asked: list[Any] = []
        self._rows: int | None = None

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self._table.num_rows

    def column(self, name: str) -> Any:
        """A column of the table: the same object each time, so that it is passed on once."""
        if name not in self._held:
            self._held[name] = self._table.column(name)
        return self._held[name]

    def ask(self, values: Any, function: str, options: Any = None) -> int:
        """One of Arrow's hash aggregates over a column of the table's length: its number."""
        name = self._numbers.get(id(values))
        if name is None:
            name = self._numbers[id(values)] = str(len(self._columns))
            self._columns[name] = values
        return self._added((name, function, options))

    def ask_count(self) -> int:
        """The rows of each group: its number."""
        return self._added(([], "count_all", None))

    def ask_rows(self) -> int:
        """Which rows each group has, for `Grouped.segments`: its number."""
        if self._rows is None:
            self._rows = self.ask(pa.array(np.arange(self.count)), "list")
        return self._rows

    def _added(self, aggregate: tuple[Any, str, Any]) -> int:
        self._asked.append(aggregate)
        return len(self._asked) - 1

    def _keys(self) -> dict[str, Any]:
        return {name: self._table.column(name) for name in self._by}

    def run(self) -> Grouped:
        """Group. Without columns to group by, all rows are one group."""
        by, columns = self._by, self._keys()
        constant = _constant(self._table, by)
        if constant is not None or not by:
            # Hashing one column less is a tenth of the time.
            columns = {name: columns[name] for name in by[1:]}
        if not columns:
            columns = {_ONE_GROUP: pa.array(np.zeros(self.count, np.int8))}
        keys = list(columns)
        source = pa.table({**columns, **self._columns})
        grouped = pa.TableGroupBy(source, keys, use_threads=False).aggregate(self._asked)
        if constant is not None:
            starts = pa.array(np.full(grouped.num_rows, constant, np.int64))
            grouped = grouped.append_column(by[0], starts)
        return Grouped(grouped, by, len(keys))


def _constant(table: pa.Table, by: Seq[str]) -> int | None:
    """The value of the first of several columns, if it is the same in all rows: a single pane."""
    if len(by) < 2 or table.num_rows == 0 or table.column(by[0]).type != pa.int64():
        return None
    ends: Any = pc.min_max(table.column(by[0]), skip_nulls=False)
    least, greatest = ends["min"].as_py(), ends["max"].as_py()
    return least if least == greatest else None


Finish = Callable[[Grouped], tuple[Any, ...]]
"""Makes the columns of a partial from the groups, in the order of its names."""


__all__ = ["Finish", "Grouped", "Grouping", "Numbers", "Segments"]
