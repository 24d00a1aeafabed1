"""The machine that decides when a job is to have another parallelism, and which (K6).

It hears counters of every subtask, as often as the driver has them, and makes windows of
`WINDOW_MS` of them. For each window the load model says how busy every stage would be at what the
sources offer.

Invariants
- No parallelism outside of the bounds is ever decided.
- Between two decisions, and after any rescale, done or failed, whoever asked for it, at least
  `cooldown_ms` pass.
- Only whole windows count: all subtasks of one attempt, each counted within `STALE_MS` of the
  window's ends. Anything else forgets the windows before it.
- Growing takes `GROW_WINDOWS` windows in a row that all ask for it, shrinking `SHRINK_WINDOWS`;
  the middle one of the former is taken, the greatest of the latter. Between the loads at which a
  stage grows and shrinks is a gap that noise does not cross.
- Where most of a large step brought nothing (a store or a machine that they share is at its
  limit), a group grows no further until `RETRY_COOLDOWNS` have passed.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from arkflow_kernel.autoscale_load import Counters, Load, LoadModel, Window, enough
from arkflow_kernel.autoscale_stages import ScalingPlan, StageGroup
from arkflow_kernel.ids import MonotonicMs, OperatorId

WINDOW_MS: Final = 10_000
"""Ten reports of a chain: long enough to even out batches, short enough to follow a load."""

GROW_WINDOWS: Final = 3
"""Half a minute in which more is offered than the goal allows."""

SHRINK_WINDOWS: Final = 12
"""Two minutes: a change stops the job for a moment, and too many subtasks cost little."""

STALE_MS: Final = 3_000
"""Three reports: a subtask that was counted longer ago is not known."""

GROW_SLACK: Final = 1.1
SHRINK_SLACK: Final = 0.9
"""A stage grows above 1.1 times its goal, and shrinks to where it is below 0.9 times."""

GAIN_SHARE_MIN: Final = 0.25
LARGE_STEP: Final = 1.5
"""A group that grew by half or more is to do at least a quarter of that more than before."""

RETRY_COOLDOWNS: Final = 10
"""So many cooldowns a group that gained nothing does not grow."""


class AutoscaleMode(Enum):
    """OBSERVE: decisions are told and not carried out."""

    OFF = "off"
    OBSERVE = "observe"
    ON = "on"


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """What is known of stages that change together, and what follows.

    `busy` is the share of time in which a subtask works, `load` that of the busiest one if it took
    what the sources offer: `target_rate` rows per second, of which it now takes `rate`; a subtask
    could take `true_rate` (None: nothing was taken, so nobody knows). Of several stages these are
    the figures of the one with the greatest load. `note` says what keeps it from growing.
    """

    operators: tuple[OperatorId, ...]
    parallelism: int
    wanted: int
    target_busy: float
    busy: float
    load: float
    rate: float
    target_rate: float
    true_rate: float | None
    note: str = ""

    def sentence(self) -> str:
        """Why it is to change, or not."""
        name = f"'{self.operators[0]}'"
        arrow = f"{self.parallelism}" + ("" if self.stays else f" -> {self.wanted}")
        able = "" if self.true_rate is None else f", one subtask can take {self.true_rate:,.0f}"
        return (
            f"{name} {arrow}: {self.busy:.0%} busy at {self.rate:,.0f} rows/s; the sources offer "
            f"it {self.target_rate:,.0f}{able}: {self.load:.0%} busy, the goal is "
            f"{self.target_busy:.0%}{self.note}"
        )

    @property
    def stays(self) -> bool:
        """Nothing changes."""
        return self.wanted == self.parallelism


@dataclass(frozen=True, slots=True)
class ScaleDecision:
    """The job is to have this parallelism; operators that are not named keep theirs.

    `act`: it is to be carried out (mode ON). `sentence` says why, for `status`.
    """

    at_ms: MonotonicMs
    parallelism: Mapping[OperatorId, int]
    figures: tuple[GroupFigures, ...]
    sentence: str
    act: bool


@dataclass(frozen=True, slots=True)
class AutoscaleStatus:
    """For users: what is going on, the figures of the last window, and the last decision."""

    mode: AutoscaleMode
    sentence: str
    figures: tuple[GroupFigures, ...] = ()
    last: ScaleDecision | None = None


@dataclass(frozen=True, slots=True)
class _Step:
    """A large step of a group: from and to which parallelism, and what it could do before."""

    before: int
    after: int
    stage: str
    rate: float


class Autoscaler:
    """One for a job over all of its attempts."""

    def __init__(
        self, mode: AutoscaleMode, cooldown_ms: int, model: LoadModel | None = None
    ) -> None:
        self._mode = mode
        self._cooldown_ms = cooldown_ms
        self._model = LoadModel() if model is None else model
        self._plan: ScalingPlan | None = None
        self._base: Counters | None = None
        self._base_ms = MonotonicMs(0)
        self._windows: deque[Window] = deque(maxlen=SHRINK_WINDOWS)
        self._loads: deque[dict[str, Load | None]] = deque(maxlen=SHRINK_WINDOWS)
        self._quiet_until_ms: MonotonicMs | None = None
        self._steps: dict[str, _Step] = {}
        self._ceilings: dict[str, tuple[int, MonotonicMs]] = {}
        self._status = AutoscaleStatus(mode, "it is off" if self._off else "no attempt runs")

    @property
    def _off(self) -> bool:
        return self._mode is AutoscaleMode.OFF

    def status(self) -> AutoscaleStatus:
        """An immutable snapshot."""
        return self._status

    # --- events --------------------------------------------------------------------------------

    def begin(self, plan: ScalingPlan, now_ms: MonotonicMs) -> None:
        """All chains of an attempt run. What was counted in the one before says nothing of it."""
        if self._off:
            return
        before, self._plan = self._plan, plan
        if before is not None and before.parallelism != plan.parallelism:
            self._wait(now_ms)
        parallelism = {group.name: group.parallelism for group in plan.groups}
        self._steps = {
            name: step for name, step in self._steps.items() if parallelism.get(name) == step.after
        }
        self._forget("an attempt has begun")

    def hold(self, now_ms: MonotonicMs, cooldowns: int = 1) -> None:
        """Somebody rescales the job, or a rescale has ended, well or not: nothing is decided for
        so many cooldowns.
        """
        if not self._off:
            self._wait(now_ms, cooldowns)

    def observe(self, counters: Counters, now_ms: MonotonicMs) -> ScaleDecision | None:
        """Counters of all subtasks; a decision, if the window that they end gives reason for one.

        Counters that are older than `STALE_MS`, lack a subtask, or go back, decide nothing.
        """
        plan = self._plan
        if plan is None:
            return None
        unknown = self._unknown(plan, counters, now_ms)
        if unknown:
            self._forget(f"too little is known of chain '{unknown[0]}'")
            return None
        base = self._base
        if base is None or now_ms < self._base_ms:
            self._begin_window(counters, now_ms)
            return None
        if now_ms - self._base_ms < WINDOW_MS:
            return None
        self._begin_window(counters, now_ms)
        if not all(counters[chain].follows(base[chain]) for chain in plan.chains):
            self._forget("the counters began anew")
            return None
        self._windows.append(self._model.window(plan, base, counters))
        lately = list(self._windows)[-GROW_WINDOWS:]
        self._loads.append(self._model.loads(plan, self._windows[-1], lately))
        self._judge_steps(plan, now_ms)
        return self._decide(plan, now_ms)

    # --- windows -------------------------------------------------------------------------------

    def _unknown(self, plan: ScalingPlan, counters: Counters, now_ms: MonotonicMs) -> list[str]:
        """Subtasks of the attempt whose counters are missing, or too old."""
        return [
            chain
            for chain in sorted(plan.chains)
            if (found := counters.get(chain)) is None or abs(now_ms - found.at_ms) > STALE_MS
        ]

    def _begin_window(self, counters: Counters, now_ms: MonotonicMs) -> None:
        self._base, self._base_ms = dict(counters), now_ms

    def _forget(self, why: str) -> None:
        self._base = None
        self._windows.clear()
        self._loads.clear()
        self._tell(f"nothing is decided yet: {why}")

    # --- decisions -----------------------------------------------------------------------------

    def _decide(self, plan: ScalingPlan, now_ms: MonotonicMs) -> ScaleDecision | None:
        figures = tuple(
            self._figures(group, self._wanted(group, now_ms), now_ms)
            for group in plan.groups
            if group.bounds is not None
        )
        changes = [each for each in figures if not each.stays]
        seconds = 0.0
        if self._quiet_until_ms is not None:
            seconds = (self._quiet_until_ms - now_ms) / 1000
        if not changes:
            self._tell(self._calm_text(figures), figures)
            return None
        if seconds > 0:
            self._tell(f"the next change may follow in {seconds:.0f} s", figures)
            return None
        sentence = "; ".join(each.sentence() for each in changes)
        parallelism = {op: each.wanted for each in changes for op in each.operators}
        act = self._mode is AutoscaleMode.ON
        decision = ScaleDecision(now_ms, parallelism, figures, sentence, act)
        if act:
            self._remember_steps(plan, {each.operators: each.wanted for each in changes})
        self._wait(now_ms)
        self._status = AutoscaleStatus(self._mode, sentence, figures, decision)
        return decision

    def _wanted(self, group: StageGroup, now_ms: MonotonicMs) -> int:
        """The parallelism that the windows so far ask for; the present one if they do not agree."""
        bounds, present = group.bounds, group.parallelism
        assert bounds is not None
        if bounds.clamped(present) != present:
            return bounds.clamped(present)
        windows = [self._of(group, loads) for loads in self._loads]
        known = [loads for loads in windows if loads is not None]
        lately = windows[-GROW_WINDOWS:]
        asking = [loads for loads in lately if loads is not None]
        if len(asking) == GROW_WINDOWS and all(
            enough(loads, bounds, GROW_SLACK) > present for loads in asking
        ):
            wanted = sorted(enough(loads, bounds) for loads in asking)[GROW_WINDOWS // 2]
            return max(present, min(wanted, self._ceiling(group, now_ms)))
        if len(known) == SHRINK_WINDOWS:
            return min(present, max(enough(loads, bounds, SHRINK_SLACK) for loads in known))
        return present

    def _of(self, group: StageGroup, loads: Mapping[str, Load | None]) -> list[Load] | None:
        """The loads of a group's stages; None if one is not known."""
        found = [loads[stage.name] for stage in group.stages]
        known = [load for load in found if load is not None]
        return known if len(known) == len(found) else None

    def _wait(self, now_ms: MonotonicMs, cooldowns: int = 1) -> None:
        self._quiet_until_ms = MonotonicMs(now_ms + cooldowns * self._cooldown_ms)

    # --- whether it helped ---------------------------------------------------------------------

    def _remember_steps(
        self, plan: ScalingPlan, wanted: Mapping[tuple[OperatorId, ...], int]
    ) -> None:
        for group in plan.groups:
            after = wanted.get(group.operators, 0)
            if after >= LARGE_STEP * group.parallelism:
                stage = self._busiest(group)
                rate = self._possible(stage, group.parallelism)
                self._steps[group.name] = _Step(group.parallelism, after, stage, rate)

    def _judge_steps(self, plan: ScalingPlan, now_ms: MonotonicMs) -> None:
        """Once so many windows are known as made the step: did the group gain by it?"""
        if len(self._windows) != GROW_WINDOWS:
            return
        for group in plan.groups:
            step = self._steps.pop(group.name, None)
            if step is None or all(stage.name != step.stage for stage in group.stages):
                continue
            gain = step.after / step.before - 1
            if self._possible(step.stage, step.after) < step.rate * (1 + GAIN_SHARE_MIN * gain):
                until_ms = MonotonicMs(now_ms + RETRY_COOLDOWNS * self._cooldown_ms)
                self._ceilings[group.name] = (step.after, until_ms)

    def _possible(self, stage: str, parallelism: int) -> float:
        """Rows per second that all subtasks of a stage could take, by the last windows."""
        costs = [load.cost_s for loads in self._loads if (load := loads[stage]) and load.cost_s]
        lately = sorted(costs[-GROW_WINDOWS:])
        return parallelism / lately[len(lately) // 2] if lately else 0.0

    def _ceiling(self, group: StageGroup, now_ms: MonotonicMs) -> int:
        assert group.bounds is not None
        ceiling, until_ms = self._ceilings.get(group.name, (0, now_ms))
        return ceiling if now_ms < until_ms else group.bounds.maximum

    # --- what is told --------------------------------------------------------------------------

    def _busiest(self, group: StageGroup) -> str:
        """The stage of a group with the greatest load in the last window."""
        loads = self._loads[-1]
        known = {stage.name: load for stage in group.stages if (load := loads[stage.name])}
        return max(known, key=lambda name: known[name].at(group.parallelism), default=group.name)

    def _figures(self, group: StageGroup, wanted: int, now_ms: MonotonicMs) -> GroupFigures:
        assert group.bounds is not None
        stage = self._busiest(group)
        window, load = self._windows[-1][stage], self._loads[-1][stage]
        cost_s = None if load is None else load.cost_s
        return GroupFigures(
            group.operators,
            group.parallelism,
            wanted,
            group.bounds.target_busy,
            window.busy / group.parallelism,
            0.0 if load is None else load.at(group.parallelism),
            window.rate,
            0.0 if load is None else load.target_rate,
            1 / cost_s if cost_s else None,
            self._note(group, wanted, now_ms),
        )

    def _note(self, group: StageGroup, wanted: int, now_ms: MonotonicMs) -> str:
        assert group.bounds is not None
        if wanted == self._ceiling(group, now_ms) < group.bounds.maximum:
            return "; it grows no further for a while: the last step brought almost nothing"
        return "; that is its maximum" if wanted == group.bounds.maximum else ""

    def _calm_text(self, figures: tuple[GroupFigures, ...]) -> str:
        if not figures:
            return "no operator's parallelism may be changed"
        if len(self._windows) < GROW_WINDOWS:
            return (
                f"{len(self._windows)} of {GROW_WINDOWS} windows of {WINDOW_MS // 1000} s are known"
            )
        return f"nothing is to change; {max(figures, key=lambda each: each.load).sentence()}"

    def _tell(self, sentence: str, figures: tuple[GroupFigures, ...] | None = None) -> None:
        known = self._status.figures if figures is None else figures
        self._status = AutoscaleStatus(self._mode, sentence, known, self._status.last)


__all__ = [
    "GROW_SLACK",
    "GROW_WINDOWS",
    "RETRY_COOLDOWNS",
    "SHRINK_SLACK",
    "SHRINK_WINDOWS",
    "STALE_MS",
    "WINDOW_MS",
    "AutoscaleMode",
    "AutoscaleStatus",
    "Autoscaler",
    "GroupFigures",
    "ScaleDecision",
]
