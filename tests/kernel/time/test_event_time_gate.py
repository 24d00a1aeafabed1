"""The gate of a source (W3, W4, W5, W8): whole arrays against a loop over rows."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.bad_rows import (
    BAD_ROW_SCHEMA,
    ERROR_COLUMN,
    Origin,
    bad_row_batch,
    bad_row_error,
)
from arkflow_kernel.event_time_gate import (
    INVALID_TIME_ROUTE,
    ROW_WATERMARK,
    EventTimeGate,
    row_watermarks,
    rows_behind,
)
from arkflow_kernel.ids import EARLIEST, EventTimeMs, OperatorId, SplitId, WallMs
from arkflow_kernel.plan import TimePlan
from arkflow_kernel.ports import SourceBatch
from arkflow_kernel.protocol import BatchTime
from arkflow_kernel.snapshot import SplitTime
from arkflow_kernel.timestamps import TIME_LIMIT_MS

NOW = WallMs(1_000)
SPLIT = SplitId("a")
YEAR_1_US, YEAR_9999_US = -62_135_596_800_000_000, 253_402_300_799_999_999

Cell = int | None
"""A time in milliseconds; beyond `TIME_LIMIT_MS` it does not fit, None is null."""


def gate(bound_ms: int = 0, *, late_route: bool = True, **plan: Any) -> EventTimeGate:
    """A gate of the column `ts`."""
    return EventTimeGate(TimePlan("ts", bound_ms, **plan), OperatorId("src"), late_route=late_route)


def read_of(
    times: Seq[Cell], split: SplitId = SPLIT, kind: pa.DataType | None = None, first: int = 0
) -> SourceBatch:
    """A batch whose rows are numbered from `first`."""
    column: Any = pa.array(times, pa.int64())
    columns = {"n": pa.array(range(first, first + len(times)), pa.int64())}
    batch = pa.record_batch(columns).append_column("ts", column.view(kind or pa.int64()))
    return SourceBatch(split, batch, {"row": first + len(times)}, Origin(split, None, first))


def stamps(read: SourceBatch) -> list[int | None]:
    """w(row) of each row as the operator behind sees it."""
    if ROW_WATERMARK not in read.batch.schema.names:
        return [None] * read.batch.num_rows
    return read.batch.column(ROW_WATERMARK).to_pylist()


def numbers_of(batch: pa.RecordBatch) -> list[int]:
    """Which rows they are."""
    numbers: Any = batch.column("n").to_pylist()
    return list(numbers)


@dataclass
class RowByRow:
    """The gate, as W3 to W8 tell it: one row after the other, in Python's integers."""

    bound_ms: int
    skew_ms: int | None
    greatest: dict[str, int] = field(default_factory=dict)
    stamped: list[tuple[str, int, int | None]] = field(default_factory=list)
    untimed: list[tuple[str, int]] = field(default_factory=list)
    bad: list[tuple[str, int]] = field(default_factory=list)
    ahead: int = 0

    def row(self, split: str, n: int, ms: Cell) -> None:
        if ms is None:
            self.untimed.append((split, n))
        elif abs(ms) >= TIME_LIMIT_MS:
            self.bad.append((split, n))
        else:
            before = self.greatest.get(split)
            watermark = None if before is None else before - self.bound_ms
            behind = watermark is not None and ms < watermark
            self.stamped.append((split, n, watermark if behind else None))
            if self.skew_ms is not None and ms > NOW + self.skew_ms:
                self.ahead += 1
            else:
                self.greatest[split] = ms if before is None else max(before, ms)


cells = (
    st.none() | st.integers(-60, 60) | st.integers(900, 1_100) | st.integers(-(2**63), 2**63 - 1)
)
bounds = st.integers(0, 40) | st.sampled_from([0, 2**40, 2**62])


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.lists(cells, max_size=9)), max_size=8),
    bounds,
    st.none() | st.integers(0, 50),
    st.booleans(),
    st.data(),
)
def test_however_rows_are_cut_and_whenever_it_is_restored_the_gate_does_what_the_loop_does(
    reads: list[tuple[str, list[Cell]]],
    bound_ms: int,
    skew_ms: int | None,
    late_route: bool,
    data: st.DataObject,
) -> None:
    model = RowByRow(bound_ms, skew_ms)
    found = RowByRow(bound_ms, skew_ms)
    tested = gate(bound_ms, late_route=late_route, max_future_skew_ms=skew_ms)
    counts = {"a": 0, "b": 0}
    invalid = 0
    for split, times in reads:
        for n, ms in enumerate(times, counts[split]):
            model.row(split, n, ms)
        read, time = tested.apply(read_of(times, SplitId(split), first=counts[split]), NOW)
        counts[split] += len(times)
        invalid += time.invalid
        found.ahead += time.ahead
        numbers = numbers_of(read.batch)
        found.stamped += [(split, n, w) for n, w in zip(numbers, stamps(read), strict=True)]
        for rows, told in ((read.untimed, found.untimed), (read.bad, found.bad)):
            told += [] if rows is None else [(split, n) for n in numbers_of(rows)]
        if time.max_ms is not None:
            found.greatest[split] = time.max_ms
        assert time.max_ms == model.greatest.get(split)
        if data.draw(st.booleans()):
            tested = gate(bound_ms, late_route=late_route, max_future_skew_ms=skew_ms)
            cut = [SplitTime(SplitId(s), EventTimeMs(ms)) for s, ms in found.greatest.items()]
            tested.restore([*cut, SplitTime(SplitId("not begun"))])
    assert invalid == len(model.untimed)
    assert found.untimed == (model.untimed if late_route else [])
    model.untimed = found.untimed
    assert found == model


@given(
    st.lists(st.integers(-50, 50) | st.integers(-(2**62) + 1, 2**62 - 1), max_size=12),
    st.just(int(EARLIEST)) | st.integers(-60, 60),
    bounds,
)
def test_the_watermarks_of_an_array_are_those_of_a_loop(
    times: list[int], before: int, bound_ms: int
) -> None:
    expected, greatest = [], before
    for ms in times:
        expected.append(max(greatest - bound_ms, EARLIEST))
        greatest = max(greatest, ms)
    array = np.array(times, np.int64)
    watermarks = row_watermarks(array, before, bound_ms)
    assert watermarks.tolist() == expected
    behind = [ts < w for ts, w in zip(times, expected, strict=True)]
    found = rows_behind(array, array, before, bound_ms)
    assert (found is None) == (not any(behind))
    if found is not None:
        assert (found[0].tolist(), found[1].tolist()) == (expected, behind)


def test_a_row_exactly_at_its_watermark_is_not_behind_it() -> None:
    read, _ = gate(bound_ms=10).apply(read_of([100, 90, 89, 100, 90]), NOW)
    assert stamps(read) == [None, None, 90, None, None]


def test_the_first_row_of_a_split_is_never_behind_and_splits_do_not_judge_each_other() -> None:
    tested = gate()
    assert stamps(tested.apply(read_of([50]), NOW)[0]) == [None]
    assert stamps(tested.apply(read_of([-50]), NOW)[0]) == [50]
    assert stamps(tested.apply(read_of([-50], SplitId("b")), NOW)[0]) == [None]


def test_a_row_is_judged_by_those_before_it_in_its_own_batch_too_and_not_by_those_behind_it() -> (
    None
):
    read, time = gate().apply(read_of([1, 3, 2, 9]), NOW)
    assert stamps(read) == [None, None, 3, None]
    assert time == BatchTime(EventTimeMs(9))


def test_rows_in_order_leave_as_the_batch_that_they_came_in() -> None:
    read = read_of(range(8_192))
    passed, time = gate().apply(read, NOW)
    assert passed.batch is read.batch
    assert time.max_ms == 8_191


def test_stamps_are_left_out_when_no_window_is_behind() -> None:
    read = read_of([5, 1])
    passed, time = gate(stamps=False).apply(read, NOW)
    assert passed.batch is read.batch
    assert time.max_ms == 5


def test_a_column_of_the_data_cannot_pass_for_the_gates_own() -> None:
    read = read_of([5, 6])
    theirs: Any = pa.array([10**9, 10**9])
    batch = read.batch.append_column(ROW_WATERMARK, theirs)
    passed, _ = gate().apply(SourceBatch(SPLIT, batch, {}), NOW)
    assert passed.batch.schema.names == ["n", "ts"]
    null: Any = pa.array([None, 7], pa.int64())
    marked = read.batch.set_column(1, "ts", null).append_column(INVALID_TIME_ROUTE, theirs)
    passed, _ = gate().apply(SourceBatch(SPLIT, marked, {}), NOW)
    assert passed.untimed is not None
    assert passed.untimed.to_pylist() == [{"n": 0, "ts": None, INVALID_TIME_ROUTE: True}]


def test_rows_without_a_time_leave_marked_by_the_late_route_and_the_others_go_on() -> None:
    read, time = gate().apply(read_of([4, None, 6, None]), NOW)
    assert read.untimed is not None
    assert read.untimed.to_pylist() == [
        {"n": 1, "ts": None, INVALID_TIME_ROUTE: True},
        {"n": 3, "ts": None, INVALID_TIME_ROUTE: True},
    ]
    assert read.batch.column("n").to_pylist() == [0, 2]
    assert time == BatchTime(EventTimeMs(6), invalid=2)


def test_rows_without_a_time_are_dropped_and_counted_when_there_is_no_late_route() -> None:
    read, time = gate(late_route=False).apply(read_of([None, None]), NOW)
    assert (read.batch.num_rows, read.untimed, read.bad) == (0, None, None)
    assert time == BatchTime(None, invalid=2)


def test_a_time_that_does_not_fit_makes_a_bad_row_that_names_the_field_and_can_be_written() -> None:
    read, time = gate().apply(read_of([4, 2**61, None], kind=pa.timestamp("s")), NOW)
    assert read.bad is not None
    row = read.bad.to_pylist()[0]
    assert (row["n"], row["ts"], row["__meta_error_operator"]) == (1, 2**61, "src")
    assert "'ts', of type timestamp[s], does not fit" in row[ERROR_COLUMN]
    assert read.batch.column("n").to_pylist() == [0]
    assert time == BatchTime(EventTimeMs(4_000), invalid=1)
    text = str(bad_row_error(read.bad, read.origin))
    assert text.startswith("bad row at a, offset 0 (operator 'src'): the event time in 'ts'")
    assert f"row: n: 1, ts: {2**61}. Set `error_output`" in text
    assert "on_error" not in text


def test_bad_rows_of_the_codec_and_of_the_gate_leave_together() -> None:
    codec = bad_row_batch([b"{"], ["no object"], operator="src", origin=Origin("a"))
    read = read_of([TIME_LIMIT_MS, 1])
    read = SourceBatch(SPLIT, read.batch, read.position, read.origin, codec)
    passed, _ = gate().apply(read, NOW)
    assert passed.bad is not None
    assert passed.bad.column("__value__").to_pylist() == [b"{", None]
    assert passed.bad.column("ts").to_pylist() == [None, TIME_LIMIT_MS]
    assert "row: {. Set" in str(bad_row_error(passed.bad, read.origin))
    assert "row: n: 0, ts:" in str(bad_row_error(passed.bad.slice(1), read.origin))
    again, _ = gate().apply(SourceBatch(SPLIT, read.batch.slice(1), {}, bad=codec), NOW)
    assert again.bad is codec


def test_a_raw_value_column_of_another_type_does_not_hinder_bad_rows() -> None:
    codec = bad_row_batch([b"{"], ["no object"], operator="src", origin=Origin("a"))
    texts: Any = pa.array(["x"])
    batch = read_of([TIME_LIMIT_MS]).batch.append_column("__value__", texts)
    passed, _ = gate().apply(SourceBatch(SPLIT, batch, {}, bad=codec), NOW)
    assert passed.bad is not None
    assert passed.bad.column("__value__").to_pylist() == [b"{", None]


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"Ts": [1, 2]}, "no column 'ts' for the event time; the batch has 'Ts'"),
        ({"ts": [1.5, 2.0]}, "column 'ts' of type double holds no event time"),
        ({"ts": ["2024-01-01", "x"]}, "column 'ts' of type string holds no event time"),
        ({"__value__": [b"{}", b"{}"]}, "give the input a `codec`"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_batch_whose_column_holds_no_times_is_bad_as_a_whole_and_the_split_goes_on(
    columns: dict[str, Any], error: str
) -> None:
    tested = gate()
    tested.apply(read_of([7]), NOW)
    read, time = tested.apply(
        SourceBatch(SPLIT, pa.record_batch(columns), {"row": 3}, Origin("a", None, 1)), NOW
    )
    assert read.bad is not None
    assert error in read.bad.column(ERROR_COLUMN)[1].as_py()
    assert {name: read.bad.column(name).to_pylist() for name in columns} == columns
    assert (read.batch.num_rows, read.position, read.untimed) == (0, {"row": 3}, None)
    assert time == BatchTime(EventTimeMs(7))
    assert stamps(tested.apply(read_of([6]), NOW)[0]) == [7]


def test_a_batch_without_rows_passes_whatever_its_columns_are() -> None:
    codec = bad_row_batch([b"{"], ["no object"], operator="src", origin=Origin("a"))
    tested = gate()
    tested.apply(read_of([7]), NOW)
    read = SourceBatch(SPLIT, pa.record_batch({"x": pa.array([], pa.string())}), {}, bad=codec)
    assert tested.apply(read, NOW) == (read, BatchTime(EventTimeMs(7)))
    assert read.bad is not None
    assert read.bad.schema == BAD_ROW_SCHEMA


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "Asia/Tokyo")])
def test_the_years_1_and_9999_are_stamped_in_their_milliseconds(kind: pa.DataType) -> None:
    read, time = gate().apply(read_of([YEAR_1_US, YEAR_9999_US, YEAR_1_US, 0], kind=kind), NOW)
    last = YEAR_9999_US // 1_000
    assert stamps(read) == [None, None, last, last]
    assert read.batch.schema.field("ts").type == kind
    assert time.max_ms == last


def test_what_a_split_knew_is_forgotten_at_its_end() -> None:
    tested = gate()
    read = read_of([7])
    last = SourceBatch(SPLIT, read.batch, {}, split_ended=True)
    assert tested.apply(last, NOW)[1] == BatchTime(EventTimeMs(7))
    assert tested._greatest == {}
