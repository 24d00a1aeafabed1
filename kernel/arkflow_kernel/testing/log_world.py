"""Jobs, records and coordinators' logs in memory, for tests of what a log does."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from arkflow_kernel.checkpoint_ports import LogFiles
from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.graph import key_group_range
from arkflow_kernel.ids import (
    ChainId,
    CheckpointId,
    Generation,
    JobId,
    OperatorId,
    SplitId,
    SubtaskIndex,
    TaskId,
    WallMs,
)
from arkflow_kernel.job_log import JobLog
from arkflow_kernel.plan import (
    ChainPlan,
    CheckpointPlan,
    ComponentPlan,
    ExecutionGraph,
    Mode,
    OperatorPlan,
    SinkPlan,
    SourcePlan,
    StatePlan,
)
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.snapshot import (
    ChainSnapshot,
    CheckpointPhases,
    CheckpointRecord,
    Claim,
    Epoch,
    LaneSnapshot,
    ObjectRef,
    RestoreChoice,
    RunRef,
    SinkToken,
    StagedObject,
    StateSnapshot,
)
from arkflow_kernel.testing.sim_files import SimFiles, SimStore

COMPONENT = ComponentPlan("scripted", {"password": "${SECRET}"})


def graph_of(
    *,
    job: str = "orders",
    version: int = 1,
    source: str = "in",
    counts: int | None = 2,
    count: str = "count",
    key_fields: tuple[str, ...] = ("user",),
    shape: str = "",
    sinks: tuple[str, ...] = (),
    extra: str | None = None,
    max_parallelism: int = 128,
    retention: int = 3,
    recovery: str = "latest_checkpoint",
) -> ExecutionGraph:
    """A source chain, then `counts` chains that keep state and write to the exactly-once `sinks`.

    With no such sink they write to a plain one. `extra` is one more stateful operator.
    """
    chains = [_chain(source, 0, 1, SourcePlan(OperatorId(source), COMPONENT), (), ())]
    state = StatePlan("default", key_fields, "n", max_parallelism=max_parallelism, shape=shape)
    names = [count, *([] if extra is None else [extra])]
    operators = tuple(OperatorPlan(OperatorId(n), "map", COMPONENT, None, state) for n in names)
    ends = tuple(SinkPlan(OperatorId(name), COMPONENT, exactly_once=True) for name in sinks)
    ends = ends or (SinkPlan(OperatorId("out"), COMPONENT),)
    chains += [_chain(count, i, counts, None, operators, ends) for i in range(counts or 0)]
    policy = CheckpointPlan("memory://root", retention=retention, recovery=recovery)
    return ExecutionGraph(
        JobId(job),
        version,
        Mode.CHECKPOINT,
        tuple(chains),
        (),
        max_parallelism,
        checkpoint=policy,
    )


def _chain(
    head: str,
    subtask: int,
    parallelism: int | None,
    source: SourcePlan | None,
    operators: tuple[OperatorPlan, ...],
    sinks: tuple[SinkPlan, ...],
) -> ChainPlan:
    names = [head, *(o.operator for o in operators if o.operator != head)]
    names += [sink.operator for sink in sinks]
    return ChainPlan(
        ChainId(f"{head}-{subtask}"),
        source,
        operators,
        sinks,
        (),
        tasks=tuple(TaskId(f"{name}-{subtask}") for name in names),
        subtask=SubtaskIndex(subtask),
        parallelism=parallelism or 1,
        mode=Mode.CHECKPOINT,
    )


def record_of(
    graph: ExecutionGraph,
    generation: int,
    checkpoint: int,
    *,
    kind: RoundKind = RoundKind.PERIODIC,
    savepoint: str | None = None,
    tokens: bool = True,
) -> CheckpointRecord:
    """A record of every chain: one position, one run per stateful operator, one token per sink."""
    chains = tuple(_snapshot(graph, plan, generation, checkpoint, tokens) for plan in graph.chains)
    phases = CheckpointPhases(7, 100)
    return CheckpointRecord(
        Generation(generation), CheckpointId(checkpoint), kind, chains, savepoint, phases
    )


def _snapshot(
    graph: ExecutionGraph, plan: ChainPlan, generation: int, checkpoint: int, tokens: bool
) -> ChainSnapshot:
    groups = key_group_range(plan.subtask, plan.parallelism, graph.max_parallelism)
    epoch = Epoch(Generation(generation), CheckpointId(checkpoint))
    before = Epoch(Generation(generation), CheckpointId(checkpoint - 1))
    states, lanes, objects = [], [], []
    for operator in plan.operators:
        name = f"{generation}-{operator.operator}-{plan.subtask}-{checkpoint}"
        objects.append(ObjectRef(f"{name}.arrow", 40, "c0"))
        run = RunRef(name, f"{name}.arrow", 0, 40, 3, "c1", groups.start, groups.stop - 1)
        assert operator.state is not None
        states.append(
            StateSnapshot(
                operator.operator,
                operator.state.namespace,
                "n",
                operator.state.key_fields,
                ("string",),
                "int64",
                (run,),
                shape=operator.state.shape,
            )
        )
    for sink in plan.sinks:
        if sink.exactly_once:
            name = f"{generation}-{plan.chain}-{sink.operator}-{checkpoint}.sink"
            staged = StagedObject(ObjectRef(name, 10, "c2"), 2, "json")
            token = SinkToken(sink.operator, plan.subtask, epoch, (staged,))
            lanes.append(
                LaneSnapshot(
                    sink.operator,
                    plan.subtask,
                    (token,) if tokens else (),
                    before if checkpoint > 1 else None,
                )
            )
    at = {"offset": checkpoint * 10}
    return ChainSnapshot(
        plan.chain,
        plan.tasks,
        sources=() if plan.source is None else (SplitPosition(SplitId("file"), at),),
        states=tuple(states),
        lanes=tuple(lanes),
        objects=tuple(objects),
    )


@dataclass
class LogWorld:
    """A store, and coordinators that share it."""

    store: SimStore = field(default_factory=SimStore)
    time_ms: int = 1_000
    logs: int = 0

    def wall_ms(self) -> WallMs:
        """A wall clock that moves with each reading."""
        self.time_ms += 1
        return WallMs(self.time_ms)

    def log(self, graph: ExecutionGraph | None = None, **options: Any) -> JobLog:
        """A new coordinator's log; `files` and the other options go to `JobLog`."""
        self.logs += 1
        files: LogFiles = options.pop("files", None) or SimFiles(self.store)
        return JobLog(
            graph or graph_of(),
            files,
            nonce=f"nonce-{self.logs}",
            coordinator=f"host:{self.logs}",
            wall_ms=self.wall_ms,
            **options,
        )

    def upload(self, record: CheckpointRecord) -> CheckpointRecord:
        """Put the objects that a record lists into the store."""
        for chain in record.chains:
            staged = [s.object for lane in chain.lanes for t in lane.tokens for s in t.objects]
            for ref in (*chain.objects, *staged):
                self.store.files[f"objects/{ref.name}"] = b"x" * ref.size
        return record

    def checkpoint(self, log: JobLog, graph: ExecutionGraph, claim: Claim, **more: Any) -> int:
        """Complete one round; its number."""
        number = more.pop("number", claim.last_checkpoint + 1)
        log.append(self.upload(record_of(graph, claim.generation, number, **more)))
        return int(number)

    def run(self, graph: ExecutionGraph, rounds: int = 1, **options: Any) -> tuple[JobLog, Claim]:
        """Start a job with the newest checkpoint, and complete some rounds."""
        log = self.log(graph, **options)
        claim = log.claim(RestoreChoice(), {})
        for _ in range(rounds):
            number = self.checkpoint(log, graph, claim)
            claim = replace(claim, last_checkpoint=CheckpointId(number))
        return log, claim

    def slots(self) -> list[int]:
        """Numbers of the slots that exist."""
        names = [p for p in self.store.files if p.startswith("log/")]
        return sorted(int(name[4:-5]) for name in names)

    def damage(self, slot: int, change: Callable[[bytes], bytes]) -> None:
        """Change the bytes of a slot."""
        path = f"log/{slot:010}.json"
        self.store.files[path] = change(self.store.files[path])


__all__ = ["LogWorld", "graph_of", "record_of"]
