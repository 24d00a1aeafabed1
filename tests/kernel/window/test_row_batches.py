"""Rows of any schema, picked and brought to one schema (S8, B.4)."""

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from arkflow_kernel.window.row_batches import brought_to, classes, joined, rows_at, united

STRUCT = pa.array([{"a": "x"}, None, {"a": None}, {"a": "y"}])

COLUMNS: dict[str, Any] = {
    "null": pa.nulls(4),
    "bool": pa.array([True, None, False, True]),
    "int64": pa.array([2**53 + 1, None, -(2**63), 2**63 - 1]),
    "uint64": pa.array([2**64 - 1, None, 0, 1], pa.uint64()),
    "float64": pa.array([float("inf"), None, -0.0, 0.1]),
    "float16": pa.array([1.5, None, 2, 3], pa.float16()),
    "decimal": pa.array([decimal.Decimal("1.50"), None, None, None], pa.decimal128(38, 2)),
    "decimal256": pa.array([decimal.Decimal("1.5"), None, None, None], pa.decimal256(60, 1)),
    "text": pa.array(["a", None, "", "ü"]),
    "text view": pa.array(["a", None, "", "c" * 30], pa.string_view()),
    "binary": pa.array([b"\x00", None, b"", b"d"]),
    "binary view": pa.array([b"a", None, b"c" * 30, b"d"], pa.binary_view()),
    "fixed": pa.array([b"ab", None, b"cd", b"ef"], pa.binary(2)),
    "date": pa.array([datetime.date(1969, 1, 1), None, None, None]),
    "time": pa.array([1, None, 3, 4], pa.time64("ns")),
    "duration": pa.array([1, None, 3, 4], pa.duration("s")),
    "zoned": pa.array([1, None, 3, 4], pa.timestamp("ns", "Asia/Tokyo")),
    "interval": pa.array([(1, 2, 3), None, None, None], pa.month_day_nano_interval()),
    "list": pa.array([[1], None, [], [2, None]]),
    "list view": pa.array([[1], None, [], [2, 3]], pa.list_view(pa.int64())),
    "fixed list": pa.array([[1, 2], None, [3, 4], [2, 3]], pa.list_(pa.int64(), 2)),
    "struct": STRUCT,
    "struct with views": STRUCT.cast(pa.struct([("a", pa.string_view())])),
    "map": pa.array([[("a", 1)], None, [], [("b", 2)]], pa.map_(pa.string(), pa.int64())),
    "dictionary": pa.array(["a", None, "c", "a"]).dictionary_encode(),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int32()), pa.array(["a", "b"])),
    "union": pa.UnionArray.from_sparse(
        pa.array([0, 1, 0, 1], pa.int8()), [pa.array([1, 2, 3, 4]), pa.array(list("abcd"))]
    ),
    "uuid": pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([b"a" * 16, None, b"b" * 16, b"c" * 16], pa.binary(16))
    ),
}
"""A column of four rows of each type that a row may have."""


def values_of(column: Any) -> list[Any]:
    """Values that can be compared: nanoseconds have no Python type, -0.0 equals 0.0."""
    if pa.types.is_time(column.type) or pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return [repr(each) for each in column.to_pylist()]


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_of_every_type_are_picked_in_any_order(name: str) -> None:
    column = COLUMNS[name]
    batch = pa.record_batch({"c": column})
    picked = rows_at(batch, np.array([3, 0, 1, 1]))
    assert picked.schema == batch.schema
    assert values_of(picked.column(0)) == [values_of(column)[i] for i in (3, 0, 1, 1)]
    assert rows_at(batch, np.zeros(0, np.int64)).num_rows == 0
    neighbours = rows_at(batch, np.array([1, 2]))
    assert values_of(neighbours.column(0)) == values_of(column)[1:3]


@pytest.mark.parametrize("name", COLUMNS)
def test_batches_that_lack_a_column_of_any_type_go_into_one(name: str) -> None:
    with_it = pa.record_batch({"id": [1, 2, 3, 4], "c": COLUMNS[name]})
    without = pa.record_batch({"id": [5]})
    ((schema, members),) = classes([without.schema, with_it.schema])
    assert members == [0, 1]
    both = joined([brought_to(each, schema) for each in (without, with_it)])
    assert both.schema.field("c").type == COLUMNS[name].type
    assert both.column("id").to_pylist() == [5, 1, 2, 3, 4]
    assert values_of(both.column("c"))[1:] == values_of(COLUMNS[name])


def _type(known: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    both = united(pa.schema([("c", known)]), pa.schema([("c", other)]))
    back = united(pa.schema([("c", other)]), pa.schema([("c", known)]))
    assert (both is None) == (back is None)
    return None if both is None else both.field("c").type


@pytest.mark.parametrize(
    ("known", "other", "expected"),
    [
        (pa.int64(), pa.float64(), pa.float64()),
        (pa.int8(), pa.int32(), pa.int64()),
        (pa.uint8(), pa.uint32(), pa.uint64()),
        (pa.uint64(), pa.int64(), pa.decimal128(20, 0)),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.null(), pa.string(), pa.string()),
        (pa.string(), pa.string_view(), pa.large_string()),
        (pa.binary(), pa.large_binary(), pa.large_binary()),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.string()),
        (pa.list_(pa.int64()), pa.list_(pa.float64()), pa.list_(pa.float64())),
        (pa.list_(pa.null()), pa.list_(pa.string()), pa.list_(pa.string())),
        (
            pa.struct([("a", pa.int64())]),
            pa.struct([("a", pa.float64()), ("b", pa.string())]),
            pa.struct([("a", pa.float64()), ("b", pa.string())]),
        ),
        (pa.int64(), pa.string(), None),
        (pa.bool_(), pa.int64(), None),
        (pa.timestamp("s"), pa.timestamp("ms"), None),
        (pa.list_(pa.int64()), pa.int64(), None),
        (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.string())]), None),
        (pa.decimal128(20, 0), pa.float64(), pa.float64()),
        (pa.decimal128(20, 1), pa.float64(), None),
    ],
)
def test_types_go_into_one_by_a_rule_that_knows_no_order(
    known: pa.DataType, other: pa.DataType, expected: pa.DataType | None
) -> None:
    found = _type(known, other)
    if expected is None:
        assert found is None
        return
    assert found == expected
    kind: Any = known
    empty = pa.RecordBatch.from_arrays([pa.nulls(2, kind)], names=["c"])
    assert brought_to(empty, pa.schema([("c", found)])).column(0).type == expected


def test_values_survive_what_is_widened() -> None:
    unsigned = pa.record_batch({"c": pa.array([2**64 - 1, None], pa.uint64())})
    signed = pa.record_batch({"c": pa.array([-(2**63)], pa.int64())})
    structs = pa.record_batch({"c": [[{"a": 1}], None, []]})
    wide = pa.record_batch({"c": [[{"a": 0.5, "b": "x"}]]})
    for one, other, values in (
        (unsigned, signed, [2**64 - 1, None, -(2**63)]),
        (structs, wide, [[{"a": 1.0, "b": None}], None, [], [{"a": 0.5, "b": "x"}]]),
    ):
        both = united(one.schema, other.schema)
        assert both is not None
        batch = joined([brought_to(each, both) for each in (one, other)])
        assert batch.column(0).to_pylist() == values


def test_a_schema_joins_the_first_that_it_fits() -> None:
    text, number = pa.schema([("x", pa.string())]), pa.schema([("x", pa.int64())])
    other, real = pa.schema([("y", pa.int8())]), pa.schema([("x", pa.float64())])
    found = classes([text, number, other, real])
    assert [members for _, members in found] == [[0, 2], [1, 3]]
    assert [schema.names for schema, _ in found] == [["x", "y"], ["x"]]
    assert found[1][0].field("x").type == pa.float64()


def test_two_columns_of_one_name_stay_two() -> None:
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["a"])], names=["x", "x"])
    once = pa.record_batch({"x": [0.5]})
    both = united(once.schema, twice.schema)
    assert both is not None
    assert [str(each.type) for each in both] == ["double", "string"]
    assert brought_to(once, both).columns[1].to_pylist() == [None]


def test_a_column_that_some_rows_lack_may_be_null() -> None:
    needed = pa.schema([pa.field("x", pa.int64(), nullable=False)], {"a": "b"})
    both = united(needed, pa.schema([pa.field("y", pa.int64(), nullable=False)]))
    assert both is not None
    assert [each.nullable for each in both] == [True, True]
    assert both.metadata == {b"a": b"b"}


def test_texts_beyond_what_their_offsets_reach_get_larger_ones() -> None:
    batch = pa.record_batch({"t": ["ab"], "b": [b"cd"], "n": [1]})
    both = joined([batch, batch], limit_bytes=2 * batch.nbytes - 1)
    assert [str(kind) for kind in both.schema.types] == ["large_string", "large_binary", "int64"]
    assert both.to_pylist() == batch.to_pylist() * 2
    assert joined([batch, batch], limit_bytes=2 * batch.nbytes).schema == batch.schema
