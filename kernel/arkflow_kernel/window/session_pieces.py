"""Fragments of sessions as immutable pieces of columns, found by key and by time.

A piece is sorted by (key, first). The keys of fragments are numbers here, which the state gives;
the key columns themselves stand in the piece's table, with the partial aggregates.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from arkflow_kernel.limits import INT64_MAX, INT64_MIN
from arkflow_kernel.state.arrow_numpy import as_array
from arkflow_kernel.window.session_merge import (
    Mask,
    Numbers,
    Sessions,
    in_order,
    run_starts,
    sessions,
)

_NUMBERS_BYTES = 25


class Rows(Protocol):
    """Where the key columns and partials of a piece are: in memory, or in a local file."""

    @property
    def memory_bytes(self) -> int:
        """Memory that they take."""
        ...

    @property
    def size_bytes(self) -> int:
        """Their bytes, wherever they are (S4)."""
        ...

    def read(self, places: Numbers | None = None) -> pa.Table:
        """The rows at these places, in this order; None: all of them."""
        ...


class HeldRows:
    """Rows in memory."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.size_bytes = self.memory_bytes = table.nbytes

    def read(self, places: Numbers | None = None) -> pa.Table:
        """The rows at these places."""
        return self._table if places is None else self._table.take(as_array(places))


class Piece:
    """Some fragments, those of one key more than the gap apart: both their times rise.

    `corrects`: the fragment joined a session that had left before (N2).
    """

    def __init__(
        self, keys: Numbers, first: Numbers, last: Numbers, corrects: Mask, rows: Rows
    ) -> None:
        self.keys = keys
        self.first = first
        self.last = last
        self.corrects = corrects
        self.rows = rows
        self.size_bytes = _NUMBERS_BYTES * len(keys) + rows.size_bytes
        """Of its columns, also of those in a file."""
        self.earliest = int(last.min()) if len(last) else 0
        self._by_last: tuple[Numbers, Numbers] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def columns(self) -> tuple[Any, ...]:
        """Keys, first, last and marks."""
        return self.keys, self.first, self.last, self.corrects

    @property
    def memory_bytes(self) -> int:
        """Memory that it takes; that of its times and numbers stays if its rows are in a file."""
        sorted_ = 0 if self._by_last is None else 16 * len(self.keys)
        return _NUMBERS_BYTES * len(self.keys) + sorted_ + self.rows.memory_bytes

    def held(self, keys: Numbers, number_of: Numbers | None) -> tuple[Numbers, Numbers, Numbers]:
        """Which of these keys, sorted and distinct, it has; where their fragments begin and end.

        `number_of`: for each key its number among them, -1 if it is none; None: search for them.
        """
        if number_of is None:
            starts = np.searchsorted(self.keys, keys)
            stops = np.searchsorted(self.keys, keys, side="right")
            mine = (starts < stops).nonzero()[0]
            return mine, starts[mine], stops[mine]
        numbers = number_of[self.keys]
        places = (numbers >= 0).nonzero()[0]
        numbers = numbers[places]
        begins = run_starts(numbers) if len(places) else places
        mine, starts = numbers[begins], places[begins]
        return mine, starts, starts + np.concatenate([begins[1:], [len(places)]]) - begins

    def ending(self, after_ms: int, low: int, high: int) -> Numbers:
        """Places of fragments with last + after_ms passed by the watermark `high`, not by `low`."""
        if high - after_ms <= self.earliest:
            return _NONE
        if self._by_last is None:
            order = in_order(np.zeros(len(self), np.int64), self.last)
            self._by_last = order, self.last[order]
        order, last = self._by_last
        start = np.searchsorted(last, np.int64(max(low - after_ms, INT64_MIN)))
        if high - after_ms > INT64_MAX:
            return order[start:]
        return order[start : np.searchsorted(last, np.int64(high - after_ms))]

    def next_last(self, after_ms: int, watermark: int) -> int | None:
        """The first `last` of which last + after_ms is not passed by the watermark."""
        if watermark - after_ms <= self.earliest:
            return self.earliest if len(self) else None
        rest = self.ending(after_ms, watermark, INT64_MAX + after_ms + 1)
        return int(self.last[rest[0]]) if len(rest) else None

    def count_passed(self, after_ms: int, watermark: int) -> int:
        """How many fragments have last + after_ms passed by the watermark."""
        return len(self.ending(after_ms, INT64_MIN, watermark))

    def where(self, kept: Mask) -> "Piece":
        """The fragments that are marked."""
        if kept.all():
            return self
        places = kept.nonzero()[0]
        return Piece(
            self.keys[places],
            self.first[places],
            self.last[places],
            self.corrects[places],
            HeldRows(self.rows.read(places)),
        )

    def renumbered(self, keys: Numbers) -> "Piece":
        """The same with other numbers of the keys, in the same order."""
        return Piece(keys, self.first, self.last, self.corrects, self.rows)

    def marked(self, corrects: Mask) -> "Piece":
        """The same with other marks."""
        return Piece(self.keys, self.first, self.last, corrects, self.rows)

    def moved(self, rows: Rows) -> "Piece":
        """The same with its rows in another place."""
        return Piece(self.keys, self.first, self.last, self.corrects, rows)


_NONE: Numbers = np.zeros(0, np.int64)


def ranges(starts: Numbers, counts: Numbers) -> Numbers:
    """The places of several ranges, one range after the other."""
    total = int(counts.sum())
    if not total:
        return _NONE
    before = counts.cumsum() - counts
    places: Numbers = np.arange(total) + np.repeat(starts - before, counts)
    return places


@dataclass(slots=True)
class _Near:
    """Of one piece: some keys that it has, by number, and for each the fragments looked at, from
    `starts` to `stops`, and those that are near, from `lows` to `highs`.
    """

    piece: Piece
    keys: Numbers
    starts: Numbers
    stops: Numbers
    lows: Numbers
    highs: Numbers

    @classmethod
    def of(cls, piece: Piece, held: tuple[Numbers, Numbers, Numbers]) -> "_Near":
        """All keys of `Piece.held`."""
        keys, starts, stops = held
        return cls(piece, keys, starts, stops, stops.copy(), stops.copy())

    @property
    def depth(self) -> int:
        """Fragments of all keys."""
        return int((self.stops - self.starts).sum())

    def look(self, of: Mask, low: Numbers, high: Numbers) -> None:
        """Find what of some keys ends at `low` or after, and begins at `high` or before."""
        rows = of[self.keys].nonzero()[0]
        if not len(rows):
            return
        keys, piece = self.keys[rows], self.piece
        lows = _least(piece.last, self.starts[rows], self.stops[rows], low[keys])
        self.lows[rows] = lows
        self.highs[rows] = _least(piece.first, lows, self.stops[rows], high[keys] + 1)

    def reach(self, low: Numbers, high: Numbers) -> None:
        """Widen the intervals of the keys, in place, by what was found."""
        rows = (self.lows < self.highs).nonzero()[0]
        keys = self.keys[rows]
        low[keys] = np.minimum(low[keys], self.piece.first[self.lows[rows]])
        high[keys] = np.maximum(high[keys], self.piece.last[self.highs[rows] - 1])


def _least(values: Numbers, starts: Numbers, stops: Numbers, limits: Numbers) -> Numbers:
    """In each range, in which values rise, the first place whose value is not below the limit."""
    starts, stops = starts.copy(), stops.copy()
    while len(rows := (starts < stops).nonzero()[0]):
        middle = (starts[rows] + stops[rows]) >> 1
        below = values[middle] < limits[rows]
        starts[rows[below]] = middle[below] + 1
        stops[rows[~below]] = middle[~below]
    return starts


def near(
    pieces: Seq[Piece], keys: Numbers, first: Numbers, last: Numbers, gap_ms: int, size: int
) -> "Picked":
    """All fragments that a chain of neighbours connects with the interval of their key.

    There may be more, but whole sessions only. `keys` are sorted, distinct, and below `size`.
    """
    number_of = None
    if len(keys) * _DENSE > size:
        number_of = np.full(size, -1, np.int64)
        number_of[keys] = np.arange(len(keys))
    found = [_Near.of(piece, piece.held(keys, number_of)) for piece in pieces]
    if sum(each.depth for each in found) <= _FEW * len(keys):
        return Picked.of(pieces, [ranges(e.starts, e.stops - e.starts) for e in found])
    first, last = first.copy(), last.copy()
    wider = np.ones(len(keys), np.bool_)
    while wider.any():
        low = np.maximum(first, INT64_MIN + gap_ms) - gap_ms
        high = np.minimum(last, INT64_MAX - gap_ms - 1) + gap_ms
        before = first.copy(), last.copy()
        for each in found:
            each.look(wider, low, high)
            each.reach(first, last)
        wider = (first != before[0]) | (last != before[1])
    return Picked.of(pieces, [ranges(each.lows, each.highs - each.lows) for each in found])


_DENSE = 16
"""From one in so many keys on it is faster to look at all of a piece than to search in it."""

_FEW = 64
"""Up to so many fragments of a key, in all pieces, it is faster to take them than to choose."""


@dataclass(frozen=True, slots=True)
class Picked:
    """Fragments of several pieces, one after the other."""

    pieces: tuple[Piece, ...]
    places: tuple[Numbers | None, ...]
    ends: Numbers
    keys: Numbers
    first: Numbers
    last: Numbers
    corrects: Mask

    @classmethod
    def of(cls, pieces: Seq[Piece], places: Seq[Numbers | None]) -> "Picked":
        """The fragments at these places of each piece; None: all of it."""
        chosen = [
            (piece, rows)
            for piece, rows in zip(pieces, places, strict=True)
            if len(piece if rows is None else rows)
        ]
        columns: list[list[Any]] = [[], [], [], []]
        for piece, rows in chosen:
            for column, values in zip(columns, piece.columns, strict=True):
                column.append(values if rows is None else values[rows])
        joined = [np.concatenate(column) if column else _NONE for column in columns]
        sizes = [len(values) for values in columns[0]]
        return cls(
            tuple(piece for piece, _ in chosen),
            tuple(rows for _, rows in chosen),
            np.cumsum([0, *sizes]),
            joined[0],
            joined[1],
            joined[2],
            joined[3].astype(np.bool_, copy=False),
        )

    def and_more(self, piece: Piece, places: Numbers) -> "Picked":
        """These, and behind them fragments of one more piece."""
        more = (column[places] for column in piece.columns)
        joined = [
            np.concatenate(pair)
            for pair in zip((self.keys, self.first, self.last, self.corrects), more, strict=True)
        ]
        return Picked(
            (*self.pieces, piece),
            (*self.places, places),
            np.concatenate([self.ends, [len(joined[0])]]),
            joined[0],
            joined[1],
            joined[2],
            joined[3],
        )

    def __len__(self) -> int:
        return len(self.keys)

    def sessions(self, gap_ms: int) -> Sessions:
        """The sessions that these fragments make."""
        return sessions(self.keys, self.first, self.last, gap_ms)

    def tables(self, fragments: Numbers | None = None) -> list[pa.Table]:
        """The rows of some of the fragments, given by rising numbers, in their order; or of all."""
        if fragments is None:
            places = zip(self.pieces, self.places, strict=True)
            return [piece.rows.read(rows) for piece, rows in places]
        cuts = np.searchsorted(fragments, self.ends)
        tables = []
        for number, (piece, rows) in enumerate(zip(self.pieces, self.places, strict=True)):
            mine = fragments[cuts[number] : cuts[number + 1]] - self.ends[number]
            if len(mine):
                tables.append(piece.rows.read(mine if rows is None else rows[mine]))
        return tables


__all__ = ["HeldRows", "Picked", "Piece", "Rows", "near", "ranges"]
