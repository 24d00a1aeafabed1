"""Which rows of a batch a window still takes (W6, W7), as a function on arrays.

A row's cut is `max(w(row), watermark of the operator)`: of a window that ends at the cut or before,
the row is late. Under UPDATE a window takes late rows until its end plus the allowed lateness is at
the cut or before; of no other policy does a window take any.
"""

from dataclasses import dataclass

import numpy as np

from arkflow_kernel.ids import EARLIEST
from arkflow_kernel.state.growing import Mask
from arkflow_kernel.window.assign import INT64_MIN, FixedPanes, Panes, Times


@dataclass(frozen=True, slots=True)
class Judged:
    """What becomes of the rows of a batch.

    `refused`: no window of the row takes it; None: none is. `after` (of overlapping windows only,
    else None): the row counts only in windows that end after it; EARLIEST: in all of its own that
    are still there. It is set only where it differs from what the operator's watermark says.
    """

    refused: Mask | None
    after: Times | None = None


def judged(
    windows: Panes,
    panes: Times,
    row_watermarks: Times | None,
    watermark: int,
    allowed_lateness_ms: int,
) -> Judged:
    """Judge rows by their panes.

    `row_watermarks` are the w of the rows, EARLIEST where a row has none; None: none has one.
    `watermark` is the operator's before the batch, EARLIEST before the first. The lateness is 0
    unless the policy is UPDATE.
    """
    own = _back(watermark, allowed_lateness_ms)
    last_ends = windows.last_ends(panes)
    if row_watermarks is None:
        refused = _some(last_ends <= own)
        return Judged(refused)
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


def _back(watermark: int, lateness: int) -> int:
    return max(INT64_MIN, watermark - lateness)


def _some(mask: Mask) -> Mask | None:
    return mask if mask.any() else None


__all__ = ["Judged", "judged"]
