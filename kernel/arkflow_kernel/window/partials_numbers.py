"""Partial counts, sums, minima and maxima: from rows, and from other partials (N3, N4)."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.limits import INT64_MAX
from arkflow_kernel.state.arrow_numpy import nulls_of
from arkflow_kernel.window.aggregate_groups import Finish, Grouped, Grouping
from arkflow_kernel.window.aggregate_types import (
    DECIMAL128_DIGITS,
    DECIMAL256_DIGITS,
    UINT64_MAX,
    chunks_of,
    has_nan,
    nulls,
)

WIDE_INTEGERS = pa.decimal128(DECIMAL128_DIGITS, 0)
"""Integer sums that might leave 64 bits: no number of rows makes them leave this."""


class Partial(Protocol):
    """A partial aggregate: one or more columns that can be merged in any order, to one end."""

    @property
    def names(self) -> tuple[str, ...]:
        """What its columns are called in runs."""
        ...

    def of_rows(self, asked: Grouping) -> Finish:
        """Ask for what it needs of a raw table, which `asked` groups."""
        ...

    def of_partials(self, asked: Grouping, columns: Seq[str]) -> Finish:
        """Ask for what it needs of its own columns, given by name."""
        ...


@dataclass(frozen=True, slots=True)
class RowCount:
    """How many rows there are: int64."""

    names: tuple[str, ...] = ("rows",)

    def of_rows(self, asked: Grouping) -> Finish:
        """Count rows."""
        return _just(asked.ask_count())

    def of_partials(self, asked: Grouping, columns: Seq[str]) -> Finish:
        """Add up counts."""
        return _just(asked.ask(asked.column(columns[0]), "sum"))


@dataclass(frozen=True, slots=True)
class ValueCount:
    """How many values of a column are not null: int64."""

    column: str
    field: str

    @property
    def names(self) -> tuple[str, ...]:
        """One column."""
        return (f"{self.field}_count",)

    def of_rows(self, asked: Grouping) -> Finish:
        """Count values."""
        return _just(asked.ask(asked.column(self.column), "count"))

    def of_partials(self, asked: Grouping, columns: Seq[str]) -> Finish:
        """Add up counts."""
        return _just(asked.ask(asked.column(columns[0]), "sum"))


@dataclass(frozen=True, slots=True)
class Sum:
    """The exact sum of integers and decimals, the IEEE sum of floats, in Float64; null if none.

    Of integers it is Int64 or UInt64 where no sum of the table can leave that, else
    decimal128(38, 0); of decimals decimal128(38, s) or decimal256(76, s) by the same rule.
    """

    column: str
    field: str

    @property
    def names(self) -> tuple[str, ...]:
        """One column."""
        return (f"{self.field}_sum",)

    def of_rows(self, asked: Grouping) -> Finish:
        """Sum values."""
        return _summed(asked, asked.column(self.column))

    def of_partials(self, asked: Grouping, columns: Seq[str]) -> Finish:
        """Sum sums."""
        return _summed(asked, asked.column(columns[0]))


def _summed(asked: Grouping, values: Any) -> Finish:
    if pa.types.is_null(values.type):
        return _nulls(values.type)
    return _just(asked.ask(_safe(values), "sum"))


def _safe(values: Any) -> Any:
    """Values in a type in which no sum of some of them can wrap."""
    kind = values.type
    if pa.types.is_floating(kind):
        return values
    if pa.types.is_integer(kind):
        return values if _fits(values, kind) else values.cast(WIDE_INTEGERS)
    if pa.types.is_decimal128(kind) and _decimals_fit(values, kind):
        return values
    return values.cast(pa.decimal256(DECIMAL256_DIGITS, kind.scale))


def _fits(values: Any, kind: pa.DataType) -> bool:
    limit = UINT64_MAX if kind == pa.uint64() else INT64_MAX
    return _largest(values) * len(values) <= limit


def _decimals_fit(values: Any, kind: Any) -> bool:
    if kind.precision + len(str(len(values))) <= DECIMAL128_DIGITS:
        return True
    whole_digits = DECIMAL128_DIGITS - kind.scale
    limit: int = 10**whole_digits
    return (_largest(values) + 1) * len(values) < limit


def _largest(values: Any) -> int:
    """The greatest magnitude in a column, without what is behind the point."""
    ends: Any = pc.min_max(values)
    if not ends["min"].is_valid:
        return 0
    return max(abs(int(ends["min"].as_py())), abs(int(ends["max"].as_py())))


@dataclass(frozen=True, slots=True)
class Extreme:
    """The least or greatest value (`function` is min or max), in its value type; null if none.

    NaN is greater than every number, so the order of rows plays no part.
    """

    function: str
    column: str
    field: str

    @property
    def names(self) -> tuple[str, ...]:
        """One column."""
        return (f"{self.field}_{self.function}",)

    def of_rows(self, asked: Grouping) -> Finish:
        """The extreme of values."""
        return self._extreme(asked, asked.column(self.column))

    def of_partials(self, asked: Grouping, columns: Seq[str]) -> Finish:
        """The extreme of extremes."""
        return self._extreme(asked, asked.column(columns[0]))

    def _extreme(self, asked: Grouping, values: Any) -> Finish:
        kind = values.type
        if pa.types.is_null(kind):
            return _nulls(kind)
        if pa.types.is_floating(kind) and has_nan(values):
            number = asked.ask(_ordered(values), self.function)
            return lambda groups: (_unordered(groups.answer(number), kind),)
        if pa.types.is_duration(kind):  # Arrow knows no extreme of it
            number = asked.ask(_viewed(values, pa.int64()), self.function)
            return lambda groups: (_viewed(groups.answer(number), kind),)
        return _just(asked.ask(values, self.function))


_MAGNITUDE = np.int64(INT64_MAX)


def _ordered(values: Any) -> Any:
    """Floats as integers of the same order, in which NaN is the greatest; nulls stay."""
    return pa.chunked_array([_ordered_chunk(chunk) for chunk in chunks_of(values)], pa.int64())


def _ordered_chunk(chunk: Any) -> Any:
    numbers = np.array(chunk, dtype=np.float64)
    numbers[np.isnan(numbers)] = np.nan  # the sign and the payload of a NaN say nothing
    mask = nulls_of(chunk) if chunk.null_count else None
    return pa.array(_flipped(numbers.view(np.int64)), mask=mask)


def _unordered(values: Any, kind: Any) -> Any:
    """The inverse of `_ordered`."""
    chunks = []
    for chunk in chunks_of(values):
        bits = np.asarray(chunk.fill_null(0), dtype=np.int64)
        numbers = _flipped(bits).view(np.float64)
        chunks.append(pa.array(numbers, mask=nulls_of(chunk)).cast(kind, safe=False))
    return pa.chunked_array(chunks, kind)


def _flipped(bits: Any) -> Any:
    """Bits of floats to integers of their order, and back: negative ones count downwards."""
    return bits ^ ((bits >> np.int64(63)) & _MAGNITUDE)


def _viewed(values: Any, kind: Any) -> Any:
    return pa.chunked_array([chunk.view(kind) for chunk in chunks_of(values)], kind)


def _just(number: int) -> Finish:
    return lambda groups: (groups.answer(number),)


def _nulls(kind: pa.DataType) -> Finish:
    def finish(groups: Grouped) -> tuple[Any, ...]:
        return (nulls(groups.count, kind),)

    return finish


__all__ = ["Extreme", "Partial", "RowCount", "Sum", "ValueCount"]
