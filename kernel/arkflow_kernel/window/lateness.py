"""Which rows of a batch a window still takes (W6, W7), as a function on arrays.

A row's cut is `max(w(row), watermark of the operator)`: of a window that ends at the cut or before,
the row is late. Under UPDATE a window takes late rows until its end plus the allowed lateness is at
the cut or before; of no other policy does a window take any.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from arkflow_kernel.event_time_gate import INVALID_TIME_ROUTE, ROW_WATERMARK
from arkflow_kernel.ids import EARLIEST, LATEST
from arkflow_kernel.limits import INT64_MIN
from arkflow_kernel.plan import LatePolicy, WindowPlan
from arkflow_kernel.state.arrow_numpy import as_array, filled
from arkflow_kernel.state.growing import Mask
from arkflow_kernel.window.assign import FixedPanes, Panes, Times
from arkflow_kernel.window.row_batches import rows_at

LATE_EVENT_ROUTE = "__arkflow_late_event_route"
"""True in a row that leaves by the late route because it is late."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What becomes of the rows of a batch.

    `refused`: no window of the row takes it; None: none is. `after` (of overlapping windows only,
    else None): the row counts only in windows that end after it; EARLIEST: in all of its own that
    are still there. It is set only where it differs from what the operator's watermark says.
    """

    refused: Mask | None
    after: Times | None = None


def lateness_of(plan: WindowPlan) -> int:
    """For how long after its end a window takes rows, in ms."""
    return plan.allowed_lateness_ms if plan.late is LatePolicy.UPDATE else 0


def closed_upto(watermark: int, lateness_ms: int) -> int:
    """No window that ends up to it takes a row any more; at the end of the data none does."""
    return watermark if watermark == LATEST else max(INT64_MIN, watermark - lateness_ms)


def judged(
    windows: Panes,
    panes: Times,
    row_watermarks: Times | None,
    watermark: int,
    allowed_lateness_ms: int,
) -> Judged:
    """Judge rows by their panes.

    `row_watermarks` are the w of the rows, EARLIEST where a row has none; None: none has one.
    `watermark` is the operator's before the batch, EARLIEST before the first. The lateness is
    `lateness_of` the plan.
    """
    own = closed_upto(watermark, allowed_lateness_ms)
    if row_watermarks is None:
        if not len(panes) or windows.last_ends(panes.min(keepdims=True))[0] > own:
            return Judged(None)  # ends rise with panes
        return Judged(_some(windows.last_ends(panes) <= own))
    last_ends = windows.last_ends(panes)
    rows = np.maximum(row_watermarks, INT64_MIN + allowed_lateness_ms) - allowed_lateness_ms
    cuts = np.maximum(rows, own)
    refused = _some(last_ends <= cuts)
    if not isinstance(windows, FixedPanes) or not windows.overlapping:
        return Judged(refused)
    return Judged(refused, _after(windows, panes, rows, cuts, own))


def _after(windows: FixedPanes, panes: Times, rows: Times, cuts: Times, own: int) -> Times | None:
    """The end of the last window that is there and that each row is late for, else EARLIEST.

    Cuts between two ends mean the same, so there are few values.
    """
    held = (rows > own) & (windows.first_ends(panes) <= cuts)
    if not held.any():
        return None
    after = np.full(len(panes), EARLIEST, np.int64)
    # A cut beyond the row's last window has refused the row: it need not be exact.
    after[held] = windows.end_upto(np.minimum(cuts[held], windows.last_ends(panes[held])))
    after[after <= own] = EARLIEST
    return after if (after != EARLIEST).any() else None


def _some(mask: Mask) -> Mask | None:
    return mask if mask.any() else None


def unstamped(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Times | None]:
    """A batch without the gate's column, and the w of its rows, EARLIEST where there is none.

    None: no row has one, or a map has lost the column (W8).
    """
    place = batch.schema.get_field_index(ROW_WATERMARK)
    if place < 0:
        return batch, None
    marks = batch.column(place)
    batch = batch.remove_column(place)
    if marks.null_count == len(marks):
        return batch, None
    return batch, np.asarray(filled(marks, EARLIEST), dtype=np.int64)


def either(one: Mask | None, other: Mask | None) -> Mask | None:
    """Rows that one of two masks has, where None is of no row."""
    if one is None or other is None:
        return other if one is None else one
    return one | other


def turned_away(
    batch: pa.RecordBatch, late: Mask | None, untimed: Mask | None
) -> pa.RecordBatch | None:
    """Rows for the late route, each marked by why it leaves: it is late, or it has no time."""
    gone = either(late, untimed)
    if gone is None:
        return None
    rows = rows_at(batch, gone.nonzero()[0])
    for name, mask in ((LATE_EVENT_ROUTE, late), (INVALID_TIME_ROUTE, untimed)):
        if mask is not None:
            marks = as_array(np.ones(rows.num_rows, np.bool_), mask=~mask[gone])
            place = rows.schema.get_field_index(name)
            field = pa.field(name, pa.bool_())
            rows = (
                rows.append_column(field, marks)
                if place < 0
                else rows.set_column(place, field, marks)
            )
    return rows


__all__ = [
    "LATE_EVENT_ROUTE",
    "Judged",
    "closed_upto",
    "either",
    "judged",
    "lateness_of",
    "turned_away",
    "unstamped",
]
