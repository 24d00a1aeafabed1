"""The rows that leave a join (D.9): `l_<column>`, `r_<column>`, and the key as text."""

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq

import numpy as np
import pyarrow as pa

from arkflow_kernel.join.join_keys import JoinKeys
from arkflow_kernel.join.join_runs import JoinRun
from arkflow_kernel.join.pairs import Pairs
from arkflow_kernel.join.side_rows import RunRows, SideRows
from arkflow_kernel.limits import SLICE_BYTES_MAX
from arkflow_kernel.state.arrow_numpy import AnyArray, taken
from arkflow_kernel.state.growing import Slots
from arkflow_kernel.window.row_batches import brought_to, joined, nulls

JOIN_KEY = "join_key"

PART_ROWS_MAX = 32_768
"""Rows that leave together (T1c)."""

_PART_ROWS_MIN = 64


def part_rows(left: Seq[JoinRun], right: Seq[JoinRun]) -> int:
    """How many rows of both sides leave together at most, by the widest of each."""
    row = sum(
        max((run.size_bytes // max(1, len(run)) for run in side), default=0)
        for side in (left, right)
    )
    return int(np.clip(SLICE_BYTES_MAX // max(1, row), _PART_ROWS_MIN, PART_ROWS_MAX))


class Matches:
    """The pairs of a batch with rows of the other side, to go through as often as asked."""

    def __init__(self, probe: JoinRun, found: list[tuple[JoinRun, Pairs]]) -> None:
        self.probe = probe
        self._found = found
        self.rows_max = part_rows([probe], [run for run, _ in found])

    def __len__(self) -> int:
        return sum(len(pairs) for _, pairs in self._found)

    def parts(self) -> Iterator[tuple[Slots, RunRows]]:
        """Rows of the batch, and the rows that they match beside them, in parts."""
        for run, pairs in self._found:
            for start in range(0, len(pairs), self.rows_max):
                rows, places = pairs.part(start, start + self.rows_max)
                if run.cuts is not None or run.gone is not None:
                    kept = np.ones(len(rows), np.bool_)
                    if run.cuts is not None:
                        kept &= self.probe.times[rows] >= run.cuts[places]
                    if run.gone is not None:
                        kept &= ~run.gone[places]
                    rows, places = rows[kept], places[kept]
                if len(rows):
                    yield rows, RunRows(run, places)


class JoinOutput:
    """Makes the rows that leave."""

    def __init__(self, left: SideRows, right: SideRows, keys: JoinKeys) -> None:
        self._left = left
        self._right = right
        self._keys = keys

    def matched(self, mine: SideRows, matches: Matches) -> Iterator[pa.RecordBatch]:
        """A row for each pair; `mine` is the side of the batch."""
        texts: AnyArray | None = None
        other = self._right if mine is self._left else self._left
        for rows, there in _gathered(matches.parts(), other, matches.rows_max):
            if texts is None:
                column = self._keys.column(matches.probe.rows.read(), mine)
                texts = self._keys.texts(column)
            own = matches.probe.rows.take(rows)
            keys = taken(texts, rows)
            left, right = (own, there) if mine is self._left else (there, own)
            yield self.batch(left, right, keys)

    def unmatched(self, side: SideRows, rows: Iterable[RunRows]) -> Iterator[pa.RecordBatch]:
        """A row for each row that matches nothing; the other side's columns are null."""
        for _, own in _gathered(_cut(rows), side, PART_ROWS_MAX):
            keys = self._keys.texts(self._keys.column(own, side))
            left, right = (own, None) if side is self._left else (None, own)
            yield self.batch(left, right, keys)

    def batch(
        self, left: pa.RecordBatch | None, right: pa.RecordBatch | None, keys: AnyArray
    ) -> pa.RecordBatch:
        """Rows of both sides beside each other, and their keys as text; of one side: the other's
        columns are null, or left out as long as nobody knows them.
        """
        arrays: list[AnyArray] = []
        names: list[str] = []
        for prefix, rows, side in (("l_", left, self._left), ("r_", right, self._right)):
            schema = side.schema.known
            if schema is None:
                continue
            if rows is not None:
                arrays += brought_to(rows, schema).columns
            else:
                arrays += [nulls(len(keys), field.type) for field in schema]
            names += [prefix + name for name in schema.names]
        return pa.RecordBatch.from_arrays([*arrays, keys], names=[*names, JOIN_KEY])


def _cut(rows: Iterable[RunRows]) -> Iterator[tuple[Slots, RunRows]]:
    for each in rows:
        for start in range(0, len(each), PART_ROWS_MAX):
            places = each.places[start : start + PART_ROWS_MAX]
            yield places, RunRows(each.run, places)


def _gathered(
    parts: Iterable[tuple[Slots, RunRows]], side: SideRows, rows_max: int
) -> Iterator[tuple[Slots, pa.RecordBatch]]:
    """Small parts together."""
    rows: list[Slots] = []
    batches: list[pa.RecordBatch] = []
    count = 0
    for mine, there in parts:
        if count and count + len(mine) > rows_max:
            yield np.concatenate(rows), joined(batches)
            rows, batches, count = [], [], 0
        rows.append(mine)
        batches.append(brought_to(there.run.rows.take(there.places), side.schema.of_rows))
        count += len(mine)
    if count:
        yield np.concatenate(rows), joined(batches)


__all__ = ["JOIN_KEY", "PART_ROWS_MAX", "JoinOutput", "Matches", "part_rows"]
