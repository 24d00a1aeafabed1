"""Autoscaling against models of pipelines: it comes to rest, within three steps, and stays (K6)."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from arkflow_kernel.autoscale import AutoscaleMode, Autoscaler, ScaleDecision
from arkflow_kernel.ids import OperatorId
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.planted_autoscale import PLANTED_AUTOSCALE
from arkflow_kernel.testing.scale_model import ModelPipeline, ModelStage, PipelineRun
from tests.simulation.seeds import in_chunks, unless_replayed

pytestmark = pytest.mark.thorough

SEEDS = 200
COOLDOWN_MS = 60_000
STEP_S = 2.5

LOOK_S = 5.0
"""The machine hears counters so often."""

REST_S = 600.0
"""How long a pipeline is watched after it should have come to rest."""

SETTLE_S = 600.0
"""How long it may take to come to rest after its load changed."""

STEPS_MAX = 3
"""Changes of one stage until it is right."""

EDGES_MAX = 1
"""Steps beyond that of all stages, for one whose load is at the edge of what makes it grow."""

Maker = Callable[[AutoscaleMode, int], Autoscaler]


class WrongError(AssertionError):
    """What a seed did that it must not."""


@dataclass
class Trial:
    """One pipeline under the machine. `decisions`: when, in seconds, and what."""

    run: PipelineRun
    machine: Autoscaler
    pause_s: float
    decisions: list[tuple[float, ScaleDecision]] = field(default_factory=list)

    def passes(self, seconds: float) -> None:
        """Let so much time pass; every decision is carried out."""
        end_s = self.run.now_s + seconds
        while self.run.now_s < end_s:
            for _ in range(round(LOOK_S / STEP_S)):
                self.run.step(STEP_S)
            decision = self.machine.observe(self.run.counters(), self.run.now_ms)
            if decision is None:
                continue
            if self.decisions and (self.run.now_s - self.decisions[-1][0]) * 1000 < COOLDOWN_MS:
                raise WrongError("two decisions within a cooldown")
            self.decisions.append((self.run.now_s, decision))
            for stage in self.run.pipeline.stages:
                wanted = decision.parallelism.get(OperatorId(stage.name))
                if wanted is not None and not stage.lower <= wanted <= stage.upper:
                    raise WrongError(f"{stage.name} is to have {wanted} subtasks")
            self.run.rescale(decision.parallelism, self.pause_s)
            self.machine.begin(self.run.plan(), self.run.now_ms)

    def settles(self) -> None:
        """It comes to rest, is right then, and stays as it is.

        In three steps, but for stages whose load lies on the edge, which may follow later.
        """
        before = len(self.decisions)
        self.passes(SETTLE_S)
        steps = self.decisions[before:]
        changes = Counter(op for _, decision in steps for op in decision.parallelism)
        if max(changes.values(), default=0) > STEPS_MAX or len(steps) > STEPS_MAX + EDGES_MAX:
            raise WrongError(f"{len(steps)} steps: {self.told()}")
        self.rests()

    def rests(self) -> None:
        """It stays as it is: no stage changes more than once, so nothing is taken back."""
        before = len(self.decisions)
        self.passes(REST_S)
        changes = [op for _, decision in self.decisions[before:] for op in decision.parallelism]
        if len(changes) != len(set(changes)):
            raise WrongError(f"no rest: {self.told()}")
        self.is_right()

    def is_right(self) -> None:
        """No stage has too few subtasks, nor many too many."""
        for stage in self.run.pipeline.stages:
            count = self.run.parallelism[stage.name]
            load = self.run.busiest(stage.name)
            if load > 0.85 and count < stage.upper and not stage.hot:
                raise WrongError(f"{count} of {stage.name} are {load:.0%} busy: {self.told()}")
            if count > stage.lower and load * count / (count - 1) < 0.5:
                raise WrongError(f"{count} of {stage.name} are {load:.0%} busy: {self.told()}")

    def told(self) -> str:
        """The decisions so far."""
        return "; ".join(f"{at:.0f} s {each.sentence}" for at, each in self.decisions)


def _trial(seed: int, pipeline: ModelPipeline, make: Maker = Autoscaler) -> Trial:
    dice = Dice(seed)
    parallelism = {stage.name: stage.lower for stage in pipeline.stages}
    run = PipelineRun(pipeline, dice, parallelism)
    machine = make(AutoscaleMode.ON, COOLDOWN_MS)
    machine.begin(run.plan(), run.now_ms)
    return Trial(run, machine, pause_s=dice.between(1, 10))


def _steady(cost_s: float) -> Callable[[float], float]:
    return lambda _: cost_s


def _stages(dice: Dice, *, upper: int = 64, hot: bool = False) -> tuple[ModelStage, ...]:
    """One to four stages; a row costs each of them a tenth of a millisecond to a millisecond."""
    return tuple(
        ModelStage(
            f"stage{n}",
            _steady(dice.between(100, 1000) / 1e6),
            passed_on=dice.pick([0.2, 0.5, 1.0, 1.0, 1.5]),
            hot=dice.between(0, 20) / 100 if hot else 0.0,
            upper=upper,
        )
        for n in range(dice.between(1, 4))
    )


def _noise(dice: Dice) -> float:
    return dice.pick([0.0, 0.1, 0.3])


def _limited(
    dice: Dice, stages: tuple[ModelStage, ...], rate: float, cpus: int | None = None
) -> ModelPipeline:
    """What its source offers is known, and stays."""
    return ModelPipeline(stages, lambda _: rate, limit=rate, noise=_noise(dice), cpus=cpus)


# --- the loads ---------------------------------------------------------------------------------


def limited_source(seed: int, make: Maker = Autoscaler) -> None:
    """What the source offers is known: up to twelve times what the pipeline can do at first."""
    dice = Dice(seed)
    rate = float(dice.between(200, 12_000))
    _trial(seed, _limited(dice, _stages(dice), rate), make).settles()


def step_up_and_down(seed: int, make: Maker = Autoscaler) -> None:
    """Rows wait outside; the load rises at once, and falls again."""
    dice = Dice(seed)
    low = float(dice.between(200, 1000))
    high = low * dice.between(2, 4)

    def offered(at_s: float) -> float:
        return high if 1400 < at_s < 4200 else low

    trial = _trial(seed, ModelPipeline(_stages(dice), offered, noise=_noise(dice)), make)
    trial.settles()
    trial.passes(1420 - trial.run.now_s)
    trial.passes(1300)  # it may want more while it catches up, and gives it back
    trial.rests()
    trial.passes(4220 - trial.run.now_s)
    trial.settles()


def ramp(seed: int, make: Maker = Autoscaler) -> None:
    """The load rises to four times within ten minutes: nothing is taken back meanwhile."""
    dice = Dice(seed)
    low = float(dice.between(200, 800))

    def offered(at_s: float) -> float:
        return low * (1 + 3 * min(1.0, max(0.0, (at_s - 1400) / 600)))

    trial = _trial(seed, ModelPipeline(_stages(dice), offered, noise=_noise(dice)), make)
    trial.settles()
    before = len(trial.decisions)
    trial.passes(1400 + 600 - trial.run.now_s)
    if len(trial.decisions) - before > 8:
        raise WrongError(f"it follows every small change: {trial.told()}")
    trial.passes(1200)
    trial.rests()


def costlier_rows(seed: int, make: Maker = Autoscaler) -> None:
    """At one moment the rows of one stage cost four times as much."""
    dice = Dice(seed)
    first, *others = _stages(dice)
    base = first.cost_s(0.0)
    changed = ModelStage(
        "first", lambda at_s: base * (4 if at_s > 1400 else 1), first.passed_on, upper=64
    )
    rate = float(dice.between(500, 3000))
    trial = _trial(seed, _limited(dice, (changed, *others), rate), make)
    trial.settles()
    trial.passes(1420 - trial.run.now_s)
    trial.settles()


def hot_key(seed: int, make: Maker = Autoscaler) -> None:
    """A key has up to a fifth of the rows: it is not answered with ever more subtasks."""
    dice = Dice(seed)
    rate = float(dice.between(1000, 6000))
    stages = _stages(dice, hot=True)
    trial = _trial(seed, _limited(dice, stages, rate), make)
    trial.settles()
    passed = 1.0
    for stage in stages:
        load = rate * passed * stage.cost_s(0.0)
        alone = load * stage.hot
        best = max(0.7, alone / 0.9) * 1.15
        if trial.run.busiest(stage.name) > best and trial.run.parallelism[stage.name] < stage.upper:
            raise WrongError(f"{stage.name} has too few subtasks: {trial.told()}")
        if trial.run.parallelism[stage.name] > 3 + 14 * load:
            raise WrongError(f"{stage.name} has too many subtasks: {trial.told()}")
        passed *= stage.passed_on


def shared_processors(seed: int, make: Maker = Autoscaler) -> None:
    """More subtasks share the same few processors: growing helps nobody."""
    dice = Dice(seed)
    stages = (ModelStage("work", lambda _: 0.001, upper=32),)
    rate = float(dice.between(5_000, 20_000))
    trial = _trial(seed, _limited(dice, stages, rate, cpus=1), make)
    trial.passes(60)
    trial.run.parallelism["work"] = 2
    trial.machine.begin(trial.run.plan(), trial.run.now_ms)
    trial.passes(550)
    if len(trial.decisions) > 2:
        raise WrongError(f"it grows for nothing: {trial.told()}")


LOADS = {
    "limited_source": limited_source,
    "step_up_and_down": step_up_and_down,
    "ramp": ramp,
    "costlier_rows": costlier_rows,
    "hot_key": hot_key,
    "shared_processors": shared_processors,
}


@in_chunks(SEEDS)
@pytest.mark.parametrize("load", sorted(LOADS))
def test_it_comes_to_rest_within_three_steps_and_stays(load: str, seeds: list[int]) -> None:
    for seed in seeds:
        try:
            LOADS[load](seed)
        except WrongError as wrong:
            raise AssertionError(f"ARKFLOW_SEED={seed}: {wrong}") from wrong


FOUND_BY = {
    "observed_rates": "limited_source",
    "backpressure_is_nothing": "limited_source",
    "every_row_goes_on": "limited_source",
    "rows_are_spread_evenly": "hot_key",
    "ForgetsToWait": "ramp",
    "NoGap": "limited_source",
    "NeverAsksWhetherItHelped": "shared_processors",
}


def _goes_wrong(load: Callable[..., None], seed: int, make: Maker) -> bool:
    try:
        load(seed, make)
    except WrongError:
        return True
    return False


@unless_replayed
@pytest.mark.parametrize("bug", sorted(PLANTED_AUTOSCALE))
def test_a_planted_bug_of_autoscaling_is_found(bug: str) -> None:
    """By the load that is named here, within its first twenty seeds."""
    load = LOADS[FOUND_BY[bug]]
    assert any(_goes_wrong(load, seed, PLANTED_AUTOSCALE[bug]) for seed in range(20))
