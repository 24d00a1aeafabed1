"""Running sums per key over the rows of a batch, without a loop over rows."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_kernel.limits import INT64_MAX, INT64_MIN
from arkflow_kernel.state.arrow_numpy import AnyArray
from arkflow_kernel.state.key_rows import KeyRows

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Increments:
    """The value of each row's key after that row, and of each distinct key after the batch."""

    per_row: Numbers
    per_key: Numbers

    @classmethod
    def of(cls, keys: KeyRows, before: Numbers, by: int | AnyArray) -> "Increments | None":
        """Add `by` (one number, or one per row, null as 0) to each key's `before`, in row order.

        None if a sum leaves the range of Int64: nothing wraps.
        """
        steps = by if isinstance(by, int) else np.asarray(by.cast(pa.int64()).fill_null(0))
        if _may_overflow(keys, before, steps) and _overflows(keys, before, steps):
            return None
        if keys.distinct:
            after = before + steps
            return cls(after, after)
        order, starts = keys.by_key()
        of_key = keys.codes[order]
        if isinstance(steps, int):
            added = (np.arange(1, keys.rows + 1) - starts[of_key]) * steps
        else:
            # Sums over all keys may wrap; the differences within a key are exact all the same.
            sums = np.cumsum(steps[order])
            added = sums - (sums[starts] - steps[order][starts])[of_key]
        sorted_after = before[of_key] + added
        per_row = np.empty(keys.rows, np.int64)
        per_row[order] = sorted_after
        ends = np.append(starts[1:], keys.rows) - 1
        return cls(per_row, sorted_after[ends])


def _may_overflow(keys: KeyRows, before: Numbers, steps: int | Numbers) -> bool:
    if not keys.rows:
        return False
    largest = max(abs(int(before.max())), abs(int(before.min())))
    if isinstance(steps, int):
        return largest + abs(steps) * keys.rows > INT64_MAX
    step = max(abs(int(steps.max())), abs(int(steps.min())))
    return largest + step * keys.rows > INT64_MAX


def _overflows(keys: KeyRows, before: Numbers, steps: int | Numbers) -> bool:
    """Exactly, row by row: only near the ends of the range."""
    totals = [int(number) for number in before]
    each = [steps] * keys.rows if isinstance(steps, int) else [int(step) for step in steps]
    for code, step in zip(keys.codes.tolist(), each, strict=True):
        totals[code] += step
        if not INT64_MIN <= totals[code] <= INT64_MAX:
            return True
    return False


__all__ = ["Increments"]
