"""The plan of a job: what the graph builder decides and drivers carry out.

Plain data: picklable, comparable, without behaviour. Component configurations are carried as
they stand in the JobSpec; secrets in them are still references (M8).
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from arkflow_kernel.ids import ChainId, EdgeId, JobId, OperatorId, OutputId, TaskId


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


@dataclass(frozen=True, slots=True)
class ComponentPlan:
    """One component to build: its registered type, its configuration without `type` and `name`."""

    type: str
    config: dict[str, Any]
    codec: dict[str, Any] | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """The source of a chain. `rows_per_second` is enforced by the chain's machine."""

    operator: OperatorId
    component: ComponentPlan
    rows_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """A fused operator between source and sinks. `timeout_ms` bounds one call of it (T1b)."""

    operator: OperatorId
    kind: str
    component: ComponentPlan
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """A fused sink. Its `OutputId` is its operator's id."""

    operator: OperatorId
    component: ComponentPlan

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
class ChainPlan:
    """One parallel instance of a chain: what one actor runs.

    `outputs` get every row that the last operator yields; `error_output` gets bad rows and the
    batches that an operator failed on, or is None: then the first of them fails the job.
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


@dataclass(frozen=True, slots=True)
class ExecutionGraph:
    """The whole plan of a job: chains after fusion and the edges of the operator graph (G1, G5)."""

    job: JobId
    version: int
    mode: Mode
    chains: tuple[ChainPlan, ...]
    edges: tuple[EdgePlan, ...]
    max_parallelism: int

    def chain(self, chain: ChainId) -> ChainPlan:
        """The plan of one chain; KeyError if it is not of this job."""
        for plan in self.chains:
            if plan.chain == chain:
                return plan
        raise KeyError(chain)


__all__ = [
    "ChainPlan",
    "ComponentPlan",
    "EdgeKind",
    "EdgePlan",
    "ExecutionGraph",
    "Mode",
    "OperatorPlan",
    "SinkPlan",
    "SourcePlan",
]
