"""Event time under the same hostile driver: watermarks, idleness, windows, late rows, cuts.

Rules W1-W4, W6, W8, W9, W11, W13 and N5, as far as a scripted window can show them.
`seeds.py` says how to run more seeds, or one.
"""

from collections import Counter
from functools import cache

import pytest

from arkflow_kernel.testing.planted_times import PLANTED_TIMES
from arkflow_kernel.testing.simulation import SimulationError
from arkflow_kernel.testing.time_simulation import PROBES, TimeSimulation
from tests.simulation.seeds import in_chunks, missed, reached, run_all, unless_replayed

FIXED_SEEDS = 40

CHUNK = 4
"""Seeds of one test: few enough that the first ones are quick."""

# Where a bug that few seeds find is found soonest; all the fixed seeds are tried all the same.
FIND_FIRST: dict[str, int] = {
    "CutsBeforeTheNewestWatermark": 11,
    "FallsWhenItWakes": 6,
    "GateForgetsRestoredTimes": 26,
    "IdleSplitsCount": 16,
}


@cache
def _run(seed: int) -> Counter[str]:
    return reached(TimeSimulation(seed).run())


@in_chunks(FIXED_SEEDS, chunk=CHUNK)
def test_whatever_dies_each_window_fires_once_and_no_watermark_passes_a_row(
    seeds: list[int],
) -> None:
    for seed in seeds:
        assert _run(seed)


@pytest.mark.slow
@unless_replayed
def test_the_fixed_seeds_together_reach_every_situation_of_event_time() -> None:
    assert missed(_run, PROBES, FIXED_SEEDS) == set()


@pytest.mark.slow
@pytest.mark.parametrize("bug", sorted(PLANTED_TIMES))
def test_a_planted_bug_of_event_time_is_found_within_the_fixed_seeds(bug: str) -> None:
    with pytest.raises(SimulationError, match=r"ARKFLOW_SEED=\d+"):
        run_all(TimeSimulation, PLANTED_TIMES[bug], FIND_FIRST.get(bug, 0), FIXED_SEEDS)
