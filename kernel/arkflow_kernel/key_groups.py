"""Key groups: FNV-1a 64 of the key bytes, modulo `max_parallelism`, for whole batches (G3).

FNV-1a goes byte by byte, so the loops here go over byte positions and each step takes all rows
that have a byte there. Values that repeat are hashed once where finding them costs less.
"""

from collections.abc import Sequence as Seq
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.key_encoding import (
    NULL_BYTES,
    FixedKey,
    IndexedKey,
    KeyColumnError,
    VariableKey,
    bare,
    encode_key,
    key_kind,
)

Hashes = npt.NDArray[np.uint64]

_BASIS: Final = 0xCBF29CE484222325
_PRIME: Final = 0x100000001B3
_MASK: Final = 2**64 - 1

_LONG_BYTES: Final = 32
"""Mean length from which looking for equal texts costs less than hashing them all (measured)."""

_FEW_ROWS: Final = 16
"""So few rows are hashed faster one by one: a step over an array has a fixed cost."""


def key_hashes(columns: "Seq[pa.Array[Any] | pa.ChunkedArray[Any]]") -> Hashes:
    """The hash of every row: of one column's key bytes, or of those of several (G3).

    Several columns hash as the concatenation of each one's bytes behind their length (4 bytes,
    big-endian). Columns have equal lengths. Raises `KeyColumnError` for a type that is no key.
    """
    if not columns:
        raise ValueError("a key has at least one column")
    arrays = [
        each.combine_chunks() if isinstance(each, pa.ChunkedArray) else each for each in columns
    ]
    if len(arrays) == 1:
        return _hashes_of_one(arrays[0])
    state = _fresh(len(arrays[0]))
    for array in arrays:
        encoded = encode_key(array)
        flat = encoded.flat() if isinstance(encoded, IndexedKey) else encoded
        _fold_lengths(state, flat)
        _fold(state, flat)
    return state


def key_groups(
    batch: pa.RecordBatch, key_fields: Seq[str], max_parallelism: int
) -> npt.NDArray[np.int64]:
    """The key group of every row, in [0, max_parallelism); without key fields all are in group 0.

    Raises `KeyColumnError` for a field that is missing, ambiguous, or of a type that is no key.
    """
    if not key_fields:
        return np.zeros(batch.num_rows, np.int64)
    hashes = key_hashes([key_column(batch, name) for name in key_fields])
    return (hashes % np.uint64(max_parallelism)).astype(np.int64)


def key_column(batch: pa.RecordBatch, name: str) -> "pa.Array[Any]":
    """The batch's one column of this name. Raises `KeyColumnError`."""
    found = batch.schema.get_all_field_indices(name)
    if not found:
        names = ", ".join(f"'{each}'" for each in batch.schema.names) or "none"
        raise KeyColumnError(
            f"partition key field '{name}' is missing from batch; its fields are: {names}. "
            "Keep the field in every processor before the edge, or name another key"
        )
    if len(found) > 1:
        raise KeyColumnError(
            f"partition key field '{name}' stands {len(found)} times in batch; rename all but one"
        )
    column = batch.column(found[0])
    try:
        key_kind(column)
    except KeyColumnError as error:
        raise KeyColumnError(f"partition key field '{name}' {error}") from error
    return column


def _hashes_of_one(column: "pa.Array[Any]") -> Hashes:
    encoded = encode_key(column)
    if isinstance(encoded, VariableKey) and _may_repeat(encoded):
        # Nulls stay out of the dictionary: Arrow forgets there that one of a view column is null.
        repeated = encode_key(pc.dictionary_encode(bare(column)))
        assert isinstance(repeated, IndexedKey)
        if len(repeated.values) * 2 <= len(repeated):
            encoded = repeated
    if not isinstance(encoded, IndexedKey):
        return _hashed(encoded)
    if len(encoded.values) > len(encoded):
        return _hashed(encoded.flat())
    return _hashed(encoded.values)[encoded.indices]


def _may_repeat(key: VariableKey) -> bool:
    return len(key) > _FEW_ROWS and int(key.lengths.sum()) >= _LONG_BYTES * len(key)


def _hashed(key: FixedKey | VariableKey) -> Hashes:
    state = _fresh(len(key))
    _fold(state, key)
    return state


def _fresh(rows: int) -> Hashes:
    return np.full(rows, _BASIS, np.uint64)


def _fold_lengths(state: Hashes, key: FixedKey | VariableKey) -> None:
    """Take the length of each row's key bytes into its hash, in place."""
    if isinstance(key, VariableKey):
        lengths = key.lengths
    else:
        width = len(key.digits)
        lengths = np.full(len(key), width, np.int64)
        if key.nulls is not None:
            lengths[key.nulls] = len(NULL_BYTES)
    for shift in (24, 16, 8, 0):
        _step(state, ((lengths >> shift) & 0xFF).astype(np.uint8))


def _fold(state: Hashes, key: FixedKey | VariableKey) -> None:
    """Take each row's key bytes into its hash, in place."""
    if isinstance(key, VariableKey):
        _fold_variable(state, key)
        return
    kept = None if key.nulls is None else _folded(state[key.nulls], NULL_BYTES)
    for digit in key.digits:
        _step(state, digit)
    if kept is not None:
        state[key.nulls] = kept


def _fold_variable(state: Hashes, key: VariableKey) -> None:
    if not len(key):
        return
    lengths, places = key.lengths, key.starts.copy()
    shortest, longest = int(lengths.min()), int(lengths.max())
    order = None
    if shortest != longest:  # longest last: the rows that have a byte at p are a suffix
        small = longest < 2**16
        order = np.argsort(lengths.astype(np.uint16) if small else lengths, kind="stable")
        lengths, places = lengths[order], places[order]
    work = state if order is None else state[order]
    first = 0
    for position in range(longest):
        if position >= shortest:
            first = int(np.searchsorted(lengths, position, side="right"))
        if len(lengths) - first <= _FEW_ROWS:
            break
        _step(work[first:], key.data.take(places[first:]))
        places += 1
    else:
        first = len(lengths)
    for row in range(first, len(lengths)):
        start = int(places[row])
        rest = key.data[start : start + int(lengths[row]) - position]
        work[row] = _folded_one(int(work[row]), rest.tobytes())
    if order is not None:
        state[order] = work


def _step(state: Hashes, digits: npt.NDArray[np.uint8]) -> None:
    state ^= digits
    state *= np.uint64(_PRIME)


def _folded(state: Hashes, text: bytes) -> Hashes:
    for digit in text:
        state ^= np.uint64(digit)
        state *= np.uint64(_PRIME)
    return state


def _folded_one(state: int, text: bytes) -> int:
    for digit in text:
        state = ((state ^ digit) * _PRIME) & _MASK
    return state


__all__ = ["Hashes", "key_column", "key_groups", "key_hashes"]
