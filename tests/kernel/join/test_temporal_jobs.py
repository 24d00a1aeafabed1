"""Whole jobs with temporal joins against the loop: parallelism, batches, turns of the chains and
deaths play no part; a window behind one loses nothing (J9-J11, W9, B0).
"""

import random
from collections import Counter
from typing import Any

import pytest

from tests.kernel.join.join_oracle import Case
from tests.kernel.join.joined_jobs import (
    JoinedJob,
    Partition,
    edge,
    job_of,
    numbers_of,
    pair,
    sides_of,
    window,
)
from tests.kernel.join.temporal_oracle import expected, temporal
from tests.kernel.join.test_join_jobs import BOUND_MS, plan_of, published

pytestmark = pytest.mark.thorough


def partition(dice: random.Random, keys: list[int]) -> Partition:
    """Rows whose time goes on, some of them late."""
    clock, made = 0, []
    for _ in range(30):
        clock += dice.choice([0, 1, 5, 9])
        made.append((dice.choice(keys), clock - dice.randint(0, 3 * BOUND_MS)))
    return made


def versioned(**config: Any) -> dict[str, Any]:
    entry = pair(join_type="temporal", **config)
    del entry["config"]["window_ms"]
    return entry


def job_and_case(
    dice: random.Random, seed: int, *, windowed: bool = False
) -> tuple[JoinedJob, Case, bool]:
    """A job, the same rows for the loop, and whether it routes late rows."""
    left = [partition(dice, [0, 1, 2, 3, 4]) for _ in range(2)]
    right = [partition(dice, keys) for keys in ([0, 2], [1, 3])]
    keep, ttl = dice.random() < 0.5 and not windowed, dice.choice([None, 30])
    plan = temporal(keep=keep, ttl_ms=ttl)
    case = Case(plan, BOUND_MS, sides_of(left, right, BOUND_MS), seed)
    config = {"unmatched": "keep"} if keep else {}
    operators = [versioned(**config, **({} if ttl is None else {"version_ttl_ms": ttl}))]
    edges = [edge("source0", "pair"), edge("source1", "pair")]
    if windowed:
        operators.append(window("win", "join_key", "l_ts", 20))
        edges += [edge("pair", "win"), edge("win", "out", by_key=False)]
    else:
        edges.append(edge("pair", "out", by_key=False))
    routes = dice.random() < 0.5
    job = job_of((left, right), operators, edges, plan_of(dice), BOUND_MS, routes=routes)
    return job, case, routes


@pytest.mark.parametrize("seed", range(8))
def test_a_job_finds_the_versions_of_a_loop_whatever_dies(seed: int) -> None:
    dice = random.Random(seed)
    job, case, routes = job_and_case(dice, seed)
    found = published(job, dice, deaths=dice.choice([0, 1, 2]))
    rows, late = expected(case)
    assert numbers_of(found) == numbers_of(rows)
    routed = [row for row in job.published("late") if row["__arkflow_late_event_route"]]
    assert len(routed) == (late if routes else 0)


@pytest.mark.parametrize("seed", range(4))
def test_a_window_behind_it_takes_every_row_that_leaves(seed: int) -> None:
    """The watermark that leaves is the one that came in: what waits is not behind it (J11)."""
    dice = random.Random(seed)
    job, case, _ = job_and_case(dice, seed, windowed=True)
    found = published(job, dice, deaths=seed % 2)
    counts = Counter((row["l_ts"] // 20 * 20, row["join_key"]) for row in expected(case)[0])
    assert counts
    got = [(row["window_start"], row["join_key"], row["n"]) for row in found]
    assert sorted(got) == sorted((*where, n) for where, n in counts.items())
