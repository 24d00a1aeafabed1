"""Plain counters and immutable snapshots of them (R4). No clock, no exporter."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from arkflow_kernel.ids import (
    ChainId,
    ChannelId,
    EventTimeMs,
    MonotonicMs,
    OperatorId,
    OutputId,
)


@dataclass(frozen=True, slots=True)
class OperatorCounts:
    """What one operator did with the rows of one lane item, or of all of them.

    Conservation (T6): `rows_in + expanded == rows_out + filtered + errors + late + absorbed`.
    `expanded` counts rows that came out beyond those that went in (a join, an `unnest`), `evicted`
    absorbed rows that went for want of room (N6).
    `state_keys` and `state_bytes` are what the operator's keyed state grew by; of all items
    together, what it holds (R4).
    """

    operator: OperatorId
    rows_in: int = 0
    rows_out: int = 0
    filtered: int = 0
    errors: int = 0
    late: int = 0
    absorbed: int = 0
    expanded: int = 0
    evicted: int = 0
    state_keys: int = 0
    state_bytes: int = 0

    def plus(self, other: "OperatorCounts") -> "OperatorCounts":
        """Sum of both; `other` must be of the same operator."""
        assert other.operator == self.operator
        return OperatorCounts(
            self.operator,
            self.rows_in + other.rows_in,
            self.rows_out + other.rows_out,
            self.filtered + other.filtered,
            self.errors + other.errors,
            self.late + other.late,
            self.absorbed + other.absorbed,
            self.expanded + other.expanded,
            self.evicted + other.evicted,
            self.state_keys + other.state_keys,
            self.state_bytes + other.state_bytes,
        )

    def conserved(self) -> bool:
        """Whether every row is accounted for (T6)."""
        gone = self.rows_out + self.filtered + self.errors + self.late + self.absorbed
        return self.rows_in + self.expanded == gone


@dataclass(frozen=True, slots=True, eq=False)
class KeyGroupRows:
    """How many rows left by a partitioned edge for each key group: an array by group."""

    output: OutputId
    rows: npt.NDArray[np.int64]

    def plus(self, other: "KeyGroupRows | None") -> "KeyGroupRows":
        """Sum of both, of the same edge."""
        return self if other is None else KeyGroupRows(self.output, self.rows + other.rows)


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """One outgoing channel: envelopes sent, taken and settled, what waits, what is on the way."""

    channel: ChannelId
    sent: int = 0
    taken: int = 0
    settled: int = 0
    waiting_bytes: int = 0
    outstanding_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """Something that made no progress for `STALL_TIMEOUT_MS` or longer (E5).

    `on` names what is waited for as a user knows it ("sink 'out'", "channel e[0-1]"), `detail`
    says what is missing, `waited_ms` how long.
    """

    on: str
    detail: str
    waited_ms: int


@dataclass(frozen=True, slots=True)
class ChainStatistics:
    """Snapshot of one chain's counters.

    `rows_to`: rows handed to each output, in the order of the plan; `rows_out` is their sum.
    `held_bytes`: batches in queues, lane and outboxes, by their own sizes. `invalid_times`: rows
    without a valid event time (W5), `ahead_rows`: rows too far in the future (W4). `watermark` is
    that of the chain, in milliseconds of event time; None before the first. `idle`: see W2.
    `held_ms`: how long rows that its source had read waited for room in the lane (K6), `blocked_ms`
    how long rows that left the operators waited for room in an output; both in this attempt.
    `key_groups`: rows by key group that left by each partitioned edge into several subtasks; not
    of edges with more than `KEY_GROUPS_COUNTED_MAX` groups.
    """

    chain: ChainId
    batches_in: int = 0
    rows_in: int = 0
    bytes_in: int = 0
    bad_rows: int = 0
    skipped_rows: int = 0
    batches_out: int = 0
    rows_out: int = 0
    errors: int = 0
    in_flight: int = 0
    settled_rows: int = 0
    confirmed_writes: int = 0
    stale_controls: int = 0
    invalid_times: int = 0
    ahead_rows: int = 0
    watermark: EventTimeMs | None = None
    idle: bool = False
    held_bytes: int = 0
    channels: tuple[ChannelStatistics, ...] = ()
    operators: tuple[OperatorCounts, ...] = field(default_factory=tuple)
    rows_to: tuple[tuple[OutputId, int], ...] = ()
    key_groups: tuple[tuple[OutputId, tuple[int, ...]], ...] = ()
    held_ms: int = 0
    blocked_ms: int = 0


class Stopwatch:
    """How long something was so, as often as somebody looked."""

    def __init__(self) -> None:
        self._passed_ms = 0
        self._since_ms: MonotonicMs | None = None

    def look(self, *, so: bool, now_ms: MonotonicMs) -> None:
        """It is so from now on, or is not."""
        if so and self._since_ms is None:
            self._since_ms = now_ms
        elif not so and self._since_ms is not None:
            self._passed_ms, self._since_ms = self.passed_ms(now_ms), None

    def passed_ms(self, now_ms: MonotonicMs) -> int:
        """Milliseconds until now."""
        running_ms = 0 if self._since_ms is None else max(0, now_ms - self._since_ms)
        return self._passed_ms + running_ms


@dataclass(frozen=True, slots=True)
class ChainUsage:
    """What a chain's process used: CPU since its first request, peak resident memory.

    `loop_lag_ms`: how long the question for this report waited until the chain's loop came to it.
    `refused_peers`: connections to its channels that did not prove themselves (H2).
    `fetched_bytes`: what its states read out of the checkpoint store in this attempt;
    `reused_bytes`: what they found in the process instead (P1).
    `throttled_ms`: how long its lanes waited for their share of the CPU (R2).
    `busy_ms`: how long the busiest of its lanes worked in this attempt, waits for that share
    included: the operators (the mean of several workers) or a sink (K6).
    """

    cpu_ms: int = 0
    rss_peak_bytes: int = 0
    pid: int = 0
    loop_lag_ms: int = 0
    refused_peers: int = 0
    fetched_bytes: int = 0
    reused_bytes: int = 0
    throttled_ms: int = 0
    busy_ms: int = 0


__all__ = [
    "ChainStatistics",
    "ChainUsage",
    "ChannelStatistics",
    "KeyGroupRows",
    "OperatorCounts",
    "Stopwatch",
    "Wait",
]
