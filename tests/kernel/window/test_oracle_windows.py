"""Whole jobs with windows against plain loops over all rows: whatever the order of rows within the
bound and beyond, the batches, the parallelism, the turns of the chains and the deaths (W3, W6, W7,
W9, N2, B0)."""

import itertools
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.inline import InlineJob
from arkflow_kernel.metrics import OperatorCounts
from tests.kernel.window.window_oracle import SIZES, Row, WindowCase, finals, truth
from tests.kernel.window.windowed_components import Plan
from tests.kernel.window.windowed_jobs import Death, WindowedJob

pytestmark = pytest.mark.thorough

KEYS = 5


@dataclass(frozen=True)
class Drawn:
    """A job, and where its runs die before the last one does not."""

    case: WindowCase
    partitions: tuple[tuple[Row, ...], ...]
    plan: Plan
    deaths: tuple[Death, ...]


@st.composite
def partition(draw: st.DrawFn, bound_ms: int) -> list[tuple[int, int, int]]:
    """Times, keys, values: the time goes on by steps; most rows are within the bound."""
    now = draw(st.integers(-30, 30))
    back = st.one_of(st.integers(0, bound_ms), st.integers(0, bound_ms), st.integers(0, 60))
    rows = []
    steps = st.tuples(st.integers(0, 6), back, st.integers(0, KEYS - 1), st.integers(-9, 9))
    for step, behind, key, value in draw(st.lists(steps, min_size=10, max_size=40)):
        now += step
        rows.append((now - behind, key, value))
    return rows


@st.composite
def drawn(draw: st.DrawFn, kind: str, policy: str) -> Drawn:
    """Everything that may differ between two runs of the same windows."""
    bound_ms = draw(st.sampled_from([0, 3, 8]))
    case = WindowCase(
        kind,
        **SIZES[kind],
        offset_ms=0 if kind == "session" else draw(st.sampled_from([0, 0, 3])),
        bound_ms=bound_ms,
        policy=policy,
        lateness_ms=draw(st.sampled_from([0, 7, 25])),
    )
    count = itertools.count()
    partitions = tuple(
        tuple(Row(next(count), *row) for row in rows)
        for rows in draw(st.lists(partition(bound_ms), min_size=1, max_size=3))
    )
    numbers = tuple(range(len(partitions)))
    split = draw(st.integers(1, len(numbers)))
    sources = (numbers[:split], numbers[split:]) if numbers[split:] else (numbers,)
    plan = Plan(
        sources,
        parallelism=draw(st.sampled_from([1, 2, 4])),
        batch_rows=draw(st.sampled_from([1, 4, 100])),
        seed=draw(st.integers(0, 10_000)),
        pause_every=draw(st.sampled_from([0, 2, 5])),
        memory_bytes=draw(st.sampled_from([None, 1])),
        reading=draw(st.sampled_from([1, 1, 2, 3])),
    )
    if len(sources) == 1 and draw(st.booleans()):
        plan = replace(plan, parallelism=1, reading=1, fused=True)
        partitions = tuple(tuple(replace(row, k=0) for row in rows) for rows in partitions)
    death = st.builds(Death, st.integers(0, 4), st.integers(0, 60))
    deaths = [draw(death) for _ in range(draw(st.sampled_from([0, 1, 1, 2])))]
    return Drawn(case, partitions, plan, tuple(deaths))


ALL = [(kind, policy) for kind in SIZES for policy in ("drop", "route", "update")]


@pytest.mark.parametrize(("kind", "policy"), ALL)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_the_last_word_of_every_window_is_that_of_a_loop_over_all_rows(
    kind: str, policy: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    compare(data.draw(drawn(kind, policy)), tmp_path_factory.getbasetemp())


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "policy"), ALL)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_of_many_more_jobs_the_last_word_of_every_window_is_that_of_a_loop_over_all_rows(
    kind: str, policy: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    compare(data.draw(drawn(kind, policy)), tmp_path_factory.getbasetemp())


def compare(job: Drawn, spool: Path) -> None:
    """Run a job, as often as it dies, and compare what it published with the truth."""
    expected = truth(job.case, job.partitions)
    windowed = WindowedJob(job.case, job.partitions, job.plan, spool=spool)
    ended = None
    for death in (*job.deaths, None):
        ended = windowed.run(death)
        if ended is not None:
            break
    assert ended is not None
    assert finals(windowed.published("out"), keyed=not job.plan.fused) == expected.results
    late = sorted(row.n for row in expected.late)
    if job.case.policy == "route":
        assert sorted(row["n"] for row in windowed.published("late")) == late
    if not job.deaths:
        assert sum(counts.late for counts in windows(ended)) == len(late)
    assert all(counts.conserved() for counts in windows(ended))


def windows(job: InlineJob) -> list[OperatorCounts]:
    """What the subtasks of the window did with their rows (T6)."""
    chains = job.status().chains.values()
    return [counts for chain in chains for counts in chain.operators if counts.operator == "win"]
