"""A seeded simulation of whole jobs in ack mode: the real machines under a hostile driver.

One seed decides a job and then, step by step, what happens next: an envelope arrives, is handed to
its machine, or is lost; a request is worked off, an answer handed over; a control message comes
late, twice, in another order, or never; time passes; a process crashes or hangs, a connection
breaks; the user stops the job. After every step the checkers look (`lineage.py`, `checkers.py`, the
machines' own `validate`). Real work is done by the real `ChainWork`.

Not simulated: checkpoints; they have a simulation of their own.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from arkflow_kernel import outbox, pieces
from arkflow_kernel.errors import ProtocolError
from arkflow_kernel.plan import EdgeKind
from arkflow_kernel.protocol import OutcomeKind
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.lineage import ViolationError
from arkflow_kernel.testing.scenario import Scenario, UserAction, draw_scenario
from arkflow_kernel.testing.sim_faults import AT_START, FAULTS, draw_fault, strike
from arkflow_kernel.testing.sim_job import SimJob
from arkflow_kernel.testing.sim_world import Machines, World
from arkflow_kernel.testing.virtual_clock import VirtualClock

FILE = "tests/simulation/test_ack_simulation.py"
"""Where seeds of ack mode are run."""

STEPS_MAX = 15_000
"""A job that takes more has stopped making progress."""

STEPS_MIN = 2_000
"""A seed runs jobs until it took so many steps and saw a fault."""

SLICE_ROWS = 5
"""Rows of a slice while a simulation runs, so that small batches have several slices."""

ENVELOPE_ROWS = 12
"""Rows of an envelope while a simulation runs, so that small batches fill some."""

PROBES = (
    *(f"edge {kind.value}" for kind in EdgeKind if kind is not EdgeKind.LATE),
    *(f"fault {name}" for name, _ in FAULTS),
    *(f"job {kind.value}" for kind in OutcomeKind),
    *(f"chain {kind.value}" for kind in OutcomeKind),
    *("crash unnoticed", "hear of a break", "notice", "kill", "killed", "restart"),
    *("control lost", "control repeated", "control of an old generation"),
    *("stop", "cancel", "tick", "coordinator tick", "report"),
    *("stall", "coalesced", "slices", "workers", "grant", "grant swallowed"),
)
"""What the fixed seeds together must reach."""


@dataclass
class Report:
    """How a seed's jobs ended (None: with their coordinator), and what it reached on the way."""

    seed: int
    outcomes: tuple[OutcomeKind | None, ...]
    steps: int
    probes: Counter[str] = field(default_factory=Counter)


class SimulationError(AssertionError):
    """A seed found a bug. The message says where and how to run it again."""

    def __init__(self, seed: int, step: int, cause: BaseException, file: str = FILE) -> None:
        kind = type(cause).__name__
        super().__init__(
            f"seed {seed} failed at step {step}: {kind}: {cause}\n"
            f"replay: ARKFLOW_SEED={seed} pytest {file}"
        )
        self.seed = seed
        self.step = step


class Simulation:
    """One seed."""

    def __init__(self, seed: int, machines: Machines | None = None) -> None:
        self._seed = seed
        self._machines = machines or Machines()
        self._dice = Dice(seed)
        self._clock = VirtualClock()
        self._steps = 0
        self.probes: Counter[str] = Counter()

    def run(self) -> Report:
        """Run the seed to its end. Raises `SimulationError` for any violation."""
        outcomes: list[OutcomeKind | None] = []
        with small_slices():
            try:
                while self._steps < STEPS_MIN or not self.probes["fault"]:
                    outcomes.append(self._job(draw_scenario(self._dice)))
                return Report(self._seed, tuple(outcomes), self._steps, self.probes)
            except (AssertionError, ProtocolError, KeyError, IndexError) as error:
                raise SimulationError(self._seed, self._steps, error) from error

    def _job(self, scenario: Scenario) -> OutcomeKind | None:
        """One job with all its attempts."""
        world = World(scenario, self._machines, self._clock, self._dice, self.probes)
        for plan in scenario.graph.chains:
            self.probes["workers"] += plan.workers > 1
            for outlet in plan.outlets:
                self.probes[f"edge {outlet.kind.value}"] += 1
        job = SimJob(world)
        began, faults = self._steps, scenario.faults
        armed = draw_fault(self._dice, AT_START) if self._dice.one_in(10) else None
        while job.outcome is None and not job.lost:
            self._steps += 1
            taken = self._steps - began
            if taken > STEPS_MAX:
                raise ViolationError(f"no end after {STEPS_MAX} steps; {job.describe()}")
            if taken == scenario.action_step:
                _ask(job, scenario.action)
            if armed is not None:
                armed = None if strike(job, *armed) else armed
            elif faults and self._dice.one_in(scenario.fault_odds):
                faults -= 1
                armed = draw_fault(self._dice)
            job.step()
        if job.outcome is None:
            return None
        job.check_end()
        self.probes[f"job {job.outcome.kind.value}"] += 1
        return job.outcome.kind


def _ask(job: SimJob, action: UserAction) -> None:
    match action:
        case UserAction.STOP:
            job.stop()
        case UserAction.CANCEL:
            job.cancel()
        case UserAction.NOTHING:
            pass


@contextmanager
def small_slices() -> Iterator[None]:
    """Small slices and envelopes, so that small batches have several."""
    changed = [(vars(pieces), SLICE_ROWS), (vars(outbox), ENVELOPE_ROWS)]
    known = [module["SLICE_ROWS_MAX"] for module, _ in changed]
    try:
        for module, rows in changed:
            module["SLICE_ROWS_MAX"] = rows
        yield
    finally:
        for (module, _), rows in zip(changed, known, strict=True):
            module["SLICE_ROWS_MAX"] = rows


__all__ = [
    "PROBES",
    "STEPS_MIN",
    "Machines",
    "Report",
    "Simulation",
    "SimulationError",
    "small_slices",
]
