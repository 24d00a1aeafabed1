"""A job in checkpoint mode over all of its runs: who acts next, and what lies between them.

A step is one act of one process of one run. While a call of the store is under way, more steps are
taken inside of it, so other processes, rivals too, act between any two of its requests.
"""

from collections import Counter
from typing import Final

from arkflow_kernel.errors import ProtocolError
from arkflow_kernel.snapshot import RestoreChoice
from arkflow_kernel.testing.cut_faults import CutFaults
from arkflow_kernel.testing.cut_process import CutProcess
from arkflow_kernel.testing.cut_run import CutRun
from arkflow_kernel.testing.cut_truth import Truth
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.lineage import ViolationError
from arkflow_kernel.testing.scenario import Scenario
from arkflow_kernel.testing.sim_store import Interrupted, SimStore
from arkflow_kernel.testing.sim_world import Machines, World
from arkflow_kernel.testing.virtual_clock import VirtualClock

DEPTH_MAX: Final = 3
"""Calls of the store that may wait inside of each other."""

FOUND = (AssertionError, ProtocolError, KeyError, IndexError, ValueError, TypeError, AttributeError)
"""What a machine or a check raises when something is wrong."""


class CutJob:
    """One job. `current` is the run that its driver follows; the others are zombies.

    `run_kind`: what its runs are.
    """

    run_kind: type[CutRun] = CutRun

    def __init__(
        self,
        scenario: Scenario,
        machines: Machines,
        clock: VirtualClock,
        dice: Dice,
        probes: "Counter[str]",
    ) -> None:
        self.scenario, self._machines = scenario, machines
        self._clock, self._dice, self.probes = clock, dice, probes
        self.store = SimStore()
        self.truth = self._made_truth()
        self.faults = CutFaults(self, dice, probes)
        self.coordinators = 0
        self.runs: list[CutRun] = []
        self.steps = 0
        self.violation: BaseException | None = None
        self._depth = 0
        self.current = self.begin(RestoreChoice())

    def _made_truth(self) -> Truth:
        return Truth(self.scenario, self.store, self.probes)

    # --- runs ----------------------------------------------------------------------------------

    def begin(self, choice: RestoreChoice, *, started: bool = False) -> CutRun:
        """Another coordinator; the one before may go on as a zombie."""
        world = World(self._begins_with(), self._machines, self._clock, self._dice, self.probes)
        if self.runs:
            self.runs[-1].faulty = True
            self.probes["zombie"] += not self.runs[-1].over
        run = self.run_kind(world, self, choice, started=started)
        run.faulty |= any(not other.over for other in self.runs)
        self.runs = [other for other in self.runs if not other.over]
        self.runs.append(run)
        self.current = run
        return run

    def _begins_with(self) -> Scenario:
        """The job as its driver plans it for the next coordinator."""
        return self.scenario

    def succeed(self, run: CutRun) -> None:
        """The driver takes the coordinator of a run for dead, and begins another one."""
        self.begin(RestoreChoice(), started=run.process.generation > 0)

    def shift_wall(self, by_ms: int) -> None:
        """Let the wall clock jump."""
        self._clock.shift_wall(by_ms)

    def process(self) -> CutProcess:
        """A new process."""
        return CutProcess(self.faults.trouble, self.faults.passed, self.others)

    # --- steps ---------------------------------------------------------------------------------

    def step(self) -> None:
        """One act of somebody, or time passes."""
        self.steps += 1
        if self.store.late and self._dice.one_in(20):
            self._take(("late request", self._lands, None))
            return
        runs = (run for run in self.runs if run is self.current or not run.over)
        actors = [(run, actor) for run in runs for actor in run.actors]
        count = len(actors)
        first = self._dice.below(count + 1)
        for turn in range(first, first + count if first < count else 0):
            run, actor = actors[turn % count]
            steps = run.steps_of(actor)
            if steps:
                self._take(self._dice.pick(steps))
                return
        idle = first < count and not any(run.lags() for run in self.runs)
        self._pass_time(idle=idle)

    def _take(self, step: tuple[str, object, object]) -> None:
        name, effect, argument = step
        self.probes[name] += 1
        assert callable(effect)
        try:
            if argument is None:
                effect()
            else:
                effect(argument)
        except Interrupted:
            self.unwind()

    def _lands(self) -> None:
        """A request that nobody waits for any more is done after all."""
        self.store.late.pop(self._dice.below(len(self.store.late)))()

    def land_all(self) -> None:
        """Whatever is under way is done."""
        while self.store.late:
            self._lands()

    def describe(self) -> str:
        """Where all runs stand."""
        return "; ".join(run.describe() for run in self.runs)

    def _pass_time(self, *, idle: bool) -> None:
        """A little; to the next deadline if nobody can do anything else, or now and then."""
        now_ms = self._clock.now_ms
        limit = min((run.time_limit() for run in self.runs), default=now_ms)
        if limit <= now_ms:
            return
        jump = self._dice.between(0, 5)
        if idle or self._dice.one_in(10):
            far = idle or self._dice.one_in(20)
            dues = [due for run in self.runs for due in run.dues(far=far)]
            jump = min(dues, default=jump)
        self.probes["wait"] += 1
        self._clock.advance(min(jump, limit - now_ms))

    def others(self) -> None:
        """A call of the store waits: others act meanwhile."""
        if self._depth >= DEPTH_MAX or not self._dice.one_in(3):
            return
        self._depth += 1
        try:
            for _ in range(self._dice.pick([1, 1, 2, 4, 8, 20, 60])):
                self.step()
        except FOUND as error:
            self.violation = error
            raise Interrupted from error
        finally:
            self._depth -= 1

    def unwind(self) -> None:
        """A process broke off; if it did because of a violation, everything does."""
        if self.violation is not None:
            if self._depth:
                raise Interrupted
            raise ViolationError(str(self.violation)) from self.violation


__all__ = ["FOUND", "CutJob"]
