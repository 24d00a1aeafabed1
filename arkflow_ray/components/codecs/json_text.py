"""Exact reading of single JSON texts: the slow path, and the reference for the fast one.

Stricter than Python's reader: an object that names a key twice, `NaN`, `Infinity`, unpaired
surrogates and invalid UTF-8 are refused. Numbers keep the text of their token.
"""

import json
from typing import Any

import pyarrow as pa

from arkflow_kernel.limits import EXACT_FLOAT_INT_MAX
from arkflow_ray.components.codecs.json_types import (
    FloatText,
    IntText,
    JsonType,
    ListType,
    RowError,
    Scalar,
    StructType,
    arrow_type,
)

Row = dict[str, Any]


def parse_line(raw: bytes) -> list[Row]:
    """The one object of a line. RowError if the line holds anything else."""
    text = _text(raw)
    row, end = _parse_at(text, 0)
    if end != len(text):
        raise RowError(f"text after the object, at character {end}: one object a line")
    return [row]


def parse_payload(raw: bytes) -> list[Row]:
    """The objects of a payload, one or more or none. RowError if one of them is bad."""
    text = _text(raw)
    rows: list[Row] = []
    at = 0
    while at < len(text):
        row, at = _parse_at(text, at)
        rows.append(row)
    return rows


def build_batch(rows: list[Row], root: StructType) -> pa.RecordBatch:
    """Columns of rows that `root` has admitted. RowError for an integer that a float changes.

    The latter happens only to rows that were admitted before their field became float.
    """
    struct = _struct_column(rows, root)
    return pa.RecordBatch.from_struct_array(struct)


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8").strip(_BLANK)
    except UnicodeDecodeError as error:
        raise RowError(f"not UTF-8 at byte {error.start}") from None


def _parse_at(text: str, at: int) -> tuple[Row, int]:
    try:
        value, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise RowError(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise RowError("nested too deep to read") from None
    if not isinstance(value, dict):
        raise RowError("not a JSON object")
    while end < len(text) and text[end] in _BLANK:
        end += 1
    return value, end


def _object(pairs: list[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RowError(f"field '{twice}' stands twice in one object")
    for name, value in pairs:
        if not name.isascii():
            _check_text(name)
        if type(value) is str and not value.isascii():
            _check_text(value)
        elif type(value) is list:
            _check_list(value)
    return row


def _check_list(values: list[Any]) -> None:
    for value in values:
        if type(value) is str and not value.isascii():
            _check_text(value)
        elif type(value) is list:
            _check_list(value)


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise RowError("a text with an unpaired surrogate") from None


def _refuse_constant(name: str) -> Any:
    raise RowError(f"{name} is not JSON")


def _column(values: list[Any], kind: JsonType) -> Any:
    if isinstance(kind, StructType):
        return _struct_column(values, kind)
    if isinstance(kind, ListType):
        return _list_column(values, kind)
    return pa.array([None if v is None else _CONVERT[kind](v) for v in values], arrow_type(kind))


def _struct_column(values: list[Any], kind: StructType) -> Any:
    if not kind.fields:
        return pa.array([None if v is None else {} for v in values], pa.struct([]))
    children = [
        _column([None if v is None else v.get(name) for v in values], inner)
        for name, inner in kind.fields.items()
    ]
    absent = pa.array([v is None for v in values], pa.bool_())
    fields = [pa.field(name, arrow_type(inner)) for name, inner in kind.fields.items()]
    return pa.StructArray.from_arrays(
        children, fields=fields, mask=absent if None in values else None
    )


def _list_column(values: list[Any], kind: ListType) -> Any:
    items: list[Any] = []
    offsets: list[int | None] = []
    for value in values:
        offsets.append(None if value is None else len(items))
        if isinstance(value, list):
            items.extend(value)
        elif value is not None:
            items.append(value)
    offsets.append(len(items))
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), _column(items, kind.item), type=arrow_type(kind)
    )


def _as_float(value: str) -> float:
    number = float(value)
    if isinstance(value, IntText) and abs(int(value)) > EXACT_FLOAT_INT_MAX:
        raise RowError(f"integer {value} in a field that became float would lose digits")
    return number


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else _BOOL_TEXT[value]


_BLANK = " \t\r\n"
_BOOL_TEXT = {True: "true", False: "false"}
_CONVERT: dict[Scalar, Any] = {
    Scalar.NULL: lambda value: value,
    Scalar.BOOL: bool,
    Scalar.INT: int,
    Scalar.FLOAT: _as_float,
    Scalar.STRING: _as_text,
}
_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=IntText,
    parse_float=FloatText,
    parse_constant=_refuse_constant,
)

__all__ = ["Row", "build_batch", "parse_line", "parse_payload"]
