"""What a side of a join puts into runs (S6): its rows, and what became of rows of earlier runs.

They are runs of kept rows (`window/kept_runs.py`): rows with their `cut` and whether they have
`matched` as their last two columns; a mark says of a row, by its key group and number, that it has
matched since, or (`gone`) that it had to go for want of room.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from arkflow_kernel.ids import EARLIEST
from arkflow_kernel.join.join_runs import Groups
from arkflow_kernel.state.arrow_numpy import as_array, filled
from arkflow_kernel.state.growing import Mask, Slots
from arkflow_kernel.timestamps import Int64s
from arkflow_kernel.window.kept_runs import RunPiece, pieces_of
from arkflow_kernel.window.row_batches import rows_at

_NUMBER_BITS = 44
"""Bits of a row's number; its key group has the others."""

_CUT, _MATCHED, _GONE = "cut", "matched", "gone"


@dataclass(frozen=True, slots=True)
class Marks:
    """Rows that have matched, or had to go: their key groups, times and numbers; at least one."""

    groups: Groups
    times: Int64s
    numbers: Slots
    gone: bool

    def piece(self) -> RunPiece:
        """As entries of a run."""
        flags = as_array(np.full(len(self.numbers), self.gone))
        batch = pa.RecordBatch.from_arrays([flags], names=[_GONE])
        return RunPiece(batch, self.groups, self.times, self.numbers, self.times)


def row_piece(
    batch: pa.RecordBatch,
    groups: Groups,
    times: Int64s,
    numbers: Slots,
    cuts: Int64s | None,
    matched: Mask | None,
) -> RunPiece:
    """Rows as entries of a run, in order of arrival."""
    order = np.argsort(numbers, kind="stable")
    count = len(numbers)
    marks = np.zeros(count, np.bool_) if matched is None else matched
    stamped = np.full(count, EARLIEST) if cuts is None else cuts
    cut_column = as_array(stamped, mask=stamped == EARLIEST)
    whole = batch.append_column(_CUT, cut_column).append_column(_MATCHED, as_array(marks))
    piece = RunPiece(whole, groups, times, numbers)
    if (order[1:] > order[:-1]).all():
        return piece
    return RunPiece(rows_at(whole, order), groups[order], times[order], numbers[order])


def rows_in(piece: RunPiece) -> tuple[pa.RecordBatch, Int64s | None, Mask]:
    """The rows of a piece as they came, their cuts, and which have matched."""
    last = piece.batch.num_columns - 1
    marks = piece.batch.column(last)
    stamps = piece.batch.column(last - 1)
    rows = piece.batch.select(list(range(last - 1)))
    cuts = None
    if stamps.null_count < len(stamps):
        cuts = np.array(filled(stamps, EARLIEST), dtype=np.int64)
    return rows, cuts, np.array(marks, dtype=np.bool_)


def _identity(groups: Groups, numbers: Slots) -> Slots:
    return (groups.astype(np.int64) << _NUMBER_BITS) | numbers


class KnownMarks:
    """What some marks say of rows with a time from `low` on."""

    def __init__(self, pieces: Iterable[RunPiece], low: int) -> None:
        self._low = low
        self._pieces = [kept for each in pieces if len(kept := each.where(each.times >= low))]
        none = np.zeros(0, np.int64)
        matched, gone = [none], [none]
        for piece in self._pieces:
            flags = np.asarray(piece.batch.column(0), dtype=np.bool_)
            ids = _identity(piece.groups, piece.numbers)
            matched.append(ids[~flags])
            gone.append(ids[flags])
        self._matched = np.unique(np.concatenate(matched))
        self._gone = np.unique(np.concatenate(gone))

    def applied(self, piece: RunPiece) -> RunPiece:
        """The rows of a piece that are left, with what is known of them."""
        ids = _identity(piece.groups, piece.numbers)
        keep = piece.times >= self._low
        if len(self._gone):
            keep &= ~np.isin(ids, self._gone)
        if len(self._matched):
            place = piece.batch.num_columns - 1
            flags = np.asarray(piece.batch.column(place), dtype=np.bool_)
            both = as_array(flags | np.isin(ids, self._matched))
            piece = replace(piece, batch=piece.batch.set_column(place, _MATCHED, both))
        return piece.where(keep)

    def others(self, rows: Seq[RunPiece]) -> list[RunPiece]:
        """The marks of rows that are not among these."""
        here = [np.zeros(0, np.int64), *(_identity(each.groups, each.numbers) for each in rows)]
        known = np.concatenate(here)
        left = [
            piece.where(~np.isin(_identity(piece.groups, piece.numbers), known))
            for piece in self._pieces
        ]
        return [piece for piece in left if len(piece)]


def brought_up(pieces: Seq[RunPiece], low: int, *, oldest: bool) -> list[RunPiece]:
    """The entries of times from `low` on, with marks made part of the rows they are of; those of
    other rows stay, unless there are no older runs.
    """
    rows = [piece for piece in pieces if piece.since is None]
    marks = KnownMarks((piece for piece in pieces if piece.since is not None), low)
    kept = [piece for each in rows if len(piece := marks.applied(each))]
    return kept if oldest else [*kept, *marks.others(rows)]


def entries(runs: Iterable[pa.RecordBatch]) -> list[RunPiece]:
    """All entries of some runs, oldest first."""
    return [piece for run in runs for piece in pieces_of(run)]


__all__ = ["KnownMarks", "Marks", "brought_up", "entries", "row_piece", "rows_in"]
