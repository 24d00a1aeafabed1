"""The fastest reading of lines: flat objects that all have the same fields in the same order.

Not a parser: the first line gives a layout, and numpy proves that every line has it. In a block
without backslashes and control characters each `"` begins or ends a text, so the places of the
quotes, the bytes right beside them and the bytes of the keys determine every line except for its
other values; those must be whole JSON tokens of their type. Whatever is not proved is refused, and
then `json_fast` reads the block. Null, missing, nested and escaped values are left to it.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_ray.components.codecs.json_fast import are_exact
from arkflow_ray.components.codecs.json_types import JsonType, Scalar, StructType

Places = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]

FIELDS_MAX: Final = 64
"""Above this the places of the quotes take more memory than the lines."""


def read_flat(
    text: memoryview,
    starts: Places,
    ends: Places,
    schema: pa.Schema,
    root: StructType,
    kept: Sequence[str] | None = None,
) -> pa.RecordBatch | None:
    """The rows of lines of UTF-8, or None where nothing is proved.

    `starts` and `ends` are the places of each line's `{` and behind its `}`; between lines there
    is one line break. `text` is not referred to afterwards. `kept` are the columns to make, None
    for all of them; the others are proved all the same.
    """
    wanted = list(root.fields) if kept is None else kept
    if not 0 < len(root.fields) <= FIELDS_MAX or not all(map(_is_flat, root.fields.values())):
        return None
    data = np.frombuffer(text, np.uint8)
    if np.count_nonzero(data < _SPACE) != len(starts) - 1 or (data == _BACKSLASH).any():
        return None
    names = _names(bytes(text[: ends[0]]))
    if names is None or sorted(names) != sorted(root.fields):
        return None
    kinds = [root.fields[name] for name in names]
    slots = 2 * len(names) + 2 * kinds.count(Scalar.STRING)
    quotes = np.flatnonzero(data == _QUOTE)
    if len(quotes) != len(starts) * slots:
        return None
    places = np.ascontiguousarray(quotes.reshape(len(starts), slots).T)
    columns: dict[str, Any] = {}
    layout = _Layout(data, places, kinds)
    for name, kind, value in zip(names, kinds, layout.values(names, starts, ends), strict=False):
        if value is None:
            return None
        if kind is Scalar.STRING and name not in wanted:
            continue  # its quotes are the proof
        column = _READ[kind](text, data, *value)
        if column is None:
            return None
        columns[name] = column
    fields = [schema.field(name) for name in wanted]
    return pa.RecordBatch.from_arrays([columns[name] for name in wanted], schema=pa.schema(fields))


class _Layout:
    """Where keys and values are, if all lines are as the first one."""

    def __init__(self, data: _Bytes, places: Places, kinds: list[Any]) -> None:
        self._data = data
        self._places = places
        self._kinds = kinds
        self._colon_gap = int(data[places[1, 0] + 2] == _SPACE)
        second = 4 if kinds[0] is Scalar.STRING else 2
        has_second = len(kinds) > 1
        self._comma_gap = int(has_second and data[places[second, 0] - 1] == _SPACE)

    def values(self, names: list[str], starts: Places, ends: Places) -> Any:
        """For each field the places of its values and behind them; None, and no more, if not so."""
        slot, before = 0, b""
        comma = b"," + b" " * self._comma_gap
        if not (self._places[0] == starts + 1).all():
            yield None
            return
        for i, (name, kind) in enumerate(zip(names, self._kinds, strict=True)):
            key, closing = self._places[slot], self._places[slot + 1]
            if not self._is_key(key, before, name.encode()):
                yield None
                return
            before = comma
            slot += 4 if kind is Scalar.STRING else 2
            first = closing + 2 + self._colon_gap
            # The comma itself is looked at with the key behind it.
            end = self._places[slot] - len(comma) if i + 1 < len(names) else ends - 1
            if not (end > first).all():
                yield None
                return
            if kind is Scalar.STRING:
                begin, stop = self._places[slot - 2], self._places[slot - 1]
                if not (begin == first).all() or not (stop + 1 == end).all():
                    yield None
                    return
                first, end = begin + 1, stop
            yield first, end

    def _is_key(self, key: Places, before: bytes, name: bytes) -> bool:
        """Whether around each quote in `key` are `before`, the name, its end and the colon."""
        expected = before + b'"' + name + b'":' + b" " * self._colon_gap
        first = key - len(before)
        if int(first[0]) < 0 or int(first[-1]) + len(expected) > len(self._data):
            return False
        # One gather of the whole key a line: a view of every run of that many bytes.
        runs = np.ndarray(
            (len(self._data) - len(expected) + 1,), f"V{len(expected)}", self._data, strides=(1,)
        )
        return runs[first].tobytes() == expected * len(key)


def _is_flat(kind: JsonType) -> bool:
    return isinstance(kind, Scalar) and kind in _READ


def _names(line: bytes) -> list[str] | None:
    try:
        pairs = json.loads(line, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return None
    return [name for name, _ in pairs]


def _spread(text: memoryview, first: Places, end: Places, valid: Any = None) -> Any:
    """The texts from `first` to `end`, and between two of them what lies there; not copied."""
    pairs = np.empty(2 * len(first), np.int32)
    pairs[0::2], pairs[1::2] = first, end
    edges: Any = pairs
    count = len(pairs) - 1
    return pa.StringArray.from_buffers(count, pa.py_buffer(edges), pa.py_buffer(text), valid)


def _slices(text: memoryview, first: Places, end: Places) -> Any:
    """The texts from `first` to `end`, copied."""
    values: Any = pa.array(np.arange(0, 2 * len(first) - 1, 2, dtype=np.int32))
    return _spread(text, first, end).take(values)


def _strings(text: memoryview, data: _Bytes, first: Places, end: Places) -> Any:  # noqa: ARG001
    return _slices(text, first, end)


def _integers(text: memoryview, data: _Bytes, first: Places, end: Places) -> Any:
    lead, start = _lead(data, first)
    if not (_is_digit(lead) & ((lead != _ZERO) | (end - start == 1))).all():
        return None
    # What lies between two values is null to the cast, which passes over it: nothing is copied.
    every_second: Any = np.full(len(first) // 4 + 1, 0b0101_0101, np.uint8)
    spread = _cast(_spread(text, first, end, pa.py_buffer(every_second)), pa.int64())
    if spread is None:
        return None
    values: Any = np.frombuffer(spread.buffers()[1], np.int64)[: len(spread)]
    return pa.array(np.ascontiguousarray(values[0::2]))


def _floats(text: memoryview, data: _Bytes, first: Places, end: Places) -> Any:
    lead, start = _lead(data, first)
    second = data.take(start + 1, mode="clip")
    whole_zero = (end - start == 1) | (second == _DOT) | ((second | _LOWER) == _EXPONENT)
    if not (_is_digit(lead) & ((lead != _ZERO) | whole_zero)).all():
        return None
    if not _is_digit(data.take(end - 1, mode="clip")).all():
        return None
    tokens = _slices(text, first, end)
    packed = np.frombuffer(tokens.buffers()[2], np.uint8)[: int((end - first).sum())]
    # Each token ends with a digit, so what follows a point is in the same token.
    if not _is_digit(packed[np.flatnonzero(packed == _DOT) + 1]).all():
        return None
    floats = _cast(tokens, pa.float64())
    return floats if floats is not None and are_exact(floats) else None


def _booleans(text: memoryview, data: _Bytes, first: Places, end: Places) -> Any:  # noqa: ARG001
    truth = data.take(first, mode="clip") == _TRUE[0]
    if not (end - first == np.where(truth, len(_TRUE), len(_FALSE))).all():
        return None
    for i, (yes, no) in enumerate(zip(_TRUE + b" ", _FALSE, strict=True)):
        byte = data.take(first + i, mode="clip")
        if not (np.where(truth, (byte == yes) | (i == len(_TRUE)), byte == no)).all():
            return None
    return pa.array(truth)


def _lead(data: _Bytes, first: Places) -> tuple[_Bytes, Places]:
    """The first character of each number behind its minus sign, and where it is."""
    lead = data.take(first, mode="clip")
    minus = lead == _MINUS
    if not minus.any():
        return lead, first
    start = first + minus
    return data.take(start, mode="clip"), start


def _is_digit(bytes_: _Bytes) -> npt.NDArray[np.bool_]:
    digit: npt.NDArray[np.bool_] = (bytes_ >= _ZERO) & (bytes_ <= _NINE)
    return digit


def _cast(tokens: Any, kind: pa.DataType) -> Any:
    try:
        return tokens.cast(kind)
    except pa.ArrowInvalid:
        # Out of range, or no number at all.
        return None


_QUOTE, _SPACE, _BACKSLASH = b'" \\'
_MINUS, _DOT, _ZERO, _NINE, _EXPONENT, _LOWER = b"-.09e "
_TRUE, _FALSE = b"true", b"false"
_READ: Final[dict[Any, Any]] = {
    Scalar.STRING: _strings,
    Scalar.INT: _integers,
    Scalar.FLOAT: _floats,
    Scalar.BOOL: _booleans,
}

__all__ = ["FIELDS_MAX", "Places", "read_flat"]
