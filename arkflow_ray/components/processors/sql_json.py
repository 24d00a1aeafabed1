"""`json_get` and its relatives as DataFusion functions: the Python package has none of them.

Each takes JSON text and one key: a field's name, or an index of a list. What is absent, of another
type, or not JSON at all is null, as in ArkFlow. `json_get` yields text: a string as itself,
anything else as compact JSON, so that calls nest and casts work. Integers are exact.

This is the one place of the `sql` processor where Python runs per row.
"""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from arkflow_kernel.ports import JsonValue

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


class _Absent:
    """Nothing at that key; JSON's own null is None."""


_ABSENT = _Absent()
_Found = JsonValue | _Absent


def _no_constant(name: str) -> JsonValue:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _parsed(text: str | None) -> _Found:
    if text is None:
        return _ABSENT
    try:
        value: JsonValue = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return _ABSENT
    return value


def _member(text: str | None, key: str | None) -> _Found:
    if key is None:
        return _ABSENT
    value = _parsed(text)
    if isinstance(value, dict):
        return value.get(key, _ABSENT)
    if isinstance(value, list) and key.isascii() and key.isdigit() and int(key) < len(value):
        return value[int(key)]
    return _ABSENT


def _storable(text: str) -> str | None:
    """None for text with half a surrogate pair, which UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text


def _as_text(value: _Found) -> str | None:
    if value is None or isinstance(value, _Absent):
        return None
    if isinstance(value, str):
        return _storable(value)
    return _storable(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _as_str(value: _Found) -> str | None:
    return _storable(value) if isinstance(value, str) else None


def _as_int(value: _Found) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and _INT_MIN <= value <= _INT_MAX else None  # type: ignore[operator,return-value]


def _as_float(value: _Found) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _as_bool(value: _Found) -> bool | None:
    return value if isinstance(value, bool) else None


def _is_there(value: _Found) -> bool:
    return not isinstance(value, _Absent)


def _length(value: _Found) -> int | None:
    return len(value) if isinstance(value, dict | list) else None


def _of_member(read: Callable[[_Found], Any], kind: pa.DataType) -> Callable[..., "pa.Array[Any]"]:
    def evaluate(texts: "pa.Array[Any]", keys: "pa.Array[Any]") -> "pa.Array[Any]":
        pairs = zip(texts.to_pylist(), keys.to_pylist(), strict=True)
        return pa.array([read(_member(text, key)) for text, key in pairs], kind)

    return evaluate


def _json_length(texts: "pa.Array[Any]") -> "pa.Array[Any]":
    return pa.array([_length(_parsed(text)) for text in texts.to_pylist()], pa.uint64())


_BY_KEY: dict[str, tuple[Callable[[_Found], Any], pa.DataType]] = {
    "json_get": (_as_text, pa.string()),
    "json_get_str": (_as_str, pa.string()),
    "json_get_int": (_as_int, pa.int64()),
    "json_get_float": (_as_float, pa.float64()),
    "json_get_bool": (_as_bool, pa.bool_()),
    "json_contains": (_is_there, pa.bool_()),
}

JSON_FUNCTIONS: dict[str, tuple[Callable[..., "pa.Array[Any]"], int, pa.DataType]] = {
    **{name: (_of_member(read, kind), 2, kind) for name, (read, kind) in _BY_KEY.items()},
    "json_length": (_json_length, 1, pa.uint64()),
}
"""By name: the function over arrays, the number of its (text) arguments, and the result's type."""

__all__ = ["JSON_FUNCTIONS"]
