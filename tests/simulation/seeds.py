"""Which seeds of a simulation run, in which tests, and what is asked of each.

`ARKFLOW_SEEDS=1000 pytest -n 2 tests/simulation` runs more seeds, `ARKFLOW_SEED=17` replays one.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from arkflow_kernel.testing.cut_simulation import CutSimulation
from arkflow_kernel.testing.sim_world import Machines
from arkflow_kernel.testing.simulation import STEPS_MIN, Report, Simulation

FIXED_SEEDS = 50
"""Seeds that run unless the environment says otherwise."""

CHUNK = 10
"""Seeds of one test: few enough to be spread over processes, enough to name few tests."""

unless_replayed = pytest.mark.skipif(
    "ARKFLOW_SEED" in os.environ, reason="a replay of a single seed"
)
"""For tests that need all fixed seeds."""


def _seeds(fixed: int, kept: tuple[int, ...]) -> list[int]:
    one = os.environ.get("ARKFLOW_SEED")
    if one is not None:
        return [int(one)]
    return [*kept, *range(int(os.environ.get("ARKFLOW_SEEDS", fixed)))]


def in_chunks(
    fixed: int = FIXED_SEEDS, *, kept: tuple[int, ...] = (), chunk: int = CHUNK
) -> pytest.MarkDecorator:
    """Gives a test its `seeds`, so many at once; all but the first ones are slow."""
    seeds = _seeds(fixed, kept)
    chunks = [seeds[first : first + chunk] for first in range(0, len(seeds), chunk)]
    return pytest.mark.parametrize(
        "seeds",
        [
            pytest.param(some, marks=[pytest.mark.slow] if n else [], id=f"{some[0]}-{some[-1]}")
            for n, some in enumerate(chunks)
        ],
    )


def reached(report: Report) -> Counter[str]:
    """What a seed reached, which did its share of work."""
    assert report.steps >= STEPS_MIN
    assert report.probes["fault"]
    return report.probes


def missed(
    run: Callable[[int], Counter[str]], probes: Iterable[str], fixed: int = FIXED_SEEDS
) -> set[str]:
    """Which of these the fixed seeds do not reach, all of them together."""
    together: Counter[str] = Counter()
    for seed in range(fixed):
        together.update(run(seed))
    return {probe for probe in probes if not together[probe]}


def run_all(
    simulation: type[Simulation | CutSimulation],
    machines: Machines,
    first: int,
    fixed: int = FIXED_SEEDS,
) -> None:
    """Run the fixed seeds with these machines, beginning with `first`."""
    for n in range(fixed):
        simulation((first + n) % fixed, machines).run()


__all__ = ["FIXED_SEEDS", "in_chunks", "missed", "reached", "run_all", "unless_replayed"]
