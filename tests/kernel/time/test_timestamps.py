"""Event time out of a column (W5): whole arrays against Python's integers, row by row."""

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.timestamps import (
    TIME_LIMIT_MS,
    TimeColumnError,
    Times,
    milliseconds,
    operator_times,
    times_of,
)

YEAR_1 = int(datetime(1, 1, 1, tzinfo=UTC).timestamp())
YEAR_9999 = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp())
INT64 = st.integers(-(2**63), 2**63 - 1)
NEAR = st.integers(-3_000, 3_000)

KINDS: dict[pa.DataType, tuple[int, int, st.SearchStrategy[int]]] = {
    pa.int64(): (1, 1, INT64),
    pa.timestamp("s"): (1_000, 1, INT64),
    pa.timestamp("s", "Asia/Tokyo"): (1_000, 1, INT64),
    pa.timestamp("ms"): (1, 1, INT64),
    pa.timestamp("us"): (1, 1_000, INT64),
    pa.timestamp("us", "America/Los_Angeles"): (1, 1_000, INT64),
    pa.timestamp("ns"): (1, 1_000_000, INT64),
    pa.timestamp("ns", "UTC"): (1, 1_000_000, INT64),
    pa.date32(): (86_400_000, 1, st.integers(-(2**31), 2**31 - 1)),
    pa.date64(): (1, 1, INT64),
    pa.uint64(): (1, 1, st.integers(0, 2**64 - 1)),
    pa.uint32(): (1, 1, st.integers(0, 2**32 - 1)),
    pa.int32(): (1, 1, st.integers(-(2**31), 2**31 - 1)),
    pa.int8(): (1, 1, st.integers(-128, 127)),
}
"""By type: what a value is multiplied with, then floor-divided by, and the values there are."""


def column_of(values: list[int | None], kind: pa.DataType) -> "pa.Array[Any]":
    """A column of raw values of a type, with other values under the nulls, and at an offset."""
    width = kind.bit_width
    plain: pa.DataType = pa.uint64() if kind == pa.uint64() else pa.int64()
    if width < 64:
        plain = kind if pa.types.is_integer(kind) else pa.int32()
    whole: Any = pa.array([7, *(v if v is not None else 99 for v in values)], plain)
    null = pa.array([False, *(v is None for v in values)])
    bits: Any = pa.array([not n for n in null.to_pylist()], pa.bool_()).buffers()[1]
    made = pa.Array.from_buffers(kind, len(whole), [bits, whole.buffers()[1]])
    return made.slice(1)


def row_by_row(values: list[int | None], times: int, by: int) -> list[int | str]:
    """What each row is: its milliseconds, "null" or "overflow"."""
    told: list[int | str] = []
    for value in values:
        ms = 0 if value is None else value * times // by
        beyond = abs(ms) >= TIME_LIMIT_MS
        told.append("null" if value is None else "overflow" if beyond else ms)
    return told


def told(times: Times) -> list[int | str]:
    """The same of a whole array."""
    count = len(times.ms)
    assert times.ms.dtype == np.int64
    valid = np.ones(count, np.bool_) if times.valid is None else times.valid
    overflow = np.zeros(count, np.bool_) if times.overflow is None else times.overflow
    assert not (valid & overflow).any()
    assert not times.ms[~valid].any(), "rows without a time hold 0"
    assert times.valid is None or not valid.all(), "a mask only where it is needed"
    assert times.overflow is None or overflow.any(), "a mask only where it is needed"
    rows = zip(times.ms.tolist(), valid.tolist(), overflow.tolist(), strict=True)
    return ["overflow" if o else ms if v else "null" for ms, v, o in rows]


@given(st.data(), st.sampled_from(sorted(KINDS, key=str)))
def test_every_unit_is_floor_divided_and_what_does_not_fit_is_told(
    data: st.DataObject, kind: pa.DataType
) -> None:
    times, by, all_values = KINDS[kind]
    low, high = (0, 255) if str(kind).startswith("u") else (-100, 100)
    values = data.draw(st.lists(st.none() | all_values | st.integers(low, high), max_size=12))
    assert told(milliseconds(column_of(values, kind), "ts")) == row_by_row(values, times, by)


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.timestamp("s"), pa.timestamp("ms"), pa.date64(), pa.uint64()], ids=str
)
def test_the_limit_itself_does_not_fit(kind: pa.DataType) -> None:
    times, by, _ = KINDS[kind]
    edge = -(-TIME_LIMIT_MS // times)
    below: list[int | None] = [] if kind == pa.uint64() else [1 - edge, -edge]
    values = [edge - 1, edge, *below]
    found = told(milliseconds(column_of(values, kind), "ts"))
    assert found == row_by_row(values, times, by)
    assert [found[0], found[1]] == [(edge - 1) * times, "overflow"]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_the_years_1_and_9999_keep_their_milliseconds(unit: str) -> None:
    parts = {"s": 1, "ms": 1_000, "us": 1_000_000}[unit]
    values: list[int | None] = [YEAR_1 * parts, YEAR_9999 * parts]
    kind: Any = pa.timestamp(unit)
    times = milliseconds(column_of(values, kind), "ts")
    assert times.ms.tolist() == [YEAR_1 * 1_000, YEAR_9999 * 1_000]
    assert (times.valid, times.overflow) == (None, None)


def test_a_microsecond_before_1970_is_in_the_millisecond_before_it() -> None:
    column = column_of([-1, -1_000, -1_001, 999], pa.timestamp("us"))
    assert milliseconds(column, "ts").ms.tolist() == [-1, -1, -2, 0]


def test_a_zone_changes_how_an_instant_is_shown_and_not_which_it_is() -> None:
    noon = datetime(2024, 3, 10, 12, tzinfo=UTC)
    kinds = [pa.timestamp("ms", zone) for zone in ("UTC", "Asia/Tokyo", "+05:30")]
    found = {int(milliseconds(pa.array([noon], kind), "ts").ms[0]) for kind in kinds}
    assert found == {int(noon.timestamp() * 1_000)}


def test_a_date_is_its_midnight_in_utc() -> None:
    midnight = int(datetime(2024, 3, 10, tzinfo=UTC).timestamp() * 1_000)
    for kind in (pa.date32(), pa.date64()):
        column: Any = pa.array([date(2024, 3, 10), None], kind)
        assert told(milliseconds(column, "ts")) == [midnight, "null"]


def test_a_column_of_nulls_and_an_empty_one_are_no_errors() -> None:
    assert told(milliseconds(pa.nulls(3), "ts")) == ["null"] * 3
    for kind in (pa.null(), pa.int64(), pa.timestamp("s"), pa.uint64(), pa.date32()):
        times = milliseconds(pa.array([], kind), "ts")
        assert (len(times.ms), times.valid, times.overflow) == (0, None, None)


def test_encoded_columns_are_read_as_what_they_hold() -> None:
    plain: Any = pa.array([5, 5, None, 7_000], pa.timestamp("us"))
    runs: Any = pa.array([2, 3, 4], pa.int32())
    values: Any = pa.array([5, None, 7_000], pa.timestamp("us"))
    encoded: Any = pa.RunEndEncodedArray.from_arrays(runs, values)
    for column in (plain, plain.dictionary_encode(), encoded):
        assert told(milliseconds(column, "ts")) == [0, 0, "null", 7]


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("ms"), pa.timestamp("ms", "UTC")])
def test_milliseconds_are_not_copied(kind: pa.DataType) -> None:
    column = column_of([1, 2, 3], kind)
    buffer: Any = column.buffers()[1]
    assert milliseconds(column, "ts").ms.ctypes.data == buffer.address + 8


def test_the_memory_under_a_null_does_not_make_a_row_overflow() -> None:
    column: Any = pa.array([2**63 - 1, 5], pa.int64())
    bits: Any = pa.array([False, True], pa.bool_()).buffers()[1]
    masked = pa.Array.from_buffers(pa.timestamp("s"), 2, [bits, column.buffers()[1]])
    assert told(milliseconds(masked, "ts")) == ["null", 5_000]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["2024-01-01"]),
        pa.array([1.7e9]),
        pa.array([True]),
        pa.array([[1]]),
        pa.array([1], pa.duration("ms")),
        pa.array([1], pa.time64("us")),
    ],
    ids=lambda column: str(column.type),
)
def test_another_type_is_refused_with_its_name_and_what_to_do(column: "pa.Array[Any]") -> None:
    with pytest.raises(TimeColumnError) as raised:
        milliseconds(column, "seen")
    text = str(raised.value)
    assert f"'seen' of type {column.type}" in text
    assert "milliseconds since 1970" in text
    assert ("types: {seen: int}" in text) == (str(column.type) in ("string", "double"))


def test_a_column_that_is_not_there_or_twice_is_refused_with_those_that_are() -> None:
    batch = pa.record_batch({"a": [1], "Ts": [2]})
    with pytest.raises(TimeColumnError, match=r"no column 'ts'.*has 'a', 'Ts'"):
        times_of(batch, "ts")
    columns: Any = [pa.array([1]), pa.array([2])]
    twice = pa.RecordBatch.from_arrays(columns, names=["ts", "ts"])
    with pytest.raises(TimeColumnError, match="2 columns 'ts'"):
        times_of(twice, "ts")


def test_for_an_operator_a_missing_column_and_a_time_that_does_not_fit_fail_the_batch() -> None:
    beyond: Any = pa.array([0, 2**61], pa.timestamp("s"))
    fits: Any = pa.array([0, None], pa.timestamp("s"))
    for batch, text in (
        (pa.record_batch({"ts": beyond}), r"'hourly' failed: .*'ts', of type timestamp\[s\]"),
        (pa.record_batch({"a": fits}), "'hourly' failed: no column 'ts'"),
    ):
        with pytest.raises(ProcessingError, match=text):
            operator_times(batch, "ts", "hourly")
    assert told(operator_times(pa.record_batch({"ts": fits}), "ts", "hourly")) == [0, "null"]
