"""The rows of windows that fire, as few batches as their schemas allow, in order of arrival."""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from arkflow_kernel.state.growing import Slots
from arkflow_kernel.window.kept_chunks import KeptChunk
from arkflow_kernel.window.kept_runs import RunPiece
from arkflow_kernel.window.row_batches import brought_to, classes, joined, rows_at
from arkflow_kernel.window.spans import Spans

_TOGETHER_ROWS = 1 << 16
"""Windows are put together up to so many rows at a time, so that small ones cost little each."""


@dataclass(frozen=True, slots=True)
class FiredRows:
    """Rows of windows that fire, and the number of each row's window."""

    chunk: KeptChunk
    windows: Slots


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one chunk, read, and their windows and numbers."""

    batch: pa.RecordBatch
    windows: Slots
    numbers: Slots

    def of(self, window: int) -> "_Part":
        """The rows of one window."""
        places = np.flatnonzero(self.windows == window)
        return _Part(rows_at(self.batch, places), self.windows[places], self.numbers[places])


class Released:
    """Iterates over the windows: the batches of each. Reads rows only when they are asked for.

    A window is one batch, or one for each class of schemas that do not fit together
    (`row_batches.classes`), in order of their first rows.
    """

    def __init__(self, fired: Seq[FiredRows], order: Slots | None = None) -> None:
        self._fired = fired
        self._order = np.zeros(0, np.int64) if order is None else order

    @classmethod
    def of(cls, fired: Seq[FiredRows], spans: Spans) -> "Released":
        """Rows of these windows, to come in order of (end, beginning, first row)."""
        first = np.full(len(spans), np.iinfo(np.int64).max)
        for each in fired:
            np.minimum.at(first, each.windows, each.chunk.numbers)
        return cls(fired, np.lexsort((first, spans.first, spans.last)))

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, ...]]:
        if not len(self._order):
            return
        rows = np.zeros(len(self._order), np.int64)
        for each in self._fired:
            rows += np.bincount(each.windows, minlength=len(rows))
        # The place of each window in the order in which they leave.
        place = np.empty(len(rows), np.int64)
        place[self._order] = np.arange(len(rows))
        fired = [FiredRows(each.chunk, place[each.windows]) for each in self._fired]
        sets = np.cumsum(rows[self._order]) // _TOGETHER_ROWS
        starts = np.flatnonzero(np.diff(sets, prepend=-1))
        for first, end in zip(starts, np.append(starts[1:], len(rows)), strict=True):
            yield from _together(fired, int(first), int(end))


def _together(fired: Seq[FiredRows], first: int, end: int) -> Iterator[tuple[pa.RecordBatch, ...]]:
    """The windows of some neighbouring numbers."""
    parts = []
    for each in fired:
        mine = np.flatnonzero((each.windows >= first) & (each.windows < end))
        if len(mine):
            batch = each.chunk.batch(None if len(mine) == len(each.windows) else mine)
            parts.append(_Part(batch, each.windows[mine], each.chunk.numbers[mine]))
    schemas = _distinct(parts)
    if len(schemas) == 1:
        yield from _cut(parts, first, end)
        return
    for window in range(first, end):
        own = [part.of(window) for part in parts]
        yield _mixed([part for part in own if len(part.numbers)])


def _distinct(parts: "Seq[_Part]") -> list[pa.Schema]:
    schemas: list[pa.Schema] = []
    for part in parts:
        mine = part.batch.schema
        if not any(mine.equals(schema, check_metadata=True) for schema in schemas):
            schemas.append(mine)
    return schemas


def _cut(parts: Seq[_Part], first: int, end: int) -> Iterator[tuple[pa.RecordBatch, ...]]:
    """Windows of one schema: all rows are put in order at once."""
    batch, windows, _ = _ordered(parts)
    bounds = np.searchsorted(windows, np.arange(first, end + 1))
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield (batch.slice(start, stop - start),)


def _ordered(parts: Seq[_Part]) -> tuple[pa.RecordBatch, Slots, Slots]:
    """All rows of one schema, by window and number."""
    windows = np.concatenate([part.windows for part in parts])
    numbers = np.concatenate([part.numbers for part in parts])
    order = np.lexsort((numbers, windows))
    return rows_at(joined([part.batch for part in parts]), order), windows[order], numbers[order]


def _mixed(parts: Seq[_Part]) -> tuple[pa.RecordBatch, ...]:
    """One window, of several schemas; which rows lie together in memory plays no part."""
    parts = sorted(parts, key=lambda part: int(part.numbers[0]))
    schemas = _distinct(parts)
    batches = []
    for schema, members in classes(schemas):
        mine = [schemas[member] for member in members]
        own = [
            _Part(brought_to(part.batch, schema), part.windows, part.numbers)
            for part in parts
            if any(part.batch.schema.equals(each, check_metadata=True) for each in mine)
        ]
        batches.append(_ordered(own)[0])
    return tuple(batches)


def tombstones(fired: Seq[FiredRows], keys: tuple[str, ...], number: int) -> list[RunPiece]:
    """What says that these rows were released, per window and key group.

    `keys` are the fields that the windows are by: each tombstone has them, as one of its rows has
    them. `number` stands for its place in the order of arrival.
    """
    if not fired:
        return []
    windows = np.concatenate([each.windows for each in fired])
    groups = np.concatenate([each.chunk.groups for each in fired])
    times = np.concatenate([each.chunk.times for each in fired])
    order = np.lexsort((windows, groups))
    changes = (np.diff(windows[order]) != 0) | (np.diff(groups[order]) != 0)
    starts = np.concatenate(([0], np.flatnonzero(changes) + 1))
    rows = order[starts]
    since = np.minimum.reduceat(times[order], starts)
    upto = np.maximum.reduceat(times[order], starts)
    ends = np.cumsum([len(each.chunk) for each in fired])
    chunk_of = np.searchsorted(ends, rows, "right")
    pieces = []
    for number_of, each in enumerate(fired):
        mine = np.flatnonzero(chunk_of == number_of)
        if len(mine):
            places = rows[mine] - (ends[number_of] - len(each.chunk))
            own = _keys_of(each.chunk, places, keys)
            told = np.full(len(mine), number, np.int64)
            pieces.append(RunPiece(own, groups[rows[mine]], upto[mine], told, since[mine]))
    return pieces


def _keys_of(chunk: KeptChunk, places: Slots, keys: tuple[str, ...]) -> pa.RecordBatch:
    if keys:
        return chunk.batch(places).select(list(keys)).replace_schema_metadata(None)
    return pa.record_batch({"none": pa.nulls(len(places))}).select([])


__all__ = ["FiredRows", "Released", "tombstones"]
