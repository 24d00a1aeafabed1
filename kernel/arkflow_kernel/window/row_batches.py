"""Rows of any schema: picked, put together, brought to one schema.

Which schemas go into one batch (what a window that releases its rows promises): a column that one
of them lacks is null in its rows; a column of nulls takes any type; integers of several widths
become Int64 (with a large unsigned one Decimal128), integers and floats Float64, texts or binaries
of several layouts their large one; structs and lists follow the same rule inside. Anything else
(a text and a number, times of two units) does not fit: such rows make a batch of their own.
"""

from collections import Counter
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.state.arrow_numpy import AnyArray
from arkflow_kernel.state.growing import Slots

_WIDE = pa.decimal128(20, 0)
"""Holds every integer of 64 bits, signed or not."""

_OFFSETS_MAX = 2**31 - 1
"""Bytes that a column of texts with offsets of 32 bits may have."""


def rows_at(batch: pa.RecordBatch, rows: Slots) -> pa.RecordBatch:
    """The rows at these places, in this order; neighbours without a copy."""
    if not len(rows):
        return batch.slice(0, 0)
    first = int(rows[0])
    if int(rows[-1]) - first == len(rows) - 1 and (np.diff(rows) == 1).all():
        return batch.slice(first, len(rows))
    try:
        return batch.take(rows)
    except pa.ArrowNotImplementedError:  # views and run-end encodings have no such kernel
        columns = [_column_at(column, rows) for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _column_at(column: AnyArray, rows: Slots) -> AnyArray:
    kind = column.type
    untyped: Any = column
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        text = pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
        return column.cast(text).take(rows).cast(kind)
    if pa.types.is_run_end_encoded(kind):
        plain = pc.call_function("run_end_decode", [untyped])
        options = pc.RunEndEncodeOptions(run_end_type=kind.run_end_type)
        encoded: AnyArray = pc.call_function("run_end_encode", [_taken(plain, rows)], options)
        return encoded
    return _taken(column, rows)


def _taken(column: AnyArray, rows: Slots) -> AnyArray:
    try:
        return column.take(rows)
    except pa.ArrowNotImplementedError:  # such a type inside of another: run by run
        starts = np.concatenate(([0], np.flatnonzero(np.diff(rows) != 1) + 1))
        counts = np.diff(np.append(starts, len(rows)))
        runs = zip(rows[starts].tolist(), counts.tolist(), strict=True)
        return pa.concat_arrays([column.slice(first, count) for first, count in runs])


def joined(batches: Seq[pa.RecordBatch], limit_bytes: int = _OFFSETS_MAX) -> pa.RecordBatch:
    """The rows of batches of one schema, one after the other.

    Beyond the limit texts and binaries get offsets of 64 bits: those of 32 would overflow.
    """
    if len(batches) == 1:
        return batches[0]
    if sum(batch.nbytes for batch in batches) > limit_bytes:
        schema = _schema([_roomy(field) for field in batches[0].schema], batches[0].schema)
        batches = [brought_to(batch, schema) for batch in batches]
    whole: pa.RecordBatch = pa.concat_batches(batches)  # type: ignore[attr-defined]  # no stub
    return whole


def _schema(fields: "list[pa.Field[Any]]", like: pa.Schema) -> pa.Schema:
    """A schema of these fields with the metadata of another."""
    metadata: Any = like.metadata
    return pa.schema(fields, metadata)


def _roomy(field: "pa.Field[Any]") -> "pa.Field[Any]":
    if pa.types.is_string(field.type):
        return field.with_type(pa.large_string())
    return field.with_type(pa.large_binary()) if pa.types.is_binary(field.type) else field


def nulls(count: int, kind: pa.DataType) -> AnyArray:
    """Nulls of any type, unions and dictionaries included."""
    untyped: Any = kind
    array: AnyArray = pa.nulls(count, untyped)
    return array


# --- one schema for several ----------------------------------------------------------------------


def classes(schemas: Seq[pa.Schema]) -> list[tuple[pa.Schema, list[int]]]:
    """Which schemas go into one, given in order of their first row: each joins the first that it
    fits. The one schema, and the numbers of those that go into it.
    """
    found: list[tuple[pa.Schema, list[int]]] = []
    for number, schema in enumerate(schemas):
        for place, (known, members) in enumerate(found):
            both = united(known, schema)
            if both is not None:
                found[place] = (both, [*members, number])
                break
        else:
            found.append((schema, [number]))
    return found


def united(known: pa.Schema, other: pa.Schema) -> pa.Schema | None:
    """The schema that rows of both go into, the columns of the first before those that only the
    second has; None if there is none. Columns of one name are told apart by their order.
    """
    if known.equals(other, check_metadata=True):
        return known
    fields, theirs = _by_name(known), _by_name(other)
    for key, field in theirs.items():
        mine = fields.get(key)
        if mine is None:
            fields[key] = field.with_nullable(True)
            continue
        kind = _fitting(mine.type, field.type)
        if kind is None:
            return None
        fields[key] = mine.with_type(kind).with_nullable(mine.nullable or field.nullable)
    for key, field in fields.items():
        if key not in theirs:
            fields[key] = field.with_nullable(True)
    return _schema(list(fields.values()), known)


def brought_to(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows under a schema that theirs goes into."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    places = {key: place for place, key in enumerate(_by_name(batch.schema))}
    columns: list[AnyArray] = []
    for key, field in _by_name(schema).items():
        place = places.get(key)
        if place is None:
            columns.append(nulls(batch.num_rows, field.type))
        else:
            columns.append(_cast(batch.column(place), field.type))
    if not columns:
        return batch.replace_schema_metadata(schema.metadata)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: AnyArray, kind: pa.DataType) -> AnyArray:
    if column.type == kind:
        return column
    if pa.types.is_null(column.type):
        return nulls(len(column), kind)
    return column.cast(kind, safe=False)  # a large integer may change as Float64: the rule says so


def _by_name(schema: pa.Schema) -> "dict[tuple[str, int], pa.Field[Any]]":
    """Fields by their name, and by how many of that name stand before."""
    seen = Counter[str]()
    fields = {}
    for field in schema:
        fields[field.name, seen[field.name]] = field
        seen[field.name] += 1
    return fields


def _fitting(known: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type that values of both go into; None if there is none."""
    is_ = pa.types
    if known == other or is_.is_null(other):
        return known
    if is_.is_null(known):
        return other
    if is_.is_dictionary(known) or is_.is_dictionary(other):
        return _fitting(_plain(known), _plain(other))
    for rule in (_number, _text, _struct, _list):
        kind = rule(known, other)
        if kind is not None:
            return kind
    return None


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _number(known: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    is_, both = pa.types, (known, other)
    whole = [is_.is_integer(kind) or kind == _WIDE for kind in both]
    if all(whole):
        if all(is_.is_unsigned_integer(kind) for kind in both):
            return pa.uint64()
        return _WIDE if pa.uint64() in both or _WIDE in both else pa.int64()
    floats = [is_.is_floating(kind) for kind in both]
    if any(floats) and all(w or f for w, f in zip(whole, floats, strict=True)):
        return pa.float64()
    return None


def _text(known: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    is_, both = pa.types, (known, other)
    if all(
        is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind)
        for kind in both
    ):
        return pa.large_string()
    if all(
        is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_binary_view(kind)
        for kind in both
    ):
        return pa.large_binary()
    return None


def _struct(known: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_struct(known) and pa.types.is_struct(other)):
        return None
    mine, theirs = pa.schema(list(known)), pa.schema(list(other))
    if len(set(mine.names)) < len(mine) or len(set(theirs.names)) < len(theirs):
        return None
    both = united(mine, theirs)
    return None if both is None else _castable(known, other, pa.struct(list(both)))


def _list(known: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    is_ = pa.types
    if is_.is_list(known) and is_.is_list(other):
        make: Any = pa.list_
    elif is_.is_large_list(known) and is_.is_large_list(other):
        make = pa.large_list
    else:
        return None
    kind = _fitting(known.value_type, other.value_type)
    return None if kind is None else _castable(known, other, make(kind))


def _castable(known: pa.DataType, other: pa.DataType, kind: pa.DataType) -> pa.DataType | None:
    """The type, if Arrow brings values of both to it: some inner types it cannot."""
    try:
        for each in (known, other):
            nulls(1, each).cast(kind, safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return kind


__all__ = ["brought_to", "classes", "joined", "nulls", "rows_at", "united"]
