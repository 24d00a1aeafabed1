"""Rows as JSON: the bytes of arrow-json; DataFusion's writer, which is arrow-json, is the check."""

import datetime
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import datafusion
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arkflow_kernel.errors import ComponentError
from arkflow_ray.components.codecs.json_encode import encode_lines, encode_rows

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def ints(kind: pa.DataType) -> st.SearchStrategy[int]:
    bits = kind.bit_width
    if pa.types.is_signed_integer(kind):
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return st.integers(0, 2**bits - 1)


SCALARS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *((kind, ints(kind)) for kind in (pa.int8(), pa.int64(), pa.uint16(), pa.uint64())),
    (pa.float64(), st.floats()),
    (pa.float64(), st.floats(-1e12, 1e12).map(lambda x: round(x, 3))),
    (pa.float32(), st.floats(width=32)),
    (pa.bool_(), st.booleans()),
    (pa.string(), TEXT),
    (pa.large_string(), TEXT),
    (pa.string_view(), TEXT),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["a", 'b"', "é"])),
    (pa.binary(), st.binary(max_size=9)),
    (pa.large_binary(), st.binary(max_size=9)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.decimal128(12, 3), st.decimals(-(10**8), 10**8, places=3)),
    (pa.date32(), st.dates()),
    *(
        (pa.timestamp(unit, zone), st.integers(-(10**12), 4 * 10**12))
        for unit in ("ms", "us", "ns")
        for zone in (None, "UTC", "+02:00", "Europe/Berlin")
    ),
    (pa.timestamp("s"), st.integers(-(10**9), 10**10)),
    (pa.time32("ms"), st.integers(0, 86_399_999)),
    (pa.time64("us"), st.integers(0, 86_399_999_999)),
    (pa.duration("us"), st.integers(-(10**15), 10**15)),
]


@st.composite
def columns(draw: st.DrawFn, rows: int, depth: int = 0) -> "pa.Array[Any]":
    kind = draw(st.sampled_from(["scalar"] * 4 + (["list", "struct", "map"] if depth < 2 else [])))
    empty = draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
    mask = pa.array(empty, pa.bool_())
    if kind == "struct":
        names = draw(st.lists(TEXT, min_size=1, max_size=3, unique=True))
        fields = [draw(columns(rows, depth + 1)) for _ in names]
        return pa.StructArray.from_arrays(fields, names, mask=mask)
    if kind in {"list", "map"}:
        sizes = draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))
        offsets = [0]
        for size in sizes:
            offsets.append(offsets[-1] + size)
        values = draw(columns(offsets[-1], depth + 1))
        at = pa.array(offsets, pa.int32())
        if kind == "list":
            return pa.ListArray.from_arrays(at, values, mask=mask)
        keys = pa.array([f'k"{i}' for i in range(offsets[-1])], pa.string())
        # The stub takes offsets of 64 bits; a map's have 32.
        maps: pa.Array[Any] = pa.MapArray.from_arrays(at, keys, values, mask=mask)  # type: ignore[call-overload]
        return maps
    type_, strategy = draw(st.sampled_from(SCALARS))
    drawn = draw(st.lists(strategy, min_size=rows, max_size=rows))
    given = [None if e else v for v, e in zip(drawn, empty, strict=True)]
    scalars: pa.Array[Any] = pa.array(given, type_)
    return scalars


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(0, 5))
    # Arrow's C interface ends a name at a NUL, and DataFusion takes no name twice.
    names = draw(st.lists(TEXT, min_size=1, max_size=4, unique_by=lambda n: n.partition("\0")[0]))
    arrays = [draw(columns(rows)) for _ in names]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def by_datafusion(batch: pa.RecordBatch, folder: Path) -> bytes:
    path = folder / "rows.json"
    path.unlink(missing_ok=True)
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    context.read_batch(batch).write_json(str(path))
    return path.read_bytes()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(batch=batches())
def test_the_text_is_that_of_datafusions_writer_byte_for_byte(
    batch: pa.RecordBatch, tmp_path: Path
) -> None:
    assert encode_lines(batch) == by_datafusion(batch, tmp_path)


@settings(max_examples=60, deadline=None)
@given(batch=batches(), start=st.integers(0, 5))
def test_rows_are_the_lines_without_their_ends(batch: pa.RecordBatch, start: int) -> None:
    part = batch.slice(min(start, batch.num_rows))
    rows = encode_rows(part)
    texts = cast("list[bytes]", rows.to_pylist())
    assert rows.type == pa.binary()
    assert len(rows) == part.num_rows
    assert rows.null_count == 0
    assert b"".join(row + b"\n" for row in texts) == encode_lines(part)
    for row in texts:
        json.loads(row)


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, None], pa.int64(), [b'{"a":1}', b"{}"]),
        ([-(2**63), 2**63 - 1], pa.int64(), [b'{"a":%d}' % -(2**63), b'{"a":%d}' % (2**63 - 1)]),
        ([2**64 - 1], pa.uint64(), [b'{"a":18446744073709551615}']),
        ([True, False], pa.bool_(), [b'{"a":true}', b'{"a":false}']),
        ([1.0, -0.0, 0.1, 1e16], pa.float64(),
         [b'{"a":1.0}', b'{"a":-0.0}', b'{"a":0.1}', b'{"a":1.0e16}']),
        ([math.nan, math.inf, -math.inf], pa.float64(), [b'{"a":null}'] * 3),
        (["é\n\x00\"\\\x7f"], pa.string(), ['{"a":"é\\n\\u0000\\"\\\\\x7f"}'.encode()]),
        ([b"\x00\xff"], pa.binary(), [b'{"a":"00ff"}']),
        ([Decimal("-0.05")], pa.decimal128(9, 2), [b'{"a":-0.05}']),
        ([datetime.datetime(2026, 1, 2, 3, 4, 5)], pa.timestamp("us"),
         [b'{"a":"2026-01-02T03:04:05"}']),
        ([1500], pa.timestamp("ms", "UTC"), [b'{"a":"1970-01-01T00:00:01.500Z"}']),
        ([datetime.date(2026, 1, 2)], pa.date32(), [b'{"a":"2026-01-02"}']),
        ([datetime.time(1, 2, 3)], pa.time64("us"), [b'{"a":"01:02:03"}']),
        ([[1, None], [], None], pa.list_(pa.int64()), [b'{"a":[1,null]}', b'{"a":[]}', b"{}"]),
        ([{"x": None, "y": 1}], pa.struct([("x", pa.int8()), ("y", pa.int8())]),
         [b'{"a":{"y":1}}']),
        ([[("k", 1), ("n", None)]], pa.map_(pa.string(), pa.int64()), [b'{"a":{"k":1}}']),
        ([None, None], pa.null(), [b"{}", b"{}"]),
    ],
)  # fmt: skip
def test_each_type_has_its_text(
    values: list[Any], kind: pa.DataType, expected: list[bytes]
) -> None:
    batch = pa.record_batch({"a": pa.array(values, kind)})
    assert encode_rows(batch).to_pylist() == expected


def test_columns_come_in_schema_order_and_names_are_escaped() -> None:
    batch = pa.record_batch({"z": [1], 'a"': [2], "b": [3]})
    assert encode_lines(batch) == b'{"z":1,"a\\"":2,"b":3}\n'


def test_a_batch_without_columns_has_an_empty_object_per_row() -> None:
    structs = cast(pa.StructArray, pa.array([{}, {}], pa.struct([])))
    rows = pa.RecordBatch.from_struct_array(structs)
    assert encode_lines(rows) == b"{}\n{}\n"
    assert encode_rows(rows).to_pylist() == [b"{}", b"{}"]


def test_a_batch_without_rows_has_no_text() -> None:
    batch = pa.record_batch({"a": pa.array([], pa.int64())})
    assert encode_lines(batch) == b""
    assert encode_rows(batch).to_pylist() == []


def test_metadata_that_is_not_text_is_no_obstacle() -> None:
    batch = pa.record_batch({"a": [1]}).replace_schema_metadata({b"\xff": b"\xfe"})
    assert encode_lines(batch) == b'{"a":1}\n'


def test_a_map_with_keys_that_are_not_text_is_refused_with_the_columns() -> None:
    batch = pa.record_batch({"m": pa.array([[(1, 2)]], pa.map_(pa.int64(), pa.int64()))})
    with pytest.raises(ComponentError, match=r"(?s)cannot be written as JSON.*UTF8 keys.*m map<"):
        encode_lines(batch)


def test_a_slice_of_a_struct_in_a_struct_is_written() -> None:
    values = [{"y": {"x": i, "l": [{"z": {"w": i}}]}} for i in range(3)]
    batch = pa.record_batch({"a": values}).slice(1, 1)
    assert encode_lines(batch) == b'{"a":{"y":{"x":1,"l":[{"z":{"w":1}}]}}}\n'
    inner = pa.array([[v, v] for v in values])
    assert encode_rows(pa.record_batch({"a": inner}).slice(2)).to_pylist() == [
        b'{"a":[%b,%b]}' % ((b'{"y":{"x":2,"l":[{"z":{"w":2}}]}}',) * 2)
    ]
