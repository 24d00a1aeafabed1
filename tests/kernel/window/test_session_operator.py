"""Session windows as pictures: time runs to the right, a character is 5 ms, the gap is 10 ms (N2).

In a picture a letter is a row: `a` is worth 1, `b` 2 and so on. So letters with one character
between them are exactly the gap apart. What leaves is shown as `[start, end) count sum`, with `!`
behind a correction; a count of 0 takes back what has left.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.event_time_gate import ROW_WATERMARK
from arkflow_kernel.ids import EventTimeMs
from arkflow_kernel.plan import AggregatePlan, LatePolicy
from arkflow_kernel.testing.session_bench import Rows, SessionBench, corrected, session_plan


def bench(lateness_ms: int = 0, **more: Any) -> SessionBench:
    """Sessions with a gap of 10 ms; with a lateness their policy is `update`."""
    late = LatePolicy.UPDATE if lateness_ms else LatePolicy.DROP
    return SessionBench(session_plan(10, late=late, lateness_ms=lateness_ms, **more))


def drawn(picture: str, start: int = 0, key: str = "k") -> Rows:
    """The rows of a picture, whose first character is at `start`."""
    return [
        {"k": key, "ts": start + 5 * place, "v": ord(letter) - ord("a") + 1}
        for place, letter in enumerate(picture)
        if letter != " "
    ]


def shown(rows: Rows) -> list[str]:
    """Result rows as text, in the order in which they left."""
    texts = []
    for row in rows:
        figures = "0" if row["sum"] is None else f"{row['count']} {row['sum']}"
        flag = "!" if row["__arkflow_window_update"] else ""
        texts.append(f"[{row['window_start']}, {row['window_end']}) {figures}{flag}")
    return texts


# --- the interval and its end --------------------------------------------------------------------


def test_rows_exactly_the_gap_apart_are_one_session() -> None:
    sessions = bench()
    sessions.rows(drawn("a b  c"))
    assert shown(sessions.end()) == ["[0, 20) 2 3", "[25, 35) 1 3"]


def test_a_session_leaves_when_the_watermark_is_greater_than_its_end() -> None:
    sessions = bench()
    sessions.rows(drawn("a b"))
    assert shown(sessions.advance(20)) == []
    assert shown(sessions.advance(21)) == ["[0, 20) 2 3"]
    assert shown(sessions.end()) == []


def test_a_row_is_late_when_its_own_interval_ends_at_the_watermark() -> None:
    """So at one watermark a session may be open of which no row could still come."""
    sessions = bench()
    sessions.rows(drawn("a"))
    assert shown(sessions.advance(10)) == []
    sessions.rows(drawn("b"))
    assert sessions.late_rows == 1
    sessions.rows(drawn("c", start=1))
    assert sessions.late_rows == 1
    assert shown(sessions.advance(12)) == ["[0, 11) 2 4"]


def test_a_row_is_late_by_the_watermark_of_its_partition_too() -> None:
    sessions = bench()
    marked = [row | {ROW_WATERMARK: mark} for row, mark in zip(drawn("aa"), (10, 14), strict=True)]
    sessions.rows(marked)
    assert sessions.late_rows == 1
    assert shown(sessions.end()) == ["[5, 15) 1 1"]


def test_times_before_1970_are_times_like_others() -> None:
    sessions = bench()
    sessions.rows(drawn("a b  c", start=-15))
    assert shown(sessions.advance(6)) == ["[-15, 5) 2 3"]
    assert shown(sessions.end()) == ["[10, 20) 1 3"]


def test_which_side_of_a_session_came_first_plays_no_part() -> None:
    for pictures in (["a", "  b"], ["  b", "a"]):
        sessions = bench()
        for picture in pictures:
            sessions.rows(drawn(picture))
        assert shown(sessions.end()) == ["[0, 20) 2 3"]


def test_a_row_between_two_open_sessions_makes_them_one() -> None:
    sessions = bench()
    sessions.rows(drawn("a   b"))
    sessions.rows(drawn("  c"))
    assert shown(sessions.end()) == ["[0, 30) 3 6"]


# --- corrections ---------------------------------------------------------------------------------


def test_a_late_row_between_two_sessions_that_have_left_makes_them_one() -> None:
    """Both intervals are taken back, at once."""
    sessions = bench(lateness_ms=100)
    sessions.rows(drawn("aa  b"))
    sessions.rows(drawn("    a"))
    assert shown(sessions.advance(31)) == ["[0, 15) 2 2", "[20, 30) 2 3"]
    assert shown(sessions.rows(drawn("  d"))) == [
        "[0, 15) 0!",
        "[20, 30) 0!",
        "[0, 30) 5 9!",
    ]
    assert corrected(sessions.results) == corrected(sessions.results[-1:])
    assert shown(sessions.end()) == []


def test_a_late_row_before_a_session_that_has_left_changes_its_start() -> None:
    sessions = bench(lateness_ms=100)
    sessions.rows(drawn("  b"))
    assert shown(sessions.advance(21)) == ["[10, 20) 1 2"]
    assert shown(sessions.rows(drawn(" a"))) == ["[10, 20) 0!", "[5, 20) 2 3!"]


def test_a_late_row_inside_of_a_session_that_has_left_takes_nothing_back() -> None:
    sessions = bench(lateness_ms=100)
    sessions.rows(drawn("a b"))
    assert shown(sessions.advance(21)) == ["[0, 20) 2 3"]
    assert shown(sessions.rows(drawn(" c"))) == ["[0, 20) 3 6!"]
    assert shown(sessions.rows(drawn(" c"))) == ["[0, 20) 4 9!"]


def test_a_late_row_by_itself_is_a_session_that_corrects_nothing() -> None:
    sessions = bench(lateness_ms=100)
    sessions.advance(50)
    assert shown(sessions.rows(drawn("a"))) == ["[0, 10) 1 1"]
    assert shown(sessions.rows(drawn(" b"))) == ["[0, 10) 0!", "[0, 15) 2 3!"]


def test_a_session_that_has_left_and_grows_on_is_taken_back_at_once_and_leaves_when_it_is_due() -> (
    None
):
    """The row is not late; the operator's watermark is at 21 and the new end at 25."""
    sessions = bench(lateness_ms=100)
    sessions.rows(drawn("a b"))
    assert shown(sessions.advance(21)) == ["[0, 20) 2 3"]
    assert shown(sessions.rows(drawn("   c"))) == ["[0, 20) 0!"]
    assert shown(sessions.rows(drawn("    d"))) == []
    assert shown(sessions.advance(31)) == ["[0, 30) 4 10!"]


def test_a_correction_may_be_corrected() -> None:
    sessions = bench(lateness_ms=100)
    sessions.rows(drawn("a"))
    assert shown(sessions.advance(11)) == ["[0, 10) 1 1"]
    assert shown(sessions.rows(drawn(" b"))) == ["[0, 10) 0!"]
    assert shown(sessions.advance(16)) == ["[0, 15) 2 3!"]
    assert shown(sessions.rows(drawn("b"))) == ["[0, 15) 3 5!"]
    assert shown(sessions.rows(drawn("  a"))) == ["[0, 15) 0!"]
    assert shown(sessions.end()) == ["[0, 20) 4 6!"]


def test_a_mark_to_correct_others_outlives_crashes_and_merges() -> None:
    sessions = bench(lateness_ms=100)
    sessions.rows(drawn("a"))
    sessions.advance(11)
    assert shown(sessions.rows(drawn(" b"))) == ["[0, 10) 0!"]
    for _ in range(3):
        sessions.crash()
        sessions.rows(drawn("   a"))
    assert shown(sessions.end()) == ["[0, 25) 5 6!"]


def test_under_drop_a_row_that_is_not_late_corrects_a_session_that_has_left() -> None:
    """It is kept for that: its last row is 10 before, and the watermark 11 after it."""
    sessions = bench()
    sessions.rows(drawn("a"))
    assert shown(sessions.advance(11)) == ["[0, 10) 1 1"]
    assert shown(sessions.rows(drawn("  b"))) == ["[0, 10) 0!"]
    assert shown(sessions.end()) == ["[0, 20) 2 3!"]
    assert sessions.late_rows == 0


def test_under_drop_a_late_row_changes_nothing() -> None:
    sessions = bench()
    sessions.rows(drawn("a"))
    sessions.advance(11)
    assert shown(sessions.rows(drawn("b"))) == []
    assert sessions.late_rows == 1
    assert shown(sessions.end()) == []


def test_rows_of_one_key_say_nothing_of_another() -> None:
    sessions = bench(lateness_ms=100)
    sessions.rows([*drawn("a", key="k"), *drawn("a", key="l")])
    assert len(sessions.advance(11)) == 2
    found = sessions.rows(drawn("b", key="l"))
    assert [row["key"] for row in found] == ["l"]


# --- what is kept --------------------------------------------------------------------------------


@pytest.mark.parametrize(("lateness_ms", "kept_until"), [(0, 20), (7, 27)])
def test_a_session_goes_when_no_row_can_reach_it(lateness_ms: int, kept_until: int) -> None:
    measured = bench()
    measured.rows(drawn("a"))
    size = measured.state.live_bytes
    sessions = bench(lateness_ms, max_bytes=2 * size - 1)
    sessions.rows(drawn("a"))
    sessions.advance(kept_until)
    with pytest.raises(ProcessingError, match=f"take {2 * size} bytes .*max_bytes: {2 * size - 1}"):
        sessions.rows(drawn("b", start=1_000, key="l"))
    assert sessions.state.live_keys == 1
    sessions.advance(kept_until + 1)
    sessions.rows(drawn("b", start=1_000, key="l"))
    assert [row["key"] for row in sessions.end()] == ["l"]
    assert sessions.state.live_keys == 1


def test_rows_without_a_value_hold_a_session_together_but_make_none() -> None:
    sessions = bench()
    sessions.rows([row | {"v": None if row["v"] == 9 else row["v"]} for row in drawn("a i b   i")])
    assert shown(sessions.end()) == ["[0, 30) 2 3"]


def test_a_session_of_rows_without_a_value_is_not_taken_back() -> None:
    sessions = bench(lateness_ms=100)
    rows = [{"k": "k", "ts": 0, "v": None}, {"k": "l", "ts": 0, "v": 1}]
    sessions.rows(rows)
    assert shown(sessions.advance(11)) == ["[0, 10) 1 1"]
    assert shown(sessions.rows(drawn(" a"))) == []
    assert shown(sessions.end()) == ["[0, 15) 1 1!"]


# --- keys and aggregates -------------------------------------------------------------------------


def test_null_is_a_key_like_others_and_numbers_stay_one_key_when_their_column_becomes_float() -> (
    None
):
    sessions = bench()
    big = 2**53 + 1
    sessions.rows([{"k": key, "ts": 0, "v": 1} for key in (5, big, big - 1, None)])
    sessions.rows([{"k": key, "ts": 4, "v": 1} for key in (5.0, 0.5, None)])
    sessions.crash()
    sessions.rows([{"k": key, "ts": 8, "v": 1} for key in (5, big)])
    found = {row["key"]: (row["window_end"], row["count"]) for row in sessions.end()}
    assert found == {
        "5": (18, 3),
        str(big): (18, 2),
        str(big - 1): (10, 1),
        "0.5": (14, 1),
        None: (14, 2),
    }


def test_a_key_that_changes_its_type_is_an_error_that_leaves_nothing_behind() -> None:
    sessions = bench()
    sessions.rows(drawn("a"))
    before = sessions.state.layout
    with pytest.raises(ProcessingError, match=r"'k'.*string.*int64"):
        sessions.rows([{"k": 1, "ts": 0, "v": 1}])
    assert sessions.state.layout == before
    assert shown(sessions.end()) == ["[0, 10) 1 1"]


def test_all_rows_are_of_one_key_where_there_is_none() -> None:
    sessions = bench(key_fields=())
    sessions.rows([*drawn("a", key="k"), *drawn(" b", key="l")])
    sessions.crash()
    sessions.rows(drawn("  c", key="m"))
    (row,) = sessions.end()
    assert (row["key"], row["window_end"], row["sum"]) == ("__all__", 20, 6)


NAMED = (
    AggregatePlan("count", None, "rows"),
    AggregatePlan("count_distinct", "v", "values"),
    AggregatePlan("count_distinct", "w", "others"),
    AggregatePlan("first", "v", "opened"),
    AggregatePlan("last", "v", "closed"),
    AggregatePlan("avg", "v", "mean"),
    AggregatePlan("stddev", "v", "spread"),
    AggregatePlan("sum", "v", "total"),
)


def test_named_aggregates_merge_over_batches_crashes_and_corrections() -> None:
    """Values become floats on the way; two keys, one of them without any."""
    plan = session_plan(
        10, late=LatePolicy.UPDATE, lateness_ms=100, aggregates=NAMED, key_fields=("k", "l")
    )
    sessions = SessionBench(plan)
    key = {"k": "k", "l": 7}
    sessions.rows([key | {"ts": 0, "v": 4, "w": "x"}, key | {"ts": 5, "v": 4, "w": None}])
    sessions.crash()
    sessions.rows([key | {"ts": 10, "v": 1.5, "w": "y"}, {"k": "k", "l": 8, "ts": 0, "v": None}])
    sessions.crash()
    interval = {"window_start": 0, "window_end": 20, "__arkflow_window_update": False}
    figures = {"rows": 3, "values": 2, "others": 2, "opened": 4.0, "closed": 1.5, "total": 9.5}
    found = [row for row in sessions.advance(21) if row["l"] == 7]
    mean, spread = found[0].pop("mean"), found[0].pop("spread")
    assert found == [interval | key | figures]
    assert (mean, spread) == (pytest.approx(9.5 / 3), pytest.approx(1.4433756729740645))
    empty, now = sessions.rows([key | {"ts": 15, "v": 2.0, "w": "y"}] * 2) + sessions.end()
    assert {name for name, value in empty.items() if value == 0} == {
        *("window_start", "rows", "values", "others"),
    }
    assert all(empty[name] is None for name in ("opened", "closed", "mean", "spread", "total"))
    assert (now["rows"], now["values"], now["others"], now["closed"]) == (5, 3, 2, 2.0)
    assert (now["window_end"], now["__arkflow_window_update"]) == (25, True)


def test_an_overflow_names_the_session_and_its_key() -> None:
    sessions = bench()
    sessions.rows([{"k": "k", "ts": ts, "v": 2**62} for ts in (-5, 0)])
    with pytest.raises(ProcessingError, match=r"window \[-5, 10\), key 'k'"):
        sessions.end()


# --- rows that do not join -----------------------------------------------------------------------


def test_late_rows_are_routed_and_rows_without_a_time_always_are() -> None:
    sessions = SessionBench(session_plan(10, late=LatePolicy.ROUTE))
    sessions.advance(100)
    batch = pa.RecordBatch.from_pylist([{"k": "k", "ts": ts, "v": 1} for ts in (0, None, 95)])
    with sessions.journal.item():
        result = sessions.operator.process(batch, NOWHERE)
    assert (result.late_rows, result.absorbed) == (2, 1)
    assert result.late is not None
    assert [row["ts"] for row in result.late.to_pylist()] == [0, None]
    assert result.late.column("__arkflow_late_event_route").to_pylist() == [True, None]
    assert result.late.column("__arkflow_invalid_timestamp_route").to_pylist() == [None, True]


# --- processing time -----------------------------------------------------------------------------


def test_by_the_wall_clock_a_session_leaves_a_gap_after_its_last_batch() -> None:
    sessions = bench(event_time=False)
    sessions.wall_ms = 1_000
    sessions.rows([{"k": "k", "v": 1}, {"k": "l", "v": 1}])
    assert sessions.operator.timer() == 1_011
    sessions.wall_ms = 1_010
    sessions.rows([{"k": "k", "v": 2}])
    assert [row["key"] for row in sessions.tick(1_011)] == ["l"]
    assert sessions.operator.timer() == 1_021
    sessions.crash()
    assert sessions.operator.timer() == 1_021
    assert shown(sessions.tick(1_030)) == ["[1000, 1020) 2 3"]
    assert sessions.operator.timer() is None


def test_by_the_wall_clock_open_sessions_leave_at_the_end() -> None:
    sessions = bench(event_time=False)
    sessions.rows([{"k": "k", "v": 1}])
    assert shown(sessions.end()) == ["[0, 10) 1 1"]
    assert shown(sessions.end()) == []


# --- large firings, failures ---------------------------------------------------------------------


def test_many_sessions_leave_in_pieces() -> None:
    sessions = bench()
    count = 150_000
    columns = [pa.array(np.arange(count)), pa.array(np.zeros(count, np.int64))]
    sessions.rows(pa.RecordBatch.from_arrays([*columns, columns[0]], names=["k", "ts", "v"]))
    with sessions.journal.item():
        sizes = [
            sum(batch.num_rows for batch in result.batches) for result in sessions.operator.end()
        ]
    assert sizes == [65_536, 65_536, count - 2 * 65_536]


def test_an_item_that_fails_leaves_nothing_behind() -> None:
    sessions = bench(lateness_ms=100)
    sessions.rows(drawn("a"))
    sessions.advance(5)
    before = sessions.state.layout, sessions.state.live_keys, sessions.state.live_bytes
    batch = pa.RecordBatch.from_pylist([{"k": "k", "ts": 5, "v": 0.5}])

    def item() -> None:
        with sessions.journal.item():
            sessions.operator.process(batch, NOWHERE)
            list(sessions.operator.advance(EventTimeMs(50)))
            raise RuntimeError("a later operator of the chain")

    with pytest.raises(RuntimeError, match="a later operator"):
        item()
    assert (sessions.state.layout, sessions.state.live_keys, sessions.state.live_bytes) == before
    assert shown(sessions.advance(11)) == ["[0, 10) 1 1"]
