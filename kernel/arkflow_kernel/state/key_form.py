"""The canonical form of key values: equal keys have one form, whatever their Arrow layout (G3).

A value is a tag, a 64-bit word and, for text, binary and decimals, its bytes. Numbers, booleans
and times are their word alone; of the others the word is a hash, and the bytes decide. Integers of
any width are equal, a float with an integral value within 2^53 is that integer, -0.0 is 0, all
NaN are one key, all nulls are one key.
"""

import hashlib
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.limits import EXACT_FLOAT_INT_MAX
from arkflow_kernel.state.arrow_numpy import (
    AnyArray,
    all_null,
    as_array,
    filled,
    lengths,
    nulls_of,
    raw,
    taken,
)
from arkflow_kernel.state.growing import Bytes, Mask, Slots, Words
from arkflow_kernel.state.key_types import key_type


class KeyTag(IntEnum):
    """What the word of a key value means. Values are stored: never change one."""

    NULL = 0
    INT = 1
    UINT = 2
    FLOAT = 3
    BOOL = 4
    TIME = 5
    BYTES = 6


_WORD_BYTES = 8
_HASHED_BY_WORDS_MAX = 128
"""Longer values are hashed one by one: a loop over words would run as long as the longest."""

_PRIME = np.uint64(0x9E37_79B9_7F4A_7C15)
_INVERSE = np.uint64(pow(int(_PRIME), -1, 2**64))
_HALF = np.uint64(32)
_NAN = np.array([np.nan]).view(np.uint64)[0]
_TAILS: Words = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Canonical values of one key column. `data` is None when no value has bytes."""

    tags: Bytes
    words: Words
    data: AnyArray | None = None

    def take(self, rows: Slots) -> "KeyPart":
        """The values of these rows."""
        data = None if self.data is None else taken(self.data, rows)
        return KeyPart(self.tags[rows], self.words[rows], data)

    def sizes(self) -> npt.NDArray[np.int64]:
        """Encoded bytes of each value: the tag, then its word or its bytes; a null is its tag."""
        sizes = np.where(self.tags == KeyTag.NULL, 1, 1 + _WORD_BYTES)
        if self.data is not None:
            sizes = np.where(self.tags == KeyTag.BYTES, 1 + lengths(self.data), sizes)
        return sizes


def canonical(values: AnyArray, hashes: Words | None = None) -> KeyPart:
    """The canonical form of a column. Raises `KeyTypeError` for a type that cannot be a key.

    `hashes` are the `combined_hashes` of keys of this column alone, if they are known: then no
    bytes are hashed again.
    """
    kind = key_type(values.type)
    nulls: Mask = nulls_of(values) if values.null_count else _NONE
    if pa.types.is_null(kind):
        part = KeyPart(np.zeros(len(values), np.uint8), np.zeros(len(values), np.uint64))
    elif pa.types.is_integer(kind):
        part = _integers(values, kind)
    elif pa.types.is_floating(kind):
        part = _floats(values)
    elif pa.types.is_boolean(kind):
        part = _tagged(KeyTag.BOOL, _numbers(values, pa.uint8()).astype(np.uint64))
    elif pa.types.is_temporal(kind):
        whole = pa.int32() if values.type.bit_width == 32 else pa.int64()
        numbers = _numbers(values.view(whole), whole).astype(np.int64)
        part = _tagged(KeyTag.TIME, numbers.view(np.uint64))
    else:
        part = _bytes(values, hashes)
    if len(nulls):
        part.tags[nulls] = KeyTag.NULL
        part.words[nulls] = 0
    return part


_NONE: Mask = np.zeros(0, dtype=np.bool_)


def _tagged(tag: KeyTag, words: Words) -> KeyPart:
    return KeyPart(np.full(len(words), tag, dtype=np.uint8), words)


def _numbers(values: AnyArray, kind: pa.DataType) -> npt.NDArray[np.generic]:
    """Values as numpy of their own, nulls as 0; writeable or not."""
    cast = values if values.type == kind else values.cast(kind)
    return np.asarray(filled(cast, 0))


def _integers(values: AnyArray, kind: pa.DataType) -> KeyPart:
    words = np.array(_numbers(values, kind)).view(np.uint64)
    part = _tagged(KeyTag.INT, words)
    if kind == pa.uint64():
        part.tags[words >> np.uint64(63) == 1] = KeyTag.UINT
    return part


def _floats(values: AnyArray) -> KeyPart:
    with np.errstate(invalid="ignore"):  # of a NaN that signals, too
        numbers = np.asarray(_numbers(values, pa.float64()), dtype=np.float64) + 0.0
        whole = (np.floor(numbers) == numbers) & (np.abs(numbers) <= EXACT_FLOAT_INT_MAX)
        integers = np.where(whole, numbers, 0).astype(np.int64).view(np.uint64)
    words = np.where(whole, integers, numbers.view(np.uint64))
    words[np.isnan(numbers)] = _NAN
    return KeyPart(np.where(whole, KeyTag.INT, KeyTag.FLOAT).astype(np.uint8), words)


def _bytes(values: AnyArray, hashes: Words | None) -> KeyPart:
    if pa.types.is_decimal(values.type):
        values = values.view(pa.binary(values.type.byte_width))
    data = filled(values.cast(pa.large_binary()), b"")
    tags = np.full(len(data), KeyTag.BYTES, dtype=np.uint8)
    return KeyPart(tags, hash_bytes(data) if hashes is None else _words_of(hashes, tags), data)


def hash_bytes(values: AnyArray) -> Words:
    """A 64-bit hash of each value, eight bytes of all values at a time.

    Runs are sorted by it: another one is another format of runs (S9).
    """
    count = len(values)
    buffers = values.buffers()
    offsets = raw(buffers[1], np.int64)[values.offset : values.offset + count + 1]
    starts, sizes = offsets[:-1], np.diff(offsets)
    hashes = sizes.astype(np.uint64) * _PRIME
    if count == 0 or buffers[2] is None:
        return hashes
    memory = raw(buffers[2], np.uint8)
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + _WORD_BYTES, np.uint8)
    padded[: last - first] = memory[first:last]
    # A word at every byte: strides of 1 over items of 8 bytes.
    words: Words = np.ndarray((last - first + 1,), np.dtype("<u8"), padded, strides=(1,))
    shortest, longest = int(sizes.min()), min(int(sizes.max()), _HASHED_BY_WORDS_MAX)
    for at in range(0, longest, _WORD_BYTES):
        rows: Slots | slice = slice(None) if at < shortest else np.flatnonzero(sizes > at)
        tails = _TAILS[np.minimum(sizes[rows] - at, _WORD_BYTES)]
        mixed = (hashes[rows] ^ (words[starts[rows] - first + at] & tails)) * _PRIME
        hashes[rows] = mixed ^ (mixed >> _HALF)
    for row in np.flatnonzero(sizes > _HASHED_BY_WORDS_MAX):
        value = memory[starts[row] : starts[row] + sizes[row]]
        digest = hashlib.blake2b(value.tobytes(), digest_size=_WORD_BYTES).digest()
        hashes[row] = int.from_bytes(digest, "little")
    return hashes


def combined_hashes(parts: tuple[KeyPart, ...]) -> Words:
    """A 64-bit hash of keys of one or more columns, well mixed in its high bits."""
    hashes = np.zeros(len(parts[0].words), np.uint64)
    for part in parts:
        mixed = (hashes ^ part.words ^ (part.tags.astype(np.uint64) << np.uint64(56))) * _PRIME
        hashes = (mixed ^ (mixed >> _HALF)) * _PRIME
    return hashes


def _words_of(hashes: Words, tags: Bytes) -> Words:
    """The words of keys of one column: the inverse of `combined_hashes`."""
    mixed = hashes * _INVERSE
    mixed ^= mixed >> _HALF
    return mixed * _INVERSE ^ (tags.astype(np.uint64) << np.uint64(56))


def parts_joined(parts: Seq[KeyPart]) -> KeyPart:
    """The values of all parts, one after the other."""
    data = None
    if any(part.data is not None for part in parts):
        data = pa.concat_arrays([_data_of(part) for part in parts])
    tags = np.concatenate([part.tags for part in parts])
    return KeyPart(tags, np.concatenate([part.words for part in parts]), data)


def _data_of(part: KeyPart) -> AnyArray:
    if part.data is not None:
        return part.data
    empty: AnyArray = pa.repeat(pa.scalar(b"", pa.large_binary()), len(part.words))
    return empty


def parts_equal(mine: KeyPart, other: KeyPart) -> Mask:
    """Which values are equal, place by place."""
    same: Mask = (mine.words == other.words) & (mine.tags == other.tags)
    if mine.data is not None and other.data is not None:
        places = np.flatnonzero(same & (mine.tags == KeyTag.BYTES))
        equal: Any = pc.equal(taken(mine.data, places), taken(other.data, places))
        same[places] = np.asarray(equal, dtype=np.bool_)
    return same


def restored(part: KeyPart, kind: pa.DataType) -> AnyArray:
    """Canonical values as an Arrow array of a ledger's type; the inverse of `canonical`.

    Numbers of a float column must be exact as Float64 (`inexact` says which are not). Integers of
    both signs beyond Int64 come as Decimal128, the only type that holds them.
    """
    nulls = part.tags == KeyTag.NULL
    if pa.types.is_null(kind):
        return all_null(len(nulls), kind)
    if pa.types.is_integer(kind):
        return _restored_integers(part, nulls)
    if pa.types.is_floating(kind):
        bits = part.words.view(np.float64)
        whole = part.tags == KeyTag.INT
        numbers = np.where(whole, part.words.view(np.int64).astype(np.float64), bits)
        return as_array(numbers, mask=nulls)
    if pa.types.is_boolean(kind):
        return as_array(part.words != 0, mask=nulls)
    if pa.types.is_temporal(kind):
        signed = part.words.view(np.int64)
        if kind.bit_width == 32:
            return as_array(signed.astype(np.int32), mask=nulls).view(kind)
        return as_array(signed, mask=nulls).view(kind)
    data = part.data
    if data is None:
        return all_null(len(nulls), kind)
    present = data if not nulls.any() else taken(data, as_array(np.arange(len(nulls)), nulls))
    if pa.types.is_decimal(kind):
        return present.cast(pa.binary(kind.byte_width)).view(kind)
    return present.cast(kind)


def _restored_integers(part: KeyPart, nulls: Mask) -> AnyArray:
    signed = part.words.view(np.int64)
    if not (part.tags == KeyTag.UINT).any():
        return as_array(signed, mask=nulls)
    if not ((part.tags == KeyTag.INT) & (signed < 0)).any():
        return as_array(part.words, mask=nulls)
    wide = pa.decimal128(20, 0)
    unsigned = pa.array(part.words, mask=part.tags != KeyTag.UINT).cast(wide)
    return pc.coalesce(unsigned, pa.array(signed, mask=part.tags != KeyTag.INT).cast(wide))


def inexact(tags: Bytes, words: Words) -> Mask:
    """Which values would change as Float64: integers above 2^53, unsigned ones above 2^63."""
    signed = words.view(np.int64)
    large = (signed > EXACT_FLOAT_INT_MAX) | (signed < -EXACT_FLOAT_INT_MAX)
    wide: Mask = (tags == KeyTag.UINT) | ((tags == KeyTag.INT) & large)
    return wide


__all__ = [
    "KeyPart",
    "KeyTag",
    "canonical",
    "combined_hashes",
    "hash_bytes",
    "inexact",
    "parts_equal",
    "parts_joined",
    "restored",
]
