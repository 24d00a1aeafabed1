"""Random values that are functions of a seed, a number and a field: nothing is drawn in an order.

So what is made for a number is the same whoever makes it, and in whatever batch. The mixing is
SplitMix64's finalizer; all arithmetic is of integers, and gives the same on every machine.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Bits = NDArray[np.uint64]

BOUND_MAX: Final = 2**32
"""Bounds of `below` are not larger: the product with 32 random bits must fit into 64."""

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_WORD: Final = 8
_LETTERS: Final = np.frombuffer(b"abcdefghijklmnopqrstuvwxyzaeinot", np.uint8)


class Draws:
    """Values for each of `numbers`, which are not negative. `field` names what is drawn."""

    def __init__(self, seed: int, numbers: Numbers) -> None:
        self._seed = np.uint64(seed)
        self._counted = numbers.astype(np.uint64) * _STEP

    def bits(self, field: int) -> Bits:
        """64 random bits for each number."""
        return _mixed(self._counted + _key(self._seed, field))

    def below(self, field: int, bound: int | Numbers) -> Numbers:
        """An integer from 0 to `bound` - 1, which is at least 1 and at most `BOUND_MAX`."""
        high = self.bits(field) >> np.uint64(32)
        bounds = np.asarray(bound).astype(np.uint64)
        return ((high * bounds) >> np.uint64(32)).astype(np.int64)

    def letters(self, field: int, shortest: int, longest: int) -> "pa.Array[Any]":
        """A text of lower-case letters; lengths are even between the two, both included."""
        rows = len(self._counted)
        lengths = shortest + self.below(field, longest - shortest + 1)
        words = np.empty((rows, -(-longest // _WORD)), "<u8")
        base = self.bits(field + 1)
        for column in range(words.shape[1]):
            words[:, column] = _mixed(base + _times(column))
        letters = _LETTERS[words.view(np.uint8) & np.uint8(31)]
        flat = letters[np.arange(letters.shape[1]) < lengths[:, None]]
        offsets = np.zeros(rows + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        buffers = pa.py_buffer(offsets.data), pa.py_buffer(np.ascontiguousarray(flat).data)
        texts: Any = pa.LargeStringArray.from_buffers(rows, *buffers)
        short: pa.Array[Any] = texts.cast(pa.string())
        return short


def _key(seed: np.uint64, field: int) -> Bits:
    """Where the values of a field begin: an array of one, as numbers alone warn when they wrap."""
    return _mixed(_mixed(np.full(1, seed) + _STEP) + _times(field + 1))


def _times(count: int) -> Bits:
    return np.full(1, count, np.uint64) * _STEP


def _mixed(bits: Bits) -> Bits:
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))


__all__ = ["BOUND_MAX", "Bits", "Draws", "Numbers"]
