"""The fastest reading of lines: flat objects that all have the same fields in the same order.

Not a parser: the first line gives a layout, and numpy proves that every line has it. In a block
without backslashes and control characters each `"` begins or ends a key or a text. If every line
has those of the layout, with the bytes that are due around them, and there are no more of them in
the block, only its other values are left; those must be whole JSON tokens of their type. Whatever
is not proved is refused, and then `json_fast` reads the block. Null, missing, nested and escaped
values are left to it.

Where there is a compiled loop for it (`compiled_scan`), that looks at each byte once instead,
proves the same, and reads integers on its way.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_ray.components.codecs.compiled_scan import SCANNED, Scan
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
    scan: Scan | None = None,
) -> pa.RecordBatch | None:
    """The rows of lines of UTF-8, or None where nothing is proved.

    `starts` and `ends` are the places of each line's `{` and behind its `}`; between lines there
    is one line break. `text` is not referred to afterwards. `kept` are the columns to make, None
    for all of them; the others are proved all the same. `scan` is the compiled loop, if there is
    one.
    """
    wanted = list(root.fields) if kept is None else kept
    if not 0 < len(root.fields) <= FIELDS_MAX or not all(map(_is_flat, root.fields.values())):
        return None
    line = bytes(text[: ends[0]])
    names = _names(line)
    if names is None or sorted(names) != sorted(root.fields):
        return None
    layout = _Layout(line, names, root)
    block = _Block(text, np.frombuffer(text, np.uint8), starts, ends)
    columns = (
        _proved(layout, block, wanted) if scan is None else _scanned(layout, block, wanted, scan)
    )
    if columns is None:
        return None
    fields = [schema.field(name) for name in wanted]
    return pa.RecordBatch.from_arrays([columns[name] for name in wanted], schema=pa.schema(fields))


class _Block(NamedTuple):
    """The lines: their text, the same as bytes, where each begins and ends."""

    text: memoryview
    data: _Bytes
    starts: Places
    ends: Places


def _proved(layout: "_Layout", block: _Block, wanted: Sequence[str]) -> dict[str, Any] | None:
    """The columns, if numpy finds every line to be as the layout says."""
    text, data, starts, ends = block
    if np.count_nonzero(data < _SPACE) != len(starts) - 1 or (data == _BACKSLASH).any():
        return None
    values = layout.values(data, starts, ends)
    if values is None:
        return None
    columns: dict[str, Any] = {}
    for name, kind, value in zip(layout.names, layout.kinds, values, strict=True):
        if kind is Scalar.STRING and name not in wanted:
            continue  # its quotes are the proof
        column = _READ[kind](text, data, *value)
        if column is None:
            return None
        columns[name] = column
    return columns


def _scanned(
    layout: "_Layout", block: _Block, wanted: Sequence[str], scan: Scan
) -> dict[str, Any] | None:
    """The columns, if the compiled loop finds every line to be as the layout says."""
    text, data, starts, ends = block
    # A float is read from its places, and that is the proof that it is exact.
    kept = [kind is Scalar.FLOAT or name in wanted for name, kind in layout.fields()]
    slots = np.where(kept, np.cumsum(kept) - 1, -1)
    values = np.empty((sum(kept), len(starts)), np.int64)
    places = np.empty((sum(kept), 2, len(starts)), np.int64)
    if not scan(data, starts, ends, *layout.due(), slots, values, places):
        return None
    columns: dict[str, Any] = {}
    for (name, kind), slot in zip(layout.fields(), slots.tolist(), strict=True):
        if slot < 0:
            continue
        if kind is Scalar.INT:
            columns[name] = pa.array(values[slot])
        elif kind is Scalar.BOOL:
            columns[name] = pa.array(values[slot] != 0)
        else:
            columns[name] = _READ[kind](text, data, *places[slot])
        if columns[name] is None:
            return None
    return columns


class _Layout:
    """How every line looks, if all are as the first one: fields in order, blanks behind signs.

    Each line has `slots` quotes: two around each key, two around each text.
    """

    def __init__(self, line: bytes, names: list[str], root: StructType) -> None:
        self.names = names
        self.kinds = [root.fields[name] for name in names]
        self._keys = [b'"' + name.encode() + b'":' for name in names]
        self._slots = 2 * len(names) + 2 * self.kinds.count(Scalar.STRING)
        gap = b" " * line[1 + len(self._keys[0]) :].startswith(b" ")
        second = line.find(self._keys[1]) if len(names) > 1 else 0
        self._comma = b", " if second > 0 and line[second - 1] == _SPACE else b","
        quotes = [b'"' * (kind is Scalar.STRING) for kind in self.kinds]
        before = [b"{", *(quote + self._comma for quote in quotes[:-1])]
        self._leads = [len(each) for each in before]
        fields = zip(before, self._keys, quotes, strict=True)
        self._due = [*(b + key + gap + quote for b, key, quote in fields), quotes[-1] + b"}"]

    def fields(self) -> Iterator[tuple[str, JsonType]]:
        """Name and type of each field, in the order of the lines."""
        return zip(self.names, self.kinds, strict=True)

    def due(self) -> tuple[_Bytes, Places, Places]:
        """What stands before each value and behind the last, joined; its edges; the kinds."""
        edges = np.cumsum([0, *map(len, self._due)])
        kinds = np.array([SCANNED.index(kind) for kind in self.kinds], np.int64)
        return np.frombuffer(b"".join(self._due), np.uint8), edges, kinds

    def values(
        self, data: _Bytes, starts: Places, ends: Places
    ) -> list[tuple[Places, Places]] | None:
        """For each field the places of its values and behind them; None if some line is not so.

        With the text that is due around each key, all quotes of a line are found: nothing that is
        a key or a text hides in another value.
        """
        keys = self._key_places(data, starts, ends)
        if keys is None:
            return None
        found: list[tuple[Places, Places]] = []
        for i, kind in enumerate(self.kinds):
            is_text, due = kind is Scalar.STRING, self._due[i]
            begin = keys[i] - self._leads[i]
            if not _is_at(data, begin, due):
                return None
            last = i + 1 == len(keys)
            first = begin + len(due)
            end = (ends - 1 if last else keys[i + 1] - len(self._comma)) - is_text
            if not (end >= first if is_text else end > first).all():
                return None
            if last and is_text and not (data.take(end, mode="clip") == _QUOTE).all():
                return None
            found.append((first, end))
        return found

    def _key_places(self, data: _Bytes, starts: Places, ends: Places) -> list[Places] | None:
        """Where the keys of each field begin; None if some line is not so.

        If there are just the commas between fields, they tell: there are fewer than quotes.
        """
        count, fields = len(starts), len(self._keys)
        is_quote = data == _QUOTE
        if np.count_nonzero(is_quote) != count * self._slots:
            return None
        if fields == 1:
            return [starts + 1]
        commas = np.flatnonzero(data == _COMMA)
        if len(commas) == count * (fields - 1):
            each = np.ascontiguousarray(commas.reshape(count, fields - 1).T)
            inside = (each[0] > starts).all() and (each[-1] < ends).all()
            return [starts + 1, *(each + len(self._comma))] if inside else None
        quotes = np.flatnonzero(is_quote).reshape(count, self._slots)
        sizes = [4 if kind is Scalar.STRING else 2 for kind in self.kinds]
        opening = np.cumsum([0, *sizes[:-1]])
        places = [np.ascontiguousarray(quotes[:, slot]) for slot in opening]
        return places if (places[0] == starts + 1).all() else None


def _is_at(data: _Bytes, first: Places, expected: bytes) -> bool:
    """Whether these bytes begin at each of the places, which rise."""
    if int(first[0]) < 0 or int(first[-1]) + len(expected) > len(data):
        return False
    # One gather of all of them a line: a view of every run of that many bytes.
    runs = np.ndarray((len(data) - len(expected) + 1,), f"V{len(expected)}", data, strides=(1,))
    return runs[first].tobytes() == expected * len(first)


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


_QUOTE, _SPACE, _BACKSLASH, _COMMA = b'" \\,'
_MINUS, _DOT, _ZERO, _NINE, _EXPONENT, _LOWER = b"-.09e "
_TRUE, _FALSE = b"true", b"false"
_READ: Final[dict[Any, Any]] = {
    Scalar.STRING: _strings,
    Scalar.INT: _integers,
    Scalar.FLOAT: _floats,
    Scalar.BOOL: _booleans,
}

__all__ = ["FIELDS_MAX", "Places", "read_flat"]
