"""Plans for tests, without a configuration: chains of scripted components, jobs of such chains."""

from collections.abc import Sequence as Seq

from arkflow_kernel.ids import ChainId, JobId, OperatorId, OutputId
from arkflow_kernel.plan import (
    ChainPlan,
    ComponentPlan,
    ExecutionGraph,
    Mode,
    OperatorPlan,
    SinkPlan,
    SourcePlan,
)

_SCRIPTED = ComponentPlan("scripted", {})


def chain_plan(
    name: str = "chain-0",
    *,
    source: str = "source",
    operators: Seq[str] = (),
    sinks: Seq[str] = ("sink",),
    error_sink: str | None = None,
    workers: int = 1,
    rows_per_second: float | None = None,
    timeout_ms: int | None = None,
) -> ChainPlan:
    """A chain with the named operators; every row goes to all `sinks`, bad ones to `error_sink`."""
    names = [*sinks, *([error_sink] if error_sink is not None else [])]
    return ChainPlan(
        ChainId(name),
        SourcePlan(OperatorId(source), _SCRIPTED, rows_per_second),
        tuple(OperatorPlan(OperatorId(op), "map", _SCRIPTED, timeout_ms) for op in operators),
        tuple(SinkPlan(OperatorId(sink), _SCRIPTED) for sink in dict.fromkeys(names)),
        tuple(OutputId(sink) for sink in sinks),
        None if error_sink is None else OutputId(error_sink),
        workers,
    )


def job_plan(*chains: ChainPlan, name: str = "job") -> ExecutionGraph:
    """A job of chains that have nothing to do with each other, in ack mode."""
    return ExecutionGraph(JobId(name), 1, Mode.ACK, chains, (), 128)


__all__ = ["chain_plan", "job_plan"]
