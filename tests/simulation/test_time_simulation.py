"""Event time under the same hostile driver: watermarks, idleness, windows, late rows, cuts.

Rules W1-W4, W6, W8, W9, W11, W13 and N5, as far as a scripted window can show them.
`ARKFLOW_SEEDS=300 pytest -n 2 tests/simulation/test_time_simulation.py` runs more seeds,
`ARKFLOW_SEED=17` replays one.
"""

import os
from collections import Counter

import pytest

from arkflow_kernel.testing.planted_times import PLANTED_TIMES
from arkflow_kernel.testing.sim_world import Machines
from arkflow_kernel.testing.simulation import STEPS_MIN, SimulationError
from arkflow_kernel.testing.time_simulation import PROBES, TimeSimulation

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


def _seeds() -> list[int]:
    one = os.environ.get("ARKFLOW_SEED")
    return [int(one)] if one else list(range(int(os.environ.get("ARKFLOW_SEEDS", FIXED_SEEDS))))


SEEDS = _seeds()
CHUNKS = [
    pytest.param(
        SEEDS[first : first + CHUNK],
        marks=[pytest.mark.slow] if first else [],
        id=f"{SEEDS[first]}-{SEEDS[first : first + CHUNK][-1]}",
    )
    for first in range(0, len(SEEDS), CHUNK)
]

REACHED: dict[int, Counter[str]] = {}
"""What the seeds that ran in this process reached."""


def _run(seed: int) -> Counter[str]:
    if seed not in REACHED:
        report = TimeSimulation(seed).run()
        assert report.steps >= STEPS_MIN
        REACHED[seed] = report.probes
    return REACHED[seed]


@pytest.mark.parametrize("seeds", CHUNKS)
def test_whatever_dies_each_window_fires_once_and_no_watermark_passes_a_row(
    seeds: list[int],
) -> None:
    for seed in seeds:
        assert _run(seed)


@pytest.mark.slow
@pytest.mark.skipif("ARKFLOW_SEED" in os.environ, reason="a replay of a single seed")
def test_the_fixed_seeds_together_reach_every_situation_of_event_time() -> None:
    reached: Counter[str] = Counter()
    for seed in range(FIXED_SEEDS):
        reached.update(_run(seed))
    assert {probe for probe in PROBES if not reached[probe]} == set()


def _run_all(machines: Machines, first: int) -> None:
    for n in range(FIXED_SEEDS):
        TimeSimulation((first + n) % FIXED_SEEDS, machines).run()


@pytest.mark.slow
@pytest.mark.parametrize("bug", sorted(PLANTED_TIMES))
def test_a_planted_bug_of_event_time_is_found_within_the_fixed_seeds(bug: str) -> None:
    with pytest.raises(SimulationError, match=r"ARKFLOW_SEED=\d+"):
        _run_all(PLANTED_TIMES[bug], FIND_FIRST.get(bug, 0))
