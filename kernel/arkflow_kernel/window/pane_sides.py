"""What changed since the last seal of an operator's panes, and what was sealed: two of a kind (S6).

A side has raw rows that wait to be grouped and tables of partials. Tables of about one size merge,
so that there are few and each row is rewritten seldom (N1).
"""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from arkflow_kernel.state.arrow_numpy import AnyArray
from arkflow_kernel.window.assign import Times
from arkflow_kernel.window.pane_merge import PaneMerger
from arkflow_kernel.window.pane_tables import (
    PANE,
    Held,
    PaneFile,
    PaneSpan,
    PaneTable,
    counted_panes,
    int64s,
    panes_of,
)
from arkflow_kernel.window.spill_file import SpillFile
from arkflow_kernel.window.stream_file import SpillPaths

RAW_ROWS = 1 << 16
"""So many raw rows are grouped at once, at least."""

_RAW_ROWS_MAX = 1 << 20
_RAW_TABLES_MAX = 256
_RAW_SHARE = 8

_MANY, _FEW = 0.25, 0.0625
"""Partials of a raw row: above which more, and below which fewer rows are grouped at once."""

_FAN_IN = 8
_SMALL_ROWS = 1_024
"""Tables up to about this size count as alike."""


@dataclass(frozen=True, slots=True)
class RawRows:
    """Raw rows that an operator adds at once, of `size` bytes: `pane`, `after` or not, the
    ledger's key columns, the values. Those of one batch are for all of its families.
    """

    table: pa.Table
    panes: Times
    size: int

    @classmethod
    def of(cls, columns: Mapping[str, AnyArray]) -> "RawRows":
        """The rows in memory of their own: those of a batch may hold a whole frame."""
        owned = [_owned(column) for column in columns.values()]
        starts = np.asarray(columns[PANE], dtype=np.int64)
        size = sum(column.nbytes for column in owned)
        return cls(pa.table(owned, list(columns)), counted_panes(starts)[0], size)

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.table.num_rows

    def only_panes(self) -> "RawRows":
        """For a state that has neither keys nor values."""
        table = self.table.select([PANE])
        return RawRows(table, self.panes, table.nbytes)

    def let_go(self, first: int) -> "RawRows | None":
        """Without the panes below `first`; None if nothing is left."""
        if not len(self.panes) or self.panes[0] >= first:
            return self
        if self.panes[-1] < first:
            return None
        table = self.table.filter(pa.array(int64s(self.table) >= first))
        return RawRows(table, self.panes[self.panes >= first], table.nbytes)


def _owned(column: AnyArray) -> AnyArray:
    """A column whose buffers are part of nothing larger."""
    buffers = [buffer for buffer in column.buffers() if buffer is not None]
    size = sum(buffer.size for buffer in buffers)
    if size <= 2 * column.nbytes + 256 and all(each.parent is None for each in buffers):
        return column
    owned: AnyArray = pa.concat_arrays([column, pa.nulls(0, column.type)])
    return owned


@dataclass(slots=True)
class PaneSide:
    """Raw rows and tables on one side of the last seal. The lists are its own."""

    raw: list[RawRows] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    raw_rows: int = 0
    raw_bytes: int = 0

    def add(self, raw: Seq[RawRows]) -> None:
        """More raw rows."""
        self.raw += raw
        self.raw_rows += sum(each.rows for each in raw)
        self.raw_bytes += sum(each.size for each in raw)

    @property
    def rows(self) -> int:
        """Rows of partials that count, and raw ones."""
        return sum(each.span.rows for each in self.held) + self.raw_rows

    @property
    def live_bytes(self) -> int:
        """Bytes of these rows."""
        return sum(each.live_bytes for each in self.held) + self.raw_bytes

    @property
    def memory_bytes(self) -> int:
        """Memory that it takes."""
        return sum(each.memory_bytes for each in self.held) + self.raw_bytes

    def panes(self) -> list[Times]:
        """The panes of each part."""
        return [*(each.span.panes for each in self.held), *(each.panes for each in self.raw)]

    def taken(self) -> "PaneSide":
        """All of it, in lists that nobody changes; nothing stays here."""
        return PaneSide(self._raw_taken(), self._held_taken())

    def _held_taken(self) -> list[Held]:
        held, self.held = self.held, []
        return held

    def _raw_taken(self) -> list[RawRows]:
        raw, self.raw = self.raw, []
        self.raw_rows = self.raw_bytes = 0
        return raw

    def let_go(self, first: int) -> None:
        """Forget the panes below `first`."""
        self.held = [kept for each in self.held if (kept := each.let_go(first)) is not None]
        raw = self._raw_taken()
        self.add([rows for each in raw if (rows := each.let_go(first)) is not None])

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
        table = merger.grouped([each.table for each in self._raw_taken()])
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


class RawLimit:
    """How many raw rows are grouped at once: more where they leave many partials, so that fewer
    tables have the same keys; never more than an eighth of the memory budget.
    """

    def __init__(self, memory_bytes: int | None) -> None:
        self._rows = RAW_ROWS
        self._bytes = None if memory_bytes is None else memory_bytes // _RAW_SHARE

    def reached(self, sides: Seq[PaneSide]) -> bool:
        """Whether there are enough to be grouped."""
        rows = size = tables = 0
        for side in sides:
            rows += side.raw_rows
            size += side.raw_bytes
            tables += len(side.raw)
        large = self._bytes is not None and size > self._bytes
        return rows >= self._rows or large or tables >= _RAW_TABLES_MAX

    def learn(self, left: float) -> None:
        """How many rows of partials a raw row became."""
        if left > _MANY:
            self._rows = min(2 * self._rows, _RAW_ROWS_MAX)
        elif left < _FEW:
            self._rows = max(self._rows // 2, RAW_ROWS)


class Spool:
    """Where tables go that do not fit in memory (S5). `folder` is called when the first does."""

    def __init__(self, folder: Callable[[], Path], prefix: str, operator: str) -> None:
        self._paths = SpillPaths(folder, prefix, "spill")
        self._operator = operator

    def filed(self, held: list[Held], merger: PaneMerger) -> PaneFile:
        """Tables as one file, read bucket by bucket. Raises `ResourceError`.

        They are brought into order in the list itself: each is in memory twice only meanwhile.
        """
        for number, each in enumerate(held):
            held[number] = each.ordered(merger.buckets)
        counts: dict[int, int] = {}
        file = SpillFile(
            self._paths.next(), _counted(merger.by_bucket(held), counts), self._operator
        )
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


__all__ = ["RAW_ROWS", "PaneSide", "RawLimit", "RawRows", "Spool"]
