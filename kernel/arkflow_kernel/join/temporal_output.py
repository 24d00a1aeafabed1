"""Rows of a temporal join as they leave: each with the version that is valid at its time (J9)."""

from collections.abc import Iterator
from collections.abc import Sequence as Seq

import numpy as np
import pyarrow as pa

from arkflow_kernel.join.join_keys import JoinKeys
from arkflow_kernel.join.join_output import JoinOutput, part_rows
from arkflow_kernel.join.side_rows import RunRows, SideRows
from arkflow_kernel.join.version_index import NO_RUN, Versions
from arkflow_kernel.state.growing import Slots
from arkflow_kernel.window.row_batches import brought_to, joined, nulls, rows_at


class TemporalOutput:
    """Makes them. Rows of an outer left side leave without a version, too."""

    def __init__(self, left: SideRows, right: SideRows, keys: JoinKeys) -> None:
        self._left = left
        self._right = right
        self._keys = keys
        self._output = JoinOutput(left, right, keys)

    def rows(self, due: Seq[RunRows], versions: Versions) -> Iterator[pa.RecordBatch]:
        """These rows, in parts (T1c); their versions stand beside them, one run after the other."""
        most = part_rows([each.run for each in due], versions.runs)
        for at, parts in _parts(due, most):
            schema = self._left.schema.of_rows
            own = joined([brought_to(p.run.rows.take(p.places), schema) for p in parts])
            runs, places = versions.numbers[at], versions.places[at]
            if not self._left.outer:
                found = np.flatnonzero(runs != NO_RUN)
                if not len(found):
                    continue
                own, runs, places = rows_at(own, found), runs[found], places[found]
            keys = self._keys.texts(self._keys.column(own, self._left))
            yield self._output.batch(own, self._versions(versions, runs, places), keys)

    def _versions(self, versions: Versions, runs: Slots, places: Slots) -> pa.RecordBatch | None:
        schema = self._right.schema.known
        if schema is None:
            return None
        order, parts = [], []
        for number in np.unique(runs).tolist():
            mine = np.flatnonzero(runs == number)
            order.append(mine)
            if number == NO_RUN:
                columns = [nulls(len(mine), field.type) for field in schema]
                parts.append(pa.RecordBatch.from_arrays(columns, schema=schema))
            else:
                taken = versions.runs[number].rows.take(places[mine])
                parts.append(brought_to(taken, schema))
        return rows_at(joined(parts), np.argsort(np.concatenate(order), kind="stable"))


def _parts(due: Seq[RunRows], most: int) -> Iterator[tuple[Slots, list[RunRows]]]:
    """At most so many rows, and their places among all of them; small runs together."""
    parts: list[RunRows] = []
    start = end = 0
    for each in due:
        for first in range(0, len(each), most):
            part = RunRows(each.run, each.places[first : first + most])
            if end - start + len(part) > most:
                yield np.arange(start, end), parts
                parts, start = [], end
            parts.append(part)
            end += len(part)
    if parts:
        yield np.arange(start, end), parts


__all__ = ["TemporalOutput"]
