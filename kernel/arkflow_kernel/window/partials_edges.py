"""Partial first and last values: those at the least and the greatest event time (N3)."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.limits import INT64_MAX, INT64_MIN
from arkflow_kernel.state.arrow_numpy import nulls_of, taken
from arkflow_kernel.state.growing import Mask
from arkflow_kernel.window.aggregate_groups import Finish, Grouped, Grouping, Numbers, Segments
from arkflow_kernel.window.aggregate_types import nulls, one_array

TIME = "ts"
"""Column of raw tables: the event time of the row, int64 milliseconds."""


@dataclass(frozen=True, slots=True)
class Edge:
    """The value at the least event time, or at the greatest (`last`), and that time.

    Of several values at that time the least counts for the first, the greatest for the last, so
    that the order of rows plays no part. Nulls do not count; both are null if nothing does.
    """

    last: bool
    column: str
    field: str

    @property
    def names(self) -> tuple[str, ...]:
        """Two columns: the time, then the value."""
        name = f"{self.field}_{'last' if self.last else 'first'}"
        return f"{name}_at", name

    def of_rows(self, asked: Grouping) -> Finish:
        """The edge of values."""
        values = one_array(asked.column(self.column))
        return self._edge(asked, one_array(asked.column(TIME)), values, ~nulls_of(values))

    def of_partials(self, asked: Grouping, columns: Seq[str]) -> Finish:
        """The edge of edges."""
        times = one_array(asked.column(columns[0]))
        return self._edge(asked, times, one_array(asked.column(columns[1])), ~nulls_of(times))

    def _edge(self, asked: Grouping, times: Any, values: Any, present: Mask) -> Finish:
        number = asked.ask_rows()
        moments = np.asarray(times.fill_null(0), dtype=np.int64)

        def finish(groups: Grouped) -> tuple[Any, ...]:
            if pa.types.is_null(values.type):
                return nulls(groups.count, pa.int64()), nulls(groups.count, values.type)
            segments = groups.segments(number)
            chosen = self._chosen(segments, moments, values, present)
            index: Any = pa.array(chosen, mask=chosen < 0)
            return pa.array(moments).take(index), taken(values, index)

        return finish

    def _chosen(self, segments: Segments, times: Numbers, values: Any, present: Mask) -> Numbers:
        """The row of each group that is its edge; -1 if none of its rows counts."""
        there = present[segments.rows]
        moments = np.where(there, times[segments.rows], INT64_MIN if self.last else INT64_MAX)
        best = segments.greatest(moments) if self.last else segments.least(moments)
        places = np.flatnonzero(there & (moments == segments.spread(best)))
        rows, groups = segments.rows[places], segments.group_of(places)
        chosen = np.full(len(segments.sizes), -1, np.int64)
        chosen[groups] = rows
        tied = np.bincount(groups, minlength=len(chosen))[groups] > 1
        if tied.any():
            rows, groups = _by_value(values, rows[tied], groups[tied])
            # The last one written stays: so rows that come first must be written last.
            order = slice(None) if self.last else slice(None, None, -1)
            chosen[groups[order]] = rows[order]
        return chosen


def _by_value(values: Any, rows: Numbers, groups: Numbers) -> tuple[Numbers, Numbers]:
    """Rows and their groups, in order of group and then value; NaN is the greatest."""
    ranked: Any = pc.rank(taken(values, rows), tiebreaker="dense")
    order = np.lexsort((np.asarray(ranked), groups))
    return rows[order], groups[order]


__all__ = ["TIME", "Edge"]
