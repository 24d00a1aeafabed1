"""Sessions are those of a loop over rows, whatever the order, the cuts, crashes and files (W9)."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.event_time_gate import ROW_WATERMARK
from arkflow_kernel.plan import LatePolicy
from arkflow_kernel.testing.session_bench import (
    Rows,
    SessionBench,
    SessionOracle,
    corrected,
    in_order,
    session_plan,
)
from arkflow_kernel.window import session_pieces, session_runs

pytestmark = pytest.mark.thorough

POLICIES = st.sampled_from([(LatePolicy.DROP, 0), (LatePolicy.ROUTE, 0), (LatePolicy.UPDATE, 25)])


@dataclass(frozen=True)
class Step:
    """A batch of one partition, and what follows it."""

    partition: int
    rows: tuple[tuple[int, int, int | None], ...]
    advances: bool
    crashes: bool


STEPS = st.lists(
    st.builds(
        Step,
        st.integers(0, 1),
        st.lists(
            st.tuples(
                st.integers(0, 2), st.integers(-12, 30), st.one_of(st.none(), st.integers(0, 9))
            ),
            max_size=8,
        ).map(tuple),
        st.booleans(),
        st.sampled_from([False, False, False, True]),
    ),
    max_size=14,
)


class Source:
    """Two partitions, each with its own time: stamps rows as the gate does, and merges (W1, W3).

    Times of a partition go on by themselves, so that a row's offset is small before or after them.
    """

    def __init__(self, bound_ms: int) -> None:
        self._bound = bound_ms
        self._highest: list[int | None] = [None, None]
        self._now = [-60, -60]

    def rows(self, step: Step) -> Rows:
        """The rows of a step, with w(row) where their time is below it."""
        made: Rows = []
        for key, offset, value in step.rows:
            self._now[step.partition] += 3
            ts = self._now[step.partition] + offset
            highest = self._highest[step.partition]
            mark = None if highest is None or ts >= highest - self._bound else highest - self._bound
            made.append({"k": f"k{key}", "ts": ts, "v": value, ROW_WATERMARK: mark})
            self._highest[step.partition] = ts if highest is None else max(highest, ts)
        return made

    @property
    def watermark(self) -> int | None:
        """The minimum of both; None before the first row of either."""
        known = [each for each in self._highest if each is not None]
        return None if len(known) < len(self._highest) else min(known) - self._bound


@contextmanager
def small_pieces(*, searched: bool) -> Iterator[None]:
    """Pieces merge and go from the first rows on. `searched`: only what is near is looked at, as
    where keys have many fragments.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_runs, "_COMPACT_ROWS_MIN", 1)
        patch.setattr(session_runs, "_FAN_IN", 3)
        if searched:
            patch.setattr(session_pieces, "_FEW", 0)
            patch.setattr(session_pieces, "_DENSE", 0)
        yield


def same_as_the_loop(bench: SessionBench, steps: list[Step], bound_ms: int) -> None:
    """Each item yields what the oracle says, at once; late rows are counted alike."""
    oracle, source = SessionOracle(bench.plan), Source(bound_ms)
    for step in steps:
        rows = source.rows(step)
        if rows:
            assert in_order(bench.rows(rows)) == oracle.rows(rows)
        if step.crashes:
            bench.crash()
        if step.advances and source.watermark is not None:
            watermark = source.watermark
            assert in_order(bench.advance(watermark)) == oracle.advance(watermark)
    assert in_order(bench.end()) == oracle.end()
    assert bench.late_rows == oracle.late_rows


@given(STEPS, POLICIES, st.sampled_from([0, 5, 40]), st.booleans())
@settings(max_examples=60)
def test_every_item_yields_what_a_loop_over_rows_says(
    steps: list[Step], policy: tuple[LatePolicy, int], bound_ms: int, searched: bool
) -> None:
    with small_pieces(searched=searched):
        plan = session_plan(10, late=policy[0], lateness_ms=policy[1])
        same_as_the_loop(SessionBench(plan), steps, bound_ms)


@given(STEPS, POLICIES, st.sampled_from([0, 5]))
@settings(max_examples=20)
def test_files_and_crashes_change_nothing(
    steps: list[Step], policy: tuple[LatePolicy, int], bound_ms: int
) -> None:
    with small_pieces(searched=True), tempfile.TemporaryDirectory() as folder:
        plan = session_plan(10, late=policy[0], lateness_ms=policy[1], memory_bytes=1)
        same_as_the_loop(SessionBench(plan, Path(folder)), steps, bound_ms)


def finals(batches: list[Rows], watermarks: list[int | None], plan: Any) -> tuple[Rows, int]:
    """What a reader holds after these batches, each followed by a watermark if there is one."""
    bench = SessionBench(plan)
    for rows, watermark in zip(batches, watermarks, strict=True):
        bench.rows(rows)
        if watermark is not None:
            bench.advance(watermark)
    bench.end()
    return corrected(bench.results), bench.late_rows


@given(STEPS, POLICIES, st.sampled_from([0, 5, 40]), st.data())
@settings(max_examples=20)
def test_what_is_left_in_the_end_does_not_depend_on_the_interleaving_of_partitions(
    steps: list[Step], policy: tuple[LatePolicy, int], bound_ms: int, data: st.DataObject
) -> None:
    """Rows within the bound, and beyond it: the outcome depends on a partition alone (W6, W9)."""
    plan = session_plan(10, late=policy[0], lateness_ms=policy[1])
    expected = None
    for _ in range(2):
        source, queues = Source(bound_ms), [[s for s in steps if s.partition == p] for p in (0, 1)]
        batches: list[Rows] = []
        watermarks: list[int | None] = []
        while any(queues):
            side = data.draw(st.sampled_from([n for n in (0, 1) if queues[n]]))
            rows = source.rows(queues[side].pop(0))
            if rows:
                batches.append(rows)
                watermarks.append(source.watermark)
        found = finals(batches, watermarks, plan)
        assert expected is None or found == expected
        expected = found


@given(STEPS, st.data())
@settings(max_examples=20)
def test_batches_may_be_cut_anywhere(steps: list[Step], data: st.DataObject) -> None:
    plan = session_plan(10, late=LatePolicy.UPDATE, lateness_ms=25)
    source = Source(5)
    batches = [(rows, source.watermark) for step in steps if (rows := source.rows(step))]
    expected = finals([rows for rows, _ in batches], [mark for _, mark in batches], plan)
    cut: list[Rows] = []
    marks: list[int | None] = []
    for rows, mark in batches:
        places = sorted(data.draw(st.sets(st.integers(1, len(rows) - 1))) if len(rows) > 1 else [])
        for start, end in zip([0, *places], [*places, len(rows)], strict=True):
            cut.append(rows[start:end])
            marks.append(mark if end == len(rows) else None)
    assert finals(cut, marks, plan) == expected
