"""The plan of a job: chains, their subtasks, and the edges between operators (G1-G6).

A pure function of a valid JobSpec: the same job gives an equal plan, and a chain keeps its id
when an unrelated operator comes or goes (G6). It plans every graph; what this release cannot run
is said by `job_availability`, not here. Channels are planned in `wiring`.
"""

from dataclasses import replace
from typing import Any, Final

from arkflow_kernel.delivery import StagesEpochs, is_exactly_once, no_sink
from arkflow_kernel.fusion import FusedChain, fuse
from arkflow_kernel.ids import EdgeId, JobId, OperatorId, OutputId, SubtaskIndex, TaskId
from arkflow_kernel.job import EdgeSpec, JobSpec, OperatorSpec, ResourcesSpec, RestartSpec
from arkflow_kernel.job_mode import decide_mode, keeps
from arkflow_kernel.join_plans import join_plan, join_shape
from arkflow_kernel.keyed_plans import keyed_plan, keyed_state
from arkflow_kernel.limits import STATE_MEMORY_BYTES
from arkflow_kernel.operator_calls import PYTHON_TYPE, calls_at_once
from arkflow_kernel.operator_config import STATE_OUTPUT_DEFAULT, STATE_OUTPUT_KEY
from arkflow_kernel.placement_plan import placement_plan
from arkflow_kernel.plan import (
    ChainPlan,
    CheckpointPlan,
    ComponentPlan,
    EdgeKind,
    EdgePlan,
    ExecutionGraph,
    JoinPlan,
    KeyedPlan,
    Mode,
    OperatorPlan,
    OutletPlan,
    RestartPlan,
    SinkPlan,
    SourcePlan,
    StatePlan,
    WindowPlan,
)
from arkflow_kernel.projection import named_fields, read_columns
from arkflow_kernel.stream_compiler import WORKERS_KEY
from arkflow_kernel.topology import Topology, counts_keys
from arkflow_kernel.window_plans import time_plan, window_plan, window_shape
from arkflow_kernel.wiring import Wiring, chain_id, wire

PYTHON_TIMEOUT_MS: Final = 60_000
"""Time-out of a call of a `python` processor that gives none (E.5 of the reference)."""

STATE_NAMESPACE: Final = "default"
"""Namespace of a job's state that names none (C.4 of the reference)."""

_SOURCE_ONLY: Final = ("type", "name", "codec", "rows_per_second", WORKERS_KEY)


def build_graph(job: JobSpec, stages_epochs: StagesEpochs = no_sink) -> ExecutionGraph:
    """Plan a job that `validate_job` finds no error in.

    `stages_epochs` says which of its outputs can be exactly-once sinks (X1).
    """
    topology = Topology(job)
    mode = decide_mode(job).mode
    chains = fuse(topology)
    chain_of = {name: chain.head for chain in chains for name in chain.operators}
    edges = _edges(topology, chain_of)
    planner = _ChainPlanner(topology, wire(topology, chain_of, edges), mode, stages_epochs)
    return ExecutionGraph(
        job=JobId(job.id),
        version=job.version,
        mode=mode,
        chains=tuple(
            planner.plan(chain, subtask)
            for chain in chains
            for subtask in range(topology.parallelism(chain.head))
        ),
        edges=edges,
        max_parallelism=job.max_parallelism,
        restart=_restart(job.restart),
        checkpoint=_checkpoint(job) if mode is Mode.CHECKPOINT else None,
        placement=placement_plan(job.placement),
        by_calls=job.transport == "ray",
    )


def key_group_range(subtask: int, parallelism: int, max_parallelism: int) -> range:
    """Key groups that a subtask owns (G3): half-open, without gaps over all subtasks."""
    if not 0 <= subtask < parallelism <= max_parallelism:
        raise ValueError(f"no subtask {subtask} of {parallelism} with {max_parallelism} key groups")
    first = subtask * max_parallelism // parallelism
    return range(first, (subtask + 1) * max_parallelism // parallelism)


def edge_kind(edge: EdgeSpec) -> EdgeKind:
    """How an edge distributes rows (G2)."""
    if edge.type == "error":
        return EdgeKind.ERROR
    if edge.partitioned:
        return EdgeKind.PARTITIONED
    return EdgeKind(edge.type or "forward")


def component(
    kind: str, config: dict[str, Any], codec: dict[str, Any] | str | None
) -> ComponentPlan:
    """A component of a source or sink; a codec that is a name becomes an object."""
    chosen = codec if codec is not None else config.get("codec")
    return ComponentPlan(
        type=kind,
        config={key: value for key, value in config.items() if key not in _SOURCE_ONLY},
        codec={"type": chosen} if isinstance(chosen, str) else chosen,
        name=config.get("name"),
    )


def _edges(topology: Topology, chain_of: dict[str, str]) -> tuple[EdgePlan, ...]:
    plans = [
        EdgePlan(
            edge=EdgeId(edge.id),
            source=OperatorId(edge.from_),
            target=OperatorId(edge.to),
            kind=edge_kind(edge),
            key_fields=topology.key_fields(edge) if edge.partitioned else (),
            fused=chain_of[edge.from_] == chain_of[edge.to],
        )
        for edge in topology.edges
    ]
    plans += [
        EdgePlan(
            edge=EdgeId(f"late-{start}-{end}"),
            source=OperatorId(start),
            target=OperatorId(end),
            kind=EdgeKind.LATE,
            fused=chain_of[start] == chain_of[end],
        )
        for start, end in topology.late
    ]
    return tuple(plans)


class _ChainPlanner:
    """Plans chains of one job; holds what all of them share."""

    def __init__(
        self, topology: Topology, wiring: Wiring, mode: Mode, stages_epochs: StagesEpochs
    ) -> None:
        self._topology = topology
        self._wiring = wiring
        self._mode = mode
        self._stages_epochs = stages_epochs
        self._sinks = {spec.operator_id: spec for spec in topology.job.sinks}
        links = [(edge.from_, edge.to) for edge in topology.main]
        self._reached = {name: topology.reach([name], links) for name in topology.sources}

    def plan(self, chain: FusedChain, subtask: int) -> ChainPlan:
        specs = [self._topology.operators[name] for name in chain.line]
        middle = [spec for spec in specs if spec.kind not in ("source", "sink")]
        sinks = [name for name in chain.operators if name in self._sinks]
        own = chain_id(chain.head, subtask)
        outlets = self._wiring.outlets.get(own, ())
        return ChainPlan(
            chain=own,
            source=self._source(chain.head) if specs[0].kind == "source" else None,
            operators=tuple(self._operator(spec) for spec in middle),
            sinks=tuple(self._sink(name) for name in sinks),
            outputs=self._outputs(chain.line[-1]),
            error_output=self._error_output(chain, outlets),
            late_output=self._late_output(chain, outlets),
            workers=self._workers(chain, middle),
            tasks=tuple(TaskId(f"{name}-{subtask}") for name in chain.operators),
            resources=_resources(self._topology.resources(chain.head)),
            inputs=self._wiring.inputs.get(own, ()),
            outlets=outlets,
            subtask=SubtaskIndex(subtask),
            parallelism=self._topology.parallelism(chain.head),
            mode=self._mode,
        )

    def _source(self, name: str) -> SourcePlan:
        spec = self._topology.sources[name]
        rate = spec.config.get("rows_per_second")
        return SourcePlan(
            operator=OperatorId(name),
            component=component(spec.input_type, spec.config, spec.codec),
            rows_per_second=None if rate is None else float(rate),
            time=time_plan(self._topology, name),
            columns=read_columns(self._topology, name),
            fields=named_fields(self._topology, name),
        )

    def _sink(self, name: str) -> SinkPlan:
        spec = self._sinks[name]
        return SinkPlan(
            OperatorId(name),
            component(spec.output_type, spec.config, spec.codec),
            is_exactly_once(self._topology.job, spec, self._stages_epochs),
        )

    def _operator(self, spec: OperatorSpec) -> OperatorPlan:
        kept_back = {"type", "name"} | ({STATE_OUTPUT_KEY} if counts_keys(spec) else set())
        config = {key: value for key, value in spec.config.items() if key not in kept_back}
        kind = spec.config.get("type", spec.kind)
        window = window_plan(self._topology, spec) if spec.kind == "window" else None
        join = join_plan(self._topology, spec) if spec.kind == "join" else None
        keyed = keyed_plan(spec)
        timeout = config.get("timeout_ms", PYTHON_TIMEOUT_MS) if kind == PYTHON_TYPE else None
        return OperatorPlan(
            operator=OperatorId(spec.id),
            kind=spec.kind,
            component=ComponentPlan(type=kind, config=config, name=spec.config.get("name")),
            timeout_ms=timeout,
            state=self._state_of(spec, window, join, keyed),
            window=window,
            join=join,
            keyed=keyed,
        )

    def _state_of(
        self,
        spec: OperatorSpec,
        window: WindowPlan | None,
        join: JoinPlan | None,
        keyed: KeyedPlan | None,
    ) -> StatePlan | None:
        if keyed is not None:
            given = self._topology.job.state
            ttl_ms = None if given is None else given.ttl_ms
            return keyed_state(keyed, spec, self._state(spec, None), ttl_ms)
        if join is not None:
            keys, shape = (join.left.key, join.right.key), join_shape(join)
            return replace(self._state(spec, None), key_fields=keys, shape=shape)
        return self._state(spec, window) if counts_keys(spec) or window is not None else None

    def _state(self, spec: OperatorSpec, window: WindowPlan | None) -> StatePlan:
        """What a window keeps, or a stateful processor: a row count of each key (C.2, S1).

        Nothing in a window is forgotten by the clock, so it has no TTL.
        """
        given = self._topology.job.state
        counts = counts_keys(spec)
        field = spec.config.get(STATE_OUTPUT_KEY, STATE_OUTPUT_DEFAULT)
        return StatePlan(
            namespace=STATE_NAMESPACE if given is None else given.namespace,
            key_fields=self._topology.keys(spec.id),
            count_field=field if counts else None,
            max_bytes=None if given is None else given.max_bytes,
            memory_bytes=STATE_MEMORY_BYTES if given is None else given.memory_bytes,
            ttl_ms=given.ttl_ms if given is not None and counts else None,
            max_parallelism=self._topology.job.max_parallelism,
            shape="" if window is None else window_shape(window),
        )

    def _outputs(self, last: str) -> tuple[OutputId, ...]:
        """Where the rows of the last operator of the line go: its own sink, or the edges."""
        if self._topology.operators[last].kind == "sink":
            return (OutputId(last),)
        return tuple(OutputId(edge.id) for edge in self._topology.outputs[last])

    def _error_output(self, chain: FusedChain, outlets: tuple[OutletPlan, ...]) -> OutputId | None:
        """The outlet of the chain's error edges, else the error sink inside the chain.

        Validation sees to it that all error edges of a chain have one target.
        """
        for outlet in outlets:
            if outlet.kind is EdgeKind.ERROR:
                return outlet.output
        for name in chain.line:
            for edge in self._topology.error_edges.get(name, []):
                return OutputId(edge.to)
        return None

    def _late_output(self, chain: FusedChain, outlets: tuple[OutletPlan, ...]) -> OutputId | None:
        """The outlet of the chain's late edges, else the side sink inside the chain (W6).

        What is in one chain and judges rows of one source, or of several that agree, has one route.
        """
        for outlet in outlets:
            if outlet.kind is EdgeKind.LATE:
                return outlet.output
        routes = dict(self._topology.late)
        return next((OutputId(routes[name]) for name in chain.line if name in routes), None)

    def _workers(self, chain: FusedChain, middle: list[OperatorSpec]) -> int:
        """`thread_num` of the one source whose rows the chain gets; 1 where rows are kept (T2).

        What an operator of the chain says itself goes before.
        """
        if not middle or any(keeps(spec) for spec in middle):
            return 1
        asked = [number for spec in middle if (number := calls_at_once(spec)) is not None]
        if asked:
            return min(asked)
        sources = [name for name, reached in self._reached.items() if chain.head in reached]
        return source_workers(self._topology, sources[0]) if len(sources) == 1 else 1


def source_workers(topology: Topology, source: str) -> int:
    """Batches of a source's rows in work at once (`thread_num`)."""
    spec = topology.sources[source]
    workers = topology.operators[source].config.get(WORKERS_KEY, spec.config.get(WORKERS_KEY, 1))
    return int(workers)


def _restart(spec: RestartSpec | None) -> RestartPlan:
    if spec is None:
        return RestartPlan()
    plan = RestartPlan(**spec.model_dump())
    return replace(plan, max_ms=plan.initial_ms) if plan.strategy == "fixed" else plan


def _checkpoint(job: JobSpec) -> CheckpointPlan:
    """The policy in checkpoint mode; without the block checkpoints end with the run (F0)."""
    spec = job.checkpoint
    if spec is None:
        return CheckpointPlan(recovery=job.recovery)
    return CheckpointPlan(
        root=spec.object_store_uri,
        interval_ms=spec.interval_ms,
        retention=spec.retention,
        tolerable_failures=spec.tolerable_failures,
        timeout_ms=spec.timeout_ms,
        recovery=job.recovery,
    )


def _resources(spec: ResourcesSpec | None) -> dict[str, float]:
    if spec is None:
        return {}
    own = spec.model_dump(exclude_none=True, exclude={"custom"})
    return {**own, **(spec.custom or {})}


__all__ = [
    "PYTHON_TIMEOUT_MS",
    "STATE_NAMESPACE",
    "build_graph",
    "component",
    "edge_kind",
    "key_group_range",
    "source_workers",
]
