"""Partial moments for the standard deviation: count, mean and M2 (N3).

M2 is the sum of the squared distances from the mean. The mean is kept as the sum of two Float64,
so that values that are large and close together keep their distances when partials are merged:
rows and partials are merged by one formula, a row being a partial of one value.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_kernel.state.arrow_numpy import nulls_of
from arkflow_kernel.window.aggregate_groups import Finish, Grouped, Grouping, Numbers, Segments
from arkflow_kernel.window.aggregate_types import one_array

Floats = npt.NDArray[np.float64]

_LOW_BITS = 32


@dataclass(frozen=True, slots=True)
class Moments:
    """Count (int64), mean in two parts, and M2 of the values that are not null, in Float64.

    Integers are exact, decimals the nearest Float64. A NaN or an infinity makes the M2 NaN.
    """

    column: str
    field: str

    @property
    def names(self) -> tuple[str, ...]:
        """Four columns."""
        return tuple(f"{self.field}_{part}" for part in ("n", "mean", "mean_low", "m2"))

    def of_rows(self, asked: Grouping) -> Finish:
        """Moments of values."""
        values = one_array(asked.column(self.column))
        counts = (~nulls_of(values)).astype(np.int64)
        mean, low = _in_two(values)
        return _merged(asked, counts, mean, low, np.zeros(len(counts)))

    def of_partials(self, asked: Grouping, columns: Seq[str]) -> Finish:
        """Moments of all together."""
        counts, *floats = (np.asarray(one_array(asked.column(name))) for name in columns)
        return _merged(asked, counts, *floats)


def _in_two(values: Any) -> tuple[Floats, Floats]:
    """Values as sums of two floats; a null is 0."""
    kind = values.type
    if pa.types.is_null(kind):
        return np.zeros(len(values)), np.zeros(len(values))
    if not pa.types.is_integer(kind):
        numbers = values.cast(pa.float64(), safe=False).fill_null(0.0)
        return np.asarray(numbers), np.zeros(len(values))
    whole = np.asarray(values.fill_null(0))
    high = whole >> whole.dtype.type(_LOW_BITS) << whole.dtype.type(_LOW_BITS)
    return _two_sum(high.astype(np.float64), (whole - high).astype(np.float64))


def _two_sum(large: Floats, small: Floats) -> tuple[Floats, Floats]:
    """A sum and what rounding took from it; `large` is 0 or the greater one."""
    total = large + small
    return total, small - (total - large)


def _merged(asked: Grouping, counts: Numbers, mean: Floats, low: Floats, m2: Floats) -> Finish:
    number = asked.ask_rows()

    def finish(groups: Grouped) -> tuple[Any, ...]:
        with np.errstate(invalid="ignore", over="ignore"):
            merged = _merge(groups.segments(number), counts, mean, low, m2)
        return tuple(pa.array(column) for column in merged)

    return finish


def _merge(
    segments: Segments, counts: Numbers, mean: Floats, low: Floats, m2: Floats
) -> tuple[Numbers, Floats, Floats, Floats]:
    """The moments of each group. A group without values has 0 everywhere."""
    rows = segments.rows
    n, means, lows = counts[rows], mean[rows], low[rows]
    total = segments.summed(n)
    # Distances from a mean near all others lose nothing; from 0 they would.
    base = segments.greatest(np.where(n > 0, means, -np.inf))
    base = np.where(total > 0, base, 0.0)
    distance = np.where(n > 0, (means - segments.spread(base)) + lows, 0.0)
    shift = segments.summed(n * distance) / np.maximum(total, 1)
    rest = distance - segments.spread(shift)
    merged = segments.summed(m2[rows]) + segments.summed(n * rest * rest)
    new_mean = base + shift
    return total, new_mean, shift - (new_mean - base), merged


__all__ = ["Moments"]
