"""The driver's side of autoscaling (K6): shows the machine what a job tells, rescales by its word.

A decision takes the way of a user's `rescale` (K2): the driver holds what the job was planned from
and every plan that was asked for, so a successor of a lost coordinator runs the plan at work (P8).

The machine's time is that of the coordinator, which stamps what chains report, so rates are exact
whatever clock the driver has; with each attempt it is set to the driver's, because the next
coordinator has another one. Reports that do not come let no time pass.
"""

import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from arkflow_kernel.autoscale import (
    RETRY_COOLDOWNS,
    AutoscaleMode,
    Autoscaler,
    AutoscaleStatus,
    ScaleDecision,
)
from arkflow_kernel.autoscale_load import SubtaskCounters
from arkflow_kernel.autoscale_rules import asks_for_autoscale, autoscale_bounds
from arkflow_kernel.autoscale_stages import ScalingPlan, StageGroup, scaling_plan
from arkflow_kernel.errors import ArkflowError, ConfigError, Issue, RescaleError
from arkflow_kernel.ids import ChainId, EdgeId, Generation, MonotonicMs, OperatorId, WallMs
from arkflow_kernel.job import AutoscaleSpec, JobSpec
from arkflow_kernel.job_parallelism import with_parallelism
from arkflow_kernel.plan import ChainPlan, ExecutionGraph
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import JobOutcome, JobState, JobStatus, RescaleStatus
from arkflow_kernel.topology import Topology
from arkflow_ray.runtime.rescaling import ENDED, Rescaling, under_way

LOOK_S: Final = 1.0
"""Between two looks: chains report as often."""

TOLD: Final = "told"
UNDER_WAY: Final = "under way"
DONE: Final = "done"
FAILED: Final = "failed"


class ScaledJob(Protocol):
    """What is asked of the job; see `RunningJob`."""

    @property
    def outcome(self) -> JobOutcome | None:
        """How it ended."""
        ...

    def status(self) -> JobStatus:
        """What it tells."""
        ...

    def plan_of(self, status: JobStatus) -> ExecutionGraph:
        """The plan that was at work then."""
        ...

    def rescale(self, changes: Mapping[str, int], *, automatic: bool = False) -> Rescaling:
        """Go on with another parallelism. `ConfigError`, `RescaleError`: it cannot."""
        ...


@dataclass(frozen=True, slots=True)
class Decided:
    """The last decision. `number` counts them from 1; `at` is the driver's clock.

    `outcome`: "told" (mode OBSERVE: nothing is done), "under way", "done" or "failed"; `error` says
    why it failed.
    """

    number: int
    at: WallMs
    decision: ScaleDecision
    outcome: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class AutoscaleTold:
    """For users: what the machine says, the last decision and what came of it.

    `kept` says of operators that were to be scaled why they cannot be; `fault`: it has ended, by a
    fault of its own, and the job goes on without.
    """

    machine: AutoscaleStatus
    last: Decided | None = None
    kept: Mapping[str, str] = field(default_factory=dict)
    fault: str | None = None


class Autoscaling:
    """Autoscaling of one job over all of its attempts. `clock` is the driver's."""

    def __init__(self, spec: JobSpec, clock: Callable[[], Moment]) -> None:
        self._spec = spec
        self._clock = clock
        self._bounds = autoscale_bounds(Topology(spec))
        block = AutoscaleSpec() if spec.autoscale is None else spec.autoscale
        self._machine = Autoscaler(AutoscaleMode(block.mode), block.cooldown_ms)
        self._generation: Generation | None = None
        self._now_ms = MonotonicMs(0)
        self._ahead_ms = 0
        self._rescale: tuple[int, str] | None = None
        self._hold = False
        self._failures = 0
        self._asked: Rescaling | None = None
        self._told = AutoscaleTold(self._machine.status())

    def told(self) -> AutoscaleTold:
        """An immutable snapshot; from any thread."""
        return self._told

    def run(self, job: ScaledJob, over: threading.Event) -> None:
        """Look at the job until it is over; the body of a thread."""
        try:
            while not over.wait(LOOK_S):
                self.look(job)
        except BaseException as error:
            fault = f"{type(error).__name__}: {error} (a fault of arkflow_ray)"
            self._told = replace(self._told, fault=fault)
            raise

    def look(self, job: ScaledJob) -> None:
        """Show the machine the newest counters, and do what it decides."""
        outcome = job.outcome  # before the status, which is final once this is set
        status = job.status()
        self._follow(status, outcome)
        running = status.state is JobState.RUNNING and under_way(status.rescale) is None
        if outcome is not None or not running or not self._tells_time(status):
            return
        graph = job.plan_of(status)
        if status.generation != self._generation:
            self._begin(graph, status)
        if self._hold:
            self._hold = False
            doubled = 2 ** max(0, self._failures - 1)
            self._machine.hold(self._now_ms, min(doubled, RETRY_COOLDOWNS))
        decision = self._machine.observe(self._counters(graph, status), self._now_ms)
        self._told = replace(self._told, machine=self._machine.status())
        if decision is not None:
            self._carry_out(job, decision)

    # --- what the job tells --------------------------------------------------------------------

    def _tells_time(self, status: JobStatus) -> bool:
        """Set the time by the newest report of the attempt; False if there is none."""
        newest_ms = max(status.heard_at.values(), default=MonotonicMs(0))
        if newest_ms < status.since.now_ms:
            return False
        if status.generation != self._generation:
            self._ahead_ms = max(self._clock().now_ms, self._now_ms) - newest_ms
        self._now_ms = MonotonicMs(newest_ms + self._ahead_ms)
        return True

    def _begin(self, graph: ExecutionGraph, status: JobStatus) -> None:
        self._generation = status.generation
        at_work = with_parallelism(self._spec, {str(k): n for k, n in status.parallelism.items()})
        kept = dict(_kept(at_work, scaling_plan(graph, self._bounds), self._bounds))
        bounds = {op: each for op, each in self._bounds.items() if op not in kept}
        self._machine.begin(scaling_plan(graph, bounds), self._now_ms)
        self._told = replace(self._told, kept={str(op): why for op, why in kept.items()})

    def _counters(self, graph: ExecutionGraph, status: JobStatus) -> dict[ChainId, SubtaskCounters]:
        """What every chain did by its last report of the attempt, in the machine's time."""
        found = {}
        for plan in graph.chains:
            heard_ms = status.heard_at.get(plan.chain)
            if heard_ms is not None and heard_ms >= status.since.now_ms:
                at_ms = MonotonicMs(heard_ms + self._ahead_ms)
                found[plan.chain] = _counted(plan, status, at_ms)
        return found

    def _follow(self, status: JobStatus, outcome: JobOutcome | None) -> None:
        """Whatever happens of a rescale, whoever wants it, begins a cooldown; see its own end.

        With each that fails, one after the other, it is twice as long: a plan that cannot work is
        tried ever more seldom.
        """
        rescale = _stage(status.rescale)
        if rescale != self._rescale:
            self._rescale, self._hold = rescale, True
            if rescale is not None and rescale[1] in ENDED:
                self._failures = 0 if rescale[1] == DONE else self._failures + 1
        asked, last = self._asked, self._told.last
        end = None if asked is None else asked.end(status, outcome)
        if end is not None and last is not None:
            self._asked = None
            came_of_it = DONE if end.error is None else FAILED
            self._told = replace(
                self._told, last=replace(last, outcome=came_of_it, error=end.error)
            )

    # --- decisions -----------------------------------------------------------------------------

    def _carry_out(self, job: ScaledJob, decision: ScaleDecision) -> None:
        last = self._told.last
        number = 1 if last is None else last.number + 1
        decided = Decided(number, self._clock().wall_ms, decision, TOLD)
        if decision.act:
            decided = replace(decided, outcome=UNDER_WAY)
            changes = {str(op): count for op, count in decision.parallelism.items()}
            try:
                self._asked = job.rescale(changes, automatic=True)
            except (ConfigError, RescaleError) as error:
                decided = replace(decided, outcome=FAILED, error=error.message)
                self._hold = True
                self._failures += 1
        self._told = replace(self._told, last=decided)


def autoscaling(spec: JobSpec | None, clock: Callable[[], Moment]) -> Autoscaling | None:
    """The autoscaling that a job asks for; None if it does not."""
    if spec is None or not autoscale_bounds(Topology(spec)):
        return None
    return Autoscaling(spec, clock)


def check_inline(specs: Iterable[JobSpec]) -> None:
    """Raises `ConfigError` for jobs that ask for autoscaling: in one process, more subtasks make
    nothing faster.
    """
    issues = []
    for spec in specs:
        for place in asks_for_autoscale(Topology(spec)):
            text = f"job '{spec.id}' asks for `{place}`, which `--inline` cannot do: all is in one"
            tail = "process there. Run it on Ray, or set `autoscale: {mode: off}` of the job"
            issues.append(Issue(place, f"{text} {tail}"))
    if issues:
        raise ConfigError(issues)


def _counted(plan: ChainPlan, status: JobStatus, at_ms: MonotonicMs) -> SubtaskCounters:
    statistics, usage = status.chains[plan.chain], status.usage.get(plan.chain)
    rows_to: dict[EdgeId, int] = {}
    handed = dict(statistics.rows_to)
    for channel in plan.channels:
        rows = handed.get(channel.output, 0)
        rows_to[channel.edge] = rows_to.get(channel.edge, 0) + rows
    busy_ms = 0 if usage is None else usage.busy_ms
    return SubtaskCounters(at_ms, statistics.rows_in, rows_to, busy_ms, statistics.held_ms)


def _kept(
    job: JobSpec, plan: ScalingPlan, wanted: Container[OperatorId]
) -> Iterator[tuple[OperatorId, str]]:
    """Operators that are to be scaled and cannot be, and why: state without keys, a neighbour that
    stays as it is. So the machine never asks for what would be refused each time.
    """
    from arkflow_ray.config.replan import replan

    for group in plan.groups:
        other = _another(group)
        if group.bounds is None:
            fixed = next(stage.name for stage in group.stages if stage.bounds is None)
            text = f"it changes only together with '{fixed}', which has no `autoscale` of its own"
            yield from ((op, text) for op in group.operators if op in wanted)
        if other is None:
            continue
        try:
            replan(job, {str(operator): other for operator in group.operators})
        except ConfigError as error:
            yield from ((operator, _first(error)) for operator in group.operators)


def _another(group: StageGroup) -> int | None:
    """A parallelism that the group may have and has not."""
    bounds, present = group.bounds, group.parallelism
    if bounds is None:
        return None
    if bounds.clamped(present + 1) != present:
        return bounds.clamped(present + 1)
    return present - 1 if present > bounds.minimum else None


def _first(error: ArkflowError) -> str:
    """Its sentence in one line."""
    return " ".join(error.message.split())


def _stage(rescale: RescaleStatus | None) -> tuple[int, str] | None:
    return None if rescale is None else (rescale.number, rescale.phase)


__all__ = [
    "DONE",
    "FAILED",
    "LOOK_S",
    "TOLD",
    "UNDER_WAY",
    "AutoscaleTold",
    "Autoscaling",
    "Decided",
    "ScaledJob",
    "autoscaling",
    "check_inline",
]
