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

_BLOCK = 8
_WIDE = 16
"""Bytes that are looked at together; without a way out in between they are one instruction."""

_NOWHERE = np.uint64(2**64 - 1)
_ONE, _TEN = np.uint64(1), np.uint64(10)

# Places are unsigned: with a sign each of them could count from the end, which is looked at.
_Place = np.uint64

_BYTES = "Array(uint8, 1, 'C', readonly=True)"
_SIGNATURE = (
    f"boolean({_BYTES}, int64[::1], int64[::1], {_BYTES}, int64[::1], int64[::1], int64[::1],"
    " int64[:,::1], int64[:,:,::1])"
)


@numba.njit(cache=True, nogil=True)
def _digits(data: npt.NDArray[np.uint8], at: _Place, end: _Place) -> _Place:
    """Behind the digits that begin at a place."""
    while at < end and np.uint8(data[at] - _ZERO) <= 9:
        at += _ONE
    return at


@numba.njit(cache=True, nogil=True)
def _number(data: npt.NDArray[np.uint8], at: _Place, end: _Place) -> _Place:
    """Behind the JSON number that begins at a place; nowhere if none does."""
    if at < end and data[at] == _MINUS:
        at += _ONE
    whole = _digits(data, at, end)
    if whole == at or (data[at] == _ZERO and whole > at + _ONE):
        return _NOWHERE
    at = whole
    if at < end and data[at] == _DOT:
        at = _digits(data, at + _ONE, end)
        if at == whole + _ONE:
            return _NOWHERE
    if at < end and data[at] | _LOWER == _EXPONENT:
        at += _ONE
        if at < end and (data[at] == _MINUS or data[at] == _PLUS):
            at += _ONE
        power = _digits(data, at, end)
        return _NOWHERE if power == at else power
    return at


@numba.njit(cache=True, nogil=True)
def _integer(data: npt.NDArray[np.uint8], at: _Place, end: _Place) -> tuple[int, _Place]:
    """An int64 that begins at a place, and the place behind it; nowhere if none does."""
    negative = at < end and data[at] == _MINUS
    first = at + _ONE if negative else at
    value = np.uint64(0)
    at = first
    while at < end:
        digit = np.uint8(data[at] - _ZERO)
        if digit > 9:
            break
        value = value * _TEN + np.uint64(digit)
        at += _ONE
    count = at - first
    if count == 0 or count > _DIGITS_MAX or (count > 1 and data[first] == _ZERO):
        return 0, _NOWHERE
    if value > _LARGEST + np.uint64(negative):
        return 0, _NOWHERE
    number: Any = np.int64(value)
    return (-number if negative else number), at


@numba.njit(cache=True, nogil=True)
def _is_at(
    data: npt.NDArray[np.uint8],
    at: _Place,
    expected: npt.NDArray[np.uint8],
    low: _Place,
    size: _Place,
) -> bool:
    """Whether `size` bytes of `expected` from `low` on are at a place."""
    if size < np.uint64(_BLOCK):
        for i in range(size):  # noqa: SIM110
            if data[at + np.uint64(i)] != expected[low + np.uint64(i)]:
                return False
        return True
    last = size - np.uint64(_BLOCK)
    begin = np.uint64(0)
    differ = np.uint8(0)
    while begin < last:
        for i in range(_BLOCK):
            differ |= data[at + begin + np.uint64(i)] ^ expected[low + begin + np.uint64(i)]
        begin += np.uint64(_BLOCK)
    # The last block may overlap the one before it.
    for i in range(_BLOCK):
        differ |= data[at + last + np.uint64(i)] ^ expected[low + last + np.uint64(i)]
    return bool(differ == 0)


@numba.njit(cache=True, nogil=True)
def _quote(data: npt.NDArray[np.uint8], at: _Place, end: _Place) -> _Place:
    """The first quote from a place on; nowhere if something that is escaped comes before."""
    while at + np.uint64(_WIDE) <= end:
        found = np.uint8(0)
        for i in range(_WIDE):
            byte = data[at + np.uint64(i)]
            found |= np.uint8(byte == _QUOTE) | np.uint8(byte < _SPACE)
            found |= np.uint8(byte == _BACKSLASH)
        if found:
            break
        at += np.uint64(_WIDE)
    while at < end and data[at] != _QUOTE:
        if data[at] < _SPACE or data[at] == _BACKSLASH:
            return _NOWHERE
        at += _ONE
    return at


@numba.njit(cache=True, nogil=True)
def _truth(data: npt.NDArray[np.uint8], at: _Place, end: _Place) -> tuple[int, _Place]:
    """1 for `true`, 0 for `false`, and the place behind it; nowhere if neither begins there."""
    for truth in (1, 0):
        low, size = (np.uint64(0), np.uint64(4)) if truth else (np.uint64(4), np.uint64(5))
        if at + size <= end and _is_at(data, at, _WORDS, low, size):
            return truth, at + size
    return 0, _NOWHERE


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
        at, end = np.uint64(starts[row]), np.uint64(ends[row])
        for field in range(fields + 1):
            low = np.uint64(edges[field])
            size = np.uint64(edges[field + 1]) - low
            if at + size > end or not _is_at(data, at, due, low, size):
                return False
            at += size
            if field == fields:
                break
            kind, slot, first, value = kinds[field], slots[field], at, 0
            if kind == _TEXT:
                at = _quote(data, at, end)
            elif kind == _INT:
                value, at = _integer(data, at, end)
            elif kind == _FLOAT:
                at = _number(data, at, end)
            else:
                value, at = _truth(data, at, end)
            if at == _NOWHERE:
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
