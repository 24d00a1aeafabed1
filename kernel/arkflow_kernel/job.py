"""What a user declares: a job of operators and edges, or a stream that compiles to one.

Field names, types and defaults are ArkFlow's (reference sections B and C); the additions are
listed in `docs/yaml-additions.md`. The models only say what parses. What a whole job must hold
is in `job_validation.py`; what is not built yet is refused there too, never ignored.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from arkflow_kernel.limits import (
    AUTOSCALE_COOLDOWN_MS,
    AUTOSCALE_TARGET_BUSY,
    DURATION_MS_MAX,
    MAX_PARALLELISM_DEFAULT,
    ROUND_TIMEOUT_MS,
    STATE_MEMORY_BYTES,
    WORKERS_MAX,
)

NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveInt = Annotated[int, Field(ge=1)]
DurationMs = Annotated[int, Field(ge=0, le=DURATION_MS_MAX)]
PositiveDurationMs = Annotated[int, Field(ge=1, le=DURATION_MS_MAX)]
BusyShare = Annotated[float, Field(gt=0, lt=1)]
Column = Annotated[str, Field(min_length=1)]


class Spec(BaseModel):
    """Base of all models: unknown keys are errors, nothing is coerced, instances are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ComponentSpec(BaseModel):
    """A component: `type`, and every other key passed flat to it as its configuration (B.1)."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    type: str
    name: str | None = None
    codec: dict[str, Any] | str | None = None

    @property
    def config(self) -> dict[str, Any]:
        """The component's own keys."""
        return dict(self.model_extra or {})


class StateSpec(Spec):
    """`state:` (C.4)."""

    backend: str
    durability: Literal["durable", "ephemeral"] = "durable"
    root: str | None = None
    namespace: str = "default"
    ttl_ms: NonNegativeInt | None = None
    format_version: int = 1
    max_pending_transactions: int = 4096
    max_bytes: int | None = None
    memory_bytes: PositiveInt = STATE_MEMORY_BYTES


class CheckpointSpec(Spec):
    """`checkpoint:` (C.4). `tolerable_failures` and `timeout_ms` are additions (B5, B6)."""

    object_store_uri: str
    interval_ms: int = 30_000
    retention: int = 3
    tolerable_failures: NonNegativeInt = 10
    timeout_ms: int = ROUND_TIMEOUT_MS


class RestartSpec(Spec):
    """`restart:` (D3), an addition."""

    strategy: Literal["exponential", "fixed", "none"] = "exponential"
    initial_ms: PositiveInt = 1_000
    max_ms: PositiveInt = 60_000
    multiplier: float = 2.0
    reset_after_ms: PositiveInt = 600_000
    max_attempts: PositiveInt | None = None


class ChannelSpec(Spec):
    """`channel:` of a job (E3), an addition: what may be under way between two chains.

    `capacity` counts batches of one channel. `capacity_bytes` bounds their bytes; without it each
    channel into a chain has an equal share of that chain's `chain_bytes`, within fixed limits.
    """

    capacity: PositiveInt | None = None
    capacity_bytes: PositiveInt | None = None
    chain_bytes: PositiveInt | None = None


class PipelineSpec(Spec):
    """`pipeline:` of a stream (B.2). `thread_num` batches are processed at once (T2)."""

    thread_num: Annotated[int, Field(ge=1, le=WORKERS_MAX)] = 1
    processors: list[ComponentSpec] | None = None
    chain: bool = True


class StreamSpec(Spec):
    """An entry of `streams:` (B.1)."""

    id: str | None = None
    input: ComponentSpec
    pipeline: PipelineSpec
    output: ComponentSpec
    error_output: ComponentSpec | None = None
    buffer: ComponentSpec | None = None
    temporary: list[ComponentSpec] | None = None
    durability: dict[str, Any] | None = None
    state: StateSpec | None = None
    checkpoint: CheckpointSpec | None = None
    restart: RestartSpec | None = None
    delivery: Literal["at_least_once", "best_effort"] | None = None


class ResourcesSpec(Spec):
    """`resources:` per task: ArkFlow's two fields, and Ray's of an operator (K7)."""

    cpu_millicores: PositiveInt | None = None
    memory_bytes: PositiveInt | None = None
    num_cpus: Annotated[float, Field(ge=0)] | None = None
    num_gpus: Annotated[float, Field(ge=0)] | None = None
    custom: dict[str, float] | None = None


class RebalanceSpec(Spec):
    """`rebalance:` of a job (C.1)."""

    mode: Literal["off", "auto"] = "off"
    pressure_streak: PositiveInt = 3
    cooldown_ms: PositiveInt = 300_000


class AutoscaleSpec(Spec):
    """`autoscale:` of a job (K6), an addition: whether and within what its parallelism may change.

    It holds for the operators between sources and sinks; `max` is at most `max_parallelism`, which
    is its default.
    """

    mode: Literal["off", "observe", "on"] = "on"
    min: PositiveInt = 1
    max: PositiveInt | None = None
    target_busy: BusyShare = AUTOSCALE_TARGET_BUSY
    cooldown_ms: PositiveDurationMs = AUTOSCALE_COOLDOWN_MS


class OperatorAutoscaleSpec(Spec):
    """`autoscale:` of an operator (K6), an addition: what differs from the job's.

    A source or a sink changes only if it has one. `mode: off`: this operator stays as it is.
    """

    mode: Literal["off", "on"] = "on"
    min: PositiveInt | None = None
    max: PositiveInt | None = None
    target_busy: BusyShare | None = None


OperatorKind = Literal[
    "source",
    "map",
    "filter",
    "aggregate",
    "window",
    "join",
    "sink",
    "udf",
    "deduplicate",
    "top_n",
]
"""What an operator is (C.2). Additions: `deduplicate` and `top_n`."""


class OperatorSpec(Spec):
    """An operator of a job (C.2). Additions: `parallelism`, `chain`, `resources`, `autoscale`."""

    id: str
    kind: OperatorKind
    stateful: bool = False
    key_field: str | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    parallelism: PositiveInt | None = None
    chain: bool = True
    resources: ResourcesSpec | None = None
    autoscale: OperatorAutoscaleSpec | None = None


class EdgeSpec(Spec):
    """An edge of a job (C.2). `type` is an addition; `error` makes it a side edge (G1)."""

    id: str
    from_: Annotated[str, Field(alias="from")]
    to: str
    partitioned: bool = False
    type: Literal["forward", "rebalance", "broadcast", "error"] | None = None


class WatermarkSpec(Spec):
    """`time.watermark:` (C.3). `max_future_skew_ms`, `max_drift_ms` and `split_order` are additions
    (W4, W12, W1).
    """

    strategy: Literal["bounded_out_of_orderness", "monotonous"] = Field(
        default="bounded_out_of_orderness", description="Whether rows may be out of order at all."
    )
    out_of_orderness_ms: DurationMs = Field(
        default=0, description="How far behind the newest row of its split a row may be."
    )
    idle_timeout_ms: DurationMs | None = Field(
        default=None, description="A split without rows for so long holds nothing back."
    )
    max_future_skew_ms: DurationMs | None = Field(
        default=None, description="Rows further ahead of the wall clock move no watermark."
    )
    max_drift_ms: DurationMs | None = Field(
        default=None, description="A source further ahead of the slowest one waits."
    )
    split_order: Literal["none", "time"] = Field(
        default="none", description="`time`: splits follow one another in time."
    )


class TimeSpec(Spec):
    """`time:` of a source (C.3)."""

    mode: Literal["processing_time", "event_time"] = Field(
        description="Whether time is the wall clock, or a column of the rows."
    )
    timestamp_field: str | None = Field(
        default=None, description="The column: a timestamp, or an integer in milliseconds."
    )
    watermark: WatermarkSpec | None = Field(
        default=None, description="How far event time has come. Required for event time."
    )
    allowed_lateness_ms: DurationMs = Field(
        default=0, description="How long late rows correct a window (policy `update`)."
    )
    late_event_policy: Literal["drop", "route", "update"] = Field(
        default="drop", description="What becomes of a row whose window has passed."
    )
    late_event_route: str | None = Field(
        default=None, description="The operator that takes late rows and rows without a time."
    )


class SourceSpec(Spec):
    """An entry of `sources:` (C.3)."""

    operator_id: str
    input_type: str
    config: dict[str, Any] = Field(default_factory=dict)
    codec: dict[str, Any] | str | None = None
    time: TimeSpec


class SinkSpec(Spec):
    """An entry of `sinks:` (C.3)."""

    operator_id: str
    output_type: str
    config: dict[str, Any] = Field(default_factory=dict)
    codec: dict[str, Any] | str | None = None


class JobSpec(Spec):
    """A job: an entry of `jobs:` (C.1), or what a stream compiles to (C1)."""

    id: str
    version: NonNegativeInt
    parallelism: int = 1
    max_parallelism: int = MAX_PARALLELISM_DEFAULT
    operators: list[OperatorSpec]
    edges: list[EdgeSpec]
    sources: list[SourceSpec]
    sinks: list[SinkSpec]
    state: StateSpec | None = None
    checkpoint: CheckpointSpec | None = None
    recovery: Literal["latest_checkpoint", "latest_savepoint", "fail"] = "latest_checkpoint"
    placement: Literal["colocated", "split"] | dict[str, Any] = "colocated"
    rescale: bool = False
    rebalance: RebalanceSpec | None = None
    resources: ResourcesSpec | None = None
    node_ids: list[str] | None = None
    restart: RestartSpec | None = None
    delivery: Literal["at_least_once", "best_effort"] | None = None
    transport: Literal["auto", "ray"] | None = None
    channel: ChannelSpec | None = None
    autoscale: AutoscaleSpec | None = None


__all__ = [
    "AutoscaleSpec",
    "BusyShare",
    "ChannelSpec",
    "CheckpointSpec",
    "Column",
    "ComponentSpec",
    "DurationMs",
    "EdgeSpec",
    "JobSpec",
    "OperatorAutoscaleSpec",
    "OperatorKind",
    "OperatorSpec",
    "PipelineSpec",
    "PositiveDurationMs",
    "RebalanceSpec",
    "ResourcesSpec",
    "RestartSpec",
    "SinkSpec",
    "SourceSpec",
    "Spec",
    "StateSpec",
    "StreamSpec",
    "TimeSpec",
    "WatermarkSpec",
]
