"""The machines of ack mode under a seeded, hostile driver.

`seeds.py` says how to run more seeds, or one.
"""

from collections import Counter
from functools import cache

import pytest

from arkflow_kernel.testing.simulation import PROBES, Simulation
from tests.simulation.seeds import in_chunks, missed, reached, unless_replayed

pytestmark = pytest.mark.thorough

# Seeds that once found a bug in a machine or in the kit: they run for ever.
KEPT_SEEDS: tuple[int, ...] = ()


@cache
def _run(seed: int) -> Counter[str]:
    return reached(Simulation(seed).run())


@in_chunks(kept=KEPT_SEEDS)
def test_no_order_of_events_loses_repeats_or_commits_too_early(seeds: list[int]) -> None:
    for seed in seeds:
        assert _run(seed)


@pytest.mark.slow
@unless_replayed
def test_the_fixed_seeds_together_reach_every_situation() -> None:
    assert missed(_run, PROBES) == set()


def test_a_seed_decides_everything() -> None:
    first, second = Simulation(3).run(), Simulation(3).run()
    assert (first.steps, first.probes) == (second.steps, second.probes)
