"""Plans for tests, without a configuration: chains of scripted components, jobs of such chains."""

from collections.abc import Sequence as Seq
from dataclasses import replace

from arkflow_kernel.ids import (
    ChainId,
    ChannelId,
    EdgeId,
    JobId,
    OperatorId,
    OutputId,
    SubtaskIndex,
)
from arkflow_kernel.limits import CHANNEL_BYTES_MAX, CHANNEL_ENVELOPES_DEFAULT
from arkflow_kernel.plan import (
    ChainPlan,
    ChannelPlan,
    CheckpointPlan,
    ComponentPlan,
    EdgeKind,
    ExecutionGraph,
    Mode,
    OperatorPlan,
    OutletPlan,
    RestartPlan,
    SinkPlan,
    SourcePlan,
)

_SCRIPTED = ComponentPlan("scripted", {})


def chain_plan(
    name: str = "chain-0",
    *,
    source: str | None = "source",
    operators: Seq[str] = (),
    sinks: Seq[str] = ("sink",),
    error_sink: str | None = None,
    workers: int = 1,
    rows_per_second: float | None = None,
    timeout_ms: int | None = None,
    inputs: Seq[ChannelPlan] = (),
    channels: Seq[ChannelPlan] = (),
    mode: Mode = Mode.ACK,
    exactly_once: Seq[str] = (),
) -> ChainPlan:
    """A chain with the named operators; every row goes to all `sinks`, bad ones to `error_sink`.

    `inputs` take the place of the source; each of the `channels` gets every row too. `exactly_once`
    are those of the sinks that publish staged epochs, in checkpoint mode.
    """
    names = [*sinks, *([error_sink] if error_sink is not None else [])]
    return ChainPlan(
        ChainId(name),
        None if inputs or source is None else _source_plan(source, rows_per_second),
        tuple(OperatorPlan(OperatorId(op), "map", _SCRIPTED, timeout_ms) for op in operators),
        tuple(
            SinkPlan(OperatorId(sink), _SCRIPTED, sink in exactly_once)
            for sink in dict.fromkeys(names)
        ),
        tuple(OutputId(output) for output in (*sinks, *(channel.edge for channel in channels))),
        None if error_sink is None else OutputId(error_sink),
        workers,
        inputs=tuple(inputs),
        outlets=tuple(
            OutletPlan(OutputId(channel.edge), EdgeKind.FORWARD, (channel,)) for channel in channels
        ),
        mode=mode,
    )


def stage_plans(
    head: str,
    parallelism: int,
    *,
    operators: Seq[str] = (),
    sinks: Seq[str] = ("sink",),
    mode: Mode = Mode.ACK,
) -> tuple[ChainPlan, ...]:
    """The subtasks of one chain, `<head>-<index>`; each reads splits of the source `head`."""
    chains = (
        chain_plan(f"{head}-{i}", source=head, operators=operators, sinks=sinks, mode=mode)
        for i in range(parallelism)
    )
    return tuple(
        replace(chain, subtask=SubtaskIndex(i), parallelism=parallelism)
        for i, chain in enumerate(chains)
    )


def channel_plan(
    edge: str = "edge",
    source: str = "chain-0",
    target: str = "chain-1",
    *,
    number: int = 0,
    capacity: int = CHANNEL_ENVELOPES_DEFAULT,
    capacity_bytes: int = CHANNEL_BYTES_MAX,
) -> ChannelPlan:
    """The one channel of a forward edge between two chains; it is called `<edge>[0-0]`."""
    name = ChannelId(f"{edge}[0-0]")
    ends = ChainId(source), ChainId(target)
    return ChannelPlan(name, number, EdgeId(edge), *ends, capacity, capacity_bytes)


def job_plan(
    *chains: ChainPlan,
    name: str = "job",
    mode: Mode = Mode.ACK,
    restart: RestartPlan | None = None,
    checkpoint: CheckpointPlan | None = None,
) -> ExecutionGraph:
    """A job of these chains; in ack mode, and with the default restarts, unless said otherwise.

    With `checkpoint` it is in checkpoint mode, as its chains must be.
    """
    restarts = RestartPlan() if restart is None else restart
    mode = mode if checkpoint is None else Mode.CHECKPOINT
    assert checkpoint is None or all(chain.mode is mode for chain in chains)
    return ExecutionGraph(JobId(name), 1, mode, chains, (), 128, restarts, checkpoint)


def _source_plan(name: str, rows_per_second: float | None) -> SourcePlan:
    return SourcePlan(OperatorId(name), _SCRIPTED, rows_per_second)


__all__ = ["chain_plan", "channel_plan", "job_plan", "stage_plans"]
