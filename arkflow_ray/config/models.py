"""A whole configuration file (reference A): logging, streams, jobs, health check.

The models of streams and jobs are the kernel's. What parses here and is not built yet, or never
will be, is refused by `availability`, not here.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from arkflow_kernel.job import JobSpec, NonNegativeInt, PositiveInt, Spec, StreamSpec

Port = Annotated[int, Field(ge=1, le=65_535)]


class LoggingConfig(Spec):
    """`logging:` of the file (A.3): what is logged, how, and where to."""

    level: Literal["trace", "debug", "info", "warn", "error"] = Field(
        default="info", description="The least severe level that is logged."
    )
    file_path: str | None = Field(
        default=None, description="File that log lines are added to, instead of stderr."
    )
    format: Literal["plain", "json"] = Field(
        default="plain", description="Lines for people, or one JSON object a line."
    )


class TracingConfig(Spec):
    """`health_check.observability.tracing:` (A.4): spans over OTLP."""

    enabled: bool = False
    endpoint: str = "http://127.0.0.1:4318/v1/traces"
    service_name: str = "arkflow"


class ObservabilityConfig(Spec):
    """`health_check.observability:` (A.4): the metrics endpoint."""

    enabled: bool = True
    address: str = "127.0.0.1:8081"
    metrics_path: str = "/metrics"
    ready_path: str = "/ready"
    live_path: str = "/live"
    tracing: TracingConfig = Field(default_factory=TracingConfig)


class HealthCheckConfig(Spec):
    """`health_check:` (A.4): the HTTP server of the control plane."""

    enabled: bool = True
    address: str = "127.0.0.1:8080"
    health_path: str = "/health"
    readiness_path: str = "/readiness"
    liveness_path: str = "/liveness"
    api_prefix: str = "/api/v1"
    api_token: str | None = None
    cors_origins: list[str] = Field(default_factory=list)
    hub_url: str | None = None
    node_id: str | None = None
    node_token: str | None = None
    agent_lease_ttl_ms: NonNegativeInt = 15_000
    agent_session_ttl_ms: NonNegativeInt = 3_600_000
    data_host: str | None = None
    data_port: Port | None = None
    observability: ObservabilityConfig = Field(default_factory=ObservabilityConfig)


class EngineConfig(Spec):
    """An ArkFlow configuration: streams, jobs or both, and how the process behaves."""

    logging: LoggingConfig | None = Field(
        default=None, description="What is logged, how, and where to."
    )
    streams: list[StreamSpec] = Field(
        default_factory=list,
        description="Pipelines of one input, processors in a row, and one output.",
    )
    jobs: list[JobSpec] = Field(
        default_factory=list, description="Pipelines as graphs of operators and edges."
    )
    health_check: HealthCheckConfig | None = Field(
        default=None, description="The HTTP server for health, metrics and control."
    )
    plugins: list[str] | None = Field(
        default=None, description="Modules that register components. Not in this release."
    )
    secrets: dict[str, Any] | None = Field(
        default=None, description="Where secrets are resolved. Not in this release."
    )

    @model_validator(mode="before")
    @classmethod
    def _null_lists(cls, data: Any) -> Any:
        # `streams:` with nothing behind it is an empty list to a reader, and null to YAML.
        if not isinstance(data, dict):
            return data
        lists = ("streams", "jobs")
        return {k: v for k, v in data.items() if not (k in lists and v is None)}


class MemoryBufferConfig(Spec):
    """`buffer: {type: memory}` (E.6): accepted, and without effect (B.4)."""

    type: Literal["memory"]
    name: str | None = None
    capacity: PositiveInt | None = None
    timeout: str | None = None


class _WindowBufferConfig(Spec):
    """What the buffers that compile to windows share (B.4)."""

    name: str | None = None
    time_field: str | None = None
    timestamp_field: str | None = None
    key_field: str | None = Field(
        default=None, description="One window per value; without it one of all rows."
    )
    aggregate_fields: list[str] | None = None
    value_fields: list[str] | None = None


class TumblingBufferConfig(_WindowBufferConfig):
    """`buffer: {type: tumbling_window}`: processors get the rows of each interval together."""

    type: Literal["tumbling_window"]
    interval: str | None = Field(default=None, description='A duration, such as "10s".')
    size: str | None = Field(default=None, description="The same as `interval`.")


class SessionBufferConfig(_WindowBufferConfig):
    """`buffer: {type: session_window}`: processors get rows that came close together."""

    type: Literal["session_window"]
    gap: str = Field(description='A session ends after so long without a row, such as "10s".')


BUFFERS = (MemoryBufferConfig, TumblingBufferConfig, SessionBufferConfig)
"""Models of all buffers, for editors; the compiler of streams checks the keys of windows."""


__all__ = [
    "BUFFERS",
    "EngineConfig",
    "HealthCheckConfig",
    "LoggingConfig",
    "MemoryBufferConfig",
    "ObservabilityConfig",
    "SessionBufferConfig",
    "TracingConfig",
    "TumblingBufferConfig",
]
