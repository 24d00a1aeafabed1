"""Which rows are late does not depend on batches, parallelism or turns (W3, W6): 60,000 rows, a
bound of a second, windows of ten."""

import random
from functools import cache

import pytest

from tests.kernel.window.window_oracle import Row, Truth, WindowCase, finals, truth
from tests.kernel.window.windowed_components import Plan
from tests.kernel.window.windowed_jobs import WindowedJob

pytestmark = pytest.mark.thorough

ROWS, KEYS, BOUND_MS, SIZE_MS = 60_000, 50, 1_000, 10_000
BEHIND_MS, BEHIND_SHARE = 15_000, 0.05
PARTITIONS = 3

CASE = WindowCase("tumbling", size_ms=SIZE_MS, bound_ms=BOUND_MS, policy="route")

PLANS = [
    Plan(((0, 1, 2),), batch_rows=8_192, exact_batches=True),
    Plan(((0, 1, 2),), batch_rows=ROWS, exact_batches=True, seed=1),
    Plan(((0,), (1, 2)), parallelism=2, batch_rows=1_000, seed=2, pause_every=5),
    pytest.param(
        Plan(((0, 1), (2,)), parallelism=4, batch_rows=300, seed=3, pause_every=50),
        marks=pytest.mark.slow,
    ),
    pytest.param(
        Plan(((0, 1, 2),), parallelism=2, batch_rows=25, exact_batches=True, seed=4),
        marks=pytest.mark.slow,
    ),
]


@cache
def partitions(share: float) -> tuple[tuple[Row, ...], ...]:
    """A row each millisecond, dealt out; within each partition they rise, but for those behind."""
    dice = random.Random(20_261_130)
    found: list[list[Row]] = [[] for _ in range(PARTITIONS)]
    for n in range(ROWS):
        behind = BEHIND_MS if dice.random() < share else 0
        row = Row(n, n - behind, dice.randrange(KEYS), dice.randrange(-1_000, 1_000))
        found[dice.randrange(PARTITIONS)].append(row)
    return tuple(tuple(rows) for rows in found)


@cache
def expected(share: float) -> Truth:
    """What a loop over all rows says."""
    return truth(CASE, partitions(share))


@pytest.mark.parametrize("share", [0.0, BEHIND_SHARE], ids=["in-order", "some-behind"])
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.batch_rows}x{plan.parallelism}")
def test_the_same_rows_are_late_at_every_batch_size_and_parallelism(
    plan: Plan, share: float
) -> None:
    job = WindowedJob(CASE, partitions(share), plan)
    assert job.run() is not None
    late = {row["n"] for row in job.published("late")}
    assert late == {row.n for row in expected(share).late}
    assert bool(late) == bool(share)
    assert len(late) == len(job.published("late"))
    assert finals(job.published("out")) == expected(share).results
