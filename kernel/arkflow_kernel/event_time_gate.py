"""The gate of a source with event time: what time each row is of, and which rows are behind.

It stands in the read lane, before any filter, and sees every row of a split in the order in which
it is read. It holds no rows.

Rules
- W3: w(row) is the greatest event time of the rows before it in its split, minus the bound. So a
  row within the bound is never behind, and how rows are cut into batches plays no part.
- W4: a row further ahead of the wall clock than `max_future_skew_ms` passes and is counted; it
  does not move the greatest time, so that one such row does not make all that follow late.
- W5: a row without a time leaves by the late route, marked, or is dropped; it is counted either
  way. A time that does not fit, a column that is not there or that holds no times make bad rows,
  which keep their columns: they go to the error output, or the first of them fails the job.
- W8: with a window or join behind, rows with a time below w(row) carry it in `ROW_WATERMARK`. A
  batch without such a row does not get the column. A row exactly at w(row) is not behind: whether
  it is late is decided by the end of its window.

A column of the data that has the name of one of these columns is left out where the gate sets its
own: what a watermark is is not for the data to say.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from arkflow_kernel.bad_rows import VALUE_COLUMN, failed_batch, joined_bad_rows
from arkflow_kernel.ids import EARLIEST, EventTimeMs, OperatorId, SplitId, WallMs
from arkflow_kernel.plan import TimePlan
from arkflow_kernel.ports import SourceBatch
from arkflow_kernel.protocol import BatchTime
from arkflow_kernel.snapshot import SplitTime
from arkflow_kernel.timestamps import (
    Int64s,
    Mask,
    TimeColumnError,
    Times,
    overflow_text,
    raw_values,
    times_of,
)

ROW_WATERMARK: Final = "__arkflow_row_watermark"
"""Column of w(row), int64 milliseconds, null in rows that are not behind it (W8)."""

INVALID_TIME_ROUTE: Final = "__arkflow_invalid_timestamp_route"
"""Column that marks rows which leave by the late route because they have no time (W5)."""

_WATERMARK_FIELD: "pa.Field[Any]" = pa.field(ROW_WATERMARK, pa.int64())
_MARKER_FIELD: "pa.Field[Any]" = pa.field(INVALID_TIME_ROUTE, pa.bool_())


def row_watermarks(moving: Int64s, before: int, bound_ms: int) -> Int64s:
    """w(row) of each row (W3): int64 milliseconds, `EARLIEST` where nothing was before.

    `moving`: each row's event time, `EARLIEST` for one that does not move the watermark. `before`:
    the greatest event time of the split before the first row, `EARLIEST` if there is none.
    """
    watermarks = np.empty(len(moving), np.int64)
    watermarks[:1] = max(before, EARLIEST + bound_ms)  # so that nothing wraps
    watermarks[1:] = moving[:-1]
    np.maximum.accumulate(watermarks, out=watermarks)
    watermarks -= bound_ms
    return watermarks


def rows_behind(
    ms: Int64s, moving: Int64s, before: int, bound_ms: int
) -> tuple[Int64s, Mask] | None:
    """w(row) of each row, and which rows are behind theirs; None if no row is (W8).

    `ms`: each row's event time; the others as in `row_watermarks`.
    """
    if not len(ms):
        return None
    at_the_end = max(before, int(moving.max()))
    if int(ms.min()) >= at_the_end - bound_ms:  # no row's own watermark is higher
        return None
    watermarks = row_watermarks(moving, before, bound_ms)
    behind: Mask = ms < watermarks
    return (watermarks, behind) if bool(behind.any()) else None


class EventTimeGate:
    """The gate of one subtask of a source. Called in the read lane only.

    `late_route`: whether rows without a time have somewhere to go.
    """

    def __init__(self, plan: TimePlan, operator: OperatorId, *, late_route: bool) -> None:
        self._plan = plan
        self._operator = operator
        self._late_route = late_route
        self._greatest: dict[SplitId, EventTimeMs] = {}

    def restore(self, times: Iterable[SplitTime]) -> None:
        """Go on from the greatest times of a cut, before the first `apply` (W3)."""
        self._greatest = {time.split: time.max_ms for time in times if time.max_ms is not None}

    def apply(self, read: SourceBatch, wall_ms: WallMs) -> tuple[SourceBatch, BatchTime]:
        """The batch without the rows that have no time, stamped; and what was found in it.

        `wall_ms`: the wall clock at the read (W4). Position, origin and split are as they were.
        """
        batch, ahead_rows, invalid = read.batch, 0, 0
        if batch.num_rows:
            try:
                times = times_of(batch, self._plan.timestamp_field)
            except TimeColumnError as error:
                read = self._refused(read, str(error))
            else:
                read, invalid = self._sorted_out(read, times)
                ms = times.ms if times.valid is None else times.ms[times.valid]
                stamped, ahead_rows = self._stamped(read.split, read.batch, ms, wall_ms)
                read = read if stamped is read.batch else replace(read, batch=stamped)
        found = BatchTime(self._greatest.get(read.split), invalid, ahead_rows)
        if read.split_ended:
            self._greatest.pop(read.split, None)
        return read, found

    def _refused(self, read: SourceBatch, error: str) -> SourceBatch:
        """All of its rows are bad: the column is not there, or is none of times."""
        if VALUE_COLUMN in read.batch.schema.names:
            error += "; its rows are payloads that nothing has parsed: give the input a `codec`"
        bad = self._bad(read, read.batch, error)
        return replace(read, batch=read.batch.slice(0, 0), bad=bad)

    def _sorted_out(self, read: SourceBatch, times: Times) -> tuple[SourceBatch, int]:
        """The batch with the rows that have a time, and the number of those that have none (W5)."""
        if times.valid is None:
            return read, 0
        batch, bad, null = read.batch, read.bad, ~times.valid
        if times.overflow is not None:
            null &= ~times.overflow
            field = self._plan.timestamp_field
            beyond = _with_raw_times(batch.filter(pa.array(times.overflow)), field)
            bad = self._bad(read, beyond, overflow_text(field, batch.schema.field(field).type))
        untimed = _marked(batch.filter(pa.array(null))) if self._late_route and null.any() else None
        kept = batch.filter(pa.array(times.valid))
        return replace(read, batch=kept, bad=bad, untimed=untimed), int(null.sum())

    def _bad(self, read: SourceBatch, rows: pa.RecordBatch, error: str) -> pa.RecordBatch:
        failed = failed_batch(rows, error=error, operator=self._operator, origin=read.origin)
        return failed if read.bad is None else joined_bad_rows(read.bad, failed)

    def _stamped(
        self, split: SplitId, batch: pa.RecordBatch, ms: Int64s, wall_ms: WallMs
    ) -> tuple[pa.RecordBatch, int]:
        """The batch with w(row) where it has to be, and its rows too far ahead (W3, W4, W8).

        `ms` are the times of the batch's rows. Moves the split's greatest time.
        """
        moving, ahead_rows = self._moving(ms, wall_ms)
        known = self._greatest.get(split)
        before = EARLIEST if known is None else known
        if ahead_rows < len(ms):
            self._greatest[split] = EventTimeMs(max(before, int(moving.max())))
        if not self._plan.stamps:
            return batch, ahead_rows
        batch = without_column(batch, ROW_WATERMARK)
        found = rows_behind(ms, moving, before, self._plan.bound_ms)
        if found is not None:
            watermarks, behind = found
            column: Any = pa.array(watermarks, mask=~behind)
            batch = batch.append_column(_WATERMARK_FIELD, column)
        return batch, ahead_rows

    def _moving(self, ms: Int64s, wall_ms: WallMs) -> tuple[Int64s, int]:
        """Times that move the watermark, `EARLIEST` for those too far ahead, and their number."""
        skew_ms = self._plan.max_future_skew_ms
        if skew_ms is None or not len(ms) or int(ms.max()) <= wall_ms + skew_ms:
            return ms, 0
        ahead = ms > wall_ms + skew_ms
        return np.where(ahead, EARLIEST, ms), int(ahead.sum())


def _marked(rows: pa.RecordBatch) -> pa.RecordBatch:
    marker: Any = pa.repeat(pa.scalar(True), rows.num_rows)
    return without_column(rows, INVALID_TIME_ROUTE).append_column(_MARKER_FIELD, marker)


def without_column(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """The batch without its columns of that name; itself if there is none."""
    for place in reversed(batch.schema.get_all_field_indices(name)):
        batch = batch.remove_column(place)
    return batch


def _with_raw_times(batch: pa.RecordBatch, field: str) -> pa.RecordBatch:
    """The batch with its times as plain integers: no output could write such timestamps."""
    place = batch.schema.get_field_index(field)
    return batch.set_column(place, field, raw_values(batch.column(place)))


__all__ = [
    "INVALID_TIME_ROUTE",
    "ROW_WATERMARK",
    "EventTimeGate",
    "row_watermarks",
    "rows_behind",
    "without_column",
]
