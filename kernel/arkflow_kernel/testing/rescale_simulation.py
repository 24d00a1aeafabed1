"""The simulation of checkpoints for jobs that are rescaled while they run, and at their starts.

Jobs are drawn like those of `cut_scenario.py`, with other plans of each (`cut_plans.py`). Users ask
for them at any moment: in the middle of a round, of a stop, of another rescale. At each step of a
rescale some process dies in some seed; preparations fail, and so do new plans.
"""

from typing import Final

from arkflow_kernel.plan import EdgeKind
from arkflow_kernel.protocol import OutcomeKind
from arkflow_kernel.testing.cut_plans import RescaleScenario, draw_rescale_scenario
from arkflow_kernel.testing.cut_rescale_run import OVER, POINTS, VICTIMS, RescaleJob, RescaleRun
from arkflow_kernel.testing.cut_simulation import RUNS_MAX, Ask, CutSimulation, Life

PROBES: Final = (
    *(f"killed {point}" for point in POINTS),
    *(f"struck {victim}" for victim in VICTIMS),
    *(f"rescale {phase}" for phase in ("prepare", "round", "end", "claim", "deploy", *OVER)),
    *("rescale up", "rescale down", "prepare failed", "new plan fails"),
    *("rescale during a round", "rescale during a stop", "rescale during a rescale"),
    *("restored to another plan", "record rescale", "resumed with another plan"),
    *(f"edge {kind.value}" for kind in EdgeKind if kind is not EdgeKind.LATE),
    *(f"run {kind.value}" for kind in OutcomeKind),
    *("keeps state", "several lanes", "at least once"),
    *("zombie", "log FencedError", "published again", "restored tokens", "control lost"),
    *("drain", "stop", "savepoint", "power failure", "already finished"),
)
"""What the fixed seeds together must reach."""

UNPUBLISHED: Final = ("rescale: after append", "rescale: during publication")
"""Steps behind which the next plan has to publish what the one before has not."""

FILE: Final = "tests/simulation/test_rescale_simulation.py"


class RescaleLife(Life):
    """One job that is rescaled now and then."""

    _job: RescaleJob

    def __init__(self, simulation: "RescaleSimulation") -> None:
        self._rescales: list[int] = []
        self._points: tuple[str, ...] = ()
        super().__init__(simulation)
        self._faults = self._dice.pick([0, 1, 1, 2, 3, 5])
        self._odds = self._dice.pick([150, 400, 900])

    def _plan_run(self) -> None:
        super()._plan_run()
        dice = self._dice
        self._rescales = []
        if self._runs > RUNS_MAX:
            self._job.breaks(None, 0)
            return
        at = self._job.steps + dice.pick([1, 60, 120, 250])
        for _ in range(dice.pick([0, 1, 1, 1, 2, 3])):
            self._rescales.append(at)
            at += dice.pick([1, 15, 60, 150, 300])

    def _arm(self, point: str) -> None:
        """Each seed has a step of a rescale at which somebody is sure to die, if it comes to it."""
        del point
        seed = self._simulation.seed
        self._points = POINTS[seed % len(POINTS)], UNPUBLISHED[seed % 2]
        for each in self._points:
            self._job.faults.arm(each)
        self._rescales = [self._job.steps + self._dice.pick([40, 80, 140])]

    def _ask_if_due(self) -> None:
        super()._ask_if_due()
        job, run = self._job, self._job.current
        assert isinstance(run, RescaleRun)
        if not self._rescales and any(not self._probes[f"killed {p}"] for p in self._points):
            self._rescales = [job.steps + 100]
        if not self._rescales or job.steps < self._rescales[0]:
            return
        if run.headless or run.outcome is not None:
            return
        self._rescales.pop(0)
        plan = self._dice.pick([plan for plan in job.scenario.plans if plan != run.graph])
        job.fails_to_prepare = self._dice.one_in(8)
        if self._dice.one_in(6):
            job.breaks(plan, self._dice.pick([1, 3, 40]))
        run.ask_to_rescale(plan)

    def _begin_again(self, ended: OutcomeKind) -> None:
        """With the plan of the newest record, or with another one that the user has now."""
        job, newest = self._job, self._job.truth.newest
        job.plan = job.scenario.graph if newest is None else newest.past.graph
        job.breaks(None, 0)
        if ended is not OutcomeKind.FAILED and self._dice.one_in(3):
            self._probes["resumed with another plan"] += newest is not None
            job.plan = self._dice.pick(job.scenario.plans)
        super()._begin_again(ended)


class RescaleSimulation(CutSimulation):
    """One seed."""

    job_kind = RescaleJob
    asks = (*[Ask.NOTHING] * 9, Ask.STOP, *Ask)
    file = FILE

    def _drawn(self) -> RescaleScenario:
        return draw_rescale_scenario(self._dice)

    def _life(self) -> Life:
        return RescaleLife(self)


__all__ = ["PROBES", "RescaleLife", "RescaleSimulation"]
