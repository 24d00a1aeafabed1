"""Where a job is in event time, chain by chain, and which rows no window took (R4, W1, W6).

Plain data and arithmetic: no clock, no printing.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from arkflow_kernel.ids import ChainId

if TYPE_CHECKING:  # commands that only print what a door tells pay for none of it
    from arkflow_kernel.metrics import ChainStatistics
    from arkflow_kernel.plan import ExecutionGraph
    from arkflow_kernel.protocol import JobStatus

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TimeFigures:
    """One chain in event time.

    `watermark` is in milliseconds since 1970, None before the first; `idle`: all that feeds it is.
    `late_rows` came too late for a window of the chain, `untimed_rows` had no time (both dropped
    or routed), `ahead_rows` were too far in the future to move the watermark, `evicted_rows` went
    with the oldest window because a window held too many keys (N6).
    """

    chain: ChainId
    watermark: int | None = None
    idle: bool = False
    late_rows: int = 0
    untimed_rows: int = 0
    ahead_rows: int = 0
    evicted_rows: int = 0


def time_figures(graph: "ExecutionGraph", status: "JobStatus") -> tuple[TimeFigures, ...]:
    """Of all chains that have reported, in the order of the plan; none in processing time."""
    sources = [chain.source for chain in graph.chains if chain.source is not None]
    if all(source.time is None for source in sources):
        return ()
    told = [status.chains.get(chain.chain) for chain in graph.chains]
    return tuple(_figures(each) for each in told if each is not None)


def _figures(chain: "ChainStatistics") -> TimeFigures:
    return TimeFigures(
        chain.chain,
        None if chain.watermark is None else int(chain.watermark),
        chain.idle,
        late_rows(chain),
        chain.invalid_times,
        chain.ahead_rows,
        evicted_rows(chain),
    )


def late_rows(chain: "ChainStatistics") -> int:
    """Rows that came too late for the windows of a chain."""
    return sum(counts.late for counts in chain.operators)


def evicted_rows(chain: "ChainStatistics") -> int:
    """Rows that windows of a chain had to let go of (N6)."""
    return sum(counts.evicted for counts in chain.operators)


def time_text(time_ms: int) -> str:
    """A moment of event time for a person: ISO 8601, or its number beyond the calendar."""
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms:,} ms since 1970"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


__all__ = ["TimeFigures", "evicted_rows", "late_rows", "time_figures", "time_text"]
