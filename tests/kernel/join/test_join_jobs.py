"""Whole jobs with joins against loops over all rows: parallelism, batches, turns of the chains and
deaths play no part; windows before and behind a join are right (J1-J3, W9, B0).
"""

import random
from collections import Counter

import pytest

from tests.kernel.join.join_line import join_of
from tests.kernel.join.join_oracle import Case, expected
from tests.kernel.join.joined_jobs import (
    JoinedJob,
    Partition,
    edge,
    job_of,
    numbers_of,
    pair,
    sides_of,
    wanted,
    window,
)
from tests.kernel.window.windowed_components import Plan, Rows
from tests.kernel.window.windowed_jobs import Death

pytestmark = pytest.mark.thorough

BOUND_MS = 8


def partition(dice: random.Random, rows: int, behind: int = BOUND_MS) -> Partition:
    """Rows of a few keys whose time goes on."""
    clock, made = 0, []
    for _ in range(rows):
        clock += dice.choice([0, 1, 5, 9])
        made.append((dice.randint(0, 4), clock - dice.randint(0, behind)))
    return made


def plan_of(dice: random.Random) -> Plan:
    return Plan(
        parallelism=dice.choice([1, 2, 4]),
        batch_rows=dice.choice([1, 4, 100]),
        seed=dice.randint(0, 10_000),
        pause_every=dice.choice([0, 2, 5]),
        reading=dice.choice([1, 2]),
    )


def published(job: JoinedJob, dice: random.Random, deaths: int) -> Rows:
    """All rows that left a job which dies so often before it ends."""
    for _ in range(deaths):
        job.run(Death(dice.randint(0, 3), dice.randint(0, 60)))
    ended = job.run()
    assert ended is not None
    return job.published("out")


@pytest.mark.parametrize("seed", range(8))
def test_a_job_joins_as_a_loop_does_whatever_dies(seed: int) -> None:
    dice = random.Random(seed)
    kind = dice.choice(["inner", "left_outer", "right_outer", "full_outer"])
    ttl = dice.choice([0, 5])
    left, right = ([partition(dice, 30, 40) for _ in range(2)] for _ in range(2))
    case = Case(join_of(10, ttl, kind=kind), BOUND_MS, sides_of(left, right, BOUND_MS), seed)
    operators = [pair(join_type=kind, ttl_ms=ttl)]
    edges = [edge("source0", "pair"), edge("source1", "pair"), edge("pair", "out", by_key=False)]
    routes = dice.random() < 0.5
    job = job_of((left, right), operators, edges, plan_of(dice), BOUND_MS, routes=routes)
    found = published(job, dice, deaths=dice.choice([0, 1, 2]))
    assert numbers_of(found) == wanted(case)
    late = [row for row in job.published("late") if row["__arkflow_late_event_route"]]
    assert len(late) == (expected(case)[1] if routes else 0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("time", ["l_ts", "r_ts"])
def test_a_window_behind_a_join_takes_every_row_that_leaves_it(seed: int, time: str) -> None:
    """The watermark is held back by as much as a pair may be behind the one that came in."""
    dice = random.Random(seed)
    left, right = ([partition(dice, 40)] for _ in range(2))
    case = Case(join_of(10), BOUND_MS, sides_of(left, right, BOUND_MS), seed)
    operators = [pair(), window("win", "join_key", time, 20)]
    edges = [
        edge("source0", "pair"),
        edge("source1", "pair"),
        edge("pair", "win"),
        edge("win", "out", by_key=False),
    ]
    job = job_of((left, right), operators, edges, plan_of(dice), BOUND_MS)
    found = published(job, dice, deaths=seed % 2)
    rows = {row.n: row for each in case.sides.values() for part in each for row in part}
    counts: Counter[tuple[int, str]] = Counter()
    for mine, other in wanted(case):
        row = rows[mine if time == "l_ts" else other]  # type: ignore[index]
        counts[row.ts // 20 * 20, str(row.k)] += 1
    assert counts
    got = [(row["window_start"], row["join_key"], row["n"]) for row in found]
    assert sorted(got) == sorted((*where, n) for where, n in counts.items())


@pytest.mark.parametrize("seed", range(4))
def test_a_join_behind_windows_matches_their_results(seed: int) -> None:
    dice = random.Random(seed)
    left, right = ([partition(dice, 40)] for _ in range(2))
    times = {"left_timestamp": "window_end", "right_timestamp": "window_end"}
    operators = [
        window("win0", "k", "ts", 20),
        window("win1", "k", "ts", 20),
        pair("win0", "win1", window_ms=1, join_type="full_outer", **times),
    ]
    edges = [
        edge("source0", "win0"),
        edge("source1", "win1"),
        edge("win0", "pair"),
        edge("win1", "pair"),
        edge("pair", "out", by_key=False),
    ]
    job = job_of((left, right), operators, edges, plan_of(dice), BOUND_MS)
    found = published(job, dice, deaths=seed % 2)
    counts = [
        Counter((ts // 20 * 20, key) for part in side for key, ts in part) for side in (left, right)
    ]
    due = [
        (*where, counts[0].get(where), counts[1].get(where)) for where in {*counts[0], *counts[1]}
    ]
    got = []
    for row in found:
        own = "r" if row.get("l_n") is None else "l"
        window_of = row[f"{own}_window_start"], row[f"{own}_k"]
        got.append((*window_of, row.get("l_n"), row.get("r_n")))
    assert sorted(got, key=str) == sorted(due, key=str)
