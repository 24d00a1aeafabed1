"""Types of aggregated values: what a column may be, what may follow it, what leaves (N4, S10).

A column has a value type, which stands for all that aggregate alike: integers of any width are
Int64, but UInt64 is itself; text and binary are one type each, whatever their layout; the type of
a dictionary is that of its values. Value types widen, and only so:

    null < anything
    Int64, UInt64 < decimal(20, 0), where both came  < decimals  < Float64
    Float32 < Float64; Float32 beside any other number is Float64

Two decimals widen to the scale and the whole digits of both.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.errors import ArkflowError
from arkflow_kernel.state.arrow_numpy import AnyArray

DECIMAL128_DIGITS = 38
DECIMAL256_DIGITS = 76
UINT64_MAX = 2**64 - 1

TAG = "_tag"
"""Ending of the column beside the canonical values of a count_distinct: their `KeyTag`."""

_INT64_DIGITS = 19
_UINT64_DIGITS = 20


class ValueTypeError(ArkflowError):
    """A column of values has a type that cannot be aggregated, or cannot follow the one before."""


def value_type(found: pa.DataType) -> pa.DataType:
    """The value type of a column. Raises `ValueTypeError` for a nested one."""
    is_ = pa.types
    if is_.is_dictionary(found):
        return value_type(found.value_type)
    if is_.is_integer(found):
        return pa.uint64() if found == pa.uint64() else pa.int64()
    if is_.is_float16(found):
        return pa.float32()
    if is_.is_string(found) or is_.is_large_string(found) or is_.is_string_view(found):
        return pa.large_string()
    if is_.is_binary(found) or is_.is_large_binary(found) or is_.is_binary_view(found):
        return pa.large_binary()
    if is_.is_decimal32(found) or is_.is_decimal64(found):
        return pa.decimal128(found.precision, found.scale)
    if found == pa.month_day_nano_interval() or not _is_flat(found):
        raise ValueTypeError(f"it is of type {found}; use numbers, text, binary or times")
    return found


def _is_flat(found: pa.DataType) -> bool:
    is_ = pa.types
    fixed = is_.is_null(found) or is_.is_primitive(found) or is_.is_fixed_size_binary(found)
    return fixed or is_.is_decimal(found)


def widened(known: pa.DataType, found: pa.DataType) -> pa.DataType:
    """The value type of a column that had values of `known` and then of `found`.

    Symmetric and associative, so the order of batches plays no part. Raises `ValueTypeError`.
    """
    if known == found or pa.types.is_null(found):
        return known
    if pa.types.is_null(known):
        return found
    if not (is_number(known) and is_number(found)):
        raise ValueTypeError(
            f"it was of type {shown(known)} and is now {shown(found)}, which cannot be brought to "
            "one type; cast it before this operator"
        )
    if pa.types.is_floating(known) or pa.types.is_floating(found):
        return pa.float64()
    mine, other = _digits(known), _digits(found)
    scale = max(mine[1], other[1])
    return _decimal(max(mine[0], other[0]) + scale, scale)


def _digits(kind: pa.DataType) -> tuple[int, int]:
    """Digits before and after the point."""
    if pa.types.is_decimal(kind):
        return kind.precision - kind.scale, kind.scale
    return (_UINT64_DIGITS if kind == pa.uint64() else _INT64_DIGITS), 0


def _decimal(precision: int, scale: int) -> pa.DataType:
    if precision <= DECIMAL128_DIGITS:
        return pa.decimal128(precision, scale)
    return pa.decimal256(min(precision, DECIMAL256_DIGITS), scale)


def is_number(kind: pa.DataType) -> bool:
    """Whether a value type can be summed."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def shown(kind: pa.DataType) -> str:
    """How error messages call a value type."""
    return str(_PLAIN.get(kind, kind))


def read_type(kind: pa.DataType) -> pa.DataType:
    """The type in which values of a value type leave: texts and binaries in their plain layout."""
    return _PLAIN.get(kind, kind)


_PLAIN: dict[pa.DataType, pa.DataType] = {
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}


def sum_type(kind: pa.DataType) -> pa.DataType:
    """The type in which sums of a value type leave; Int64 where only nulls came."""
    if pa.types.is_null(kind):
        return pa.int64()
    if pa.types.is_decimal256(kind) and kind.precision > DECIMAL128_DIGITS:
        return pa.decimal256(DECIMAL256_DIGITS, kind.scale)
    if pa.types.is_decimal(kind):
        return pa.decimal128(DECIMAL128_DIGITS, kind.scale)
    return kind


def as_type(values: Any, kind: pa.DataType) -> Any:
    """Values, an array or a chunked one, in a type that they were widened to.

    Integers and decimals become the nearest Float64. Anything else is exact, or Arrow raises.
    """
    if values.type == kind:
        return values
    if values.null_count == len(values):
        return nulls(len(values), kind)
    if pa.types.is_floating(kind):
        return values.cast(kind, safe=False)
    return values.cast(kind)


def nulls(count: int, kind: Any) -> AnyArray:
    """So many nulls of a type."""
    array: AnyArray = pa.nulls(count, kind)
    return array


def decoded(values: AnyArray) -> AnyArray:
    """The values of a dictionary; others as they are."""
    untyped: Any = values
    return untyped.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def canonical_values(values: AnyArray, kind: pa.DataType) -> AnyArray:
    """A column as it is aggregated: of the value type `kind`, and with 0.0 instead of -0.0."""
    if pa.types.is_floating(values.type) and not pa.types.is_float16(values.type):
        zero: Any = pa.scalar(0.0, values.type)
        values = pc.add(values, zero)
    converted: AnyArray = as_type(values, kind)
    return converted


def has_nan(values: Any) -> bool:
    """Whether a column of floats has a NaN."""
    found: Any = pc.any(pc.is_nan(values), min_count=0)
    return bool(found.as_py())


def one_array(values: Any) -> AnyArray:
    """A column in one piece."""
    if not isinstance(values, pa.ChunkedArray):
        array: AnyArray = values
        return array
    joined: Any = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    return one_array(joined)


def chunks_of(values: Any) -> list[AnyArray]:
    """The chunks of a column; an array is its only one."""
    chunks: list[AnyArray] = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    return chunks


__all__ = [
    "DECIMAL128_DIGITS",
    "DECIMAL256_DIGITS",
    "TAG",
    "UINT64_MAX",
    "ValueTypeError",
    "as_type",
    "canonical_values",
    "chunks_of",
    "decoded",
    "has_nan",
    "is_number",
    "nulls",
    "one_array",
    "read_type",
    "shown",
    "sum_type",
    "value_type",
    "widened",
]
