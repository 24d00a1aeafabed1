"""What changed since the last seal of an operator's panes, and what was sealed: two of a kind (S6).

A side has raw rows that wait to be grouped and tables of partials. Tables of about one size merge,
so that there are few and each row is rewritten seldom (N1).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from arkflow_kernel.window.assign import Times
from arkflow_kernel.window.pane_merge import PaneMerger
from arkflow_kernel.window.pane_tables import (
    PANE,
    Held,
    PaneFile,
    PaneSpan,
    PaneTable,
    panes_of,
)
from arkflow_kernel.window.spill_file import SpillFile

_FAN_IN = 8
_SMALL_ROWS = 1_024
"""Tables up to about this size count as alike."""


@dataclass(frozen=True, slots=True)
class RawRows:
    """Raw rows that an operator added at once, of `size` bytes."""

    table: pa.Table
    panes: Times
    size: int

    @classmethod
    def of(cls, table: pa.Table) -> "RawRows":
        """The rows in memory of their own: those of a batch may hold a whole frame."""
        owned = pa.table([_owned(column) for column in table.columns], table.column_names)
        return cls(owned, panes_of(owned)[0], owned.nbytes)

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.table.num_rows

    def let_go(self, first: int) -> "RawRows | None":
        """Without the panes below `first`; None if nothing is left."""
        if not len(self.panes) or self.panes[0] >= first:
            return self
        if self.panes[-1] < first:
            return None
        panes: Any = self.table.column(PANE)
        table = self.table.filter(pa.array(np.asarray(panes) >= first))
        return RawRows(table, self.panes[self.panes >= first], table.nbytes)


def _owned(column: Any) -> Any:
    """A column whose buffers are part of nothing larger."""
    if column.num_chunks == 1:
        chunk = column.chunk(0)
        buffers = [buffer for buffer in chunk.buffers() if buffer is not None]
        size = sum(buffer.size for buffer in buffers)
        if size <= 2 * chunk.nbytes + 256 and all(each.parent is None for each in buffers):
            return column
    return pa.concat_arrays([*column.chunks, pa.nulls(0, column.type)])


@dataclass(slots=True)
class PaneSide:
    """Raw rows and tables on one side of the last seal. The lists are its own."""

    raw: list[RawRows] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows of partials that count, and raw ones."""
        return sum(each.span.rows for each in self.held) + self.raw_rows

    @property
    def raw_rows(self) -> int:
        """Rows that are not grouped."""
        return sum(each.rows for each in self.raw)

    @property
    def live_bytes(self) -> int:
        """Bytes of these rows."""
        return sum(each.live_bytes for each in self.held) + sum(each.size for each in self.raw)

    @property
    def memory_bytes(self) -> int:
        """Memory that it takes."""
        return sum(each.memory_bytes for each in self.held) + sum(each.size for each in self.raw)

    def panes(self) -> list[Times]:
        """The panes of each part."""
        return [*(each.span.panes for each in self.held), *(each.panes for each in self.raw)]

    def taken(self) -> "PaneSide":
        """All of it, in lists that nobody changes; nothing stays here."""
        found = PaneSide(self.raw, self.held)
        self.raw, self.held = [], []
        return found

    def let_go(self, first: int) -> None:
        """Forget the panes below `first`."""
        self.held = [kept for each in self.held if (kept := each.let_go(first)) is not None]
        self.raw = [rows for each in self.raw if (rows := each.let_go(first)) is not None]

    def ordered(self, merger: PaneMerger) -> None:
        """Bring all tables into the order of their buckets, one by one."""
        for number, each in enumerate(self.held):
            self.held[number] = each.ordered(merger.buckets)

    def group(self, merger: PaneMerger, merge_bytes: int | None) -> float:
        """Partials instead of the raw rows; then merge tables that are alike, up to some bytes.

        How many rows of partials a raw row became; 0 without raw rows.
        """
        rows = self.raw_rows
        if not rows:
            return 0.0
        table = merger.grouped([each.table for each in self.raw])
        self.raw = []
        if table.span.rows:
            self.held.append(table)
        while (due := self._due(merge_bytes)) is not None:
            merged = merger.merged([self.held[number] for number in due])
            rest: list[Held] = [each for n, each in enumerate(self.held) if n not in due]
            self.held = rest if merged is None else [*rest, merged]
        return table.span.rows / rows

    def _due(self, merge_bytes: int | None) -> list[int] | None:
        """Numbers of tables to merge: in memory, alike in size, not too many bytes."""
        tiers: dict[int, list[int]] = {}
        for number, each in enumerate(self.held):
            if isinstance(each, PaneTable):
                tier = (each.span.rows // _SMALL_ROWS).bit_length() // 3
                tiers.setdefault(tier, []).append(number)
        for numbers in tiers.values():
            if len(numbers) >= _FAN_IN:
                sizes = np.cumsum([self.held[number].memory_bytes for number in numbers])
                fit = len(sizes)
                if merge_bytes is not None:
                    fit = int(np.searchsorted(sizes, merge_bytes, side="right"))
                if fit > 1:
                    return numbers[:fit]
        return None

    def spill(self, merger: PaneMerger, spool: "Spool") -> None:
        """All tables in memory become one file; many files become one."""
        tables: list[Held] = [each for each in self.held if isinstance(each, PaneTable)]
        if not tables:
            return
        self.held = [each for each in self.held if isinstance(each, PaneFile)]
        self.held.append(spool.filed(tables, merger))
        if len(self.held) > _FAN_IN:
            self.held = [spool.filed(self.held, merger)]


class Spool:
    """Where tables go that do not fit in memory (S5). `folder` is called when the first does."""

    def __init__(self, folder: Callable[[], Path], prefix: str, operator: str) -> None:
        self._folder = folder
        self._prefix = prefix
        self._operator = operator
        self._files = 0

    def filed(self, held: list[Held], merger: PaneMerger) -> PaneFile:
        """Tables as one file, read bucket by bucket. Raises `ResourceError`.

        They are brought into order in the list itself: each is in memory twice only meanwhile.
        """
        for number, each in enumerate(held):
            held[number] = each.ordered(merger.buckets)
        self._files += 1
        counts: dict[int, int] = {}
        path = self._folder() / f"{self._prefix}-{self._files}.spill"
        file = SpillFile(path, _counted(merger.by_bucket(held), counts), self._operator)
        panes = np.array(sorted(counts), np.int64)
        rows = np.array([counts[pane] for pane in panes.tolist()], np.int64)
        return PaneFile(file, PaneSpan(panes, rows, int(rows.sum())))


def _counted(tables: Iterator[pa.Table], counts: dict[int, int]) -> Iterator[pa.Table]:
    """The tables; how many rows each pane has is added to `counts`."""
    for table in tables:
        if table.num_rows:
            panes, rows = panes_of(table)
            for pane, count in zip(panes.tolist(), rows.tolist(), strict=True):
                counts[pane] = counts.get(pane, 0) + count
        yield table


__all__ = ["PaneSide", "RawRows", "Spool"]
