"""Key groups: vectors, layouts, and a row-by-row reference of the hash (G3)."""

import datetime
import decimal
import fractions
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from arkflow_kernel import key_groups as key_groups_module
from arkflow_kernel.key_encoding import KeyColumnError, key_kind
from arkflow_kernel.key_groups import key_groups, key_hashes

NULL = b"null:utf8"


def fnv(text: bytes) -> int:
    """FNV-1a 64, byte by byte."""
    state = 0xCBF29CE484222325
    for byte in text:
        state = ((state ^ byte) * 0x100000001B3) % 2**64
    return state


def key_bytes(value: object, kind: Any) -> bytes:
    """The key bytes of one value of a logical type, from the text of the rule."""
    match value:
        case None:
            return NULL
        case bool():
            return b"bool:1" if value else b"bool:0"
        case str():
            return value.encode()
        case bytes():
            return value
        case int():
            return struct.pack(">Q" if value >= 2**63 else ">q", value)
        case float() if math.isnan(value):
            return bytes.fromhex("7ff8000000000000")
        case float() if value.is_integer() and abs(value) <= 2**53:
            return struct.pack(">q", int(value))
        case float():
            return struct.pack(">d", value)
        case decimal.Decimal():
            raw = int(fractions.Fraction(value) * 10**kind.scale)
            return raw.to_bytes(16 if -(2**127) <= raw < 2**127 else 32, "big", signed=True)
    raise AssertionError(value)


def reference(columns: Sequence[Sequence[object]], kinds: Sequence[pa.DataType]) -> list[int]:
    """The hash of every row, one after the other."""
    rows = []
    for row in zip(*columns, strict=True):
        parts = [key_bytes(value, kind) for value, kind in zip(row, kinds, strict=True)]
        framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        rows.append(fnv(framed if len(parts) > 1 else parts[0]))
    return rows


def hashes(*columns: "pa.Array[Any] | pa.ChunkedArray[Any]") -> list[int]:
    """`key_hashes` as plain numbers."""
    return [int(each) for each in key_hashes(columns)]


# --- vectors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind", "expected", "of_128", "of_16"),
    [
        ("alpha", pa.string(), 0x8AC625BB85ED202B, 43, 11),
        ("beta", pa.string(), 0x7627619B954620A7, 39, 7),
        ("sensor-1", pa.string(), 0xA0931A0666720F29, 41, 9),
        (42, pa.int64(), 0xA8C7DE32281A0D97, 23, 7),
        (-1, pa.int64(), 0x8CF51A8BFCA3883D, 61, 13),
        (True, pa.bool_(), 0x552974811D74E1BC, 60, 12),
        (None, pa.string(), 0x8835C478C677737D, 125, 13),
    ],
)
def test_the_vectors_of_the_reference_hold(
    value: object, kind: pa.DataType, expected: int, of_128: int, of_16: int
) -> None:
    column = pa.array([value], kind)
    assert hashes(column) == [expected]
    batch = pa.RecordBatch.from_arrays([column], names=["k"])
    assert key_groups(batch, ["k"], 128).tolist() == [of_128]
    assert key_groups(batch, ["k"], 16).tolist() == [of_16]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.array([1], pa.date32()), "00000001"),
        (pa.array([86_400_000], pa.date64()), "0000000005265c00"),
        (pa.array([-2], pa.timestamp("us", "UTC")), "fffffffffffffffe"),
        (pa.array([3], pa.timestamp("s")), "0000000000000003"),
        (pa.array([7], pa.time32("ms")), "0000000000000007"),
        (pa.array([7], pa.time64("ns")), "0000000000000007"),
        (pa.array([-7], pa.duration("s")), "fffffffffffffff9"),
        (pa.array([decimal.Decimal("-0.01")], pa.decimal128(9, 2)), "ff" * 16),
        (pa.array([decimal.Decimal("-0.01")], pa.decimal32(9, 2)), "ff" * 16),
        (pa.array([decimal.Decimal("-0.01")], pa.decimal256(60, 2)), "ff" * 16),
        (pa.array([b"\x00\xff"], pa.binary(2)), "00ff"),
    ],
)
def test_dates_times_and_decimals_hash_as_their_integer_in_big_endian(
    column: "pa.Array[Any]", text: str
) -> None:
    assert hashes(column) == [fnv(bytes.fromhex(text))]


def test_a_null_of_any_type_hashes_alike() -> None:
    kinds: list[Any] = [
        *(pa.null(), pa.int8(), pa.uint64(), pa.float16(), pa.bool_(), pa.string()),
        *(pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view(), pa.binary(3)),
        *(pa.date32(), pa.date64(), pa.timestamp("ns"), pa.time32("s"), pa.duration("ms")),
        *(pa.decimal128(5, 1), pa.decimal256(50, 1), pa.dictionary(pa.int8(), pa.string())),
    ]
    for kind in kinds:
        assert hashes(pa.nulls(2, kind)) == [fnv(NULL)] * 2, kind
        assert hashes(pa.nulls(0, kind)) == [], kind


# --- equal values hash equally ------------------------------------------------------------------

INT_TYPES = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32())


def _holds(kind: pa.DataType, values: Sequence[int | None]) -> bool:
    try:
        pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


numbers = st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-130, 260))
texts = st.lists(st.none() | st.text(max_size=12) | st.sampled_from(["", "a", "b" * 90, "ü"]))


@given(numbers, st.data())
def test_integers_of_every_width_and_whole_floats_hash_as_int64(
    values: list[int | None], data: st.DataObject
) -> None:
    expected = reference([values], [pa.int64()])
    assert hashes(pa.array(values, pa.int64())) == expected
    for kind in (*INT_TYPES, pa.uint64()):
        if _holds(kind, values):
            assert hashes(pa.array(values, kind)) == expected, kind
    small = [None if v is None else max(-(2**53), min(v, 2**53)) for v in values]
    as_float = pa.array([None if v is None else float(v) for v in small], pa.float64())
    assert hashes(as_float) == reference([small], [pa.int64()])


@given(st.lists(st.none() | st.integers(2**62, 2**64 - 1)))
def test_an_unsigned_integer_beyond_int64_hashes_as_its_own_bytes(values: list[int | None]) -> None:
    assert hashes(pa.array(values, pa.uint64())) == reference([values], [pa.uint64()])


@given(st.lists(st.none() | st.floats() | st.sampled_from([-0.0, 2.0**53, 2.0**53 + 2, 1e300])))
def test_floats_hash_by_value(values: list[float | None]) -> None:
    assert hashes(pa.array(values, pa.float64())) == reference([values], [pa.float64()])


@given(st.lists(st.none() | st.floats(width=16)))
def test_floats_of_every_width_hash_alike(values: list[float | None]) -> None:
    expected = reference([values], [pa.float64()])
    for kind in (pa.float16(), pa.float32()):
        assert hashes(pa.array(values, kind)) == expected


def test_every_nan_and_both_zeros_are_one_key() -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], np.uint64)
    assert len(set(hashes(pa.array(bits.view(np.float64))))) == 1
    assert hashes(pa.array([0.0, -0.0])) == hashes(pa.array([0, 0], pa.int8()))


def layouts_of_text(values: list[str | None]) -> "list[pa.Array[Any] | pa.ChunkedArray[Any]]":
    """The same texts in every layout that Arrow has for them."""
    plain = pa.array(values, pa.string())
    encoded = [None if value is None else value.encode() for value in values]
    half = len(values) // 2
    around = pa.array(["before", *values, None, "after"], pa.string())
    indices = pa.array([None if v is None else i for i, v in enumerate(values)], pa.uint16())
    layouts: list[Any] = [
        plain,
        plain.cast(pa.large_string()),
        pa.array(values, pa.string_view()),
        pa.array(encoded, pa.binary()),
        pa.array(encoded, pa.large_binary()),
        pa.array(encoded, pa.binary_view()),
        plain.dictionary_encode(),
        pc.dictionary_encode(plain, null_encoding="encode"),
        pa.array(values, pa.string_view()).dictionary_encode(),
        pa.DictionaryArray.from_arrays(indices, plain.fill_null("not this")),
        pa.DictionaryArray.from_arrays(indices, plain.dictionary_encode()),
        pc.call_function("run_end_encode", [plain]),
        around.slice(1, len(values)),
        around.dictionary_encode().slice(1, len(values)),
        pa.array(["before", *values, "x"], pa.string_view()).slice(1, len(values)),
        pc.call_function("run_end_encode", [around]).slice(1, len(values)),
        pa.chunked_array([plain.slice(0, half), plain.slice(half)]),
        pa.ExtensionArray.from_storage(pa.json_(), plain),
    ]
    return layouts


@example([None] * 12 + ["b" * 80] * 5)  # long texts that repeat, nulls among them
@given(texts)
def test_texts_hash_equally_in_every_layout(values: list[str | None]) -> None:
    expected = reference([values], [pa.string()])
    for layout in layouts_of_text(values):
        assert hashes(layout) == expected, layout.type


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int16(), pa.int64(), pa.uint64()])
def test_dictionaries_of_any_index_type_hash_by_their_values(kind: Any) -> None:
    for words in (
        pa.array(["a", None, "c"]),
        pa.array([1, None, 3]),
        pa.array([True, None, False]),
    ):
        column = pa.DictionaryArray.from_arrays(pa.array([2, None, 1, 0, 2], kind), words)
        assert hashes(column) == hashes(words.take(pa.array([2, None, 1, 0, 2])))
        assert hashes(column.slice(1, 3)) == hashes(column)[1:4]
        large = pa.DictionaryArray.from_arrays(pa.array([2], kind), words)
        assert hashes(large) == hashes(words.slice(2))


@given(st.lists(st.none() | st.decimals(-(10**50), 10**50, places=2)))
def test_decimals_of_every_width_hash_alike(values: list[decimal.Decimal | None]) -> None:
    wide = pa.array(values, pa.decimal256(60, 2))
    assert hashes(wide) == reference([values], [wide.type])
    small = [value for value in values if value is None or abs(value) < 10**30]
    narrow = pa.array(small, pa.decimal128(38, 2))
    assert hashes(narrow) == reference([small], [narrow.type])


@given(st.lists(st.integers(0, 300), min_size=1, max_size=40))
def test_texts_of_very_unequal_length_hash_like_one_by_one(lengths: list[int]) -> None:
    values = [("0123456789" * 30)[:length] for length in lengths]
    assert hashes(pa.array(values)) == reference([values], [pa.string()])


def test_a_few_long_texts_of_one_length_are_hashed_row_by_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[int] = []
    step = key_groups_module._step

    def counted(state: key_groups_module.Hashes, digits: "np.ndarray[Any, Any]") -> None:
        steps.append(len(digits))
        step(state, digits)

    monkeypatch.setattr(key_groups_module, "_step", counted)
    texts = [f"{row}{'y' * 5_000}" for row in range(2)]
    assert hashes(pa.array(texts)) == [fnv(text.encode()) for text in texts]
    assert steps == []  # a step for each byte of a long text costs far more than its few rows


@pytest.mark.parametrize("distinct", [3, 4_000])
@pytest.mark.parametrize("width", [5, 80])
def test_repeated_and_unique_texts_hash_alike(distinct: int, width: int) -> None:
    values = [f"{row % distinct:0{width}d}" for row in range(4_000)]
    values[5] = "much longer than all the others" * 9
    assert hashes(pa.array(values)) == reference([values], [pa.string()])


# --- several fields -----------------------------------------------------------------------------

FIELDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), st.text(max_size=6)),
    (pa.large_binary(), st.binary(max_size=6)),
    (pa.int16(), st.integers(-9, 9)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float64(), st.floats()),
    (pa.bool_(), st.booleans()),
    (pa.decimal128(20, 3), st.decimals(-999, 999, places=3)),
    (pa.decimal256(60, 1), st.decimals(-(10**45), 10**45, places=1)),
    (pa.dictionary(pa.int32(), pa.string()), st.text(max_size=3)),
    (pa.null(), st.none()),
]


@given(st.data(), st.lists(st.sampled_from(FIELDS), min_size=1, max_size=3), st.integers(0, 12))
def test_one_to_three_fields_hash_as_their_bytes_behind_their_lengths(
    data: st.DataObject, fields: list[tuple[pa.DataType, st.SearchStrategy[Any]]], rows: int
) -> None:
    values = [
        data.draw(st.lists(st.none() | value, min_size=rows, max_size=rows)) for _, value in fields
    ]
    kinds = [kind for kind, _ in fields]
    arrays = [pa.array(each, kind) for each, kind in zip(values, kinds, strict=True)]
    expected = reference(values, kinds)
    assert hashes(*arrays) == expected
    first = data.draw(st.integers(0, rows))
    assert hashes(*(array.slice(first) for array in arrays)) == expected[first:]


def test_the_lengths_keep_neighbouring_fields_apart() -> None:
    left = hashes(pa.array(["ab", "a"]), pa.array(["c", "bc"]))
    assert left[0] != left[1]


# --- errors -------------------------------------------------------------------------------------


def test_a_missing_field_is_named_and_so_are_those_that_are_there() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1], "b": [2]})
    with pytest.raises(KeyColumnError) as failure:
        key_groups(batch, ["a", "user"], 128)
    text = str(failure.value)
    assert text.startswith("partition key field 'user' is missing from batch")
    assert "'a', 'b'" in text
    assert "Keep the field" in text


def test_a_field_that_stands_twice_is_refused() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(KeyColumnError, match="'a' stands 2 times"):
        key_groups(batch, ["a"], 128)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1]]),
        pa.array([{"x": 1}]),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
        pa.array([[1]], pa.list_view(pa.int8())),
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([[1]])),
        pa.nulls(1, pa.list_(pa.int8())),
    ],
)
def test_a_type_that_is_no_key_is_refused_by_name(column: "pa.Array[Any]") -> None:
    batch = pa.RecordBatch.from_arrays([column], names=["place"])
    with pytest.raises(KeyColumnError) as failure:
        key_groups(batch, ["place"], 128)
    text = str(failure.value)
    assert text.startswith("partition key field 'place' has the type ")
    assert "which cannot be a key; use a text" in text


def test_without_key_fields_everything_is_in_group_0() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, 2]})
    assert key_groups(batch, [], 128).tolist() == [0, 0]
    with pytest.raises(ValueError, match="at least one column"):
        key_hashes([])


def test_a_kind_names_the_hash_form_and_is_unknown_while_all_is_null() -> None:
    day = datetime.date(2026, 1, 2)
    kinds = {
        "text": pa.array(["a"], pa.string_view()).dictionary_encode(),
        "binary": pa.array([b"a"], pa.binary(1)),
        "number": pa.array([1.5], pa.float32()),
        "boolean": pa.array([True]),
        "date32": pa.array([day]),
        "date64": pa.array([day], pa.date64()),
        "timestamp in us": pa.array([1], pa.timestamp("us", "UTC")),
        "time in s": pa.array([1], pa.time32("s")),
        "duration in ns": pa.array([1], pa.duration("ns")),
        "decimal with scale 2": pa.array([1], pa.int64()).cast(pa.decimal256(60, 2)),
    }
    assert {key_kind(column): name for name, column in kinds.items()} == {k: k for k in kinds}
    assert key_kind(pa.array([1], pa.uint8())) == "number"
    assert key_kind(pa.nulls(2, pa.string())) is None
    assert key_kind(pa.nulls(2)) is None
