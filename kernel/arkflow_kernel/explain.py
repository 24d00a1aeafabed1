"""What a job will do, for a person and for a program: graph, chains, edges, mode and why (C7).

An explanation holds no component's configuration, only the names of the references in it
(`${secret:KAFKA}`), so it is safe to paste into a ticket.
"""

import re
from dataclasses import asdict, dataclass
from typing import Any, Final

from arkflow_kernel.budget import held_bytes_max
from arkflow_kernel.delivery import guarantee
from arkflow_kernel.explain_join import ExplainedJoin, explained_join
from arkflow_kernel.explain_keyed import ExplainedKeyed, explained_keyed
from arkflow_kernel.explain_text import render
from arkflow_kernel.explain_time import (
    ExplainedTime,
    ExplainedWindow,
    explained_time,
    explained_window,
    lateness,
)
from arkflow_kernel.graph import key_group_range
from arkflow_kernel.ids import FIRST_SUBTASK, OperatorId, OutputId, TaskId
from arkflow_kernel.job import JobSpec, OperatorSpec
from arkflow_kernel.job_mode import decide_mode, keeps
from arkflow_kernel.plan import (
    ChainPlan,
    ChannelPlan,
    CheckpointPlan,
    EdgeKind,
    EdgePlan,
    ExecutionGraph,
    RestartPlan,
    StatePlan,
)
from arkflow_kernel.topology import Topology

_REFERENCE: Final = re.compile(r"(?<!\$)\$\{(env|file|secret):([^}]*?)(?::-[^}]*)?\}")
_CREDENTIALS: Final = re.compile(r"//[^/@]*@")


@dataclass(frozen=True, slots=True)
class ExplainedState:
    """What one operator keeps per key; None is no limit (S1).

    `count_field` is the column of a running count, None for a window.
    """

    key_fields: list[str]
    count_field: str | None
    max_bytes: int | None
    ttl_ms: int | None


@dataclass(frozen=True, slots=True)
class ExplainedCheckpoints:
    """When checkpoints are taken and where they lie, without credentials (F0, B5, B6, M5).

    `root` is None for a folder that ends with the run.
    """

    root: str | None
    interval_ms: int
    retention: int
    timeout_ms: int
    tolerable_failures: int
    recovery: str


@dataclass(frozen=True, slots=True)
class ExplainedOperator:
    """One operator: what runs, how many times, what it keeps, what it refers to.

    `time` is a source's event time, `window` what a window does, `keyed` what another does that
    keeps something per key, `join` what a join does. `chain` is the head of its chain.
    `key_groups` are the first and last of each subtask, if rows reach it by key. `exactly_once` and
    `guarantee`, of a sink, say how it publishes and why (X1).
    """

    id: str
    kind: str
    component: str
    parallelism: int
    chain: str
    keeps: str | None
    state: ExplainedState | None
    time: ExplainedTime | None
    window: ExplainedWindow | None
    keyed: ExplainedKeyed | None
    join: ExplainedJoin | None
    key_groups: list[list[int]] | None
    references: list[str]
    exactly_once: bool | None
    guarantee: str | None


@dataclass(frozen=True, slots=True)
class ExplainedEdge:
    """One edge; `crosses` is true where rows leave their chain and travel in channels.

    `outlet` is the edge whose channels carry the rows (E3): the edge itself, or for a side edge
    the first one of its chain. `channels` counts these; each holds at most `capacity` batches of
    `capacity_bytes` together. Batches of `batch_rows` at most reach the target; small ones wait up
    to `batch_wait_ms` for company (E9). Inside a chain there is none of it.
    """

    id: str
    source: str
    target: str
    kind: str
    key_fields: list[str]
    crosses: bool
    outlet: str | None
    channels: int
    capacity: int | None
    capacity_bytes: int | None
    batch_rows: int | None
    batch_wait_ms: int | None


@dataclass(frozen=True, slots=True)
class ExplainedChain:
    """One subtask of a chain, and the channels into it.

    `held_bytes_max` bounds what it holds in queues, lane and outboxes. `key_groups` are the first
    and last that it owns, if it has a key. `late_output` takes rows that are late or have no time.
    """

    id: str
    tasks: list[str]
    workers: int
    inputs: list[str]
    held_bytes_max: int
    error_output: str | None
    late_output: str | None
    key_groups: list[int] | None
    resources: dict[str, float]


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that `explain` says about one job. Plain data, the same for equal jobs."""

    job: str
    version: int
    mode: str
    mode_reason: str
    max_parallelism: int
    operators: list[ExplainedOperator]
    chains: list[ExplainedChain]
    edges: list[ExplainedEdge]
    state: str
    checkpoints: str
    checkpoint: ExplainedCheckpoints | None
    restart: str
    placement: str
    lateness: list[str]


def explain(job: JobSpec, graph: ExecutionGraph) -> Explanation:
    """Explain a valid job and the graph that `build_graph` made of it."""
    topology = Topology(job)
    decision = decide_mode(job)
    checkpoint = _checkpoint(graph.checkpoint)
    return Explanation(
        job=job.id,
        version=job.version,
        mode=decision.mode.value,
        mode_reason=decision.reason,
        max_parallelism=job.max_parallelism,
        operators=_operators(topology, graph),
        chains=_chains(graph),
        edges=_edges(graph),
        state=_state(job),
        checkpoints=_told(checkpoint),
        checkpoint=checkpoint,
        restart=_restart(graph.restart),
        placement=_placement(graph),
        lateness=lateness(topology),
    )


def as_text(explanation: Explanation) -> str:
    """The explanation for a terminal of 80 columns."""
    return render(asdict(explanation))


def _operators(topology: Topology, graph: ExecutionGraph) -> list[ExplainedOperator]:
    chain_of = {task: plan.chain for plan in graph.chains for task in plan.tasks}
    plans = {op.operator: op for plan in graph.chains for op in plan.operators}
    times = {plan.source.operator: plan.source.time for plan in graph.chains if plan.source}
    keyed = _keyed(graph)
    sinks = {spec.operator_id: spec for spec in topology.job.sinks}
    once = {sink.operator: sink.exactly_once for plan in graph.chains for sink in plan.sinks}
    found = []
    for name, spec in topology.operators.items():
        own: Any = topology.sources.get(name) or sinks.get(name) or spec
        plan, time = plans.get(OperatorId(name)), times.get(OperatorId(name))
        subtasks = topology.parallelism(name)
        owned = [
            key_group_range(i, subtasks, graph.max_parallelism)
            for i in range(subtasks if name in keyed else 0)
        ]
        found.append(
            ExplainedOperator(
                id=name,
                kind=spec.kind,
                component=_component(own, spec),
                parallelism=subtasks,
                chain=chain_of[TaskId(f"{name}-0")].rpartition("-")[0],
                keeps=keeps(spec),
                state=None if plan is None else _counted(plan.state),
                time=None if time is None else explained_time(time),
                window=None if plan is None else explained_window(topology, plan),
                keyed=None if plan is None else explained_keyed(plan),
                join=None if plan is None else explained_join(topology, plan),
                key_groups=[[r.start, r.stop - 1] for r in owned] or None,
                references=references([own.config, getattr(own, "codec", None)]),
                exactly_once=once.get(OperatorId(name)),
                guarantee=guarantee(topology.job, sinks[name], exactly_once=once[OperatorId(name)])
                if name in sinks
                else None,
            )
        )
    return found


def _counted(plan: StatePlan | None) -> ExplainedState | None:
    if plan is None:
        return None
    return ExplainedState(list(plan.key_fields), plan.count_field, plan.max_bytes, plan.ttl_ms)


def _edges(graph: ExecutionGraph) -> list[ExplainedEdge]:
    chain_of = {task: plan.chain for plan in graph.chains for task in plan.tasks}
    channels: dict[str, list[ChannelPlan]] = {}
    for plan in graph.chains:
        for outlet in plan.outlets:
            channels.setdefault(outlet.output, []).extend(outlet.channels)
    found = []
    for edge in graph.edges:
        outlet_of = None if edge.fused else _outlet(graph.chain(chain_of[_first(edge)]), edge)
        own = channels.get(outlet_of, []) if outlet_of is not None else []
        found.append(
            ExplainedEdge(
                id=edge.edge,
                source=edge.source,
                target=edge.target,
                kind=edge.kind.value,
                key_fields=list(edge.key_fields),
                crosses=not edge.fused,
                outlet=outlet_of,
                channels=len(own),
                capacity=own[0].capacity if own else None,
                capacity_bytes=own[0].capacity_bytes if own else None,
                batch_rows=own[0].batch_rows if own else None,
                batch_wait_ms=own[0].batch_wait_ms if own else None,
            )
        )
    return found


def _first(edge: EdgePlan) -> TaskId:
    return TaskId(f"{edge.source}-{FIRST_SUBTASK}")


def _outlet(chain: ChainPlan, edge: EdgePlan) -> str | None:
    """The outlet that carries an edge: its own, or that of its kind where edges share one."""
    names = {outlet.output: outlet for outlet in chain.outlets}
    if OutputId(edge.edge) in names:
        return edge.edge
    return next((name for name, outlet in names.items() if outlet.kind is edge.kind), None)


def _component(own: Any, spec: OperatorSpec) -> str:
    named = getattr(own, "input_type", None) or getattr(own, "output_type", None)
    chosen = named or spec.config.get("type") or spec.config.get("kind") or spec.kind
    return str(chosen)


def references(value: Any) -> list[str]:
    """References in the texts of a configuration, without their defaults, sorted."""
    if isinstance(value, str):
        return sorted({f"${{{scheme}:{name}}}" for scheme, name in _REFERENCE.findall(value)})
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return sorted({found for item in value for found in references(item)})
    return []


def _keyed(graph: ExecutionGraph) -> set[str]:
    """Operators that rows reach by key. They head their chains."""
    return {
        str(edge.target)
        for edge in graph.edges
        if edge.kind is EdgeKind.PARTITIONED and edge.key_fields
    }


def _chains(graph: ExecutionGraph) -> list[ExplainedChain]:
    keyed = _keyed(graph)
    return [_chain(graph.max_parallelism, plan, keyed) for plan in graph.chains]


def _chain(key_groups: int, plan: ChainPlan, keyed: set[str]) -> ExplainedChain:
    """A partitioned edge ends at the head of a chain, so the head says whether it has a key."""
    owned = None
    if plan.chain.rpartition("-")[0] in keyed:
        owned = key_group_range(plan.subtask, plan.parallelism, key_groups)
    return ExplainedChain(
        id=plan.chain,
        tasks=list(plan.tasks),
        workers=plan.workers,
        inputs=[channel.channel for channel in plan.inputs],
        held_bytes_max=held_bytes_max(plan),
        error_output=plan.error_output,
        late_output=plan.late_output,
        key_groups=None if owned is None else [owned.start, owned.stop - 1],
        resources=dict(plan.resources),
    )


def _state(job: JobSpec) -> str:
    """Which operators keep something, and where it lies."""
    keeping = [operator.id for operator in job.operators if keeps(operator)]
    if not keeping:
        return "none"
    kept = "in the memory of its process, and in checkpoints"
    ends = "" if job.checkpoint is not None else ", which end with the run"
    return f"{', '.join(keeping)}: {kept}{ends}"


def _checkpoint(plan: CheckpointPlan | None) -> ExplainedCheckpoints | None:
    if plan is None:
        return None
    return ExplainedCheckpoints(
        root=None if plan.root is None else _CREDENTIALS.sub("//", plan.root),
        interval_ms=plan.interval_ms,
        retention=plan.retention,
        timeout_ms=plan.timeout_ms,
        tolerable_failures=plan.tolerable_failures,
        recovery=plan.recovery,
    )


def _told(plan: ExplainedCheckpoints | None) -> str:
    if plan is None:
        return "none: a source's position follows the writes that its sinks confirmed"
    every = f"every {plan.interval_ms:,} ms to"
    if plan.root is None:
        return (
            f"{every} a folder that ends with the run: a restart continues, a new run begins anew"
        )
    told = f"{every} {plan.root}, the newest {plan.retention:,} kept"
    if plan.root.startswith("file:"):
        told += "; with several nodes all of them must share that folder"
    return told


def _restart(plan: RestartPlan) -> str:
    """When a failed attempt is followed by another (D3)."""
    if plan.strategy == "none":
        return "none: the first failure ends the job"
    told = f"at once, then after {plan.initial_ms:,} ms"
    if plan.strategy == "exponential":
        told += f", times {plan.multiplier:g} each up to {plan.max_ms:,} ms"
    told += f"; at once again after {plan.reset_after_ms:,} ms without a failure"
    if plan.max_attempts is not None:
        told += f"; at most {plan.max_attempts:,} in a row"
    return f"{plan.strategy}: {told}"


def _placement(graph: ExecutionGraph) -> str:
    count, plan = len(graph.chains), graph.placement
    labels = ", ".join(f"{key}={value}" for key, value in plan.labels.items())
    where = f"{plan.placing.value}, on nodes with {labels}" if labels else plan.placing.value
    return f"{where}: {count} chain{'' if count == 1 else 's'}, one actor each"


__all__ = [
    "ExplainedChain",
    "ExplainedCheckpoints",
    "ExplainedEdge",
    "ExplainedOperator",
    "ExplainedState",
    "Explanation",
    "as_text",
    "explain",
    "references",
]
