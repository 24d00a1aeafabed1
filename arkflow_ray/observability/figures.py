"""Rows, rates and states of a job as a user sees them, from what the coordinator reports.

Plain data and arithmetic: no clock, no printing. Invariant: `read` counts every row that a source
yielded, also those that could not be decoded, those that a codec left out, and those without a
time.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from arkflow_kernel.ids import ChainId
from arkflow_kernel.metrics import ChannelStatistics
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.protocol import JobState, JobStatus, RescaleStatus
from arkflow_ray.observability.subtasks import read_rows
from arkflow_ray.observability.time_figures import (
    TimeFigures,
    evicted_rows,
    late_rows,
    time_figures,
)
from arkflow_ray.runtime.rescaling import under_way

RATE_WINDOW_S = 5.0
"""Rates are means over this many seconds: reports come once a second."""


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """What one chain's process holds and takes, its loop's lag, peers that it refused, and how long
    it waited for its share of the CPU.
    """

    chain: ChainId
    pid: int
    held_bytes: int
    rss_peak_bytes: int
    cpu_ms: int
    loop_lag_ms: int
    refused_peers: int = 0
    throttled_ms: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointFigures:
    """What a job in checkpoint mode has saved.

    `last` is the newest round that this run completed, 0 for none; `restored` what the running
    attempt began from, None for nothing; `root` where it lies, None if it ends with the run.
    """

    last: int = 0
    restored: str | None = None
    root: str | None = None


@dataclass(frozen=True, slots=True)
class JobFigures:
    """One job's counters at one moment. `written` is rows per sink; `ready` of `chains` run.

    `late` rows came too late for a window, `untimed` ones had no event time; both were dropped or
    routed. `evicted` ones were let go of by windows that held too many keys. `channels` are all
    channels between chains, as their senders see them; `processes` those of the chains that have
    reported what they use; `times` where chains are in event time.
    `parallelism` is that of each operator, `rescale` the last one that was asked for.
    After a restart or a rescale the counters are those of the running attempt.
    """

    job: str
    state: JobState
    cause: str = ""
    chains: int = 0
    ready: int = 0
    read: int = 0
    written: Mapping[str, int] = field(default_factory=dict)
    bad: int = 0
    skipped: int = 0
    restarts: int = 0
    channels: tuple[ChannelStatistics, ...] = ()
    processes: tuple[ProcessFigures, ...] = ()
    checkpoint: CheckpointFigures | None = None
    late: int = 0
    untimed: int = 0
    evicted: int = 0
    times: tuple[TimeFigures, ...] = ()
    parallelism: Mapping[str, int] = field(default_factory=dict)
    rescale: RescaleStatus | None = None

    @property
    def rows_written(self) -> int:
        """Rows over all sinks."""
        return sum(self.written.values())


def figures(graph: ExecutionGraph, status: JobStatus) -> JobFigures:
    """What `status` says about a job: rows that its sources read and its sinks were given."""
    read = bad = skipped = late = untimed = evicted = 0
    written: dict[str, int] = {}
    channels: list[ChannelStatistics] = []
    for plan in graph.chains:
        chain = status.chains.get(plan.chain)
        if chain is None:
            continue
        failed = sum(counts.errors for counts in chain.operators)
        bad += chain.bad_rows + failed
        skipped += chain.skipped_rows
        channels += chain.channels
        late += late_rows(chain)
        evicted += evicted_rows(chain)
        untimed += chain.invalid_times
        if plan.source is not None:
            read += read_rows(chain)
        sinks = {sink.output for sink in plan.sinks}
        for output, rows in chain.rows_to:
            if output in sinks:
                written[output] = written.get(output, 0) + rows
    return JobFigures(
        graph.job,
        status.state,
        status.cause,
        len(graph.chains),
        status.ready,
        read,
        written,
        bad,
        skipped,
        status.restarts,
        tuple(channels),
        tuple(_processes(status)),
        _checkpoint(graph, status),
        late,
        untimed,
        evicted,
        time_figures(graph, status),
        {str(name): subtasks for name, subtasks in status.parallelism.items()},
        status.rescale,
    )


def _checkpoint(graph: ExecutionGraph, status: JobStatus) -> CheckpointFigures | None:
    if graph.checkpoint is None:
        return None
    told = status.checkpoints
    if told is None:
        return CheckpointFigures(root=graph.checkpoint.root)
    return CheckpointFigures(int(told.last), told.restored, graph.checkpoint.root)


def _processes(status: JobStatus) -> Iterator[ProcessFigures]:
    for chain, usage in status.usage.items():
        statistics = status.chains.get(chain)
        held_bytes = 0 if statistics is None else statistics.held_bytes
        yield ProcessFigures(
            chain,
            usage.pid,
            held_bytes,
            usage.rss_peak_bytes,
            usage.cpu_ms,
            usage.loop_lag_ms,
            usage.refused_peers,
            usage.throttled_ms,
        )


def rescale_phase(job: JobFigures) -> str | None:
    """The phase of the rescale that is under way; None if none is."""
    rescale = under_way(job.rescale)
    return None if rescale is None else rescale.phase


def restarts_text(restarts: int) -> str:
    """How often a job was restarted, as text."""
    return f"{restarts:,} restart" if restarts == 1 else f"{restarts:,} restarts"


class RateMeter:
    """Rows per second over the last seconds of a rising counter."""

    def __init__(self, window_s: float = RATE_WINDOW_S) -> None:
        self._window_s = window_s
        self._samples: deque[tuple[float, int]] = deque()

    def sample(self, now_s: float, rows: int) -> float:
        """Take the counter at a moment of a monotonic clock; the rate, 0 if there is none yet."""
        if self._samples and rows < self._samples[-1][1]:
            self._samples.clear()  # another attempt counts from 0
        if not self._samples or self._samples[-1][1] != rows:
            self._samples.append((now_s, rows))
        while len(self._samples) > 2 and now_s - self._samples[0][0] > self._window_s:
            self._samples.popleft()
        first_s, first = self._samples[0]
        last_s, last = self._samples[-1]
        # A counter that stands still for longer than the window is a rate of nothing.
        if last_s <= first_s or now_s - last_s > self._window_s:
            return 0.0
        return (last - first) / (last_s - first_s)


__all__ = [
    "RATE_WINDOW_S",
    "CheckpointFigures",
    "JobFigures",
    "ProcessFigures",
    "RateMeter",
    "figures",
    "rescale_phase",
    "restarts_text",
]
