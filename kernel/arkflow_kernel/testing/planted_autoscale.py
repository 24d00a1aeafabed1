"""Planted bugs of autoscaling: each is one step of the decision, done wrongly."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from arkflow_kernel.autoscale import AutoscaleMode, Autoscaler
from arkflow_kernel.autoscale_load import (
    Load,
    LoadModel,
    StageWindow,
    SubtaskCounters,
    Target,
    Window,
    enough,
)
from arkflow_kernel.autoscale_stages import ScaledStage, ScalingPlan, StageGroup
from arkflow_kernel.ids import MonotonicMs


class _ObservedRates(LoadModel):
    """A subtask is taken to be busy all the time: what it did is what it can do."""

    def busy_share(self, old: SubtaskCounters, new: SubtaskCounters, seconds: float) -> float:
        del old, new, seconds
        return 1.0


class _BackpressureIsNothing(LoadModel):
    """A source that was held back offers no more than it read."""

    def offered(self, rate: float, held: float, *, known: bool) -> float:
        del held, known
        return rate


class _EveryRowGoesOn(LoadModel):
    """What stages filter or multiply does not count: each gets the rows of the sources."""

    def targets(
        self, plan: ScalingPlan, window: Window, lately: Sequence[Window]
    ) -> dict[str, Target | None]:
        del lately
        offered = sum(window[each.name].offered for each in plan.stages if each.is_source)
        return {stage.name: Target(offered, 0.0, offered) for stage in plan.stages}


class _RowsAreSpreadEvenly(LoadModel):
    """A hot key is overlooked."""

    def load(
        self,
        stage: ScaledStage,
        window: StageWindow,
        target: Target | None,
        lately: Sequence[Window],
    ) -> Load | None:
        load = super().load(stage, window, target, lately)
        return None if load is None else replace(load, fixed=0.0, shared=load.fixed + load.shared)


class ForgetsToWait(Autoscaler):
    """The next decision follows as soon as it likes."""

    def _wait(self, now_ms: MonotonicMs, cooldowns: int = 1) -> None:
        del now_ms, cooldowns


class NoGap(Autoscaler):
    """A stage follows each single window, up and down."""

    def _wanted(self, group: StageGroup, now_ms: MonotonicMs) -> int:
        del now_ms
        loads = self._of(group, self._loads[-1])
        if loads is None or group.bounds is None:
            return group.parallelism
        return enough(loads, group.bounds)


class NeverAsksWhetherItHelped(Autoscaler):
    """A group grows again and again, whatever it gained."""

    def _judge_steps(self, plan: ScalingPlan, now_ms: MonotonicMs) -> None:
        del plan, now_ms


PLANTED_AUTOSCALE: dict[str, Callable[[AutoscaleMode, int], Autoscaler]] = {
    "observed_rates": partial(Autoscaler, model=_ObservedRates()),
    "backpressure_is_nothing": partial(Autoscaler, model=_BackpressureIsNothing()),
    "every_row_goes_on": partial(Autoscaler, model=_EveryRowGoesOn()),
    "rows_are_spread_evenly": partial(Autoscaler, model=_RowsAreSpreadEvenly()),
    "ForgetsToWait": ForgetsToWait,
    "NoGap": NoGap,
    "NeverAsksWhetherItHelped": NeverAsksWhetherItHelped,
}
"""Makers of machines, by the bug that each has."""

__all__ = ["PLANTED_AUTOSCALE"]
