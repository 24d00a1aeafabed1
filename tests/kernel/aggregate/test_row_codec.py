"""Rows as binaries come back to the bit, whatever their types and schemas (S8, S11)."""

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.aggregate.row_codec import RowSchemas, RowTypeError
from arkflow_kernel.aggregate.row_lists import packed, unpacked

MOMENT = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)

COLUMNS: dict[str, Any] = {
    "i8": pa.array([1, None, -128], pa.int8()),
    "u64": pa.array([2**64 - 1, None, 0], pa.uint64()),
    "f32": pa.array([1.5, None, -0.0], pa.float32()),
    "f64": pa.array([float("nan"), None, 1e300], pa.float64()),
    "b": pa.array([True, None, False]),
    "d128": pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("-7.00")]),
    "d256": pa.array([decimal.Decimal(10) ** 40, None, decimal.Decimal(-1)], pa.decimal256(50, 0)),
    "zoned": pa.array([MOMENT, None, MOMENT], pa.timestamp("us", "Europe/Berlin")),
    "day": pa.array([MOMENT.date(), None, MOMENT.date()], pa.date32()),
    "fixed": pa.array([b"abc", None, b"\0\0\0"], pa.binary(3)),
    "null": pa.nulls(3),
    "text": pa.array(["", None, "grün"]),
    "large": pa.array(["x" * 300, None, ""], pa.large_string()),
    "bytes": pa.array([b"\xff\0", None, b""], pa.binary()),
}
ROWS = pa.RecordBatch.from_pydict(COLUMNS)


def test_rows_of_every_flat_type_come_back_as_they_were() -> None:
    schemas = RowSchemas()
    [found] = schemas.decoded(schemas.encoded(ROWS))
    assert found.places.tolist() == [0, 1, 2]
    assert found.rows.schema.equals(ROWS.schema)
    found.rows.validate(full=True)
    assert str(found.rows.to_pydict()) == str(ROWS.to_pydict())


def test_slices_and_dictionaries_are_rows_like_others() -> None:
    schemas = RowSchemas()
    text = pa.array(["a", None, "b", "a"]).dictionary_encode()
    rows = pa.RecordBatch.from_pydict({"t": text, "n": pa.array([1, 2, 3, 4], pa.int16())})
    [found] = schemas.decoded(schemas.encoded(rows.slice(1, 2)))
    assert found.rows.to_pydict() == {"t": [None, "b"], "n": [2, 3]}


def test_rows_of_several_schemas_are_told_apart_also_by_who_has_learned_them() -> None:
    schemas = RowSchemas()
    ints = schemas.encoded(pa.RecordBatch.from_pydict({"v": pa.array([1, 2])}))
    floats = schemas.encoded(pa.RecordBatch.from_pydict({"v": pa.array([0.5])}))
    mixed: Any = pa.concat_arrays([ints, pa.nulls(1, pa.large_binary()), floats])
    other = RowSchemas()
    other.learn(schemas.told())
    assert other.told() == schemas.told()
    found = {str(each.rows.schema.types[0]): each for each in other.decoded(mixed)}
    assert found["int64"].places.tolist() == [0, 1]
    assert found["double"].places.tolist() == [3]
    assert found["double"].rows.to_pydict() == {"v": [0.5]}


@pytest.mark.parametrize("values", [[[1]], [{"a": 1}]])
def test_nested_values_are_refused_by_name(values: list[Any]) -> None:
    with pytest.raises(RowTypeError, match="the column 'v' is of type"):
        RowSchemas().encoded(pa.RecordBatch.from_pydict({"v": pa.array(values)}))


@settings(max_examples=50)
@given(st.lists(st.lists(st.binary(max_size=5), min_size=1, max_size=4), max_size=5), st.data())
def test_lists_of_rows_come_back_in_order(lists: list[list[bytes]], data: st.DataObject) -> None:
    rows = pa.array([row for each in lists for row in each], pa.large_binary())
    counts = np.array([len(each) for each in lists], np.int64)
    made: Any = packed(rows, counts)
    assert len(made) == len(lists)
    chosen = data.draw(st.lists(st.integers(0, len(lists) - 1))) if lists else []
    index = pa.array([*chosen, None], pa.int64())
    found, owners = unpacked(made.take(index))
    assert found.to_pylist() == [row for n in chosen for row in lists[n]]
    assert owners.tolist() == [i for i, n in enumerate(chosen) for _ in lists[n]]
