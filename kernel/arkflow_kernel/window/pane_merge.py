"""Partial aggregates of several tables as one, by bucket where they are large (N1).

Grouping many keys at once waits for memory: a table of a bucket stays in the cache. Everything
here is a function of its arguments, so the upload lane may use it, too.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_kernel.ids import EARLIEST
from arkflow_kernel.limits import INT64_MAX, INT64_MIN
from arkflow_kernel.state.arrow_numpy import as_array
from arkflow_kernel.state.growing import Mask
from arkflow_kernel.window.keys import KeyForm
from arkflow_kernel.window.pane_tables import (
    AFTER,
    BUCKETS,
    PANE,
    Held,
    PaneTable,
    buckets_of,
    in_buckets,
    read_from,
)

_AT_ONCE_ROWS = 1 << 18
"""Tables of fewer rows are grouped at once."""


class PartialFamily(Protocol):
    """What is asked of a set of partial aggregates (`aggregates.Family`)."""

    @property
    def extra(self) -> tuple[str, ...]:
        """Columns by which it groups beside those of the caller."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """Its other columns."""
        ...

    @property
    def names(self) -> Mapping[str, str]:
        """What each of these columns, `extra` too, is called in runs."""
        ...

    def group(self, raw: pa.Table, by: Seq[str]) -> pa.Table:
        """Partials of raw rows: one row for each group of `by` and `extra`."""
        ...

    def combine(self, partials: pa.Table, by: Seq[str]) -> pa.Table:
        """Partials of partials, by fewer columns or the same."""
        ...

    def concat(self, tables: Seq[pa.Table]) -> pa.Table:
        """The rows of tables with the same columns, each in its widest type."""
        ...


@dataclass(frozen=True, slots=True)
class PaneMerger:
    """Joins tables whose keys are of one form or earlier ones."""

    family: PartialFamily
    form: KeyForm
    max_parallelism: int

    def joined(self, tables: Seq[pa.Table]) -> pa.Table:
        """The rows of tables, at least one, in one layout."""
        tables = [self.form.aligned(table) for table in tables]
        if any(AFTER in table.column_names for table in tables):
            tables = [_with_after(table) for table in tables]
        return tables[0] if len(tables) == 1 else self.family.concat(tables)

    def by(self, table: pa.Table) -> list[str]:
        """What its partials are apart by, but for the family's own."""
        after = [AFTER] if AFTER in table.column_names else []
        return [PANE, *after, *self.form.names]

    def grouped(self, raw: Seq[pa.Table]) -> PaneTable:
        """Partials of raw tables, at least one."""
        joined = self.joined(raw)
        by = self.by(joined)
        if joined.num_rows <= _AT_ONCE_ROWS:
            return PaneTable.of(self.family.group(joined, by).combine_chunks())
        ordered, bounds = in_buckets(joined, self.buckets(joined))
        pieces = [
            self.family.group(ordered.slice(start, end - start), by)
            for start, end in pairwise(bounds.tolist())
            if end > start
        ]
        return self._of_pieces(pieces, np.diff(bounds) > 0)

    def combined(self, tables: Seq[pa.Table], by: Seq[str] | None = None) -> pa.Table:
        """Partials of partials, at least one table; by all that they are apart by if not told."""
        joined = self.joined(tables)
        whole = self.by(joined)
        if by is None:
            by = whole
        elif AFTER not in whole:
            by = [name for name in by if name != AFTER]
        if len(tables) == 1 and set(by) == set(whole):
            return joined  # each stands there once
        return self.family.combine(joined, by)

    def buckets(self, table: pa.Table) -> npt.NDArray[np.uint8]:
        """The bucket of each row."""
        return buckets_of(self.form.hashes(self.form.aligned(table)), self.max_parallelism)

    def groups(self, table: pa.Table) -> npt.NDArray[np.int32]:
        """The key group of each row (G3)."""
        hashes = self.form.hashes(self.form.aligned(table))
        return (hashes % np.uint64(self.max_parallelism)).astype(np.int32)

    def by_bucket(self, held: Seq[Held]) -> Iterator[pa.Table]:
        """What tables that are in order of bucket have, bucket by bucket, each group once."""
        rows = sum((np.diff(each.bucket_bounds) for each in held), np.zeros(BUCKETS, np.int64))
        for bucket, filled in enumerate((rows > 0).tolist()):
            found: list[pa.Table] = []
            if filled:
                found = read_from(held, INT64_MIN, INT64_MAX, bucket, bucket + 1)
            yield self.combined(found).combine_chunks() if found else _NOTHING

    def merged(self, held: Seq[Held]) -> PaneTable | None:
        """All of some tables as one in memory; None if nothing is left."""
        if sum(each.span.rows for each in held) <= _AT_ONCE_ROWS:
            found = read_from(held, INT64_MIN, INT64_MAX)
            return PaneTable.of(self.combined(found).combine_chunks()) if found else None
        ordered = [each.ordered(self.buckets) for each in held]
        pieces = list(self.by_bucket(ordered))
        filled = np.array([piece.num_rows > 0 for piece in pieces])
        if not filled.any():
            return None
        return self._of_pieces([piece for piece in pieces if piece.num_rows], filled)

    def _of_pieces(self, pieces: list[pa.Table], filled: Mask) -> PaneTable:
        """The tables of those buckets that are filled, in order."""
        sizes = np.zeros(BUCKETS, np.int64)
        sizes[filled] = [piece.num_rows for piece in pieces]
        bounds = np.concatenate(([0], np.cumsum(sizes)))
        return PaneTable.of(self.joined(pieces).combine_chunks(), bounds)

    def size(self, held: Seq[Held]) -> int:
        """Bytes of all of some tables once they are merged, without doing it."""
        if sum(each.span.rows for each in held) <= _AT_ONCE_ROWS:
            found = read_from(held, INT64_MIN, INT64_MAX)
            return self.combined(found).nbytes if found else 0
        ordered = [each.ordered(self.buckets) for each in held]
        return sum(piece.nbytes for piece in self.by_bucket(ordered))


_NOTHING = pa.table({PANE: pa.array([], pa.int64())})


def _with_after(table: pa.Table) -> pa.Table:
    """Rows that count in all windows of their pane say so."""
    if AFTER in table.column_names:
        return table
    every = as_array(np.full(table.num_rows, EARLIEST, np.int64))
    return table.add_column(table.schema.get_field_index(PANE) + 1, AFTER, every)


__all__ = ["PaneMerger", "PartialFamily"]
