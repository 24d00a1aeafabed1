"""Proof that the simulation of checkpoints finds bugs: each of these, alone, in the fixed seeds."""

from types import ModuleType

import pytest

from arkflow_kernel.testing import (
    planted,
    planted_autoscale,
    planted_channels,
    planted_cuts,
    planted_jobs,
    planted_logs,
    planted_rescales,
    planted_times,
)
from arkflow_kernel.testing.cut_simulation import CutSimulation
from arkflow_kernel.testing.planted_logs import PLANTED_CUTS
from arkflow_kernel.testing.simulation import SimulationError
from tests.simulation.seeds import run_all

# Where a bug that few seeds find is found soonest; all the fixed seeds are tried all the same.
FIND_FIRST: dict[str, int] = {}


@pytest.mark.slow
@pytest.mark.parametrize("bug", sorted(PLANTED_CUTS))
def test_a_planted_bug_of_checkpoints_is_found_within_the_fixed_seeds(bug: str) -> None:
    with pytest.raises(SimulationError, match=r"ARKFLOW_SEED=\d+"):
        run_all(CutSimulation, PLANTED_CUTS[bug], FIND_FIRST.get(bug, 0))


MODULES = (
    planted,
    planted_autoscale,
    planted_channels,
    planted_cuts,
    planted_jobs,
    planted_logs,
    planted_rescales,
    planted_times,
)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_what_a_planted_bug_overrides_is_there(module: ModuleType) -> None:
    """Else a renamed method would make a bug harmless, and its test blind."""
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type)]
    own = [kind for kind in kinds if kind.__module__ == module.__name__]
    assert own
    for kind in own:
        for name, value in vars(kind).items():
            if not (callable(value) or isinstance(value, property)) or name.startswith("_planted"):
                continue
            bases = [base for base in kind.__mro__[1:] if base is not object]
            assert any(name in vars(base) for base in bases) or name == "__init__", (kind, name)
