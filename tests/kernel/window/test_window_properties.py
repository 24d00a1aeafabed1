"""Final results do not depend on cuts of batches, on when time moves, or on restores (W6, W7, W9).

One partition is played against a loop over its rows: a row counts in the windows that end (plus the
allowed lateness, under UPDATE) after the greatest time before it minus the bound.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.event_time_gate import ROW_WATERMARK
from arkflow_kernel.plan import AggregatePlan, LatePolicy, WindowKind, WindowPlan
from arkflow_kernel.window import firing, pane_runs, pane_sides
from tests.kernel.window.test_assign import windows_with
from tests.kernel.window.timeline import PLAIN, Timeline, window

pytestmark = pytest.mark.thorough

Row = tuple[int, str | None, int | None]
"""Time, key, value."""

Final = dict[tuple[int, int, str | None], Any]

DISTINCT = (
    AggregatePlan("count", None, "n"),
    AggregatePlan("count_distinct", "v", "different"),
    AggregatePlan("sum", "v", "total"),
)


@dataclass(frozen=True)
class Case:
    """Rows in the order of arrival, and how they are handed over: how many to a batch, whether
    the watermark rises behind it, and whether the operator is restored then.
    """

    plan: WindowPlan
    bound: int
    rows: list[Row]
    steps: list[tuple[int, bool, bool]]


@st.composite
def cases(draw: st.DrawFn, aggregates: tuple[AggregatePlan, ...] = PLAIN) -> Case:
    """Any rows, any cuts, time that moves after some batches, restores after some."""
    size = draw(st.integers(1, 12))
    slide = draw(st.integers(1, size))
    late = draw(st.sampled_from(["drop", "route", "update"]))
    plan = window(
        size,
        slide,
        offset=draw(st.integers(-5, 5)),
        late=late,
        lateness=draw(st.integers(0, 15)) if late == "update" else 0,
        aggregates=aggregates,
        plain=aggregates is PLAIN,
    )
    row = st.tuples(
        st.integers(-30, 30),
        st.sampled_from(["a", "b", "c", None]),
        st.integers(-3, 3) | st.none(),
    )
    step = st.tuples(st.integers(1, 9), st.booleans(), st.booleans())
    rows, steps = draw(st.lists(row, min_size=1, max_size=30)), draw(st.lists(step, max_size=10))
    return Case(plan, draw(st.integers(0, 10)), rows, steps)


def expected(case: Case) -> tuple[dict[tuple[int, int, str | None], list[Row]], int]:
    """The rows of each window and key, and how many rows are late for all of theirs."""
    plan, held, late, greatest = case.plan, defaultdict(list), 0, None
    for row in case.rows:
        ts, key, _ = row
        taken = [
            bounds
            for bounds in windows_with(ts, plan.size_ms, plan.slide_ms, plan.offset_ms)
            if greatest is None or bounds[1] + plan.allowed_lateness_ms > greatest - case.bound
        ]
        late += not taken
        for bounds in taken:
            held[(*bounds, key)].append(row)
        greatest = ts if greatest is None else max(greatest, ts)
    return held, late


def played(case: Case, line: Timeline) -> list[dict[str, Any]]:
    """All result rows of a case, as they leave. The gate's column is computed here."""
    batches: list[pa.RecordBatch] = []
    greatest, first = None, 0
    for cut, moves, saves in [*case.steps, (len(case.rows), True, True)]:
        part = case.rows[first : first + cut]
        first += cut
        if not part:
            break
        marks: list[int | None] = []
        for ts, _, _ in part:
            stamped = greatest is not None and ts < greatest - case.bound
            marks.append(greatest - case.bound if stamped and greatest is not None else None)
            greatest = ts if greatest is None else max(greatest, ts)
        batches += line.batch(stamped_batch(part, marks))
        if moves and greatest is not None:
            batches += line.advance(greatest - case.bound)
        if saves:
            line.save()
    batches += line.end()
    return [row for batch in batches for row in batch.to_pylist()]


def stamped_batch(rows: list[Row], marks: list[int | None]) -> pa.RecordBatch:
    """Rows as they leave the gate: the column is there only if some row is stamped."""
    columns: dict[str, Any] = {
        "k": pa.array([key for _, key, _ in rows], pa.string()),
        "v": pa.array([value for _, _, value in rows], pa.int64()),
        "ts": pa.array([ts for ts, _, _ in rows], pa.int64()),
    }
    if any(mark is not None for mark in marks):
        columns[ROW_WATERMARK] = pa.array(marks, pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def last_of_each(rows: list[dict[str, Any]], key: str, *values: str) -> Final:
    """The last row of each window and key."""
    return {
        (row["window_start"], row["window_end"], row[key]): tuple(row[name] for name in values)
        for row in rows
    }


def proved(case: Case) -> None:
    """Play a case and compare with the loop."""
    line = Timeline(case.plan)
    rows = played(case, line)
    held, late = expected(case)
    values = {
        place: [value for _, _, value in members if value is not None]
        for place, members in held.items()
    }
    assert last_of_each(rows, "key", "count", "sum", "min", "max") == {
        place: (len(found), sum(found), min(found), max(found))
        for place, found in values.items()
        if found
    }
    assert line.late_rows == late
    assert line.absorbed + line.late_rows == len(case.rows)
    routed = sum(batch.num_rows for batch in line.routed)
    assert routed == (late if case.plan.late is LatePolicy.ROUTE else 0)
    firsts = [
        (row["window_start"], row["key"]) for row in rows if not row["__arkflow_window_update"]
    ]
    assert len(firsts) == len(set(firsts))
    if case.plan.late is not LatePolicy.UPDATE:
        assert len(firsts) == len(rows)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_any_cuts_any_moves_of_time_and_any_restores_give_the_results_of_a_loop(
    case: Case,
) -> None:
    proved(case)


@settings(max_examples=30, deadline=None)
@given(cases())
def test_so_do_small_tables_and_parts_by_key(case: Case) -> None:
    """Every few rows are grouped, merged and fired apart, as millions are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pane_sides, "RAW_ROWS", 4)
        patch.setattr(pane_runs, "PIECE_ROWS", 3)
        patch.setattr(firing, "RESULT_ROWS_MAX", 5)
        patch.setattr(firing, "_CORRECTED_MAX", 4)
        proved(case)


@settings(max_examples=25, deadline=None)
@given(cases(aggregates=DISTINCT))
def test_several_families_of_aggregates_stay_in_step(case: Case) -> None:
    rows = played(case, Timeline(case.plan))
    held, _ = expected(case)
    wanted: Final = {}
    for place, members in held.items():
        values = [value for _, _, value in members if value is not None]
        wanted[place] = (len(members), len(set(values)), sum(values) if values else None)
    assert last_of_each(rows, "k", "n", "different", "total") == wanted


@settings(max_examples=25, deadline=None)
@given(
    st.permutations(
        [(day * 86_400_000 + hour * 3_600_000) for day in (-1, 0, 1) for hour in (0, 7, 8, 9)]
    ),
    st.lists(st.integers(1, 5), max_size=8),
)
def test_any_order_within_the_bound_gives_the_same_days(times: list[int], cuts: list[int]) -> None:
    plan = window(kind=WindowKind.CALENDAR, unit="day", timezone="Asia/Shanghai")
    rows: list[Row] = [(ts, "a", 1) for ts in times]
    steps = [(cut, True, False) for cut in cuts]
    case = Case(plan, 10 * 86_400_000, rows, steps)
    found = last_of_each(played(case, Timeline(plan)), "key", "count")
    start = -2 * 86_400_000 - 8 * 3_600_000
    wanted: dict[tuple[int, int, str], int] = defaultdict(int)
    for ts in times:
        begin = start + (ts - start) // 86_400_000 * 86_400_000
        wanted[(begin, begin + 86_400_000, "a")] += 1
    assert found == {place: (count,) for place, count in wanted.items()}
