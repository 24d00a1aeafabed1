"""The bytes of a key, per Arrow type, for a whole column at once (G3, reference C.5).

Equal values give equal bytes whatever their layout: dictionary, view, large, run-end encoded,
sliced, extension over a storage. What C.5 leaves open is decided here: decimals of every width
are 16 bytes (32 where a value needs them), times and durations are their Int64, a fixed-size
binary is its bytes. Lists, structs, maps, unions and intervals are no keys.

Timestamps, times, durations and dates hash as the integer that they hold, so their unit is part
of their kind, and a decimal's scale of its own: a column must keep both.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.limits import EXACT_FLOAT_INT_MAX

NULL_BYTES: Final = b"null:utf8"
"""What a null of any type hashes as (G3)."""

Uint8s = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]


_SENTINEL: Final = np.frombuffer(NULL_BYTES, np.uint8)


class KeyColumnError(ValueError):
    """A column cannot be a key: missing, of a type without key bytes, or of another kind."""


@dataclass(frozen=True, slots=True)
class FixedKey:
    """Keys of one width: `digits[p]` is byte p of every row. Rows in `nulls` are null."""

    digits: Uint8s
    nulls: npt.NDArray[np.bool_] | None

    def __len__(self) -> int:
        return int(self.digits.shape[1])

    def at(self, rows: Int64s) -> "FixedKey":
        """The keys of the given rows."""
        nulls = None if self.nulls is None else self.nulls[rows]
        return FixedKey(np.ascontiguousarray(self.digits[:, rows]), nulls)

    def and_null(self) -> "FixedKey":
        """The same keys and a null behind them."""
        known = np.zeros(len(self), np.bool_) if self.nulls is None else self.nulls
        digits = np.pad(self.digits, ((0, 0), (0, 1)))
        return FixedKey(np.ascontiguousarray(digits), np.append(known, True))


@dataclass(frozen=True, slots=True)
class VariableKey:
    """Keys of any length: row i is `data[starts[i] : starts[i] + lengths[i]]`, nulls included."""

    data: Uint8s
    starts: Int64s
    lengths: Int64s

    def __len__(self) -> int:
        return len(self.starts)

    def at(self, rows: Int64s) -> "VariableKey":
        """The keys of the given rows."""
        return VariableKey(self.data, self.starts[rows], self.lengths[rows])

    def and_null(self) -> "VariableKey":
        """The same keys and a null behind them."""
        return VariableKey(
            np.append(self.data, _SENTINEL),
            np.append(self.starts, len(self.data)),
            np.append(self.lengths, len(_SENTINEL)),
        )


@dataclass(frozen=True, slots=True)
class IndexedKey:
    """Keys of a dictionary: row i is `values` at `indices[i]`."""

    values: FixedKey | VariableKey
    indices: Int64s

    def __len__(self) -> int:
        return len(self.indices)

    def flat(self) -> FixedKey | VariableKey:
        """The same keys, each on its own."""
        return self.values.at(self.indices)


EncodedKey = FixedKey | VariableKey | IndexedKey


def key_kind(column: "pa.Array[Any]") -> str | None:
    """The hash form of a column's values, for people; None if every value is null.

    Columns of one kind hash equal values equally. Raises `KeyColumnError` for a type that is no
    key.
    """
    kind = _kind_of_type(column.type)
    return None if column.null_count == len(column) else kind


def encode_key(column: "pa.Array[Any]") -> EncodedKey:
    """The key bytes of a column. Raises `KeyColumnError` for a type that is no key."""
    _kind_of_type(column.type)
    return _encode(column)


def _kind_of_type(kind: pa.DataType) -> str | None:
    types = pa.types
    while not types.is_primitive(kind):
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif types.is_dictionary(kind) or types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            break
    if types.is_null(kind):
        return None
    for name, matches in _KINDS:
        if matches(kind):
            return name
    if types.is_decimal(kind):
        return f"decimal with scale {kind.scale}"
    if types.is_timestamp(kind) or types.is_time(kind) or types.is_duration(kind):
        name = "time" if types.is_time(kind) else "timestamp" if types.is_timestamp(kind) else ""
        return f"{name or 'duration'} in {kind.unit}"
    raise KeyColumnError(
        f"has the type {kind}, which cannot be a key; use a text, binary, number, boolean, date, "
        "time or decimal field, or build one from it in a processor before the edge"
    )


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    plain = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return plain or types.is_fixed_size_binary(kind)


_KINDS: Final = (
    ("text", _is_text),
    ("binary", _is_binary),
    ("number", lambda kind: pa.types.is_integer(kind) or pa.types.is_floating(kind)),
    ("boolean", pa.types.is_boolean),
    ("date32", pa.types.is_date32),
    ("date64", pa.types.is_date64),
)


def bare(column: "pa.Array[Any]") -> "pa.Array[Any]":
    """The values themselves, without an extension type around them or runs: as long, same order."""
    if isinstance(column, pa.ExtensionArray):
        return bare(column.storage)
    if pa.types.is_run_end_encoded(column.type):
        return bare(pc.call_function("run_end_decode", [column]))
    return column


def _encode(column: "pa.Array[Any]") -> EncodedKey:
    column = bare(column)
    kind, types = column.type, pa.types
    if isinstance(column, pa.DictionaryArray):
        return _encode_dictionary(column)
    if types.is_null(kind):
        return FixedKey(np.zeros((8, len(column)), np.uint8), np.ones(len(column), np.bool_))
    if types.is_string_view(kind) or types.is_binary_view(kind):
        column = column.cast(pa.large_binary())
    if types.is_fixed_size_binary(kind):
        return FixedKey(_columns_of(column, kind.byte_width), _nulls(column))
    if _is_text(kind) or _is_binary(kind):
        return _encode_binary(column)
    if types.is_boolean(kind):
        return _encode_boolean(column)
    if types.is_decimal(kind):
        return _encode_decimal(column)
    return _encode_number(column)


def _encode_dictionary(column: "pa.DictionaryArray[Any, Any]") -> IndexedKey:
    indices: pa.Array[Any] = column.indices.cast(pa.int64(), safe=False)
    encoded = _encode(column.dictionary)
    values = encoded.flat() if isinstance(encoded, IndexedKey) else encoded
    if indices.null_count:
        indices = indices.fill_null(len(values))
        values = values.and_null()
    return IndexedKey(values, _numbers(indices, np.int64))


def _encode_binary(column: "pa.Array[Any]") -> VariableKey:
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    rows, offset = len(column), column.offset
    _, places, content = column.buffers()
    if not rows or places is None:
        none = np.zeros(rows, np.int64)
        return _with_nulls(np.zeros(0, np.uint8), none, none.copy(), _nulls(column))
    bounds = _view(places, np.int64 if wide else np.int32, rows + 1, offset).astype(np.int64)
    data = _view(content, np.uint8, content.size) if content else np.zeros(0, np.uint8)
    nulls = _nulls(column)
    if nulls is not None:  # only the window of this slice is copied to put the sentinel behind it
        data = data[bounds[0] : bounds[-1]]
        bounds -= bounds[0]
    return _with_nulls(data, bounds[:-1], np.diff(bounds), nulls)


def _with_nulls(
    data: Uint8s, starts: Int64s, lengths: Int64s, nulls: npt.NDArray[np.bool_] | None
) -> VariableKey:
    if nulls is None:
        return VariableKey(data, starts, lengths)
    return VariableKey(
        np.append(data, _SENTINEL),
        np.where(nulls, len(data), starts),
        np.where(nulls, len(_SENTINEL), lengths),
    )


def _encode_boolean(column: "pa.Array[Any]") -> IndexedKey:
    rows = column.cast(pa.int64()).fill_null(2)
    words = (b"bool:0", b"bool:1", NULL_BYTES)
    values = VariableKey(
        np.frombuffer(b"".join(words), np.uint8),
        np.array([0, 6, 12], np.int64),
        np.array([len(word) for word in words], np.int64),
    )
    return IndexedKey(values, _numbers(rows, np.int64))


def _encode_decimal(column: "pa.Array[Any]") -> FixedKey | VariableKey:
    kind = column.type
    nulls = _nulls(column)
    if not pa.types.is_decimal256(kind):
        wide = column.cast(pa.decimal128(kind.precision, kind.scale))
        return FixedKey(np.ascontiguousarray(_columns_of(wide, 16)[::-1]), nulls)
    digits = _columns_of(column, 32)[::-1]  # big-endian
    sign = np.where(digits[16] & 0x80, np.uint8(0xFF), np.uint8(0))
    fits = (digits[:16] == sign).all(axis=0)
    starts = np.arange(len(column), dtype=np.int64) * 32
    lengths = np.where(fits, np.int64(16), np.int64(32))
    return _with_nulls(
        np.ascontiguousarray(digits.T).reshape(-1), starts + 32 - lengths, lengths, nulls
    )


def _encode_number(column: "pa.Array[Any]") -> FixedKey:
    kind, types = column.type, pa.types
    nulls = _nulls(column)
    if types.is_floating(kind):
        words = _float_words(_numbers(column.cast(pa.float64()), np.float64))
    elif types.is_date32(kind):
        return FixedKey(_big_endian(_numbers(column, np.int32)), nulls)
    elif types.is_integer(kind):
        words = _numbers(column, np.dtype(str(kind)))
        words = words.astype(np.uint64 if types.is_uint64(kind) else np.int64)
    else:  # dates, timestamps, times, durations: the integer that they hold
        words = _numbers(column, np.int32 if kind.bit_width == 32 else np.int64).astype(np.int64)
    return FixedKey(_big_endian(words), nulls)


def _float_words(values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint64]:
    """Integral values within the exact range as their Int64, one NaN, all others by their bits."""
    words = values.view(np.uint64).copy()
    with np.errstate(invalid="ignore"):
        whole = (np.abs(values) <= EXACT_FLOAT_INT_MAX) & (values == np.trunc(values))
    words[whole] = values[whole].astype(np.int64).view(np.uint64)
    words[np.isnan(values)] = 0x7FF8_0000_0000_0000
    return words


def _big_endian(values: npt.NDArray[Any]) -> Uint8s:
    """Byte p of every value in row p, most significant first."""
    width = values.dtype.itemsize
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little.view(np.uint8).reshape(-1, width).T[::-1])


def _columns_of(column: "pa.Array[Any]", width: int) -> Uint8s:
    """Byte p of every value in row p, in memory order."""
    content = column.buffers()[1]
    if content is None or not len(column) or not width:
        return np.zeros((width, len(column)), np.uint8)
    found = _view(content, np.uint8, len(column) * width, column.offset * width)
    return np.ascontiguousarray(found.reshape(-1, width).T)


def _numbers(column: "pa.Array[Any]", dtype: Any) -> npt.NDArray[Any]:
    """The values as they lie in memory; what stands at a null is undefined."""
    content = column.buffers()[1]
    if content is None or not len(column):
        return np.zeros(len(column), dtype)
    return _view(content, dtype, len(column), column.offset)


def _view(content: Any, dtype: Any, count: int, first: int = 0) -> npt.NDArray[Any]:
    """`count` values of an Arrow buffer from the `first` on, without a copy."""
    found: npt.NDArray[Any] = np.frombuffer(content, dtype, count, first * np.dtype(dtype).itemsize)
    return found


def _nulls(column: "pa.Array[Any]") -> npt.NDArray[np.bool_] | None:
    if not column.null_count:
        return None
    return column.is_null().to_numpy(zero_copy_only=False)


__all__ = [
    "NULL_BYTES",
    "EncodedKey",
    "FixedKey",
    "IndexedKey",
    "KeyColumnError",
    "VariableKey",
    "bare",
    "encode_key",
    "key_kind",
]
