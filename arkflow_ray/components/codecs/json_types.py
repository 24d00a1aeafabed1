"""The field types that JSON rows have been seen to have, and how a new value widens them.

Pure data and pure functions: no parsing, no columns. A type only ever widens: null to any type,
int to float, different scalars to string, a scalar beside an array to a list. An object beside a
scalar or an array is refused: the first kind wins. Integers are exact: outside [-2^63, 2^63) they
are refused, and so are those above 2^53 in magnitude where the field has become float.

Values are those of `json_text`: numbers keep the text of their token.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import pyarrow as pa

from arkflow_kernel.limits import EXACT_FLOAT_INT_MAX, INT64_MAX, INT64_MIN

DEPTH_MAX: Final = 64
"""Nested arrays and objects in a row: enough for real data, far from any recursion limit."""

FIELDS_MAX: Final = 4_096
"""Fields of one object type. Rows that use keys as data would let the schema grow for ever."""


class RowError(ValueError):
    """Why a row is bad. A reason, without the row's position."""


class IntText(str):
    """The token of an integer."""

    __slots__ = ()


class FloatText(str):
    """The token of a number with a fraction or an exponent."""

    __slots__ = ()


class Scalar(Enum):
    """Types without parts. The value is the name in positions and in `types:`."""

    NULL = "null"
    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    STRING = "string"


@dataclass(frozen=True, slots=True)
class ListType:
    """An array; `item` is the type that all its elements fit."""

    item: "JsonType"


@dataclass(frozen=True, slots=True)
class StructType:
    """An object; fields in the order of their first appearance. `fields` is never mutated."""

    fields: Mapping[str, "JsonType"]


JsonType = Scalar | ListType | StructType

NO_FIELDS: Final = StructType({})


def widen(known: JsonType, value: Any, depth: int = 0) -> JsonType:
    """The narrowest type that holds both; `known` itself, the same object, if it holds `value`.

    RowError if no type does.
    """
    if value is None:
        return known
    if isinstance(value, dict):
        return _widen_struct(known, value, depth)
    if isinstance(value, list):
        return _widen_list(known, value, depth)
    kind = _kind_of(value)
    if isinstance(known, ListType):
        item = widen(known.item, value, depth + 1)
        return known if item is known.item else ListType(item)
    if isinstance(known, StructType):
        raise RowError(f"a {kind.value} where the field has held objects")
    if known is Scalar.FLOAT and kind is Scalar.INT and not _exact_as_float(value):
        raise RowError(f"integer {value} in a field that holds floats would lose digits")
    return _JOINED[known, kind]


def admit(known: StructType, row: dict[str, Any], fixed: frozenset[str]) -> StructType:
    """`known` widened by a row. Fields named in `fixed` keep their type.

    RowError if the row does not fit; then nothing of it counts.
    """
    widened = widen(known, row)
    if widened is known:
        return known
    assert isinstance(widened, StructType)
    for name in fixed:
        if widened.fields[name] != known.fields[name]:
            raise RowError(
                f"field '{name}' does not fit its fixed type {type_text(known.fields[name])}"
            )
    # An integer that came before the float which widened its field must fit the float, too.
    widen(widened, row)
    return widened


def arrow_type(kind: JsonType) -> pa.DataType:
    """The column type. All fields are nullable."""
    if isinstance(kind, ListType):
        return pa.list_(arrow_type(kind.item))
    if isinstance(kind, StructType):
        return pa.struct([pa.field(name, arrow_type(t)) for name, t in kind.fields.items()])
    return _ARROW[kind]


def arrow_schema(root: StructType) -> pa.Schema:
    """The schema of a batch of rows."""
    return pa.schema([pa.field(name, arrow_type(t)) for name, t in root.fields.items()])


def to_json(kind: JsonType) -> Any:
    """As part of a position. Fields are pairs, so that their order survives any JSON library."""
    if isinstance(kind, ListType):
        return ["list", to_json(kind.item)]
    if isinstance(kind, StructType):
        return ["struct", [[name, to_json(t)] for name, t in kind.fields.items()]]
    return kind.value


def from_json(form: Any) -> JsonType:
    """The inverse of `to_json`. ValueError if `form` is something else."""
    try:
        if isinstance(form, str):
            return Scalar(form)
        tag, inner = form
        if tag == "list":
            return ListType(from_json(inner))
        if tag == "struct":
            return StructType({str(name): from_json(t) for name, t in inner})
    except (TypeError, ValueError) as error:
        raise ValueError(f"not a JSON type: {form!r}") from error
    raise ValueError(f"not a JSON type: {form!r}")


def restored_root(form: Any, fixed: StructType) -> StructType:
    """The types of a position; those that the configuration fixes now win. ValueError if bad."""
    if not isinstance(form, list):
        raise ValueError(f"not a list of field types: {form!r}")
    try:
        fields: dict[str, JsonType] = {str(name): from_json(kind) for name, kind in form}
    except TypeError as error:
        raise ValueError(f"not a list of field types: {form!r}") from error
    return StructType({**fields, **fixed.fields})


def parse_type(text: str) -> JsonType:
    """A type as users write it in `types:`, such as `int` or `list<string>`. ValueError else."""
    name = text.strip()
    if name.startswith("list<") and name.endswith(">"):
        return ListType(parse_type(name[5:-1]))
    if name not in _NAMES:
        raise ValueError(
            f"'{text}' is not a type; use bool, int, float, string or list<...> of one of them"
        )
    return _NAMES[name]


def type_text(kind: JsonType) -> str:
    """For messages; for fixed types the inverse of `parse_type`."""
    if isinstance(kind, ListType):
        return f"list<{type_text(kind.item)}>"
    if isinstance(kind, StructType):
        return "object"
    return kind.value


def _widen_struct(known: JsonType, value: dict[str, Any], depth: int) -> JsonType:
    if known is Scalar.NULL:
        base: StructType = NO_FIELDS
    elif isinstance(known, StructType):
        base = known
    else:
        raise RowError(f"an object where the field has held {_told(known)}")
    _check_depth(depth)
    changed: dict[str, JsonType] | None = None
    for name, inner in value.items():
        old = base.fields.get(name)
        try:
            new = widen(Scalar.NULL if old is None else old, inner, depth + 1)
        except RowError as error:
            raise RowError(f"field '{name}': {error}") from None
        if new is not old:
            changed = dict(base.fields) if changed is None else changed
            changed[name] = new
    if changed is None:
        return base
    if len(changed) > FIELDS_MAX:
        raise RowError(f"more than {FIELDS_MAX} different fields in one object")
    return StructType(changed)


def _widen_list(known: JsonType, value: list[Any], depth: int) -> JsonType:
    if isinstance(known, StructType):
        raise RowError("an array where the field has held objects")
    _check_depth(depth)
    old = known.item if isinstance(known, ListType) else known
    item = old
    for inner in value:
        item = widen(item, inner, depth + 1)
    return known if isinstance(known, ListType) and item is old else ListType(item)


def _check_depth(depth: int) -> None:
    if depth >= DEPTH_MAX:
        raise RowError(f"nested deeper than {DEPTH_MAX} levels")


def _kind_of(value: Any) -> Scalar:
    if isinstance(value, bool):
        return Scalar.BOOL
    if isinstance(value, IntText):
        # Twenty characters hold every 64-bit integer; Python refuses to parse endless ones.
        if len(value) > 20 or not INT64_MIN <= int(value) <= INT64_MAX:
            raise RowError(f"integer {value[:40]} is outside [-2^63, 2^63)")
        return Scalar.INT
    if isinstance(value, FloatText):
        if float(value) in _INFINITE:
            raise RowError(f"number {value[:40]} is too large for a float")
        return Scalar.FLOAT
    return Scalar.STRING


def _exact_as_float(value: IntText) -> bool:
    return -EXACT_FLOAT_INT_MAX <= int(value) <= EXACT_FLOAT_INT_MAX


def _told(kind: JsonType) -> str:
    return "arrays" if isinstance(kind, ListType) else f"{type_text(kind)}s"


def _join(known: Scalar, kind: Scalar) -> Scalar:
    if known in (Scalar.NULL, kind):
        return kind
    return Scalar.FLOAT if {known, kind} == {Scalar.INT, Scalar.FLOAT} else Scalar.STRING


_JOINED: Final = {(a, b): _join(a, b) for a in Scalar for b in Scalar}
_INFINITE: Final = (float("inf"), float("-inf"))
_ARROW: Final[dict[Scalar, pa.DataType]] = {
    Scalar.NULL: pa.null(),
    Scalar.BOOL: pa.bool_(),
    Scalar.INT: pa.int64(),
    Scalar.FLOAT: pa.float64(),
    Scalar.STRING: pa.string(),
}
_NAMES: Final[dict[str, Scalar]] = {
    "bool": Scalar.BOOL,
    "int": Scalar.INT,
    "float": Scalar.FLOAT,
    "string": Scalar.STRING,
}

__all__ = [
    "DEPTH_MAX",
    "FIELDS_MAX",
    "NO_FIELDS",
    "FloatText",
    "IntText",
    "JsonType",
    "ListType",
    "RowError",
    "Scalar",
    "StructType",
    "admit",
    "arrow_schema",
    "arrow_type",
    "from_json",
    "parse_type",
    "restored_root",
    "to_json",
    "type_text",
    "widen",
]
