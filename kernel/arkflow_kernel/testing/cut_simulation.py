"""A seeded simulation of whole jobs in checkpoint mode: from the first claim to the last token.

One seed draws a job and then lets it run, die, be given up, stopped and resumed, under the same
machines, log, state and lanes that a real driver uses, until its sources are at their end. The
ground truth (`cut_truth.py`) looks at every record, every object and every published row.
"""

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import Final

from arkflow_kernel.plan import EdgeKind
from arkflow_kernel.protocol import OutcomeKind
from arkflow_kernel.snapshot import RestoreChoice
from arkflow_kernel.testing.cut_faults import FAULTS, KILL_POINTS
from arkflow_kernel.testing.cut_job import FOUND, CutJob
from arkflow_kernel.testing.cut_scenario import draw_cut_scenario
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.lineage import ViolationError
from arkflow_kernel.testing.scenario import Scenario
from arkflow_kernel.testing.sim_world import Machines
from arkflow_kernel.testing.simulation import STEPS_MIN, Report, SimulationError, small_slices
from arkflow_kernel.testing.virtual_clock import VirtualClock

STEPS_MAX: Final = 25_000
"""A job that takes more has stopped making progress."""

RUNS_MAX: Final = 5
"""Runs of one job that a user or a fault may end."""

KINDS: Final = list(dict(FAULTS).items())
"""Each fault once: the first one of a seed is that of its number."""

RARE_POINTS: Final = (
    ("restore: before get", "restore: after get"),
    ("save: before copy", "save: after copy"),
    ("collect: before delete", "collect: after delete"),
    ("collect: end", "claim: end"),
)
"""Points that few jobs come to: in every seed one of each pair kills."""

FILE: Final = "tests/simulation/test_checkpoint_simulation.py"

PROBES: Final = (
    *(f"edge {kind.value}" for kind in EdgeKind if kind is not EdgeKind.LATE),
    *(f"fault {name}" for name, _ in FAULTS),
    *(f"killed {point}" for point in KILL_POINTS),
    *(f"run {kind.value}" for kind in OutcomeKind),
    *(f"record {kind}" for kind in ("periodic", "savepoint", "final")),
    *("zombie", "log FencedError", "late request", "thawed", "reap", "power failure"),
    *("report lost", "report repeated", "report out of order", "report of an old generation"),
    "control lost",
    *("published again", "restored tokens", "already finished", "drain", "stop", "savepoint"),
    *("keeps state", "two stateful operators", "two inputs", "several lanes", "at least once"),
)
"""What the fixed seeds together must reach."""


class Ask(Enum):
    """What the user does in the middle of a run."""

    NOTHING = "nothing"
    STOP = "stop"
    STOP_WITH_SAVEPOINT = "stop with savepoint"
    DRAIN = "drain"
    SAVEPOINT = "savepoint"
    CANCEL = "cancel"


_ASKS: Final = [Ask.NOTHING] * 4 + [Ask.STOP] * 3 + list(Ask)[2:] + [Ask.SAVEPOINT] * 3


class CutSimulation:
    """One seed.

    `job_kind`: what its jobs are; `asks`: what users do; `file`: where it is replayed.
    """

    job_kind: type[CutJob] = CutJob
    file: str = FILE
    asks: Sequence[Ask] = _ASKS

    def __init__(self, seed: int, machines: Machines | None = None) -> None:
        self._seed, self._machines = seed, machines or Machines()
        self._dice, self._clock = Dice(seed), VirtualClock()
        self._steps = 0
        self._jobs = 0
        self.probes: Counter[str] = Counter()

    def run(self) -> Report:
        """Run the seed to its end. Raises `SimulationError` for any violation."""
        outcomes: list[OutcomeKind | None] = []
        with small_slices():
            try:
                while self._steps < STEPS_MIN or not self.probes["fault"]:
                    outcomes.append(self._life().live())
                return Report(self._seed, tuple(outcomes), self._steps, self.probes)
            except FOUND as error:
                raise SimulationError(self._seed, self._steps, error, self.file) from error

    def _life(self) -> "Life":
        return Life(self)

    def made(self) -> CutJob:
        """The next job."""
        self._jobs += 1
        scenario = self._drawn()
        probe_features(scenario, self.probes)
        return self.job_kind(scenario, self._machines, self._clock, self._dice, self.probes)

    def _drawn(self) -> Scenario:
        return draw_cut_scenario(self._dice)

    @property
    def seed(self) -> int:
        """Its number."""
        return self._seed

    @property
    def first(self) -> bool:
        """Whether its first job is at work."""
        return self._jobs == 1

    @property
    def dice(self) -> Dice:
        """The seed's choices."""
        return self._dice

    def stepped(self, steps: int) -> None:
        """So many steps were taken."""
        self._steps += steps


class Life:
    """One job from its first run to its end."""

    def __init__(self, simulation: CutSimulation) -> None:
        self._simulation, self._dice = simulation, simulation.dice
        self._probes = simulation.probes
        self._job = simulation.made()
        self._unbounded = any(s.unbounded for s in self._job.scenario.sources.values())
        self._faults = self._dice.pick([0, 1, 2, 3, 4, 6, 9])
        self._odds = self._dice.pick([60, 150, 400])
        self._runs = 0
        self._drained = self._insists = False
        self._savepoints = 0
        self._plan_run()
        if simulation.first:
            self._arm(KILL_POINTS[simulation.seed % len(KILL_POINTS)])

    def _arm(self, point: str) -> None:
        """Each seed has a point at which its first job is sure to be killed, if it comes to it."""
        self._job.faults.arm(point)
        for index, rare in enumerate(RARE_POINTS):
            self._job.faults.arm(rare[(self._simulation.seed >> index) % 2])
        self._faults = max(self._faults, 3)
        self._job.faults.draw([KINDS[self._simulation.seed % len(KINDS)]])
        keeps = any(op.state for plan in self._job.scenario.graph.chains for op in plan.operators)
        if point.startswith("save") or (keeps and self._simulation.seed % 2):
            self._insists = True
            self._ask, self._ask_at = Ask.SAVEPOINT, 100

    def live(self) -> OutcomeKind | None:
        """All runs of the job. How the last one ended."""
        job, counted = self._job, 0
        try:
            while not self._at_the_end():
                if job.steps > STEPS_MAX:
                    raise ViolationError(f"no end after {job.steps} steps; {job.describe()}")
                self._misfortune()
                self._ask_again()
                self._ask_if_due()
                job.step()
                self._simulation.stepped(job.steps - counted)
                counted = job.steps
            self._check_end()
        finally:
            self._simulation.stepped(job.steps - counted)
        return OutcomeKind.FINISHED

    # --- what happens to it --------------------------------------------------------------------

    def _misfortune(self) -> None:
        job = self._job
        if self._faults and self._dice.one_in(self._odds):
            self._faults -= 1
            job.faults.draw()
        job.faults.strike()

    def _plan_run(self) -> None:
        """What the user will do in the next run, and when."""
        self._runs += 1
        self._planned = self._job.current
        self._ask = self._dice.pick(self._simulation.asks)
        if self._insists:
            self._ask = Ask.SAVEPOINT
        if self._runs > RUNS_MAX:
            self._ask, self._faults = Ask.NOTHING, 0
            self._job.faults.clear()
        if self._ask is Ask.NOTHING and self._unbounded:
            self._ask = Ask.DRAIN
        self._ask_at = self._job.steps + self._dice.pick([1, 30, 200, 500, 900])

    def _ask_if_due(self) -> None:
        run = self._job.current
        if self._job.steps < self._ask_at or run.headless or run.outcome is not None:
            return
        ask, self._ask = self._ask, Ask.NOTHING
        if self._unbounded and ask is Ask.SAVEPOINT:
            self._ask, self._ask_at = Ask.DRAIN, self._job.steps + 300
        match ask:
            case Ask.STOP:
                run.ask_to_stop()
            case Ask.STOP_WITH_SAVEPOINT:
                run.ask_to_stop(savepoint=self._name())
            case Ask.DRAIN:
                self._drained = True
                run.ask_to_stop(drain=True)
            case Ask.SAVEPOINT:
                run.ask_for_savepoint(self._name())
            case Ask.CANCEL:
                run.cancel()
            case Ask.NOTHING:
                pass

    def _name(self) -> str:
        self._savepoints += 1
        return f"savepoint-{self._savepoints}"

    # --- its driver ----------------------------------------------------------------------------

    def _at_the_end(self) -> bool:
        """Whether the job is finished; a run that ended otherwise is followed by another."""
        job = self._job
        run = job.current
        if run.outcome is None:
            if run.headless and self._dice.one_in(8):
                job.succeed(run)
            return False
        run.check_end()
        run.files.closed = True
        self._probes[f"run {run.outcome.kind.value}"] += 1
        if run.outcome.kind is OutcomeKind.FINISHED:
            return True
        self._begin_again(run.outcome.kind)
        self._plan_run()
        return False

    def _begin_again(self, ended: OutcomeKind) -> None:
        """Another run, after one that ended so."""
        del ended
        self._job.begin(RestoreChoice(must_exist=bool(self._job.truth.records)))

    def _ask_again(self) -> None:
        """Whoever drains an unbounded job, or needs a savepoint, asks each coordinator again."""
        asks = self._unbounded or self._insists
        if asks and self._planned is not self._job.current:
            self._plan_run()

    def _check_end(self) -> None:
        """Zombies may go on for a while; nothing that they do changes anything."""
        job = self._job
        job.faults.clear()
        for _ in range(self._dice.pick([0, 50, 300])):
            job.step()
        for run in job.runs:
            run.crash_all()
        job.land_all()
        job.truth.check_finished(drained=self._drained)
        if self._dice.one_in(2):
            self._check_again()

    def _check_again(self) -> None:
        """Another start says that the job is finished, and does nothing."""
        job = self._job
        job.begin(RestoreChoice(must_exist=True))
        began = job.steps
        while job.current.outcome is None:
            if job.steps > began + 2_000:
                raise ViolationError(f"a finished job goes on: {job.describe()}")
            job.step()
        if job.current.outcome.kind is not OutcomeKind.FINISHED or job.current.deployed:
            raise ViolationError(f"a finished job ran again: {job.describe()} (T3)")
        job.truth.check_finished(drained=self._drained)
        self._probes["already finished"] += 1


def probe_features(scenario: Scenario, probes: "Counter[str]") -> None:
    """What kind of job was drawn."""
    sinks: Counter[str] = Counter()
    for plan in scenario.graph.chains:
        stateful = [op for op in plan.operators if op.state is not None]
        probes["keeps state"] += bool(stateful)
        probes["two stateful operators"] += len(stateful) > 1
        probes["two inputs"] += len({channel.edge for channel in plan.inputs}) > 1
        for outlet in plan.outlets:
            probes[f"edge {outlet.kind.value}"] += 1
        for sink in plan.sinks:
            sinks[sink.operator] += sink.exactly_once
            probes["at least once"] += not sink.exactly_once
    probes["several lanes"] += max(sinks.values(), default=0) > 1


__all__ = ["PROBES", "RUNS_MAX", "Ask", "CutSimulation", "Life", "probe_features"]
