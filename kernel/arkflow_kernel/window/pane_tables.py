"""Partial aggregates of panes as immutable tables: in memory, or in local files (N1, S5).

A row is of one pane and key (and what else its family groups by), so a table has each once. Tables
that are read in parts are in order of bucket: a number that is made of the key's hash, apart from
its key group, so that whoever holds few groups has all buckets.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.state.growing import Mask, Words
from arkflow_kernel.window.assign import Times
from arkflow_kernel.window.spill_file import SpillFile

PANE = "pane"
"""The column of a table that has the start of each row's pane, in ms."""

AFTER = "after"
"""A row counts only in windows that end after this; a table may be without it."""

BUCKETS = 128
"""Into so many parts a table can be read."""

_FEW_CHANGES = 256

Places = npt.NDArray[np.int64]


def buckets_of(hashes: Words, max_parallelism: int) -> npt.NDArray[np.uint8]:
    """The bucket of each key."""
    return ((hashes // np.uint64(max_parallelism)) % np.uint64(BUCKETS)).astype(np.uint8)


def in_buckets(table: pa.Table, buckets: npt.NDArray[np.uint8]) -> tuple[pa.Table, Places]:
    """The rows in order of their bucket; and where each bucket begins, and the end."""
    order: Any = pa.array(np.argsort(buckets, kind="stable"))
    counts = np.bincount(buckets, minlength=BUCKETS)
    return table.take(order).combine_chunks(), np.concatenate(([0], np.cumsum(counts)))


def int64s(table: pa.Table, name: str = PANE) -> Times:
    """A column of int64 without nulls: if not told, the start of each row's pane."""
    column: Any = table.column(name)
    return np.asarray(column, dtype=np.int64)


def panes_of(table: pa.Table) -> tuple[Times, Places]:
    """The panes that a table's rows are of, in order, and how many rows each has."""
    return counted_panes(int64s(table))


def counted_panes(starts: Times) -> tuple[Times, Places]:
    """The panes among the starts of rows' panes, in order, and how many rows each has."""
    if len(starts) and starts[0] == starts[-1] and (starts == starts[0]).all():
        return starts[:1].copy(), np.array([len(starts)], np.int64)
    changes = np.flatnonzero(starts[1:] != starts[:-1]) + 1
    if len(changes) <= _FEW_CHANGES:  # rows come in order, mostly
        firsts = np.concatenate(([0], changes)) if len(starts) else changes
        each = starts[firsts]
        sizes = np.diff(np.append(firsts, len(starts)))
        if (each[1:] > each[:-1]).all():
            return each, sizes
        panes, places = np.unique(each, return_inverse=True)
        return panes, np.bincount(places, sizes).astype(np.int64)
    counted: Any = pc.value_counts(pa.array(starts))
    panes = np.asarray(counted.field("values"), dtype=np.int64)
    counts = np.asarray(counted.field("counts"), dtype=np.int64)
    order = np.argsort(panes)
    return panes[order], counts[order]


@dataclass(frozen=True, slots=True)
class PaneSpan:
    """Which panes have rows that count, in order, and how many; those below are let go of."""

    panes: Times
    counts: Places
    rows: int

    @classmethod
    def of(cls, table: pa.Table) -> "PaneSpan":
        """All of a table."""
        panes, counts = panes_of(table)
        return cls(panes, counts, int(counts.sum()))

    def from_pane(self, first: int) -> "PaneSpan":
        """Without the panes below."""
        at = int(np.searchsorted(self.panes, first))
        if not at:
            return self
        counts = self.counts[at:]
        return PaneSpan(self.panes[at:], counts, int(counts.sum()))

    def rows_between(self, first: int, last: int) -> int:
        """Rows of the panes first <= pane < last."""
        low, high = np.searchsorted(self.panes, [first, last])
        return int(self.counts[low:high].sum())


@dataclass(frozen=True, slots=True)
class PaneTable:
    """A table in memory, of `memory_bytes`. `bounds` are where each bucket begins, and the end;
    None: in no order.
    """

    table: pa.Table
    span: PaneSpan
    memory_bytes: int
    bounds: Places | None = None

    @classmethod
    def of(cls, table: pa.Table, bounds: Places | None = None) -> "PaneTable":
        """A table whose rows all count."""
        return cls(table, PaneSpan.of(table), table.nbytes, bounds)

    @property
    def live_bytes(self) -> int:
        """Bytes of the rows that count."""
        return self.memory_bytes * self.span.rows // max(1, self.table.num_rows)

    @property
    def bucket_bounds(self) -> Places:
        """`bounds` of a table that is in order."""
        assert self.bounds is not None
        return self.bounds

    def let_go(self, first: int) -> "PaneTable | None":
        """Without the panes below `first`; None if nothing is left."""
        span = self.span.from_pane(first)
        if span is self.span:
            return self
        if not span.rows:
            return None
        if 2 * span.rows > self.table.num_rows:
            return replace(self, span=span)  # a copy would cost more than it frees
        mask = int64s(self.table) >= first
        bounds = self.bounds
        if bounds is not None:
            bounds = np.concatenate(([0], np.cumsum(mask)))[bounds]
        table = self.table.filter(pa.array(mask))
        return PaneTable(table, span, table.nbytes, bounds)

    def ordered(self, buckets: Callable[[pa.Table], npt.NDArray[np.uint8]]) -> "PaneTable":
        """The same rows in order of bucket."""
        if self.bounds is not None:
            return self
        table, bounds = in_buckets(self.table, buckets(self.table))
        return replace(self, table=table, bounds=bounds)

    def read(self, first: int, last: int, low: int = 0, high: int = BUCKETS) -> pa.Table:
        """The rows of panes first <= pane < last and buckets low <= bucket < high.

        Of some buckets only if it is in their order.
        """
        table = self.table
        if (low, high) != (0, BUCKETS):
            start, end = self.bucket_bounds[[low, high]].tolist()
            table = table.slice(start, end - start)
        return _between(table, self.span, self.table.num_rows, first, last)


@dataclass(frozen=True, slots=True)
class PaneFile:
    """A table in a local file."""

    file: SpillFile
    span: PaneSpan

    @property
    def memory_bytes(self) -> int:
        """It takes as good as none."""
        return 0

    @property
    def live_bytes(self) -> int:
        """Bytes of the rows that count."""
        return self.file.size * self.span.rows // max(1, self.file.rows)

    @property
    def bucket_bounds(self) -> Places:
        """Where each bucket begins, and the end."""
        return self.file.bounds

    def let_go(self, first: int) -> "PaneFile | None":
        """Without the panes below `first`; None if nothing is left."""
        span = self.span.from_pane(first)
        return replace(self, span=span) if span.rows else None

    def ordered(self, buckets: Callable[[pa.Table], npt.NDArray[np.uint8]]) -> "PaneFile":  # noqa: ARG002
        """It is in order of bucket."""
        return self

    def parts(self, first: int, last: int, low: int = 0, high: int = BUCKETS) -> list[pa.Table]:
        """The rows of panes first <= pane < last and buckets low <= bucket < high."""
        start, end = self.file.bounds[[low, high]].tolist()
        found = self.file.read(start, end)
        return [_between(table, self.span, self.file.rows, first, last) for table in found]


def _between(table: pa.Table, span: PaneSpan, rows: int, first: int, last: int) -> pa.Table:
    """Those rows of a part of a table whose pane is in a range and counts."""
    if not span.rows:
        return table.slice(0, 0)
    first = max(first, int(span.panes[0]))
    if first == span.panes[0] and last > span.panes[-1] and span.rows == rows:
        return table
    panes = int64s(table)
    mask: Mask = (panes >= first) & (panes < last)
    return table if mask.all() else table.filter(pa.array(mask))


Held = PaneTable | PaneFile


def read_from(
    held: Iterable[Held], first: int, last: int, low: int = 0, high: int = BUCKETS
) -> list[pa.Table]:
    """What several tables have of some panes and buckets; those without a row are left out."""
    found: list[pa.Table] = []
    for each in held:
        if not each.span.rows_between(first, last):
            continue
        if isinstance(each, PaneFile):
            found += each.parts(first, last, low, high)
        else:
            found.append(each.read(first, last, low, high))
    return [table for table in found if table.num_rows]


__all__ = [
    "AFTER",
    "BUCKETS",
    "PANE",
    "Held",
    "PaneFile",
    "PaneSpan",
    "PaneTable",
    "buckets_of",
    "counted_panes",
    "in_buckets",
    "int64s",
    "panes_of",
    "read_from",
]
