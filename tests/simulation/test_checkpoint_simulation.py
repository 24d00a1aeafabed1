"""The machines of checkpoint mode, the log and the states, under a seeded, hostile driver.

`seeds.py` says how to run more seeds, or one.
"""

from collections import Counter
from functools import cache

import pytest

from arkflow_kernel.testing.cut_simulation import PROBES, CutSimulation
from tests.simulation.seeds import in_chunks, missed, reached, unless_replayed

pytestmark = pytest.mark.thorough

# Seeds beyond the fixed ones that once found a bug in a machine or in the kit: they run for ever.
KEPT_SEEDS: tuple[int, ...] = ()


@cache
def _run(seed: int) -> Counter[str]:
    return reached(CutSimulation(seed).run())


@in_chunks(kept=KEPT_SEEDS)
def test_whatever_dies_every_row_is_published_once_and_every_record_is_its_cut(
    seeds: list[int],
) -> None:
    for seed in seeds:
        assert _run(seed)


@pytest.mark.slow
@unless_replayed
def test_the_fixed_seeds_together_reach_every_situation_and_every_kill_point() -> None:
    assert missed(_run, PROBES) == set()


def test_a_seed_of_checkpoints_decides_everything() -> None:
    first, second = CutSimulation(3).run(), CutSimulation(3).run()
    assert (first.steps, first.probes) == (second.steps, second.probes)
