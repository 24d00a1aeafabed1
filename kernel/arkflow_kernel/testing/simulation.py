"""A seeded simulation of a whole job in ack mode: the real machines under a hostile driver.

One seed decides a scenario and then, step by step, what happens next: a control message arrives
(late, twice, in another order, or never), one of the outstanding requests is worked off, an answer
is handed over, time passes, a request fails, the user stops the job, or the whole attempt crashes
and a new one starts from the last positions that anybody heard of. After every step the checkers
look (`checkers.py`, the machines' own `validate`). Real work is done by the real `ChainWork`.

Not simulated: exchange between chains and checkpoints; they have simulations of their own.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from arkflow_kernel import pieces
from arkflow_kernel.coordinator import JobCoordinator
from arkflow_kernel.errors import ProtocolError
from arkflow_kernel.ids import ChainId, Generation
from arkflow_kernel.lane import LaneSchedule
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.protocol import OutcomeKind
from arkflow_kernel.task import ChainTask
from arkflow_kernel.testing.checkers import ChainLedger, ViolationError
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.scenario import UserAction, draw_scenario
from arkflow_kernel.testing.sim_chain import Schedule
from arkflow_kernel.testing.sim_job import SimJob
from arkflow_kernel.testing.virtual_clock import VirtualClock

STEPS_MAX = 30_000
"""A job that takes more has stopped making progress."""

STEPS_MIN = 2_000
"""A seed runs jobs until it took so many steps and saw a fault."""

SLICE_ROWS = 5
"""Rows of a slice while a simulation runs, so that small batches have several slices."""

Positions = dict[ChainId, tuple[SplitPosition, ...]]


@dataclass(frozen=True)
class Machines:
    """What runs: the real classes, or ones with a planted bug."""

    task: Callable[..., ChainTask] = ChainTask
    coordinator: Callable[..., JobCoordinator] = JobCoordinator
    schedule: Callable[[int], Schedule] = LaneSchedule


@dataclass
class Report:
    """How a seed's jobs ended, and what it reached on the way."""

    seed: int
    outcomes: tuple[OutcomeKind, ...]
    steps: int
    probes: Counter[str] = field(default_factory=Counter)


class SimulationError(AssertionError):
    """A seed found a bug. The message says where and how to run it again."""

    def __init__(self, seed: int, step: int, cause: BaseException) -> None:
        kind = type(cause).__name__
        super().__init__(
            f"seed {seed} failed at step {step}: {kind}: {cause}\n"
            f"replay: ARKFLOW_SEED={seed} pytest tests/simulation/test_ack_simulation.py"
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
        self._new_job()

    def _new_job(self) -> None:
        self._scenario = draw_scenario(self._dice)
        self._ledgers = {s.plan.chain: ChainLedger(s) for s in self._scenario.chains}
        self._durable: Positions = {}
        self._began = self._steps
        self._faults_left = self._scenario.faults
        self._asked = False

    def run(self) -> Report:
        """Run the seed to its end. Raises `SimulationError` for any violation."""
        outcomes: list[OutcomeKind] = []
        with _small_slices():
            try:
                while self._steps < STEPS_MIN or not self._faults_seen():
                    if outcomes:
                        self._new_job()
                    outcomes.append(self._job())
                return Report(self._seed, tuple(outcomes), self._steps, self.probes)
            except (AssertionError, ProtocolError, KeyError, IndexError) as error:
                raise SimulationError(self._seed, self._steps, error) from error

    def _job(self) -> OutcomeKind:
        """One job with all its attempts."""
        generation = 0
        while True:
            generation += 1
            outcome = self._attempt(Generation(generation))
            if outcome is not None:
                return outcome

    def _faults_seen(self) -> int:
        return sum(self.probes[name] for name in ("crash", "fault", "deployment failed"))

    def _attempt(self, generation: Generation) -> OutcomeKind | None:
        """One attempt; None if the job must start again."""
        for ledger in self._ledgers.values():
            ledger.new_attempt()
        job = SimJob(self._scenario, self._ledgers, self._clock, self._dice, self.probes)
        job.begin(generation, self._machines, dict(self._durable))
        if self._asked:
            self._ask(job)
        if self._faults_left and self._dice.one_in(8):
            self._faults_left -= 1
            job.fail_deployment()
        while job.outcome is None:
            self._steps += 1
            if self._steps - self._began > STEPS_MAX:
                raise ViolationError(f"no end after {STEPS_MAX} steps; {job.describe()}")
            if self._steps - self._began == self._scenario.action_step:
                self._asked = True
                self._ask(job)
            if self._faults_left and self._dice.one_in(self._scenario.fault_odds):
                self._faults_left -= 1
                if self._strike(job):
                    self._durable.update(job.durable)
                    return None
            job.step()
        job.check_end()
        self._durable.update(job.durable)
        return self._ended(job.outcome.kind)

    def _ended(self, kind: OutcomeKind) -> OutcomeKind | None:
        """A failure that was injected is followed by a new attempt."""
        self.probes[f"job {kind.value}"] += 1
        if kind is not OutcomeKind.FAILED:
            return kind
        return kind if self._scenario.action is UserAction.CANCEL and self._asked else None

    def _ask(self, job: SimJob) -> None:
        match self._scenario.action:
            case UserAction.STOP:
                job.stop()
            case UserAction.CANCEL:
                job.cancel()
            case UserAction.NOTHING:
                pass

    def _strike(self, job: SimJob) -> bool:
        """A fault. True if the attempt is gone."""
        if self._dice.one_in(3):
            self.probes["crash"] += 1
            return True
        job.fail_something()
        return False


@contextmanager
def _small_slices() -> Iterator[None]:
    known = vars(pieces)["SLICE_ROWS_MAX"]
    try:
        vars(pieces)["SLICE_ROWS_MAX"] = SLICE_ROWS
        yield
    finally:
        vars(pieces)["SLICE_ROWS_MAX"] = known


__all__ = ["STEPS_MIN", "Machines", "Report", "Simulation", "SimulationError"]
