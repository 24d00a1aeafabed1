"""From merged partials to the values that leave: exact, and of the documented types (N4).

count, count_distinct   UInt64
sum                     Int64, UInt64, Float32, Float64, decimal128(38, s): as the values are
avg                     Float64; of decimals (p, s) decimal128(38, s + 4), or fewer digits behind
                        the point if p > 34, rounded half away from zero
stddev                  Float64; of a sample, so null for a single value
min, max, first, last   as the values are

Integers of any width are Int64, but UInt64 is itself; both together are decimals. Where only nulls
came, a sum is Int64 and the last four are of type null (Int64 in ArkFlow's own columns). Sums and
averages of decimals with more than 38 digits are decimal256(76, s) and Float64.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import OperatorId
from arkflow_kernel.limits import INT64_MAX, INT64_MIN
from arkflow_kernel.plan import AggregatePlan
from arkflow_kernel.state.growing import Mask
from arkflow_kernel.window.aggregate_types import (
    DECIMAL128_DIGITS,
    DECIMAL256_DIGITS,
    UINT64_MAX,
    as_type,
    sum_type,
)

Where = Callable[[int], str]
"""Names the window and the key of a row of the table, for an error."""

COUNT_TYPE = pa.uint64()
"""Type of counts when they leave."""

_MORE_DIGITS = 4
"""Digits behind the point that a mean of decimals has more than they have."""

_DIVISOR = pa.decimal256(19, 0)
_DIVIDEND_DIGITS = 56
"""With a divisor of 19 digits, Arrow's quotient has the 76 digits that there are. A sum of 10^18
values of 38 digits has 56."""


@dataclass(frozen=True, slots=True)
class Fitting:
    """Brings merged values to the type in which they leave; what does not fit is an error.

    With `null_on_overflow` it is a null instead.
    """

    operator: OperatorId
    where: Where
    null_on_overflow: bool

    def counted(self, values: Any) -> Any:
        """A count; null means that nothing was there to count."""
        return values.fill_null(0).cast(COUNT_TYPE)

    def summed(self, plan: AggregatePlan, values: Any, kind: pa.DataType) -> Any:
        """A sum of values of the value type `kind`."""
        target = sum_type(kind)
        if values.type == target or pa.types.is_floating(target):
            return as_type(values, target)
        return as_type(self._within(plan, values, target), target)

    def averaged(self, sums: Any, counts: Any, kind: Any) -> Any:
        """The mean of values of the value type `kind`: of their exact sum if they are exact."""
        if pa.types.is_decimal128(kind):
            return _decimal_mean(sums, counts, kind)
        return pc.divide(as_type(sums, pa.float64()), as_type(counts, pa.float64()))

    def deviation(self, counts: Any, m2: Any) -> Any:
        """The standard deviation of a sample; null for fewer than two values."""
        count = np.asarray(counts, dtype=np.int64)
        with np.errstate(invalid="ignore"):
            deviations = np.sqrt(np.asarray(m2) / np.maximum(count - 1, 1))
        return pa.array(deviations, mask=count < 2)

    def _within(self, plan: AggregatePlan, values: Any, target: pa.DataType) -> Any:
        """Sums that `target` holds. Raises `ProcessingError` for others, or makes them null."""
        outside = _outside(values, target)
        if outside is None or not outside.any():
            return values
        if self.null_on_overflow:
            return pc.if_else(pa.array(outside), pa.scalar(None, values.type), values)
        row = int(np.flatnonzero(outside)[0])
        raise ProcessingError(
            self.operator,
            f"the sum of '{plan.field}' for the column '{plan.name}' is {values[row]}, "
            f"which does not fit {target}; cast the field to a decimal or to Float64 before "
            "the window, or set `overflow: null` to get a null in such a place",
            error_class="Overflow",
            where=self.where(row),
        )


def _decimal_mean(sums: Any, counts: Any, kind: Any) -> Any:
    """Has the whole digits of the values, so that every mean of them fits."""
    digits: Any = kind.scale + min(_MORE_DIGITS, DECIMAL128_DIGITS - kind.precision)
    known = pc.if_else(
        pc.equal(counts, pa.scalar(0, counts.type)), pa.scalar(None, counts.type), counts
    )
    quotients: Any = pc.divide(
        sums.cast(pa.decimal256(_DIVIDEND_DIGITS, kind.scale)), known.cast(_DIVISOR)
    )
    # One digit more decides. (Arrow's `round` is wrong for decimals beyond 128 bits.)
    near = pa.decimal256(_DIVIDEND_DIGITS, digits + 1)
    half = Decimal((0, (5,), -digits - 1))
    cut = quotients.cast(near, safe=False)
    down: Any = pc.less(cut, pa.scalar(Decimal(0), near))
    away: Any = pc.add(cut, pc.if_else(down, pa.scalar(-half, near), pa.scalar(half, near)))
    return away.cast(pa.decimal128(DECIMAL128_DIGITS, digits), safe=False)


def _outside(values: Any, target: pa.DataType) -> Mask | None:
    """Which values `target` does not hold; None if it holds all of their type."""
    if not pa.types.is_decimal(values.type):
        return None
    least, greatest = _limits(target)
    kind = pa.decimal256(DECIMAL256_DIGITS, values.type.scale)
    beyond: Any = pc.or_(
        pc.less(values, pa.scalar(least, kind)), pc.greater(values, pa.scalar(greatest, kind))
    )
    return np.asarray(beyond.fill_null(False), dtype=np.bool_)


def _limits(target: Any) -> tuple[Decimal, Decimal]:
    if pa.types.is_int64(target):
        return Decimal(INT64_MIN), Decimal(INT64_MAX)
    if pa.types.is_uint64(target):
        return Decimal(0), Decimal(UINT64_MAX)
    nines = (9,) * target.precision
    return Decimal((1, nines, -target.scale)), Decimal((0, nines, -target.scale))


__all__ = ["COUNT_TYPE", "Fitting", "Where"]
