"""Values come back with their type and their bits, whatever was replaced meanwhile (S8)."""

import datetime
import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.errors import ComponentError
from arkflow_kernel.state.value_columns import encoded_sizes, value_column

VALUES: list[tuple[Any, list[Any]]] = [
    (pa.int64(), [2**53 + 1, -(2**63), 2**63 - 1, None, 0]),
    (pa.uint64(), [2**64 - 1, None, 0]),
    (pa.int8(), [-128, 127, None]),
    (pa.bool_(), [True, False, None]),
    (pa.float64(), [-0.0, 0.0, math.inf, 5e-324, None, 0.1]),
    (pa.float32(), [-0.0, 0.10000000149011612, None]),
    (pa.decimal128(38, 3), [decimal.Decimal("12345678901234567890123456789012345.678"), None]),
    (pa.decimal256(50, 0), [decimal.Decimal(10) ** 49, None, decimal.Decimal(-1)]),
    (pa.timestamp("ns", "Asia/Tokyo"), [datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), None]),
    (pa.timestamp("s"), [datetime.datetime(1969, 12, 31, 23, 59, 59), None]),
    (pa.date32(), [datetime.date(1900, 1, 1), None]),
    (pa.time64("us"), [datetime.time(1, 2, 3, 4), None]),
    (pa.duration("ms"), [datetime.timedelta(milliseconds=-1), None]),
    (pa.string(), ["", "ü", None, "x" * 100_000]),
    (pa.large_string(), ["a", None]),
    (pa.string_view(), ["a", None, "longer than twelve bytes"]),
    (pa.binary(), [b"", b"\0\xff", None]),
    (pa.binary(3), [b"abc", None]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_values_of_every_type_come_back_as_they_were(kind: Any, values: list[Any]) -> None:
    given_ = pa.array([None, *values, *values], kind).slice(1, len(values))
    column = value_column(kind)
    column.resize(10)
    slots = np.array([9, 0, 4, 2, 7, 5][: len(values)])
    column.write(slots, given_)
    found = column.read(slots[::-1].copy(), np.ones(len(slots), np.bool_))
    found.validate(full=True)
    assert found.type == kind
    assert found.equals(pa.array(values[::-1], kind))
    assert column.sizes(slots).tolist() == encoded_sizes(given_).tolist()


def test_the_bits_of_a_float_come_back() -> None:
    bits = np.array([0x7FF0_0000_0000_0001, 0xFFF8_0000_0000_0123, 1 << 63], np.uint64)
    column = value_column(pa.float64())
    column.resize(3)
    column.write(np.arange(3), pa.array(bits).view(pa.float64()))
    found = column.read(np.arange(3), np.ones(3, np.bool_))
    assert found.view(pa.uint64()).to_pylist() == bits.tolist()


def test_what_is_not_present_is_null_whatever_its_slot_holds() -> None:
    for kind, value in ((pa.int64(), 1), (pa.string(), "a")):
        column = value_column(kind)
        column.resize(2)
        column.write(np.array([0, 1]), pa.array([value, value], kind))
        found = column.read(np.array([-1, 1, 0]), np.array([False, False, True]))
        assert found.to_pylist() == [None, None, value]


@pytest.mark.parametrize("kind", [pa.list_(pa.int8()), pa.struct([("a", pa.int8())])])
def test_a_nested_value_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(ComponentError, match="not supported"):
        value_column(kind)


def test_a_null_has_no_bytes_and_a_text_its_own() -> None:
    assert encoded_sizes(pa.array(["ü", None, ""])).tolist() == [2, 0, 0]
    assert encoded_sizes(pa.array([1, None], pa.int32())).tolist() == [4, 0]
    assert encoded_sizes(pa.array([True, None])).tolist() == [1, 0]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 30), min_size=1, max_size=12, unique=True),
            st.booleans(),
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_a_log_of_values_says_what_a_list_says(writes: list[tuple[list[int], bool, bool]]) -> None:
    """Writes that are put back, chunks that merge, a log that is rewritten."""
    column = value_column(pa.string())
    column.resize(31)
    model: list[str | None] = [None] * 31
    for turn, (slots, undone, settles) in enumerate(writes):
        places = np.array(slots)
        saved = column.saved(places)
        column.write(places, pa.array([f"{turn}-{slot}" for slot in slots]))
        if undone:
            column.put_back(places, saved)
        else:
            for slot in slots:
                model[slot] = f"{turn}-{slot}"
        if settles:
            column.settle()
        assert column.read(np.arange(31), np.ones(31, np.bool_)).to_pylist() == model


def test_a_log_does_not_grow_with_values_that_are_replaced() -> None:
    column = value_column(pa.string())
    column.resize(1_000)
    slots = np.arange(1_000)
    for turn in range(200):
        column.write(slots, pa.array([f"{turn:0100d}"] * 1_000))
        column.settle()
    assert column.size_bytes < 3_000_000
    assert column.read(slots, np.ones(1_000, np.bool_)).to_pylist() == [f"{199:0100d}"] * 1_000
