"""What one job of the simulation is: its graph, what its parts do, what its user does.

Data drawn from dice, nothing else. The plan is made by the real planner from a drawn `JobSpec`.
Sizes are small: faults hide in orders, not in volumes.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from arkflow_kernel.graph import build_graph
from arkflow_kernel.ids import ChainId, OperatorId
from arkflow_kernel.job import JobSpec
from arkflow_kernel.plan import ChainPlan, ExecutionGraph
from arkflow_kernel.snapshot import RestoredChain
from arkflow_kernel.split_assignment import SplitShare, restored_share
from arkflow_kernel.stream_compiler import WORKERS_KEY
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.sim_order import Head, Path, paths
from arkflow_kernel.testing.sim_parts import OperatorScript, SinkScript, SourceScript
from arkflow_kernel.testing.sim_rows import FINISH_SPLITS, SPLIT_ROWS, split_name
from arkflow_kernel.testing.sim_times import TimeScript

CHAINS_MAX: Final = 9
"""Subtasks of chains in one job: more only make every seed longer."""

CHANNELS_MAX: Final = 14

ENVELOPES: Final = 90
"""About so many batches and envelopes does one attempt of a job move."""


class UserAction(Enum):
    """What the user asks for in the middle of the run."""

    NOTHING = "nothing"
    STOP = "stop"
    CANCEL = "cancel"


@dataclass(frozen=True)
class Scenario:
    """One job, what its user does at which step, and how many faults may strike.

    `time`: its rows have event times.
    """

    graph: ExecutionGraph
    sources: dict[ChainId, SourceScript]
    operators: dict[OperatorId, OperatorScript]
    sinks: dict[OperatorId, SinkScript]
    paths: dict[Head, dict[Head, Path]]
    action: UserAction
    action_step: int
    faults: int
    fault_odds: int
    time: TimeScript | None = None

    def ends(self) -> dict[int, int]:
        """How many rows each split has."""
        return {s: script.rows(s) for script in self.sources.values() for s in script.sizes}

    def under(self, graph: ExecutionGraph) -> "Scenario":
        """The same job with another plan of it: other subtasks, the same parts."""
        return replace(self, graph=graph, paths=paths(graph))

    def script(self, chain: ChainId) -> SourceScript:
        """What the reader of a chain may read: at least what it is given."""
        return self.sources[chain]

    def shared(self, plan: ChainPlan, restored: RestoredChain) -> RestoredChain:
        """What a chain restores; of a source with several subtasks only what it reads (K5)."""
        if plan.source is None or plan.parallelism == 1:
            return restored
        return restored_share(restored, self._share(plan, restored))

    def _share(self, plan: ChainPlan, restored: RestoredChain) -> SplitShare:
        """The splits of one subtask: always the same, as drawn."""
        del restored
        return SplitShare(tuple(split_name(split) for split in self.sources[plan.chain].sizes))

    def finish_rows(self, chain: ChainId, operator: OperatorId) -> list[int]:
        """The rows that an operator of a chain yields when it is finished."""
        chains = [plan.chain for plan in self.graph.chains]
        plan = self.graph.chain(chain)
        place = [op.operator for op in plan.operators].index(operator)
        first = (FINISH_SPLITS + chains.index(chain)) * SPLIT_ROWS + place * 1_000
        return list(range(first, first + self.operators[operator].at_finish))

    def source_of(self) -> dict[int, Head]:
        """By split, the chain that reads it."""
        return {
            split: chain.rpartition("-")[0]
            for chain, script in self.sources.items()
            for split in script.sizes
        }


def draw_scenario(dice: Dice) -> Scenario:
    """Everything that is decided before the first step."""
    graph = draw_graph(dice, DrawnJob)
    action = dice.pick([UserAction.NOTHING] * 3 + [UserAction.STOP] * 4 + [UserAction.CANCEL])
    return with_parts(dice, graph, action)


def draw_graph(
    dice: Dice,
    kind: "type[DrawnJob]",
    chains_max: int = CHAINS_MAX,
    channels_max: int = CHANNELS_MAX,
) -> ExecutionGraph:
    """The plan of a job that is small enough."""
    while True:
        graph = build_graph(JobSpec.model_validate(kind(dice).job()))
        channels = sum(len(plan.inputs) for plan in graph.chains)
        if len(graph.chains) <= chains_max and channels <= channels_max:
            return graph


def with_parts(
    dice: Dice, graph: ExecutionGraph, action: UserAction, envelopes: int = ENVELOPES
) -> Scenario:
    """A planned job, and what its parts do."""
    hopping = sum(1 + len(plan.channels) for plan in graph.chains)
    batches = max(3, envelopes // hopping)
    return Scenario(
        graph,
        _draw_sources(dice, graph, batches),
        _draw_operators(dice, graph),
        {sink.operator: _draw_sink(dice) for plan in graph.chains for sink in plan.sinks},
        paths(graph),
        action,
        action_step=dice.between(1, 1_000),
        faults=dice.between(1, 3),
        fault_odds=dice.pick([100, 250, 600]),
    )


class DrawnJob:
    """A job's operators and edges, drawn in the order of the rows.

    `SOURCES` and `MAPS`: how many there may be of these.
    """

    SOURCES: tuple[int, ...] = (1, 1, 2)
    MAPS: tuple[int, ...] = (0, 1, 2, 2, 3)

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        self._operators: list[dict[str, Any]] = []
        self._edges: list[dict[str, Any]] = []
        self._fed: set[str] = set()

    def job(self) -> dict[str, Any]:
        dice = self._dice
        sources = [self._operator("source", i) for i in range(dice.pick(self.SOURCES))]
        open_ends = [op["id"] for op in self._operators]
        for i in range(dice.pick(self.MAPS)):
            # The newest come first: depth is more often found than width.
            ways = dice.pick([1, 1, 1, 2])
            before = [op["id"] for op in self._operators]
            made = self._operator("map", i)
            loose = [name for name in before if name not in self._fed]
            for above in dict.fromkeys(dice.pick(loose or before) for _ in range(ways)):
                self._edge(above, made)
        open_ends = [op["id"] for op in self._operators if op["id"] not in self._fed]
        sinks: list[str] = []
        for above in (*open_ends, *([dice.pick(self._operators)["id"]] * dice.one_in(4))):
            sinks.append(self._operator("sink", len(sinks)))
            self._edge(above, sinks[-1])
        if not dice.one_in(3):
            sinks.append(self._errors(len(sinks)))
        return {
            "id": "job",
            "version": 1,
            "operators": self._operators,
            "edges": self._edges,
            "sources": [self._source(name) for name in sources],
            "sinks": [{"operator_id": name, "output_type": "sim"} for name in sinks],
            "channel": {
                "capacity": dice.pick([1, 2, 2, 4, 8]),
                "capacity_bytes": dice.pick([1, 100, 400, 1_000_000]),
            },
            "restart": _draw_restart(dice),
        }

    def _operator(self, kind: str, number: int) -> str:
        name = f"{kind}{number}"
        self._operators.append(
            {
                "id": name,
                "kind": kind,
                "key_field": "key",
                "config": {} if kind != "map" else {"type": "sim"},
                "parallelism": self._dice.pick([1, 1, 2, 2, 3, 4]),
                "chain": not self._dice.one_in(3),
            }
        )
        return name

    def _source(self, name: str) -> dict[str, Any]:
        config: dict[str, Any] = {WORKERS_KEY: self._dice.pick([1, 1, 2, 4])}
        if self._dice.one_in(4):
            config["rows_per_second"] = 2_000
        return {
            "operator_id": name,
            "input_type": "sim",
            "config": config,
            "time": {"mode": "processing_time"},
        }

    def _edge_kinds(self, above: str, below: str) -> list[str]:
        kinds = ["partitioned", "partitioned", "broadcast", "rebalance"]
        if self._parallelism(below) in (1, self._parallelism(above)):
            kinds += ["forward"] * 4
        return kinds

    def _edge(self, above: str, below: str) -> None:
        kind = self._dice.pick(self._edge_kinds(above, below))
        edge = {"id": f"e{len(self._edges)}", "from": above, "to": below}
        how = {"partitioned": True} if kind == "partitioned" else {"type": kind}
        self._edges.append({**edge, **how})
        self._fed.add(above)

    def _errors(self, number: int) -> str:
        """One sink takes what fails, in all operators or in some."""
        name = self._operator("sink", number)
        self._operators[-1]["parallelism"] = 1
        kept = [op["id"] for op in self._operators if op["kind"] != "sink"]
        kept = [op for op in kept if not self._dice.one_in(4)] or kept[:1]
        self._edges += [
            {"id": f"x{i}", "from": above, "to": name, "type": "error"}
            for i, above in enumerate(kept)
        ]
        return name

    def _parallelism(self, name: str) -> int:
        return int(self._spec(name)["parallelism"])

    def _spec(self, name: str) -> dict[str, Any]:
        return next(op for op in self._operators if op["id"] == name)


def _draw_restart(dice: Dice) -> dict[str, Any]:
    restart = {
        "strategy": dice.pick(["exponential"] * 4 + ["fixed"] * 3 + ["none"]),
        "initial_ms": dice.pick([10, 200, 1_500]),
        "max_ms": dice.pick([1_000, 5_000]),
        "reset_after_ms": dice.pick([3_000, 600_000]),
    }
    attempts = dice.pick([None, None, None, 1, 3])
    return restart if attempts is None else {**restart, "max_attempts": attempts}


def _draw_sources(dice: Dice, graph: ExecutionGraph, batches: int) -> dict[ChainId, SourceScript]:
    reading = [plan for plan in graph.chains if plan.source is not None]
    splits = {plan.chain: dice.pick([1, 1, 2, 3]) for plan in reading}
    each = max(2, batches // sum(splits.values()))
    found: dict[ChainId, SourceScript] = {}
    number = 0
    for plan in reading:
        sizes = {}
        for _ in range(splits[plan.chain]):
            most = dice.pick([1, 3, 8])
            sizes[number] = tuple(dice.between(1, most) for _ in range(each))
            number += 1
        bad = dice.pick([0, 5, 3]) if plan.error_output is not None else 0
        pause = dice.pick([0, 0, 3, 7])
        commits = dice.one_in(2)
        found[plan.chain] = SourceScript(sizes, commits, pause, dice.pick([None, 5, 40]), bad)
    return found


def _draw_operators(dice: Dice, graph: ExecutionGraph) -> dict[OperatorId, OperatorScript]:
    found: dict[OperatorId, OperatorScript] = {}
    for plan in graph.chains:
        for operator in plan.operators:
            if operator.operator not in found:
                found[operator.operator] = _draw_operator(dice, plan)
    return found


def _draw_operator(dice: Dice, plan: ChainPlan) -> OperatorScript:
    safe = plan.error_output is not None
    return OperatorScript(
        pieces=dice.pick([1, 1, 3, 7]),
        drops=dice.pick([0, 0, 2, 9]),
        rejects=dice.pick([0, 0, 7]) if safe else 0,
        fails=dice.pick([0, 0, 4]) if safe or dice.one_in(25) else 0,
        at_finish=dice.pick([0, 0, 8]),
    )


def _draw_sink(dice: Dice) -> SinkScript:
    return SinkScript(
        lag=dice.pick([0, 0, 1, 5]),
        roll_ms=dice.pick([None, None, 30]),
        slow=dice.pick([1, 1, 1, 3, 6]),
    )


__all__ = ["DrawnJob", "Scenario", "UserAction", "draw_graph", "draw_scenario", "with_parts"]
