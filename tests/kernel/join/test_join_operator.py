"""What a join does with single rows, by name (J1-J4, S2, S10, D.9)."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.event_time_gate import ROW_WATERMARK
from arkflow_kernel.join import join_output
from arkflow_kernel.plan import JoinPlan
from tests.kernel.join.join_line import LEFT, RIGHT, JoinLine, Rows, join_of


def rows(*values: tuple[Any, int], key: pa.DataType | None = None, **more: Any) -> pa.RecordBatch:
    """Rows of a key and a time."""
    columns: dict[str, Any] = {
        "k": pa.array([k for k, _ in values], key or pa.string()),
        "ts": pa.array([ts for _, ts in values], pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns | more)


def line_of(plan: JoinPlan | None = None, **state: Any) -> JoinLine:
    return JoinLine(plan or join_of(), **state)


def pairs_of(found: Rows) -> list[tuple[Any, Any]]:
    """Times of the left and the right row of each row that left."""
    return sorted(((row.get("l_ts"), row.get("r_ts")) for row in found), key=lambda pair: str(pair))


def test_a_row_has_the_columns_of_both_sides_and_the_key_as_text() -> None:
    line = line_of()
    line.batch(LEFT, rows((7, 100), key=pa.int32(), price=pa.array([1.5])))
    line.batch(RIGHT, rows((7, 110), key=pa.int64(), name=pa.array(["x"])))
    assert line.end() == [
        {"l_k": 7, "l_ts": 100, "l_price": 1.5, "r_k": 7, "r_ts": 110, "r_name": "x"}
        | {"join_key": "7"}
    ]


@pytest.mark.parametrize(("distance", "matches"), [(-11, 0), (-10, 1), (0, 1), (10, 1), (11, 0)])
def test_rows_match_up_to_the_window_apart(distance: int, matches: int) -> None:
    line = line_of()
    line.batch(LEFT, rows(("a", 100)))
    line.batch(RIGHT, rows(("a", 100 + distance), ("b", 100)))
    assert len(line.end()) == matches


def test_an_unmatched_row_of_an_outer_side_leaves_once_when_the_watermark_has_passed_it() -> None:
    line = line_of(join_of(10, 5, kind="left_outer"))
    line.batch(LEFT, rows(("a", 100), ("b", 100)))
    line.batch(RIGHT, rows(("b", 95)))
    assert pairs_of(line.totals.rows) == [(100, 95)]
    line.advance(115)
    assert len(line.totals.rows) == 1
    line.advance(116)
    assert line.totals.rows[1:] == [
        {"l_k": "a", "l_ts": 100, "r_k": None, "r_ts": None, "join_key": "a"}
    ]
    assert len(line.end()) == 2


def test_null_keys_match_nothing_and_leave_unmatched_where_their_side_is_outer() -> None:
    line = line_of(join_of(kind="left_outer"))
    line.batch(LEFT, rows((None, 100)))
    line.batch(RIGHT, rows((None, 100)))
    assert line.end() == [{"l_k": None, "l_ts": 100, "join_key": None}]
    assert line.totals.absorbed == 1


def test_all_is_right_when_the_other_side_never_comes() -> None:
    line = line_of(join_of(kind="full_outer"))
    line.batch(RIGHT, rows(("a", 1), ("b", 2)))
    line.restart(2)
    assert {row["r_ts"] for row in line.end()} == {1, 2}


def test_a_late_row_is_routed_with_its_mark_and_matches_nothing() -> None:
    line = line_of(join_of(late="route"))
    line.batch(RIGHT, rows(("a", 100)))
    line.advance(120)
    line.batch(LEFT, rows(("a", 109), ("a", 110)))
    (away,) = line.totals.routed
    assert away.column("ts").to_pylist() == [109]
    assert away.column("__arkflow_late_event_route").to_pylist() == [True]
    assert pairs_of(line.end()) == []
    assert line.totals.late_rows == 1


def test_a_stamped_row_is_judged_by_its_own_watermark_on_both_sides_of_a_pair() -> None:
    """A row far behind matches what is at or above its cut, whichever of the two comes first."""
    mark: dict[str, Any] = {ROW_WATERMARK: pa.array([104], pa.int64())}
    stamped = rows(("a", 95), **mark)
    other = rows(("a", 93), ("a", 94))
    for first, second in (((LEFT, stamped), (RIGHT, other)), ((RIGHT, other), (LEFT, stamped))):
        line = line_of()
        line.batch(*first)
        line.restart(1)
        line.batch(*second)
        assert pairs_of(line.end()) == [(95, 94)]


def test_more_rows_of_a_key_than_may_be_fail_with_the_side_and_the_limit() -> None:
    line = line_of(join_of(max_per_key=2))
    line.batch(LEFT, rows(("a", 1), ("a", 2), ("b", 1)))
    with pytest.raises(ProcessingError) as raised:
        line.batch(LEFT, rows(("a", 3)))
    assert "left side: 3 rows of the key 'a'" in str(raised.value)
    assert "`max_per_key: 2`" in str(raised.value)
    assert "on_overflow: evict_oldest" in str(raised.value)
    line.advance(12)
    line.batch(LEFT, rows(("a", 3)))
    line.batch(RIGHT, rows(("a", 4)))
    assert pairs_of(line.end()) == [(2, 4), (3, 4)]


@pytest.mark.parametrize("restarts", [False, True])
def test_the_oldest_rows_of_a_key_go_if_they_may_and_are_counted(restarts: bool) -> None:
    line = line_of(join_of(kind="left_outer", max_per_key=2, evicts_oldest=True))
    line.batch(LEFT, rows(("a", 5), ("a", 1), ("b", 1)))
    line.batch(RIGHT, rows(("a", 1)))
    if restarts:
        line.restart(1)
    line.batch(LEFT, rows(("a", 4), ("a", 3)))
    assert line.totals.evicted == 2
    if restarts:
        line.restart(1)
    line.batch(RIGHT, rows(("a", 6)))
    found = [(1, 1), (3, 1), (4, 1), (4, 6), (5, 1), (5, 6)]
    assert [pair for pair in pairs_of(line.end()) if pair[1] is not None] == found
    assert [row for row in line.totals.rows if row["r_ts"] is None] == [
        {"l_k": "b", "l_ts": 1, "r_k": None, "r_ts": None, "join_key": "b"}
    ]


def test_an_unmatched_row_of_an_outer_side_leaves_also_if_it_has_to_go_for_want_of_room() -> None:
    line = line_of(join_of(kind="left_outer", max_per_key=1, evicts_oldest=True))
    line.batch(LEFT, rows(("a", 1), ("a", 2)))
    assert pairs_of(line.totals.rows) == [(1, None)]
    assert line.totals.evicted == 1
    assert pairs_of(line.end()) == [(1, None), (2, None)]


def test_keys_of_both_sides_that_no_type_holds_fail_with_both_types() -> None:
    line = line_of(join_of(keys=("k", "id")))
    line.batch(LEFT, rows((7, 1), key=pa.int64()))
    with pytest.raises(ProcessingError) as raised:
        line.batch(RIGHT, rows(("7", 1)).rename_columns(["id", "ts"]))
    assert "right side has keys of type string in 'id'" in str(raised.value)
    assert "left side of type int64 in 'k'" in str(raised.value)
    assert "cast one of them" in str(raised.value)


def test_integers_and_floats_are_one_key() -> None:
    line = line_of()
    line.batch(LEFT, rows((7, 1), (2**60 + 1, 1), key=pa.int64()))
    line.batch(RIGHT, rows((7.0, 1), (7.5, 1), (float(2**60), 1), key=pa.float64()))
    assert [row["join_key"] for row in line.end()] == ["7"]


def test_columns_widen_and_may_be_missing() -> None:
    line = line_of()
    line.batch(LEFT, rows(("a", 1), v=pa.array([1])))
    line.batch(LEFT, rows(("a", 2), v=pa.array([0.5]), w=pa.array(["x"])))
    line.restart(1)
    line.batch(RIGHT, rows(("a", 3)))
    found = sorted((row["l_ts"], row["l_v"], row["l_w"]) for row in line.end())
    assert found == [(1, 1.0, None), (2, 0.5, "x")]


def test_a_column_of_another_kind_fails_and_is_named_and_nothing_of_its_batch_stays() -> None:
    line = line_of(join_of(kind="left_outer"))
    line.batch(LEFT, rows(("a", 1), v=pa.array([1])))
    line.batch(RIGHT, rows(("a", 3)))
    with pytest.raises(ProcessingError, match="'v' was of type int64 and is now string"):
        line.batch(LEFT, rows(("new", 2), ("a", 2), v=pa.array(["x", "y"])))
    line.batch(LEFT, rows(("a", 4), v=pa.array([2])))
    assert pairs_of(line.end()) == [(1, 3), (4, 3)]


def test_a_batch_that_fails_at_the_bound_takes_back_what_it_matched() -> None:
    """The row of the other side was matched by nothing, so it leaves alone."""
    line = line_of(join_of(kind="full_outer", max_per_key=1))
    line.batch(RIGHT, rows(("a", 3)))
    with pytest.raises(ProcessingError):
        line.batch(LEFT, rows(("a", 1), ("a", 2)))
    line.restart(1)
    assert pairs_of(line.end()) == [(None, 3)]


def test_a_budget_that_is_passed_names_side_and_budget() -> None:
    line = line_of(max_bytes=200)
    line.batch(LEFT, rows(*(("a", n) for n in range(8))))
    with pytest.raises(ProcessingError, match=r"right side.*`max_bytes: 200`"):
        line.batch(RIGHT, rows(*(("a", n) for n in range(8))))


def test_a_missing_key_or_time_is_named() -> None:
    line = line_of()
    with pytest.raises(ProcessingError, match=r"left side.*'k' is missing"):
        line.batch_whole(LEFT, rows(("a", 1)).select(["ts"]))
    with pytest.raises(ProcessingError, match="no column 'ts' for the event time"):
        line.batch_whole(LEFT, rows(("a", 1)).select(["k"]))


def test_a_batch_of_many_pairs_leaves_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_output, "PART_ROWS_MAX", 100)
    line = line_of()
    line.batch(LEFT, rows(*(("a", 0) for _ in range(50))))
    (task,) = line.tasks
    results = task.batch(RIGHT, rows(*(("a", 0) for _ in range(50))))
    sizes = [batch.num_rows for result in results for batch in result.batches]
    assert sum(sizes) == 2_500
    assert max(sizes) <= 100


def test_rows_beyond_the_memory_budget_go_to_files_and_match_from_there(tmp_path: Path) -> None:
    line = line_of(spool=tmp_path, memory_bytes=1_000)
    for n in range(40):
        line.batch(LEFT, rows(*((f"k{m}", n) for m in range(20))))
    (task,) = line.tasks
    assert task.sides[0].held_bytes <= 500
    line.batch(RIGHT, rows(("k3", 30)))
    assert pairs_of(line.end()) == sorted(((n, 30) for n in range(20, 40)), key=str)
