"""A model of a running pipeline for autoscaling: what its subtasks would count, without any rows.

Stages have a cost per row, pass on a share of their rows, and may have a hot key. What flows is
what the slowest stage lets through: stages before it wait, and its sources are held back. Noise
changes what a row costs, by subtask and second. Nothing here knows how the decisions are made.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from arkflow_kernel.autoscale_load import SubtaskCounters
from arkflow_kernel.autoscale_stages import (
    ScaleBounds,
    ScaledStage,
    ScalingPlan,
    StageEdge,
    StageGroup,
)
from arkflow_kernel.ids import ChainId, EdgeId, MonotonicMs, OperatorId
from arkflow_kernel.testing.dice import Dice

FLOOD = 1e6
"""Rows per second that a source reads when rows are there."""


@dataclass(frozen=True, slots=True)
class ModelStage:
    """A stage after the source, in a row: `cost_s` of a row at `at_s`, rows passed on for each row.

    `hot`: this share of the rows has one key. `lower`, `upper`: bounds of its parallelism.
    """

    name: str
    cost_s: Callable[[float], float]
    passed_on: float = 1.0
    hot: float = 0.0
    lower: int = 1
    upper: int = 64


@dataclass(frozen=True, slots=True)
class ModelPipeline:
    """A source and the stages behind it. `offered`: rows per second that come in at `at_s`.

    `limit` is the source's `rows_per_second`, which is then what it offers; None: rows wait outside
    and are read as fast as may be when there is room. `noise`: a row costs up to so much more or
    less. `cpus`: more subtasks than that share these processors; None for as many as there are.
    """

    stages: tuple[ModelStage, ...]
    offered: Callable[[float], float]
    limit: float | None = None
    noise: float = 0.0
    cpus: int | None = None
    target_busy: float = 0.7


@dataclass
class _Totals:
    rows_in: float = 0.0
    sent: float = 0.0
    busy_s: float = 0.0
    held_s: float = 0.0


@dataclass
class PipelineRun:
    """A run of a model, `step` by `step`; `parallelism` is that of each stage."""

    pipeline: ModelPipeline
    dice: Dice
    parallelism: dict[str, int]
    now_s: float = 0.0
    waiting: float = 0.0
    delivered: float = 0.0
    _totals: dict[ChainId, _Totals] = field(default_factory=dict)

    def plan(self) -> ScalingPlan:
        """What the machine is told of it: a row of stages, each a group of its own."""
        limit = self.pipeline.limit
        source = ScaledStage("read", (OperatorId("read"),), (ChainId("read-0"),), True, limit)
        busy = self.pipeline.target_busy
        stages = (
            source,
            *(
                ScaledStage(
                    stage.name,
                    (OperatorId(stage.name),),
                    self._chains(stage.name),
                    bounds=ScaleBounds(stage.lower, stage.upper, busy),
                )
                for stage in self.pipeline.stages
            ),
        )
        names = [stage.name for stage in stages]
        edges = tuple(
            StageEdge(EdgeId(f"to-{below}"), above, below) for above, below in pairwise(names)
        )
        groups = tuple(StageGroup((stage,), stage.bounds) for stage in stages)
        return ScalingPlan(stages, edges, groups)

    def rescale(self, parallelism: Mapping[OperatorId, int], pause_s: float) -> None:
        """Another parallelism, after a pause in which nothing flows and rows wait outside."""
        self.parallelism |= {str(name): count for name, count in parallelism.items()}
        if self.pipeline.limit is None:
            self.waiting += self.offered * pause_s
        self.now_s += pause_s
        self._totals.clear()

    def step(self, seconds: float) -> None:
        """Let so much time pass."""
        noisy = {stage.name: self._costs(stage) for stage in self.pipeline.stages}
        wanted, flood = self._wanted(seconds)
        able = self._able(noisy)
        rate = min(wanted, able)
        if self.pipeline.limit is None:
            self.waiting += (self.offered - rate) * seconds
            self.waiting = max(0.0, self.waiting)
        self._count_source(rate, seconds, held=rate < wanted, free=rate / flood)
        for stage in self.pipeline.stages:
            for chain, share, cost_s in noisy[stage.name]:
                total = self._totals.setdefault(chain, _Totals())
                total.rows_in += rate * share * seconds
                total.sent += rate * share * stage.passed_on * seconds
                total.busy_s += min(1.0, rate * share * cost_s) * seconds
            rate *= stage.passed_on
        self.delivered = rate
        self.now_s += seconds

    def counters(self) -> dict[ChainId, SubtaskCounters]:
        """What every subtask would report now."""
        names = ["read", *(stage.name for stage in self.pipeline.stages)]
        edge_after = dict(zip(names, [*(EdgeId(f"to-{n}") for n in names[1:]), None], strict=True))
        found = {}
        for name in names:
            edge = edge_after[name]
            for chain in self._chains(name) if name != "read" else (ChainId("read-0"),):
                total = self._totals.get(chain, _Totals())
                found[chain] = SubtaskCounters(
                    self.now_ms,
                    round(total.rows_in),
                    {} if edge is None else {edge: round(total.sent)},
                    round(total.busy_s * 1000),
                    round(total.held_s * 1000),
                )
        return found

    @property
    def offered(self) -> float:
        """Rows per second that come in now."""
        limit = self.pipeline.limit
        return self.pipeline.offered(self.now_s) if limit is None else limit

    @property
    def now_ms(self) -> MonotonicMs:
        """Time of the run."""
        return MonotonicMs(round(self.now_s * 1000))

    def busiest(self, name: str) -> float:
        """Load of the busiest subtask of a stage, without noise, at what is offered now."""
        rate = self.offered
        for stage in self.pipeline.stages:
            if stage.name == name:
                return rate * self._hottest(stage) * stage.cost_s(self.now_s) * self._crowding()
            rate *= stage.passed_on
        raise KeyError(name)

    # --- the model -----------------------------------------------------------------------------

    def _chains(self, name: str) -> tuple[ChainId, ...]:
        return tuple(ChainId(f"{name}-{n}") for n in range(self.parallelism[name]))

    def _hottest(self, stage: ModelStage) -> float:
        return stage.hot + (1 - stage.hot) / self.parallelism[stage.name]

    def _crowding(self) -> float:
        """How many subtasks share a processor."""
        cpus = self.pipeline.cpus
        return 1.0 if cpus is None else max(1.0, sum(self.parallelism.values()) / cpus)

    def _costs(self, stage: ModelStage) -> list[tuple[ChainId, float, float]]:
        """Per subtask its share of the stage's rows, and what a row costs it now."""
        cost_s = stage.cost_s(self.now_s) * self._crowding()
        chains = self._chains(stage.name)
        equal = (1 - stage.hot) / len(chains)
        return [
            (chain, equal + (0.0 if n else stage.hot), cost_s * self._noise())
            for n, chain in enumerate(chains)
        ]

    def _noise(self) -> float:
        """Around 1, more often near it."""
        spread = (self.dice.between(-1000, 1000) + self.dice.between(-1000, 1000)) / 2000
        return 1 + self.pipeline.noise * spread

    def _wanted(self, seconds: float) -> tuple[float, float]:
        """Rows per second that the source would read now, and how fast it can at most."""
        offered = self.offered
        if self.pipeline.limit is not None:
            return offered, FLOOD
        flood = max(FLOOD, offered)
        return min(flood, offered + self.waiting / seconds), flood

    def _able(self, noisy: Mapping[str, list[tuple[ChainId, float, float]]]) -> float:
        """Rows per second of the source at which the slowest subtask is just busy all the time."""
        able, passed = float("inf"), 1.0
        for stage in self.pipeline.stages:
            worst = max(share * cost_s for _, share, cost_s in noisy[stage.name])
            if worst * passed > 0:
                able = min(able, 1 / (worst * passed))
            passed *= stage.passed_on
        return able

    def _count_source(self, rate: float, seconds: float, *, held: bool, free: float) -> None:
        total = self._totals.setdefault(ChainId("read-0"), _Totals())
        total.rows_in += rate * seconds
        total.sent += rate * seconds
        total.busy_s += 0.01 * seconds
        total.held_s += (1 - free) * seconds if held else 0.0


__all__ = ["FLOOD", "ModelPipeline", "ModelStage", "PipelineRun"]
