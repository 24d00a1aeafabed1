"""Proof that the simulation finds bugs: each of these, planted alone, within the fixed seeds."""

import pytest

from arkflow_kernel.testing.planted_jobs import PLANTED
from arkflow_kernel.testing.simulation import Machines, Simulation, SimulationError

SEEDS = 50

# Where a bug that few seeds find is found soonest; all the fixed seeds are tried all the same.
FIND_FIRST = {
    "AcceptsOldGenerations": 20,
    "FinishOvertakesBatches": 9,
    "KeepsReadAheadAtStop": 26,
    "RestartsAtOnce": 20,
}


def _run_all(machines: Machines, first: int) -> None:
    for n in range(SEEDS):
        Simulation((first + n) % SEEDS, machines).run()


@pytest.mark.slow
@pytest.mark.parametrize("bug", sorted(PLANTED))
def test_a_planted_bug_is_found_within_the_fixed_seeds(bug: str) -> None:
    with pytest.raises(SimulationError, match=r"ARKFLOW_SEED=\d+"):
        _run_all(PLANTED[bug], FIND_FIRST.get(bug, 0))
