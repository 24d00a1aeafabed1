"""The type ledger of a key column: which types may follow each other (S10).

A key column never changes its hash form: Null may become anything, integers are one type of 64
bits, integers may widen to Float64, text is one type whatever its layout. Everything else stays
what it was first.
"""

import pyarrow as pa

from arkflow_kernel.errors import ArkflowError


class KeyTypeError(ArkflowError):
    """A key column came with a type that cannot be brought to the one it had, or to any."""


def key_type(found: pa.DataType) -> pa.DataType:
    """The type that stands for all that hash like `found` (G3). Raises `KeyTypeError`."""
    is_ = pa.types
    if is_.is_dictionary(found):
        return key_type(found.value_type)
    if is_.is_unsigned_integer(found):
        return pa.uint64() if found == pa.uint64() else pa.int64()
    if is_.is_signed_integer(found):
        return pa.int64()
    if is_.is_floating(found):
        return pa.float64()
    if is_.is_string(found) or is_.is_large_string(found) or is_.is_string_view(found):
        return pa.string()
    if is_.is_binary(found) or is_.is_large_binary(found) or is_.is_binary_view(found):
        return pa.binary()
    if is_.is_decimal32(found) or is_.is_decimal64(found):
        return pa.decimal128(found.precision, found.scale)
    if (
        is_.is_null(found)
        or is_.is_boolean(found)
        or is_.is_temporal(found)
        or is_.is_decimal(found)
        or is_.is_fixed_size_binary(found)
    ):
        if found == pa.month_day_nano_interval():
            raise KeyTypeError(f"a column of type {found} cannot be a key; use a text of it")
        return found
    raise KeyTypeError(f"a column of type {found} cannot be a key; use numbers, text or times")


def widened(known: pa.DataType, found: pa.DataType) -> pa.DataType:
    """The column's type after a batch of type `found`, both as `key_type` gives them.

    Raises `KeyTypeError` that names both types.
    """
    if known == found or pa.types.is_null(found):
        return known
    if pa.types.is_null(known):
        return found
    if _is_number(known) and _is_number(found):
        floats = pa.types.is_floating(known) or pa.types.is_floating(found)
        return pa.float64() if floats else pa.uint64()
    raise KeyTypeError(
        f"its keys were of type {known} and are now {found}, which cannot be brought to one type; "
        "cast the key before this operator"
    )


def _is_number(found: pa.DataType) -> bool:
    return pa.types.is_integer(found) or pa.types.is_floating(found)


__all__ = ["KeyTypeError", "key_type", "widened"]
