"""Session windows as pictures: time runs to the right, a character is 5 ms, the gap is 10 ms (N2).

In a picture a letter is a row: `a` is worth 1, `b` 2 and so on. So letters with one character
between them are exactly the gap apart. What leaves is shown as `[start, end) count sum`, with `!`
behind a correction; a count of 0 takes back what has left.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.event_time_gate import ROW_WATERMARK
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
    assert shown(corrected(sessions.results + [])[:0]) == []
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
    sessions = bench(lateness_ms=lateness_ms, max_bytes=1)
    sessions.plan = session_plan(
        10, late=LatePolicy.UPDATE if lateness_ms else LatePolicy.DROP, lateness_ms=lateness_ms
    )
    sessions = SessionBench(sessions.plan)
    sessions.rows(drawn("a"))
    sessions.advance(kept_until)
    sessions.state._compact()
    assert sessions.state.live_keys == 1
    sessions.advance(kept_until + 1)
    sessions.state._compact()
    assert sessions.state.live_keys == 0
