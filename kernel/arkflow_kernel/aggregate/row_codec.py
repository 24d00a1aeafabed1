"""Rows of flat columns as one binary each, and back to the bit (S8, S11): values of a keyed state.

A state holds one value a key, and an operator keeps several columns whose types widen (S10). So
every row says which schema it is of; schemas are told beside the rows, once each.

    8 bytes   the schema's id: a hash of its names and types
    bits      one for each column, set where it is null
    fixed     the columns of fixed width, little-endian; a boolean is a byte
    lengths   4 bytes for each text and binary, then their bytes, in the order of the columns
"""

import hashlib
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_kernel.errors import ArkflowError
from arkflow_kernel.state.arrow_numpy import (
    AnyArray,
    all_null,
    as_array,
    assembled,
    nulls_of,
    raw,
)
from arkflow_kernel.state.growing import Bytes, Slots
from arkflow_kernel.window.aggregate_types import decoded

FORMAT_VERSION = 1
"""Version of the rows that are written (S9)."""

_ID_BYTES = 8
_LENGTH = np.dtype("<u4")


class RowTypeError(ArkflowError):
    """A column has a type that rows cannot hold."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows of one schema: the places in the array that they were in, and the rows."""

    places: Slots
    rows: pa.RecordBatch


class RowSchemas:
    """The schemas of all rows that a state has had. A schema that is known stays so."""

    def __init__(self) -> None:
        self._layouts: dict[int, _Layout] = {}

    def encoded(self, rows: pa.RecordBatch) -> AnyArray:
        """One `large_binary` a row. Raises `RowTypeError` for a nested type, or a large text."""
        columns = [decoded(column) for column in rows.columns]
        kinds = [column.type for column in columns]
        layout = _Layout.of(pa.schema(list(zip(rows.schema.names, kinds, strict=True))))
        self._layouts.setdefault(layout.id, layout)
        return layout.encoded(columns, rows.num_rows)

    def check(self, schema: pa.Schema) -> None:
        """Raise `RowTypeError` for a type that rows cannot hold."""
        _Layout.of(schema)

    def decoded(self, values: AnyArray) -> list[Decoded]:
        """What `encoded` was given, by schema; nulls are left out."""
        data, starts, sizes = memory_of(values)
        found = np.flatnonzero(~nulls_of(values)) if values.null_count else np.arange(len(values))
        if not len(found):
            return []
        ids = data[starts[found, None] + np.arange(_ID_BYTES)].reshape(-1).view(np.uint64)
        made = []
        for number in _distinct(ids):
            places = found if (ids == number).all() else found[ids == number]
            layout = self._layouts[int(number)]
            made.append(Decoded(places, layout.decoded(data, starts[places], sizes[places])))
        return made

    def told(self) -> list[str]:
        """All of them, as text, for the layout of a snapshot; in a fixed order."""
        return [self._layouts[number].text for number in sorted(self._layouts)]

    def learn(self, told: Seq[str]) -> None:
        """Those of a snapshot."""
        for text in told:
            message: Any = pa.py_buffer(bytes.fromhex(text))
            layout = _Layout.of(pa.ipc.read_schema(message))
            self._layouts.setdefault(layout.id, layout)


def _distinct(ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    return ids[:1] if (ids == ids[0]).all() else np.unique(ids)


def memory_of(values: AnyArray) -> tuple[Bytes, Slots, Slots]:
    """The bytes of a binary array; where each value begins in them, and how long it is."""
    plain: Any = values.cast(pa.large_binary())
    offsets = raw(plain.buffers()[1], np.int64)[plain.offset : plain.offset + len(plain) + 1]
    if not len(plain):
        offsets = np.zeros(1, np.int64)
    return raw(plain.buffers()[2], np.uint8), offsets[:-1], np.diff(offsets)


@dataclass(frozen=True, slots=True)
class _Field:
    """A column: its place in the fixed part, and its width; `long` has its length there."""

    name: str
    kind: pa.DataType
    at: int
    width: int
    long: bool


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the columns of a schema lie in a row; `size` bytes are fixed."""

    id: int
    text: str
    fields: tuple[_Field, ...]
    size: int

    @classmethod
    def of(cls, schema: pa.Schema) -> "_Layout":
        known = _KNOWN.get(schema)
        if known is not None:
            return known
        message: Any = schema.serialize()
        told = bytes(message)
        number = int.from_bytes(hashlib.blake2b(_named(schema), digest_size=_ID_BYTES).digest())
        fields, at = [], _ID_BYTES + (len(schema) + 7) // 8
        for name, kind in zip(schema.names, schema.types, strict=True):
            long = _is_long(kind)
            width = _LENGTH.itemsize if long else _width(name, kind)
            fields.append(_Field(name, kind, at, width, long))
            at += width
        layout = cls(number, told.hex(), tuple(fields), at)
        if len(_KNOWN) < _KNOWN_MAX:
            _KNOWN[schema] = layout
        return layout

    def encoded(self, columns: Seq[AnyArray], count: int) -> AnyArray:
        """Rows as binaries."""
        fixed = np.zeros((count, self.size), np.uint8)
        fixed[:, :_ID_BYTES] = np.frombuffer(self.id.to_bytes(_ID_BYTES, "little"), np.uint8)
        nulls = np.stack([nulls_of(column) for column in columns], axis=1)
        packed = np.packbits(nulls, axis=1, bitorder="little")
        fixed[:, _ID_BYTES : _ID_BYTES + packed.shape[1]] = packed
        texts = []
        for field, column in zip(self.fields, columns, strict=True):
            if field.long:
                data, starts, size = memory_of(_plain(column, field.kind))
                size = np.where(nulls_of(column), 0, size) if column.null_count else size
                _check_lengths(field.name, size)
                texts.append((data, starts, size))
                told = size.astype(_LENGTH).view(np.uint8).reshape(count, field.width)
                fixed[:, field.at : field.at + field.width] = told
            elif field.width:
                fixed[:, field.at : field.at + field.width] = _bytes_of(column, field)
        if not texts:
            offsets = np.arange(count + 1, dtype=np.int64) * self.size
            return assembled(pa.large_binary(), count, [None, offsets, fixed.reshape(-1)])
        sizes = np.full(count, self.size, np.int64)
        for _, _, size in texts:
            sizes += size
        offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        made = np.empty(int(offsets[-1]), np.uint8)
        made[offsets[:-1, None] + np.arange(self.size)] = fixed
        place = offsets[:-1] + self.size
        for data, starts, size in texts:
            made[spread(place, size)] = data[spread(starts, size)]
            place = place + size
        return assembled(pa.large_binary(), count, [None, offsets, made])

    def decoded(self, data: Bytes, starts: Slots, sizes: Slots) -> pa.RecordBatch:
        """The rows that begin at some places of memory, all of this schema."""
        count, bits = len(starts), (len(self.fields) + 7) // 8
        if count and (sizes == self.size).all() and (np.diff(starts) == self.size).all():
            first = int(starts[0])
            fixed = data[first : first + count * self.size].reshape(count, self.size)
        else:
            fixed = data[starts[:, None] + np.arange(self.size)]
        flags = np.ascontiguousarray(fixed[:, _ID_BYTES : _ID_BYTES + bits])
        nulls = np.unpackbits(flags, axis=1, bitorder="little").astype(np.bool_)
        place, columns = starts + self.size, []
        for number, field in enumerate(self.fields):
            # A copy: Arrow wants numbers at multiples of their width.
            found = fixed[:, field.at : field.at + field.width].copy()
            if field.long:
                size = found.view(_LENGTH).reshape(-1).astype(np.int64)
                offsets = np.concatenate(([0], np.cumsum(size))).astype(np.int64)
                text = data[spread(place, size)]
                columns.append(_texts(field.kind, nulls[:, number], offsets, text))
                place = place + size
            else:
                columns.append(_values(field, found, nulls[:, number]))
        names = [field.name for field in self.fields]
        return pa.RecordBatch.from_arrays(columns, names=names)


_KNOWN: dict[pa.Schema, _Layout] = {}
_KNOWN_MAX = 256


def _named(schema: pa.Schema) -> bytes:
    """What a schema is told apart by: other releases of Arrow may serialize it otherwise."""
    return repr([(field.name, str(field.type)) for field in schema]).encode()


def _is_long(kind: pa.DataType) -> bool:
    is_ = pa.types
    text = is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind)
    return text or is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_binary_view(kind)


def _width(name: str, kind: Any) -> int:
    is_ = pa.types
    if is_.is_null(kind):
        return 0
    if is_.is_primitive(kind) or is_.is_decimal(kind) or is_.is_fixed_size_binary(kind):
        return max(1, int(kind.bit_width) // 8)
    text = f"the column '{name}' is of type {kind}, which cannot be kept; use numbers, text,"
    raise RowTypeError(f"{text} binary or times, or leave it out before")


def _check_lengths(name: str, sizes: Slots) -> None:
    if len(sizes) and int(sizes.max()) > np.iinfo(_LENGTH).max:
        raise RowTypeError(f"a value of the column '{name}' has more than 4 GiB")


def _plain(column: AnyArray, kind: pa.DataType) -> AnyArray:
    is_ = pa.types
    text = is_.is_string(kind) or is_.is_string_view(kind)
    return column.cast(pa.large_string()) if text else column


def _bytes_of(column: AnyArray, field: _Field) -> Bytes:
    count = len(column)
    if pa.types.is_boolean(field.kind):
        flags: Any = column
        return np.asarray(flags.cast(pa.int8()).fill_null(0)).view(np.uint8).reshape(count, 1)
    start, size = column.offset * field.width, count * field.width
    memory = raw(column.buffers()[1], np.uint8)
    return memory[start : start + size].reshape(count, field.width)


def _values(field: _Field, found: Bytes, nulls: npt.NDArray[np.bool_]) -> AnyArray:
    if not field.width:
        return all_null(len(nulls), field.kind)
    if pa.types.is_boolean(field.kind):
        return as_array(found.reshape(-1) != 0, nulls)
    return assembled(field.kind, len(nulls), [_valid(nulls), found.reshape(-1)])


def _texts(kind: pa.DataType, nulls: Any, offsets: Slots, data: Bytes) -> AnyArray:
    is_ = pa.types
    text = is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind)
    large = pa.large_string() if text else pa.large_binary()
    return assembled(large, len(nulls), [_valid(nulls), offsets, data]).cast(kind)


def _valid(nulls: npt.NDArray[np.bool_]) -> Bytes | None:
    return np.packbits(~nulls, bitorder="little") if nulls.any() else None


def spread(starts: Slots, sizes: Slots) -> Slots:
    """The places of all bytes of some pieces of memory, one after the other."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))


__all__ = ["FORMAT_VERSION", "Decoded", "RowSchemas", "RowTypeError", "memory_of", "spread"]
