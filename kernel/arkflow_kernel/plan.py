"""The plan of a job: what the graph builder decides and drivers carry out.

Plain data: picklable, comparable, without behaviour. Component configurations are carried as
they stand in the JobSpec; secrets in them are still references (M8).
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from arkflow_kernel.ids import (
    FIRST_SUBTASK,
    ChainId,
    ChannelId,
    EdgeId,
    JobId,
    OperatorId,
    OutputId,
    SubtaskIndex,
    TaskId,
)
from arkflow_kernel.limits import (
    CHANNEL_BYTES_MAX,
    CHANNEL_ENVELOPES_DEFAULT,
    CHECKPOINT_INTERVAL_EPHEMERAL_MS,
    MAX_PARALLELISM_DEFAULT,
    ROUND_TIMEOUT_MS,
    SLICE_ROWS_MAX,
    STATE_MEMORY_BYTES,
)
from arkflow_kernel.operator_plans import (
    AggregatePlan,
    ContinuousPlan,
    DeduplicatePlan,
    JoinPlan,
    JoinSidePlan,
    KeyedPlan,
    LatePolicy,
    TopNPlan,
    VersionsPlan,
    WindowKind,
    WindowPlan,
)
from arkflow_kernel.placement_plan import ANYWHERE, PlacementPlan


class Mode(Enum):
    """How a job makes progress durable (F0)."""

    ACK = "ack"
    CHECKPOINT = "checkpoint"


class EdgeKind(Enum):
    """How an edge distributes rows over the subtasks of its target (G2).

    `ERROR` and `LATE` are side edges: failed and late rows leave the main path on them.
    """

    FORWARD = "forward"
    PARTITIONED = "partitioned"
    BROADCAST = "broadcast"
    REBALANCE = "rebalance"
    ERROR = "error"
    LATE = "late"

    @property
    def is_side(self) -> bool:
        """It carries what leaves the main path; all of one kind in a chain share an outlet."""
        return self in (EdgeKind.ERROR, EdgeKind.LATE)


@dataclass(frozen=True, slots=True)
class Subtask:
    """Which of the `of` parallel instances of an operator: `index`, from 0."""

    index: SubtaskIndex = FIRST_SUBTASK
    of: int = 1

    def owns(self, lane: int) -> bool:
        """Whether it has to recover a sink lane; exactly one of them has (X5)."""
        return lane % self.of == self.index


ONLY_SUBTASK: Final = Subtask()
"""That of an operator that is not parallel."""


@dataclass(frozen=True, slots=True)
class ComponentPlan:
    """One component to build: its registered type, its configuration without `type` and `name`."""

    type: str
    config: dict[str, Any]
    codec: dict[str, Any] | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class TimePlan:
    """The event time of a source (W1-W5, W8, W12).

    A split's watermark is its greatest event time minus `bound_ms`. `stamps`: a window or join on
    event time is behind it, so the gate marks rows beyond the bound. `ordered_splits`: a split has
    nothing older than the one before it minus the bound. None switches a limit off.
    """

    timestamp_field: str
    bound_ms: int = 0
    idle_timeout_ms: int | None = None
    max_future_skew_ms: int | None = None
    max_drift_ms: int | None = None
    ordered_splits: bool = False
    stamps: bool = True


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """The source of a chain. `rows_per_second` is enforced by the chain's machine.

    `time` is None in processing time. `columns`: all that anybody looks at of its rows, so others
    need not be read; None: any may be looked at. `fields`: those of JSON that are null in rows
    that lack them, also before any row had them.
    """

    operator: OperatorId
    component: ComponentPlan
    rows_per_second: float | None = None
    time: TimePlan | None = None
    columns: tuple[str, ...] | None = None
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StatePlan:
    """What one operator keeps per key (S1). A window has one, without a `count_field`.

    `count_field`: the column that gets the running row count of the key (`stateful: true`).
    `max_bytes` bounds keys and values of live entries (S4); `ttl_ms` is None for no limit. Beyond
    `memory_bytes` of memory, entries go to local files (S5). `shape` says for a person what a
    window keeps, "" of others: state of another shape is none of this operator's (M6).
    """

    namespace: str
    key_fields: tuple[str, ...]
    count_field: str | None = None
    max_bytes: int | None = None
    ttl_ms: int | None = None
    max_parallelism: int = MAX_PARALLELISM_DEFAULT
    memory_bytes: int | None = STATE_MEMORY_BYTES
    shape: str = ""


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """A fused operator between source and sinks. `timeout_ms` bounds one call of it (T1b).

    With a `window`, a `join` or with `keyed`, the kernel runs it itself; `component` is not built
    then.
    """

    operator: OperatorId
    kind: str
    component: ComponentPlan
    timeout_ms: int | None = None
    state: StatePlan | None = None
    window: WindowPlan | None = None
    keyed: KeyedPlan | None = None
    join: JoinPlan | None = None

    @property
    def timed(self) -> bool:
        """It acts on time (`ports.TimedOperator`)."""
        if self.join is not None:
            return True
        return self.window is not None or (self.keyed is not None and self.keyed.timed)


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """A fused sink. Its `OutputId` is its operator's id. `exactly_once`: by staged epochs (X1)."""

    operator: OperatorId
    component: ComponentPlan
    exactly_once: bool = False

    @property
    def output(self) -> OutputId:
        """Where the chain's rows go to reach this sink."""
        return OutputId(self.operator)


@dataclass(frozen=True, slots=True)
class EdgePlan:
    """An edge between two operators of the job, as planned."""

    edge: EdgeId
    source: OperatorId
    target: OperatorId
    kind: EdgeKind
    key_fields: tuple[str, ...] = ()
    fused: bool = True


@dataclass(frozen=True, slots=True)
class ChannelPlan:
    """One channel: the part of an edge between two chains (E3).

    `number` is the channel's number in its job, for frames. The capacities bound what the sender
    may have outstanding. The operator that the edge leads to gets batches of `batch_rows` at most;
    small ones wait up to `batch_wait_ms` for company. None: as on any channel (E3, E9).
    """

    channel: ChannelId
    number: int
    edge: EdgeId
    source: ChainId
    target: ChainId
    capacity: int = CHANNEL_ENVELOPES_DEFAULT
    capacity_bytes: int = CHANNEL_BYTES_MAX
    batch_rows: int = SLICE_ROWS_MAX
    batch_wait_ms: int | None = None

    @property
    def output(self) -> OutputId:
        """Where the sending chain's rows go to reach this channel."""
        return OutputId(self.channel)


@dataclass(frozen=True, slots=True)
class OutletPlan:
    """Where an edge leaves a chain, and how its rows are routed to the edge's channels (G2).

    `output` is the edge's id. `channels` are in the order of the target's subtasks; Forward has
    exactly one. Partitioned rows go to the channel whose subtask owns their key group (G3).
    """

    output: OutputId
    kind: EdgeKind
    channels: tuple[ChannelPlan, ...]
    key_fields: tuple[str, ...] = ()
    max_parallelism: int = MAX_PARALLELISM_DEFAULT


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """One parallel instance of a chain: what one actor runs.

    It reads a source or has inputs, never both. `outputs` (sinks and edges) get every row that the
    last operator yields; `error_output` gets bad rows and the batches that an operator failed on,
    or is None: then the first of them fails the job. `late_output` gets late rows under the policy
    ROUTE, and rows without a valid time; None: they are dropped and counted (W5, W6).
    """

    chain: ChainId
    source: SourcePlan | None
    operators: tuple[OperatorPlan, ...]
    sinks: tuple[SinkPlan, ...]
    outputs: tuple[OutputId, ...]
    error_output: OutputId | None = None
    workers: int = 1
    tasks: tuple[TaskId, ...] = ()
    resources: dict[str, float] = field(default_factory=dict)
    inputs: tuple[ChannelPlan, ...] = ()
    outlets: tuple[OutletPlan, ...] = ()
    subtask: SubtaskIndex = FIRST_SUBTASK
    parallelism: int = 1
    mode: Mode = Mode.ACK
    late_output: OutputId | None = None

    @property
    def timed(self) -> bool:
        """Some operator acts on time (`ports.TimedOperator`)."""
        return any(operator.timed for operator in self.operators)

    @property
    def hold_ms(self) -> int:
        """How far its watermark is behind that of its inputs when it leaves (J3)."""
        return sum(each.join.hold_ms for each in self.operators if each.join is not None)

    @property
    def channels(self) -> tuple[ChannelPlan, ...]:
        """All channels that leave the chain."""
        return tuple(channel for outlet in self.outlets for channel in outlet.channels)


@dataclass(frozen=True, slots=True)
class RestartPlan:
    """When a failed attempt is followed by another (D3).

    `strategy` is `exponential`, `fixed` or `none`. The first restart after a quiet time of
    `reset_after_ms` is immediate; the next ones wait `initial_ms`, times `multiplier` each.
    """

    strategy: str = "exponential"
    initial_ms: int = 1_000
    max_ms: int = 60_000
    multiplier: float = 2.0
    reset_after_ms: int = 600_000
    max_attempts: int | None = None


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """When a job in checkpoint mode takes checkpoints, and where they lie (F0, B5, B6, M3, M5).

    `root` is an fsspec URL; None: an ephemeral folder of the run, which the driver makes.
    `recovery` is ArkFlow's `latest_checkpoint`, `latest_savepoint` or `fail`.
    """

    root: str | None = None
    interval_ms: int = CHECKPOINT_INTERVAL_EPHEMERAL_MS
    retention: int = 3
    tolerable_failures: int = 10
    timeout_ms: int = ROUND_TIMEOUT_MS
    recovery: str = "latest_checkpoint"

    @property
    def ephemeral(self) -> bool:
        """Checkpoints end with the run."""
        return self.root is None


@dataclass(frozen=True, slots=True)
class ExecutionGraph:
    """The whole plan of a job: chains after fusion and the edges of the operator graph (G1, G5).

    `checkpoint` is set exactly in checkpoint mode. `by_calls`: `transport: ray` (H6).
    """

    job: JobId
    version: int
    mode: Mode
    chains: tuple[ChainPlan, ...]
    edges: tuple[EdgePlan, ...]
    max_parallelism: int
    restart: RestartPlan = RestartPlan()
    checkpoint: CheckpointPlan | None = None
    placement: PlacementPlan = ANYWHERE
    by_calls: bool = False

    def chain(self, chain: ChainId) -> ChainPlan:
        """The plan of one chain; KeyError if it is not of this job."""
        for plan in self.chains:
            if plan.chain == chain:
                return plan
        raise KeyError(chain)


__all__ = [
    "ONLY_SUBTASK",
    "AggregatePlan",
    "ChainPlan",
    "ChannelPlan",
    "CheckpointPlan",
    "ComponentPlan",
    "ContinuousPlan",
    "DeduplicatePlan",
    "EdgeKind",
    "EdgePlan",
    "ExecutionGraph",
    "JoinPlan",
    "JoinSidePlan",
    "KeyedPlan",
    "LatePolicy",
    "Mode",
    "OperatorPlan",
    "OutletPlan",
    "RestartPlan",
    "SinkPlan",
    "SourcePlan",
    "StatePlan",
    "Subtask",
    "TimePlan",
    "TopNPlan",
    "VersionsPlan",
    "WindowKind",
    "WindowPlan",
]
