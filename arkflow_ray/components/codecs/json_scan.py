"""The proof of `json_flat` as one compiled loop: it looks at each byte once, and reads numbers.

Importing this module imports numba and compiles the loop: seconds for the first process of a
machine, about one for later ones, which find it in numba's cache. `compiled_scan` knows when.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

_QUOTE, _BACKSLASH, _SPACE, _MINUS, _PLUS, _DOT, _ZERO = b'"\\ -+.0'
_EXPONENT, _LOWER = b"e "
_INT, _TEXT, _FLOAT, _BOOL = range(4)
_DIGITS_MAX = 19
"""More of them are no int64, and so many fit a uint64."""

_WORDS = np.frombuffer(b"truefalse", np.uint8)
_LARGEST = np.uint64(2**63 - 1)

_SIGNATURE = (
    "boolean(Array(uint8, 1, 'C', readonly=True), int64[::1], int64[::1],"
    " Array(uint8, 1, 'C', readonly=True), int64[::1], int64[::1], int64[::1],"
    " int64[:,::1], int64[:,:,::1])"
)


@numba.njit(cache=True, nogil=True)
def _digits(data: npt.NDArray[np.uint8], at: int, end: int) -> int:
    """Behind the digits that begin at a place."""
    while at < end and np.uint8(data[at] - _ZERO) <= 9:
        at += 1
    return at


@numba.njit(cache=True, nogil=True)
def _number(data: npt.NDArray[np.uint8], at: int, end: int) -> int:
    """Behind the JSON number that begins at a place; -1 if none does."""
    if at < end and data[at] == _MINUS:
        at += 1
    whole = _digits(data, at, end)
    if whole == at or (data[at] == _ZERO and whole > at + 1):
        return -1
    at = whole
    if at < end and data[at] == _DOT:
        at = _digits(data, at + 1, end)
        if at == whole + 1:
            return -1
    if at < end and data[at] | _LOWER == _EXPONENT:
        at += 1
        if at < end and (data[at] == _MINUS or data[at] == _PLUS):
            at += 1
        power = _digits(data, at, end)
        return -1 if power == at else power
    return at


@numba.njit(cache=True, nogil=True)
def _integer(data: npt.NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """An int64 that begins at a place, and the place behind it; -1 if none does."""
    negative = at < end and data[at] == _MINUS
    first = at + 1 if negative else at
    value = np.uint64(0)
    at = first
    while at < end:
        digit = np.uint8(data[at] - _ZERO)
        if digit > 9:
            break
        value = value * np.uint64(10) + np.uint64(digit)
        at += 1
    count = at - first
    if count == 0 or count > _DIGITS_MAX or (count > 1 and data[first] == _ZERO):
        return 0, -1
    if value > _LARGEST + np.uint64(negative):
        return 0, -1
    number: Any = np.int64(value)
    return (-number if negative else number), at


@numba.njit(cache=True, nogil=True)
def _is_at(
    data: npt.NDArray[np.uint8], at: int, expected: npt.NDArray[np.uint8], low: int, high: int
) -> bool:
    """Whether the bytes `low` to `high - 1` of `expected` are at a place."""
    for i in range(high - low):  # noqa: SIM110
        if data[at + i] != expected[low + i]:
            return False
    return True


@numba.njit(cache=True, nogil=True)
def _truth(data: npt.NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """1 for `true`, 0 for `false`, and the place behind it; -1 if neither begins there."""
    for truth in (1, 0):
        low, high = (0, 4) if truth else (4, 9)
        if at + high - low <= end and _is_at(data, at, _WORDS, low, high):
            return truth, at + high - low
    return 0, -1


@numba.njit(_SIGNATURE, cache=True, nogil=True)
def scan(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    due: npt.NDArray[np.uint8],
    edges: npt.NDArray[np.int64],
    kinds: npt.NDArray[np.int64],
    slots: npt.NDArray[np.int64],
    values: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
) -> bool:
    """Whether each line is as the layout says; see `compiled_scan.Scan`."""
    fields = len(kinds)
    for row in range(len(starts)):
        at, end = starts[row], ends[row]
        for field in range(fields + 1):
            low, high = edges[field], edges[field + 1]
            if at + high - low > end or not _is_at(data, at, due, low, high):
                return False
            at += high - low
            if field == fields:
                break
            kind, slot, first, value = kinds[field], slots[field], at, 0
            if kind == _TEXT:
                while at < end and data[at] != _QUOTE:
                    if data[at] < _SPACE or data[at] == _BACKSLASH:
                        return False
                    at += 1
            elif kind == _INT:
                value, at = _integer(data, at, end)
            elif kind == _FLOAT:
                at = _number(data, at, end)
            else:
                value, at = _truth(data, at, end)
            if at < 0:
                return False
            if slot >= 0:
                if kind in (_INT, _BOOL):
                    values[slot, row] = value
                else:
                    places[slot, 0, row], places[slot, 1, row] = first, at
        if at != end:
            return False
    return True


__all__ = ["scan"]
