"""How busy stages would be at the rate that the sources offer, at any parallelism (K6, after DS2).

A subtask's true rate is the rows that it took in a while by the time that it worked on them. Time
in which it waited does not count, so the rate is the same whether others hold it back or not. What
the sources offer, and the share of rows that each stage passes on, say which rate a stage is to
have; both together say how busy it would be. All of it is ratios: a unit of rows or time that is
the same everywhere changes nothing.

Method: Kalavri et al., "Three steps is all you need" (OSDI 2018). Beyond it: one busiest subtask
(a hot key), rows that go to all subtasks, and sources that were held back.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from arkflow_kernel.autoscale_stages import ScaleBounds, ScaledStage, ScalingPlan
from arkflow_kernel.ids import ChainId, EdgeId, MonotonicMs

FREE_SHARE_MIN: Final = 0.5
"""A source without `rows_per_second` that was held back counts as free for this share of the time
at least: what it would read in the rest is a guess. So a step doubles what is asked for at most."""

FLOOR_MARGIN: Final = 0.9
"""Where a hot key keeps the goal out of reach, a stage is given subtasks until that key is this
share of its busiest subtask's load: more would hardly change anything."""


@dataclass(frozen=True, slots=True)
class SubtaskCounters:
    """What one subtask did since its attempt began, counted at `at_ms`: all but the time only grow.

    `rows_to`: rows handed to each edge that leaves its chain, each as often as it was sent.
    `busy_ms`: how long the busiest of its lanes worked; of several workers their mean.
    `held_ms`, of a source: how long rows that it had read waited for room.
    """

    at_ms: MonotonicMs
    rows_in: int = 0
    rows_to: Mapping[EdgeId, int] = field(default_factory=dict)
    busy_ms: int = 0
    held_ms: int = 0

    def follows(self, before: "SubtaskCounters") -> bool:
        """Whether these can be later counters of the same subtask in the same attempt."""
        return (
            self.at_ms > before.at_ms
            and self.rows_in >= before.rows_in
            and self.busy_ms >= before.busy_ms
            and self.held_ms >= before.held_ms
            and all(self.rows_to.get(edge, 0) >= rows for edge, rows in before.rows_to.items())
        )


Counters = Mapping[ChainId, SubtaskCounters]


@dataclass(frozen=True, slots=True)
class StageWindow:
    """A stage in one window. `rows` are rows per second taken by each subtask, `sent` those of all
    subtasks by edge; `busy` is the sum of the shares of time in which its subtasks worked, so at
    most their number; `held` the mean share in which a source was held back; `offered` the rows per
    second that it would have read if it had never been.
    """

    rows: tuple[float, ...]
    sent: Mapping[EdgeId, float]
    busy: float
    held: float
    offered: float

    @property
    def rate(self) -> float:
        """Rows per second of all subtasks."""
        return sum(self.rows)


Window = Mapping[str, StageWindow]


@dataclass(frozen=True, slots=True)
class Load:
    """How busy the busiest subtask of a stage would be: `fixed + shared / parallelism`.

    `target_rate`: rows per second that would arrive. `cost_s`: seconds of work for a row.
    """

    fixed: float
    shared: float
    target_rate: float = 0.0
    cost_s: float = 0.0

    def at(self, parallelism: int) -> float:
        """That share of time at this parallelism; above 1: it cannot keep up."""
        return self.fixed + self.shared / parallelism


class LoadModel:
    """From counters to loads. Without state; a class so that tests can spoil single steps."""

    def window(self, plan: ScalingPlan, before: Counters, after: Counters) -> Window:
        """What each stage did between two sets of counters, which hold every subtask."""
        return {stage.name: self.stage_window(stage, before, after) for stage in plan.stages}

    def stage_window(self, stage: ScaledStage, before: Counters, after: Counters) -> StageWindow:
        """One stage of it. Every subtask's own time between its counters is what counts."""
        pairs = [(before[chain], after[chain]) for chain in stage.chains]
        rows, busy, held, offered = [], 0.0, 0.0, 0.0
        sent: dict[EdgeId, float] = {}
        for old, new in pairs:
            seconds = (new.at_ms - old.at_ms) / 1000
            rate = (new.rows_in - old.rows_in) / seconds
            share = min(1.0, (new.held_ms - old.held_ms) / 1000 / seconds)
            rows.append(rate)
            busy += self.busy_share(old, new, seconds)
            held += share / len(pairs)
            offered += self.offered(rate, share, known=stage.rows_per_second is not None)
            for edge, count in new.rows_to.items():
                more = (count - old.rows_to.get(edge, 0)) / seconds
                sent[edge] = sent.get(edge, 0.0) + more
        if stage.rows_per_second is not None:
            offered = min(offered, max(stage.rows_per_second, sum(rows)))
        return StageWindow(tuple(rows), sent, busy, held, offered)

    def busy_share(self, old: SubtaskCounters, new: SubtaskCounters, seconds: float) -> float:
        """Share of the time in which a subtask worked."""
        return min(1.0, (new.busy_ms - old.busy_ms) / 1000 / seconds)

    def offered(self, rate: float, held: float, *, known: bool) -> float:
        """Rows per second of a source that is never held back, of one that was for this share.

        `known`: there is a limit that the caller keeps.
        """
        return rate / max(1e-6 if known else FREE_SHARE_MIN, 1.0 - held)

    def loads(
        self, plan: ScalingPlan, window: Window, lately: Sequence[Window]
    ) -> dict[str, Load | None]:
        """Loads at what the sources offered in a window; None where nothing can be known.

        `lately`, the window included, says which share of its rows a stage passes on, and which
        part of them the busiest subtask gets.
        """
        targets = self.targets(plan, window, lately)
        return {
            stage.name: self.load(stage, window[stage.name], targets[stage.name], lately)
            for stage in plan.stages
        }

    def targets(
        self, plan: ScalingPlan, window: Window, lately: Sequence[Window]
    ) -> dict[str, "Target | None"]:
        """Rows per second that each stage is to take; None where nothing can be known."""
        targets: dict[str, Target | None] = {}
        for stage in plan.stages:
            if stage.is_source:
                offered = window[stage.name].offered
                targets[stage.name] = Target(offered, 0.0, offered)
                continue
            found: Target | None = Target(0.0, 0.0, 0.0)
            for edge in plan.edges:
                if edge.target != stage.name:
                    continue
                above = targets[edge.source]
                passed = passed_on(edge.source, edge.edge, lately)
                if above is None or (passed is None and above.rate > 0):
                    found = None
                    break
                assert found is not None
                rate = above.rate * (passed or 0.0)
                each = rate / stage.parallelism if edge.to_all else 0.0
                shared = 0.0 if edge.to_all else rate
                found = Target(found.shared + shared, found.each + each, found.rate + rate)
            targets[stage.name] = found
        return targets

    def load(
        self,
        stage: ScaledStage,
        window: StageWindow,
        target: "Target | None",
        lately: Sequence[Window],
    ) -> Load | None:
        """The load of one stage; None if its rows cost something that is not known."""
        if target is None:
            return None
        if target.rate == 0:
            return Load(0.0, 0.0)
        if window.rate == 0:
            return None
        cost_s = window.busy / window.rate
        hot = hot_share([each[stage.name].rows for each in lately])
        fixed = cost_s * (target.each + target.shared * hot)
        shared = cost_s * target.shared * (1.0 - hot)
        return Load(fixed, shared, target.rate, cost_s)


@dataclass(frozen=True, slots=True)
class Target:
    """Rows per second: `shared` by the subtasks of a stage, those that `each` of them gets, and all
    that its subtasks take together.
    """

    shared: float
    each: float
    rate: float


def passed_on(stage: str, edge: EdgeId, lately: Iterable[Window]) -> float | None:
    """Rows on an edge for each row that the stage took, lately; None if it took none."""
    windows = [window[stage] for window in lately]
    taken = sum(window.rate for window in windows)
    return sum(window.sent.get(edge, 0.0) for window in windows) / taken if taken > 0 else None


def hot_share(lately: Sequence[Sequence[float]]) -> float:
    """Which share of a stage's rows goes to one subtask beside its equal part of the others.

    That is what one hot key does, however many subtasks there are. 0 for a single subtask, of
    which nothing can be known.
    """
    rows: list[float] = [sum(each) for each in zip(*lately, strict=True)]
    total, subtasks = sum(rows), len(rows)
    if subtasks < 2 or total == 0:
        return 0.0
    equal = 1.0 / subtasks
    return max(0.0, (max(rows) / total - equal) / (1.0 - equal))


def enough(loads: Iterable[Load], bounds: ScaleBounds, slack: float = 1.0) -> int:
    """The least number of subtasks within the bounds at which no load is above its goal.

    The goal is the target of the bounds, times `slack`. A load that no number brings there has its
    own, nearest goal; see `FLOOR_MARGIN`.
    """
    found = bounds.minimum
    for load in loads:
        goal = max(bounds.target_busy, load.fixed / FLOOR_MARGIN) * slack
        while found < bounds.maximum and load.at(found) > goal * (1 + 1e-9):
            found += 1
    return found


__all__ = [
    "FLOOR_MARGIN",
    "FREE_SHARE_MIN",
    "Counters",
    "Load",
    "LoadModel",
    "StageWindow",
    "SubtaskCounters",
    "Target",
    "Window",
    "enough",
    "hot_share",
    "passed_on",
]
