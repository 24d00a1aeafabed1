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
from arkflow_kernel.state.arrow_numpy import AnyArray, as_array
from arkflow_kernel.window.session_merge import Mask, Numbers, Sessions, sessions

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
    """Some fragments. `corrects`: the fragment joined a session that had left before (N2)."""

    def __init__(
        self, keys: Numbers, first: Numbers, last: Numbers, corrects: Mask, rows: Rows
    ) -> None:
        self.keys = keys
        self.first = first
        self.last = last
        self.corrects = corrects
        self.rows = rows
        self.earliest = int(last.min()) if len(last) else 0
        self._by_last: tuple[Numbers, Numbers] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def columns(self) -> tuple[Any, ...]:
        """Keys, first, last and marks."""
        return self.keys, self.first, self.last, self.corrects

    @property
    def size_bytes(self) -> int:
        """Bytes of its columns, also of those in a file."""
        return _NUMBERS_BYTES * len(self.keys) + self.rows.size_bytes

    @property
    def memory_bytes(self) -> int:
        """Memory that it takes; that of its times and numbers stays if its rows are in a file."""
        sorted_ = 0 if self._by_last is None else 16 * len(self.keys)
        return _NUMBERS_BYTES * len(self.keys) + sorted_ + self.rows.memory_bytes

    def places_of(self, keys: Numbers) -> Numbers:
        """Places of all fragments of these keys, which are sorted and distinct."""
        starts = np.searchsorted(self.keys, keys)
        counts = np.searchsorted(self.keys, keys, side="right") - starts
        return ranges(starts, counts)

    def ending(self, after_ms: int, low: int, high: int) -> Numbers:
        """Places of fragments with last + after_ms passed by the watermark `high`, not by `low`."""
        if high - after_ms <= self.earliest:
            return _NONE
        if self._by_last is None:
            order = np.argsort(self.last)
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
        places = np.flatnonzero(kept)
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
    before = np.cumsum(counts) - counts
    places: Numbers = np.arange(total) + np.repeat(starts - before, counts)
    return places


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
            np.append(self.ends, len(joined[0])),
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


def whole(column: "pa.ChunkedArray[Any]") -> AnyArray:
    """A column of a table as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    array: AnyArray = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0)
    return array if column.num_chunks else array.cast(column.type)


__all__ = ["HeldRows", "Picked", "Piece", "Rows", "ranges", "whole"]
