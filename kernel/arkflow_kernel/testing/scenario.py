"""What one seed of the simulation is about: its chains, their components, and what the user does.

Data drawn from dice, nothing else. Sizes are small: faults hide in orders, not in volumes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.testing.components import (
    ScriptedOperator,
    ScriptedSink,
    ScriptedSource,
    rows_batch,
)
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.plans import chain_plan

Predicate = Callable[[str, int], bool]

FINISH_SPLIT = "finish"
"""What rows that only `finish` yields say as their split; no source has it."""


class UserAction(Enum):
    """What the user asks for in the middle of the run."""

    NOTHING = "nothing"
    STOP = "stop"
    CANCEL = "cancel"


@dataclass(frozen=True)
class SinkScript:
    """How a sink confirms; see `ScriptedSink`."""

    name: str
    lag: int
    roll_ms: int | None

    def make(self) -> ScriptedSink:
        """A new sink, as a new attempt builds it."""
        return ScriptedSink(lag=self.lag, roll_ms=self.roll_ms)


@dataclass(frozen=True)
class ChainScript:
    """One chain: its plan and how to build its components anew for each attempt."""

    plan: ChainPlan
    sizes: dict[str, tuple[int, ...]]
    sinks: tuple[SinkScript, ...]
    commits: bool
    pause_every: int
    pause_ms: int | None
    pieces: int
    at_finish: int
    bad: Predicate
    drops: Predicate
    rejects: Predicate
    fails: Predicate

    def source(self) -> ScriptedSource:
        """A new source."""
        return ScriptedSource(
            self.sizes,
            bad=self.bad,
            pause_every=self.pause_every,
            pause_ms=self.pause_ms,
            commits=self.commits,
        )

    def operators(self) -> dict[str, ScriptedOperator]:
        """New operators: the first may reject and fail, the second drops and fans out."""
        return {
            "first": ScriptedOperator(
                rejects=self.rejects,
                fails=self.fails,
                at_finish=tuple(rows_batch(*row) for row in self.finish_rows()),
            ),
            "second": ScriptedOperator(pieces=self.pieces, drops=self.drops),
        }

    def finish_rows(self) -> list[tuple[str, list[int]]]:
        """What the first operator yields at the end: one batch of one row each."""
        return [(FINISH_SPLIT, [n]) for n in range(self.at_finish)]

    def rows(self, split: str) -> int:
        """How many rows the split has."""
        return sum(self.sizes[split])


@dataclass(frozen=True)
class Scenario:
    """One job, what its user does at which step, and how many faults may strike."""

    chains: tuple[ChainScript, ...]
    action: UserAction
    action_step: int
    faults: int
    fault_odds: int


def draw_scenario(dice: Dice) -> Scenario:
    """Everything that a seed decides before the first step."""
    chains = tuple(_draw_chain(dice, index) for index in range(dice.between(1, 3)))
    action = dice.pick([UserAction.NOTHING] * 5 + [UserAction.STOP] * 3 + [UserAction.CANCEL])
    return Scenario(
        chains,
        action,
        action_step=dice.between(1, 2_000),
        faults=dice.between(1, 4),
        fault_odds=dice.pick([150, 400, 900]),
    )


def _draw_chain(dice: Dice, index: int) -> ChainScript:
    sinks = tuple(_draw_sink(dice, f"sink-{i}") for i in range(dice.between(1, 2)))
    errors = not dice.one_in(3)
    all_sinks = (*sinks, _draw_sink(dice, "errors")) if errors else sinks
    plan = chain_plan(
        f"chain-{index}",
        operators=("first", "second"),
        sinks=tuple(sink.name for sink in sinks),
        error_sink="errors" if errors else None,
        workers=dice.pick([1, 1, 2, 4]),
        rows_per_second=dice.pick([None, None, 2_000.0]),
    )
    splits = [f"split-{i}" for i in range(dice.between(1, 4))]
    return ChainScript(
        plan=plan,
        sizes={split: _draw_sizes(dice) for split in splits},
        sinks=all_sinks,
        commits=dice.one_in(2),
        pause_every=dice.pick([0, 3, 7]),
        pause_ms=dice.pick([None, 5, 40]),
        pieces=dice.pick([1, 1, 3, 7]),
        at_finish=dice.pick([0, 0, 12]),
        bad=_every(dice.pick([0, 5, 3]) if errors else 0),
        drops=_every(dice.pick([0, 2, 9])),
        rejects=_every(dice.pick([0, 7]) if errors else 0),
        fails=_every(dice.pick([0, 4]) if errors else 0),
    )


def _draw_sink(dice: Dice, name: str) -> SinkScript:
    return SinkScript(name, lag=dice.pick([0, 0, 1, 5]), roll_ms=dice.pick([None, None, 30]))


def _draw_sizes(dice: Dice) -> tuple[int, ...]:
    most = dice.pick([1, 4, 20])
    return tuple(dice.between(1, most) for _ in range(dice.between(8, 40)))


def _every(step: int) -> Predicate:
    """True for every `step`-th row; 0: for none."""
    return lambda _split, n: step > 0 and n % step == step - 1


__all__ = ["FINISH_SPLIT", "ChainScript", "Scenario", "SinkScript", "UserAction", "draw_scenario"]
