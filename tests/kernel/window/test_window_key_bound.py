"""`max_buffered_keys`: an error, or the oldest windows go and their rows are counted (N6)."""

import pytest

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.plan import AggregatePlan
from tests.kernel.window.timeline import Timeline, rows_of, window


def test_too_many_keys_are_an_error_that_names_the_operator_and_the_batch_leaves_nothing() -> None:
    line = Timeline(window(10, max_buffered_keys=3))
    assert line.play("a1@1 a1@2 a1@3 b1@1 | a1@11 a1@12 b1@3") == "- | -"
    with pytest.raises(ProcessingError, match=r"operator 'per_key' failed.*max_buffered_keys: 3"):
        line.batch(rows_of("b1@12"))
    assert line.play("w=10 | b1@13 c1@14 | end") == (
        "a[0,10)=3/3 b[0,10)=2/2 | - | a[10,20)=2/2 b[10,20)=1/1 c[10,20)=1/1"
    )


def test_the_oldest_windows_go_and_all_of_their_rows_are_counted() -> None:
    line = Timeline(window(10, max_buffered_keys=3, evicts_oldest=True))
    given = "a1@1 a?@2 b1@3 | a1@11 | c1@21 b1@12 | end"
    fired = "- | - | evicted:3 | a[10,20)=1/1 b[10,20)=1/1 c[20,30)=1/1"
    assert line.play(given) == fired
    assert line.absorbed == 6


def test_a_window_that_is_too_large_alone_goes_too_and_takes_no_rows_any_more() -> None:
    line = Timeline(window(10, max_buffered_keys=2, evicts_oldest=True))
    given = "a1@1 b1@2 c1@3 | c1@4 a1@11 | end"
    assert line.play(given) == "evicted:3 | evicted:1 | a[10,20)=1/1"
    assert line.absorbed == 5


def test_what_had_to_go_stays_away_over_a_restore() -> None:
    line = Timeline(window(10, max_buffered_keys=2, evicts_oldest=True))
    given = "a1@1 b1@2 | save | c1@11 | save | a1@3 c1@12 | end"
    assert line.play(given) == "- | - | evicted:2 | - | evicted:1 | c[10,20)=2/2"


def test_rows_whose_windows_have_all_fired_are_not_lost() -> None:
    line = Timeline(
        window(10, late="update", lateness=100, max_buffered_keys=2, evicts_oldest=True)
    )
    given = "a1@1 b1@2 | w=10 | a1@11 b1@12 | a1@21 | end"
    fired = "- | a[0,10)=1/1 b[0,10)=1/1 | - | evicted:2 | a[20,30)=1/1"
    assert line.play(given) == fired


def test_rows_are_counted_over_a_restore_and_whatever_is_aggregated() -> None:
    highest = (AggregatePlan("max", "v", "highest"), AggregatePlan("count_distinct", "v", "n"))
    plan = window(10, 5, aggregates=highest, plain=False, max_buffered_keys=2, evicts_oldest=True)
    line = Timeline(plan)
    assert line.play("a1@1 a1@2 a1@3 | save | b1@6 | save | c1@13") == "- | - | - | - | evicted:3"
    assert sum(batch.num_rows for batch in line.end()) == 4


def test_an_item_that_fails_behind_takes_the_eviction_back() -> None:
    line = Timeline(window(10, max_buffered_keys=2, evicts_oldest=True))
    line.play("a1@1 b1@2")
    failing(line, "c1@11")
    assert line.play("d1@3") == "evicted:3"


def failing(line: Timeline, rows: str) -> None:
    """An item of which an operator behind the window fails."""
    with pytest.raises(ZeroDivisionError), line.journal.item():
        _processed(line, rows)


def _processed(line: Timeline, rows: str) -> None:
    line.operator.process(rows_of(rows), NOWHERE)
    raise ZeroDivisionError
