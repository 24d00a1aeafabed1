"""Items of time in the lane: pieces, slices, failures behind, stamps (T1c, T6, N5, W8)."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.bad_rows import NOWHERE, Origin
from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.event_time_gate import ROW_WATERMARK
from arkflow_kernel.ids import EventTimeMs, WallMs
from arkflow_kernel.limits import MIB, SLICE_BYTES_MAX, SLICE_ROWS_MAX
from arkflow_kernel.ports import OperatorResult
from arkflow_kernel.protocol import LaneItem, RunItem, TickItem
from arkflow_kernel.testing.components import ScriptedOperator, bad_rows, rows_batch, rows_of
from tests.kernel.time.timed_lane import ADVANCE, FINISH, Lane, T, Taking, Windowed


def _fires(*rows: int, name: str = "w") -> list[OperatorResult]:
    """Results of so many rows each, numbered through."""
    ends = [sum(rows[: i + 1]) for i in range(len(rows))]
    spans = zip(rows, ends, strict=True)
    return [OperatorResult((rows_batch(name, range(end - n, end)),)) for n, end in spans]


ITEMS = [
    pytest.param(ADVANCE, "fires at 100", id="advance"),
    pytest.param(TickItem(T), "ticks at 1000", id="tick"),
    pytest.param(FINISH, "ends", id="finish"),
]


@pytest.mark.parametrize(("item", "why"), ITEMS)
def test_a_piece_passes_the_operators_behind_before_the_next_one_is_made(
    item: LaneItem, why: str
) -> None:
    told: list[str] = []
    lane = Lane(Windowed("w", told, *_fires(2, 3)), Taking(told))
    assert lane.rows(item) == {"sink": [("w", n) for n in range(5)]}
    assert told[:4] == [f"w {why}", "behind: 2", f"w {why}", "behind: 3"]


def test_an_operator_that_is_not_timed_hears_nothing_of_time_but_the_end() -> None:
    told: list[str] = []
    plain = Taking(told)
    lane = Lane(plain, Windowed("w", told, *_fires(1)))
    lane.run(ADVANCE)
    assert (told, plain.processed, plain.finished) == (["w fires at 100"], 0, 0)
    lane.run(FINISH)
    assert told[1:] == ["w ends", "w finishes"]
    assert plain.finished == 1


def test_slices_of_a_firing_have_at_most_their_rows_and_no_more_is_made_than_they_need() -> None:
    told: list[str] = []
    each, pieces = SLICE_ROWS_MAX // 3, 40
    lane = Lane(Windowed("w", told, *_fires(*[each] * pieces)))
    answer, left = lane.lane.run(ADVANCE), 0
    while True:
        rows = sum(piece.batch.num_rows for piece in answer.slice.pieces)
        left += rows
        assert 0 < rows <= SLICE_ROWS_MAX
        assert len(told) * each - left < 2 * SLICE_ROWS_MAX, "made ahead of what has left"
        if not answer.more:
            break
        answer = lane.lane.next_slice(T)
    assert (left, len(told)) == (each * pieces, pieces)


def test_slices_of_wide_results_have_at_most_their_bytes() -> None:
    told: list[str] = []
    wide = pa.RecordBatch.from_pydict({"v": pa.array([b"x" * (3 * MIB)] * 3)})
    lane = Lane(Windowed("w", told, *[OperatorResult((wide,))] * 5))
    found = lane.run(ADVANCE)
    assert sum(batch.num_rows for batch in found["sink"]) == 15
    assert len(lane.answers) >= 5
    for answer in lane.answers:
        assert sum(piece.size_bytes for piece in answer.slice.pieces) <= SLICE_BYTES_MAX


@pytest.mark.parametrize(("item", "why"), ITEMS)
def test_what_a_firing_counts_is_told_once_and_no_row_is_lost(item: LaneItem, why: str) -> None:
    told: list[str] = []
    behind = ScriptedOperator(rejects=lambda _s, n: n % 4 == 3, drops=lambda _s, n: n % 4 == 2)
    each = SLICE_ROWS_MAX // 2
    rows = 5 * each
    lane = Lane(Windowed("w", told, *_fires(*[each] * 5)), behind)
    found = lane.rows(item)
    assert told.count(f"w {why}") == 5
    assert len(lane.answers) > 1
    counted = lane.counted()
    fired, passed = counted["op-0"], counted["op-1"]
    assert (fired.rows_in, fired.expanded, fired.rows_out) == (0, rows, rows)
    assert (passed.rows_in, passed.rows_out) == (rows, rows // 2)
    assert (passed.errors, passed.filtered) == (rows // 4, rows // 4)
    assert {name: len(many) for name, many in found.items()} == {
        "sink": rows // 2,
        "errors": rows // 4,
    }


@pytest.mark.parametrize(("item", "why"), ITEMS)
def test_a_piece_on_which_an_operator_behind_fails_reaches_the_error_output_alone(
    item: LaneItem, why: str
) -> None:
    told: list[str] = []
    behind = ScriptedOperator(fails=lambda _s, n: n == 2)
    lane = Lane(Windowed("w", told, *_fires(2, 2, 2)), behind)
    rows = lane.rows(item)
    assert rows["sink"] == [("w", n) for n in (0, 1, 4, 5)]
    assert rows["errors"] == [("w", 2), ("w", 3)]
    assert told.count(f"w {why}") == 3, "the firing goes on"
    assert lane.counted()["op-1"].errors == 2


@pytest.mark.parametrize(("item", "why"), ITEMS)
def test_without_an_error_output_a_failure_behind_a_firing_fails_the_item(
    item: LaneItem, why: str
) -> None:
    behind = ScriptedOperator(fails=lambda _s, n: n == 2)
    lane = Lane(Windowed("w", [], *_fires(2, 2)), behind, errors=False)
    with pytest.raises(ProcessingError, match="op-1"):
        lane.run(item)


def test_a_firing_that_raises_names_its_operator_though_there_is_an_error_output() -> None:
    class Broken(Windowed):
        def advance(self, watermark: EventTimeMs) -> Iterator[OperatorResult]:
            yield from _fires(1)
            raise ValueError("no such pane")

    with pytest.raises(ProcessingError, match="no such pane") as failure:
        Lane(Broken("w", [])).run(ADVANCE)
    assert failure.value.operator == "op-0"


def test_a_window_behind_a_window_has_its_results_before_it_hears_of_the_watermark() -> None:
    told: list[str] = []
    first, second = Windowed("a", told, *_fires(2, 1, name="a")), Windowed("b", told)
    lane = Lane(first, second)
    assert lane.rows(ADVANCE) == {"sink": [("b", 0), ("b", 1), ("b", 2)]}
    assert told == ["a fires at 100", "b takes 2", "a fires at 100", "b takes 1"]
    assert lane.counted()["op-1"].absorbed == 3


def test_at_the_end_a_window_is_finished_before_the_one_behind_it_ends() -> None:
    told: list[str] = []
    first, second = Windowed("a", told, *_fires(2, name="a")), Windowed("b", told, *_fires(1))
    Lane(first, second).run(FINISH)
    assert told == ["a ends", "b takes 2", "a finishes", "b ends", "b finishes"]


LATE_ROWS = OperatorResult((), late=rows_batch("a", [3, 4]), late_rows=2)


class Judging(Windowed):
    """Takes its first rows for late ones."""

    def process(self, batch: pa.RecordBatch, origin: Origin = NOWHERE) -> OperatorResult:
        late = batch.slice(0, 2)
        return OperatorResult((), late=late, late_rows=2, absorbed=batch.num_rows - 2)


@pytest.mark.parametrize("item", [RunItem(T, rows_batch("a", [3, 4, 5])), ADVANCE])
def test_late_rows_leave_by_the_late_route(item: LaneItem) -> None:
    lane = Lane(Judging("w", [], LATE_ROWS), late=True)
    assert lane.rows(item) == {"late[0-0]": [("a", 3), ("a", 4)]}
    assert lane.counted()["op-0"].late == 2


def test_without_a_late_route_late_rows_are_counted_and_dropped() -> None:
    lane = Lane(Judging("w", []))
    assert lane.rows(RunItem(T, rows_batch("a", [3, 4, 5]))) == {}
    assert (lane.counted()["op-0"].late, lane.counted()["op-0"].absorbed) == (2, 1)


def test_late_rows_of_a_batch_that_fails_behind_are_in_the_error_output_only() -> None:
    class LateAndOn(Windowed):
        def process(self, batch: pa.RecordBatch, origin: Origin = NOWHERE) -> OperatorResult:
            return OperatorResult((batch.slice(2),), late=batch.slice(0, 2), late_rows=2)

    fails = ScriptedOperator(fails=lambda _s, _n: True)
    lane = Lane(LateAndOn("w", []), fails, late=True)
    item = RunItem(T, rows_batch("a", range(5)))
    assert lane.rows(item) == {"errors": [("a", n) for n in range(5)]}


def _stamped(*numbers: int) -> pa.RecordBatch:
    stamps: Any = pa.array([5] * len(numbers), pa.int64())
    return rows_batch("a", numbers).append_column(pa.field(ROW_WATERMARK, pa.int64()), stamps)


def test_stamps_are_kept_on_edges_and_nobody_else_sees_them() -> None:
    class Sorting(ScriptedOperator):
        def process(self, batch: pa.RecordBatch, origin: Origin = NOWHERE) -> OperatorResult:
            parts = [batch.slice(at, 1) for at in range(3)]
            return OperatorResult((parts[0],), bad=parts[1], late=parts[2], late_rows=1)

    lane = Lane(Sorting(), late=True, edge=True)
    found = lane.run(RunItem(T, _stamped(0, 1, 2)))
    stamped = {name: ROW_WATERMARK in many[0].schema.names for name, many in found.items()}
    assert stamped == {"sink": False, "out[0-0]": True, "errors": False, "late[0-0]": False}
    rows = {name: rows_of(many[0]) for name, many in found.items()}
    assert rows["sink"] == rows["out[0-0]"] == [("a", 0)]
    assert (rows["errors"], rows["late[0-0]"]) == ([("a", 1)], [("a", 2)])


def test_the_batch_of_a_failure_is_in_the_error_output_without_its_stamps() -> None:
    lane = Lane(ScriptedOperator(fails=lambda _s, _n: True), edge=True)
    found = lane.run(RunItem(T, _stamped(0, 1)))
    assert list(found) == ["errors"]
    assert ROW_WATERMARK not in found["errors"][0].schema.names
    assert rows_of(found["errors"][0]) == [("a", 0), ("a", 1)]


@pytest.mark.parametrize("rows", [0, 2])
def test_rows_without_a_time_leave_by_the_late_route_and_pass_no_operator(rows: int) -> None:
    operator = ScriptedOperator()
    item = RunItem(T, rows_batch("a", range(rows)), untimed=rows_batch("a", [8, 9]))
    found = Lane(operator, late=True).rows(item)
    assert found["late[0-0]"] == [("a", 8), ("a", 9)]
    assert len(found.get("sink", [])) == rows
    assert operator.processed == (rows > 0)


def test_rows_without_a_time_are_nowhere_without_a_late_route() -> None:
    item = RunItem(T, rows_batch("a", [1]), bad_rows("a", [7]), untimed=rows_batch("a", [8]))
    assert Lane(ScriptedOperator()).rows(item) == {"errors": [("a", 7)], "sink": [("a", 1)]}


class Staging(Windowed):
    """Changes the state before its first piece (N5), and operators behind it change it too."""

    lane: Lane

    def _stage(self) -> None:
        self.lane.journal.stage(self.lane.state, 1, self.lane.state.undo)

    def advance(self, watermark: EventTimeMs) -> Iterator[OperatorResult]:
        self._stage()
        yield from super().advance(watermark)


class StagingBehind(ScriptedOperator):
    lane: Lane

    def process(self, batch: pa.RecordBatch, origin: Origin = NOWHERE) -> OperatorResult:
        self.lane.journal.stage(self.lane.state, 1, self.lane.state.undo)
        self.lane.wall_ms += 1
        return super().process(batch, origin)


def test_each_slice_is_a_transaction_of_the_states_with_a_clock_of_its_own() -> None:
    first = Staging("w", [], *_fires(*[SLICE_ROWS_MAX] * 3))
    second = StagingBehind()
    lane = first.lane = second.lane = Lane(first, second)
    lane.run(ADVANCE)
    assert lane.state.clocks == [1_000, 1_001, 1_002]
    assert lane.state.undone == 0
    with pytest.raises(Exception, match="outside of a lane item"):
        lane.journal.stage(lane.state, 1, lane.state.undo)


def test_what_a_failed_piece_staged_is_taken_back_and_what_the_firing_did_stays() -> None:
    first, second = Staging("w", [], *_fires(1, 1, 1)), StagingBehind()
    third = ScriptedOperator(fails=lambda _s, n: n == 1)
    lane = first.lane = second.lane = Lane(first, second, third)
    assert lane.rows(ADVANCE)["errors"] == [("w", 1)]
    assert lane.state.undone == 1
    assert len(lane.state.clocks) == 1


def test_the_timer_of_a_chain_is_the_earliest_of_its_windows() -> None:
    def timer(*timers: int | None) -> WallMs | None:
        return Lane(*(Windowed("w", [], timer=each) for each in timers)).lane.timer()

    assert (timer(), timer(None), timer(None, 7), timer(9, 7)) == (None, None, 7, 7)
    assert Lane(ScriptedOperator()).lane.timer() is None


@pytest.mark.parametrize("item", [ADVANCE, TickItem(T), FINISH])
def test_an_item_of_time_yields_nothing_where_nothing_is_due(item: LaneItem) -> None:
    lane = Lane(Windowed("w", []), Taking([]))
    assert lane.run(item) == {}
    assert len(lane.answers) == 1
    assert all(counts.rows_out == 0 for counts in lane.counted().values())
