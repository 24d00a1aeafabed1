"""The lane: slices, error isolation, finish, time-outs, conservation (T1c, T5, T6, S2)."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel import pieces as pieces_module
from arkflow_kernel.bad_rows import BAD_ROW_SCHEMA, NOWHERE, Origin
from arkflow_kernel.errors import (
    BadRowError,
    OperatorTimeoutError,
    ProcessingError,
    ResourceError,
)
from arkflow_kernel.ids import MonotonicMs, RequestToken
from arkflow_kernel.lane import ChainLane, LaneAnswer
from arkflow_kernel.lane_schedule import LaneSchedule
from arkflow_kernel.limits import MIB, SLICE_BYTES_MAX, SLICE_ROWS_MAX
from arkflow_kernel.pieces import pieces_of
from arkflow_kernel.ports import OperatorResult
from arkflow_kernel.protocol import FinishItem, NextSlice, RunItem, Submit
from arkflow_kernel.testing.components import ScriptedOperator, bad_rows, rows_batch, rows_of
from arkflow_kernel.testing.plans import chain_plan

T = RequestToken(7)
ORIGIN = Origin("file.json", None, 0)


def _lane(
    *operators: ScriptedOperator,
    errors: bool = True,
    now_ms: int = 0,
    timeout_ms: int | None = None,
) -> ChainLane:
    names = [f"op-{i}" for i in range(len(operators))]
    plan = chain_plan(
        operators=names, error_sink="errors" if errors else None, timeout_ms=timeout_ms
    )
    return ChainLane(plan, operators, lambda: MonotonicMs(now_ms))


def _all(lane: ChainLane, answer: LaneAnswer) -> dict[str, list[tuple[str, int]]]:
    rows: dict[str, list[tuple[str, int]]] = {"sink": [], "errors": []}
    while True:
        for piece in answer.slice.pieces:
            assert piece.size_bytes > 0
            rows[piece.output] += rows_of(piece.batch)
        if not answer.more:
            return rows
        answer = lane.next_slice(T)


def _run(lane: ChainLane, rows: int = 6, bad: pa.RecordBatch | None = None) -> LaneAnswer:
    return lane.run(RunItem(T, rows_batch("a", range(rows)), bad, ORIGIN))


def test_a_failing_batch_reaches_the_error_output_as_it_entered_the_chain() -> None:
    first = ScriptedOperator(rejects=lambda _s, n: n == 3)
    lane = _lane(first, ScriptedOperator(fails=lambda _s, _n: True))
    answer = _run(lane)
    (output, batch, _) = answer.slice.pieces[0]
    assert len(answer.slice.pieces) == 1, "nothing else of the batch leaves"
    assert output == "errors"
    assert rows_of(batch) == [("a", n) for n in range(6)]
    assert batch.column("__meta_error_operator").to_pylist() == ["op-1"] * 6
    assert "ValueError" in str(batch.column("__meta_error")[0])
    assert all(counts.conserved() for counts in answer.counts)
    assert [counts.errors for counts in answer.counts] == [1, 5]


def test_without_an_error_output_the_failure_names_operator_place_and_cause() -> None:
    lane = _lane(ScriptedOperator(fails=lambda _s, _n: True), errors=False)
    with pytest.raises(ProcessingError) as failure:
        _run(lane)
    assert failure.value.operator == "op-0"
    assert failure.value.error_class == "ValueError"
    assert "file.json, offset 0" in str(failure.value)


def test_a_lane_works_on_after_a_failed_batch() -> None:
    lane = _lane(ScriptedOperator(fails=lambda _s, n: n == 0))
    assert len(_all(lane, _run(lane))["errors"]) == 6
    item = RunItem(T, rows_batch("a", [1, 2]))
    assert _all(lane, lane.run(item))["sink"] == [("a", 1), ("a", 2)]


def test_bad_rows_leave_their_neighbours_alone() -> None:
    lane = _lane(ScriptedOperator(rejects=lambda _s, n: n % 2 == 1))
    rows = _all(lane, _run(lane, bad=bad_rows("a", [100])))
    assert rows["sink"] == [("a", 0), ("a", 2), ("a", 4)]
    assert rows["errors"] == [("a", 100), ("a", 1), ("a", 3), ("a", 5)]


def test_bad_rows_without_an_error_output_fail_the_item() -> None:
    with pytest.raises(BadRowError, match="a:1"):
        _run(_lane(ScriptedOperator(rejects=lambda _s, n: n == 1), errors=False))
    with pytest.raises(BadRowError, match="a:100"):
        _run(_lane(errors=False), bad=bad_rows("a", [100]))


def test_an_error_that_no_batch_is_to_blame_for_is_not_isolated() -> None:
    class Starved(ScriptedOperator):
        def process(self, batch: pa.RecordBatch, origin: Origin = NOWHERE) -> OperatorResult:
            del batch, origin
            raise ResourceError("no memory left")

    with pytest.raises(ResourceError):
        _run(_lane(Starved()))


def test_a_located_error_keeps_its_own_place() -> None:
    class Precise(ScriptedOperator):
        def process(self, batch: pa.RecordBatch, origin: Origin = NOWHERE) -> OperatorResult:
            del batch, origin
            raise ProcessingError("op-0", "no", where="row 4")

    with pytest.raises(ProcessingError, match="at row 4"):
        _run(_lane(Precise(), errors=False))


def test_a_batch_without_rows_calls_no_operator_and_yields_nothing() -> None:
    operator = ScriptedOperator()
    lane = _lane(operator)
    empty = bad_rows("a", [])
    answer = _run(lane, rows=0, bad=empty)
    assert answer == LaneAnswer(answer.slice, more=False)
    assert answer.slice.pieces == ()
    assert operator.processed == 0


def test_what_finish_yields_passes_through_the_operators_behind() -> None:
    first = ScriptedOperator(
        at_finish=(rows_batch("end", [0, 1]), rows_batch("end", [])),
        bad_at_finish=bad_rows("end", [9]),
    )
    second = ScriptedOperator(drops=lambda _s, n: n == 0)
    lane = _lane(first, second)
    answer = lane.run(FinishItem(T))
    assert _all(lane, answer) == {"sink": [("end", 1)], "errors": [("end", 9)]}
    assert (first.finished, second.finished) == (1, 1)
    assert all(counts.conserved() for counts in answer.counts)


def test_what_fails_behind_a_finish_reaches_the_error_output_and_the_item_goes_on() -> None:
    first = ScriptedOperator(at_finish=(rows_batch("end", [0]), rows_batch("end", [1])))
    lane = _lane(first, ScriptedOperator(fails=lambda _s, n: n == 0))
    assert _all(lane, lane.run(FinishItem(T))) == {"sink": [("end", 1)], "errors": [("end", 0)]}
    again = ScriptedOperator(at_finish=first.at_finish)
    bare = _lane(again, ScriptedOperator(fails=lambda _s, n: n == 0), errors=False)
    with pytest.raises(ProcessingError, match="op-1"):
        bare.run(FinishItem(T))


def test_a_finish_that_fails_fails_the_item_although_there_is_an_error_output() -> None:
    with pytest.raises(ProcessingError, match="does not finish"):
        _lane(ScriptedOperator(fail_finish=True)).run(FinishItem(T))


def test_an_operator_is_overdue_only_while_it_works_and_beyond_its_time_out() -> None:
    seen: list[tuple[int, object]] = []

    class Slow(ScriptedOperator):
        def process(self, batch: pa.RecordBatch, origin: Origin = NOWHERE) -> OperatorResult:
            for now_ms in (5_100, 5_101):
                seen.append((now_ms, lane.overdue(MonotonicMs(now_ms))))
            return super().process(batch, origin)

    lane = _lane(Slow(), now_ms=5_000, timeout_ms=100)
    assert lane.overdue(MonotonicMs(99_999)) is None
    _run(lane)
    assert lane.overdue(MonotonicMs(99_999)) is None
    assert seen[0] == (5_100, None)
    late = seen[1][1]
    assert isinstance(late, tuple)
    token, error = late
    assert token == T
    assert isinstance(error, OperatorTimeoutError)
    assert (error.operator, error.timeout_ms) == ("op-0", 100)
    assert "file.json" in str(error)


@given(
    rows=st.integers(0, 60),
    pieces=st.integers(1, 9),
    drop=st.integers(2, 5),
    reject=st.integers(2, 5),
    most=st.integers(1, 20),
)
def test_slices_lose_nothing_keep_order_and_their_bound(
    rows: int, pieces: int, drop: int, reject: int, most: int
) -> None:
    lane = _lane(
        ScriptedOperator(pieces=pieces, rejects=lambda _s, n: n % reject == 1),
        ScriptedOperator(drops=lambda _s, n: n % drop == 1),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces_module, "SLICE_ROWS_MAX", most)
        answer = _run(lane, rows)
        assert all(counts.conserved() for counts in answer.counts)
        slices = [answer]
        while slices[-1].more:
            slices.append(lane.next_slice(T))
    got: dict[str, list[int]] = {"sink": [], "errors": []}
    for each in slices:
        assert sum(piece.batch.num_rows for piece in each.slice.pieces) <= most
        for output, batch, _ in each.slice.pieces:
            got[output] += [n for _, n in rows_of(batch)]
    bad = [n for n in range(rows) if n % reject == 1]
    assert got["errors"] == bad
    assert got["sink"] == [n for n in range(rows) if n not in bad and n % drop != 1]


def test_pieces_hold_at_most_the_rows_of_a_slice() -> None:
    batch = rows_batch("a", range(2 * SLICE_ROWS_MAX + 1))
    assert [p.num_rows for p in pieces_of(batch)] == [SLICE_ROWS_MAX, SLICE_ROWS_MAX, 1]
    small = rows_batch("a", [1])
    assert list(pieces_of(small)) == [small]


def _wide(sizes: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"v": pa.array([b"x" * size for size in sizes])})


def test_pieces_of_wide_and_of_skewed_rows_fit_the_bytes_of_a_slice() -> None:
    for sizes in ([3 * MIB] * 6, [3 * MIB] * 5 + [10] * 500, [10] * 500 + [3 * MIB] * 5):
        batch = _wide(sizes)
        pieces = list(pieces_of(batch))
        assert pa.Table.from_batches(pieces).equals(pa.Table.from_batches([batch]))
        assert all(piece.nbytes <= SLICE_BYTES_MAX for piece in pieces)


def test_a_row_wider_than_a_slice_is_a_piece_of_its_own() -> None:
    pieces = list(pieces_of(_wide([10, 9 * MIB, 10])))
    assert [piece.num_rows for piece in pieces] == [1, 1, 1]


def test_a_large_shared_dictionary_does_not_cut_a_batch_into_rows() -> None:
    words = pa.array(["w" * MIB * 9])
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int32()), words)
    pieces = list(pieces_of(pa.RecordBatch.from_arrays([column], names=["v"])))
    assert sum(piece.num_rows for piece in pieces) == 100
    assert len(pieces) <= 2


# --- order of work ------------------------------------------------------------------------------


def _submit(token: int) -> Submit:
    return Submit(RunItem(RequestToken(token), rows_batch("a", [1])))


def test_one_worker_starts_the_next_item_after_the_last_slice() -> None:
    schedule = LaneSchedule(1)
    schedule.put(_submit(1))
    schedule.put(_submit(2))
    assert schedule.next() == _submit(1)
    assert schedule.next() is None
    schedule.answered(RequestToken(1), more=True)
    assert schedule.next() is None
    schedule.put(NextSlice(RequestToken(1)))
    assert schedule.next() == NextSlice(RequestToken(1))
    schedule.answered(RequestToken(1), more=False)
    assert schedule.next() == _submit(2)


def test_several_workers_start_items_in_order_and_together() -> None:
    schedule = LaneSchedule(2)
    for token in (1, 2, 3):
        schedule.put(_submit(token))
    assert [schedule.next(), schedule.next(), schedule.next()] == [_submit(1), _submit(2), None]
    schedule.answered(RequestToken(2), more=True)
    assert schedule.next() == _submit(3)


def test_finish_starts_when_no_item_is_at_work() -> None:
    schedule = LaneSchedule(4)
    finish = Submit(FinishItem(RequestToken(3)))
    for request in (_submit(1), _submit(2), finish):
        schedule.put(request)
    assert [schedule.next(), schedule.next(), schedule.next()] == [_submit(1), _submit(2), None]
    schedule.answered(RequestToken(1), more=True)
    schedule.answered(RequestToken(2), more=False)
    assert schedule.next() is None, "slices of item 1 are still in the lane"
    schedule.put(NextSlice(RequestToken(1)))
    assert schedule.next() == NextSlice(RequestToken(1))
    schedule.answered(RequestToken(1), more=False)
    assert schedule.next() == finish


def test_bad_rows_have_one_schema() -> None:
    assert bad_rows("a", [1]).schema == BAD_ROW_SCHEMA
