"""Proof that the simulation finds bugs: each of these, planted alone, within the fixed seeds."""

import pytest

from arkflow_kernel.testing.planted_jobs import PLANTED
from arkflow_kernel.testing.simulation import Simulation, SimulationError
from tests.simulation.seeds import run_all

# Where a bug that few seeds find is found soonest; all the fixed seeds are tried all the same.
FIND_FIRST = {
    "AcceptsOldGenerations": 20,
    "FinishOvertakesBatches": 9,
    "KeepsReadAheadAtStop": 26,
    "RestartsAtOnce": 20,
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", sorted(PLANTED))
def test_a_planted_bug_is_found_within_the_fixed_seeds(bug: str) -> None:
    with pytest.raises(SimulationError, match=r"ARKFLOW_SEED=\d+"):
        run_all(Simulation, PLANTED[bug], FIND_FIRST.get(bug, 0))
