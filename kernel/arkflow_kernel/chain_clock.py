"""What time it is in a chain: event time from its splits or inputs, ticks by the wall clock.

A part of `task.py`. `watermark` merges; this holds what a chain has of it, and the timer that its
operators asked for. A chain whose source has processing time says nothing of time.
"""

from dataclasses import dataclass

from arkflow_kernel.envelope import Idle, Watermark
from arkflow_kernel.ids import EARLIEST, EventTimeMs, MonotonicMs, SplitId, WallMs
from arkflow_kernel.inlet import Inlets
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import Moment, SourceBatch
from arkflow_kernel.protocol import NOBODY, BatchTime, Slowest, SourceRead, deadline
from arkflow_kernel.snapshot import RestoredChain, SplitTime
from arkflow_kernel.watermark import ChainTime, SplitTimes

_AT_ONCE = WallMs(-(2**63))
"""The timer of a chain that begins: what was restored may be due."""


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """What a source says when it is opened: whether it wants to hear what is settled, and its
    splits that are not ended, in reading order.
    """

    commits: bool = False
    splits: tuple[SplitId, ...] = ()


NO_SOURCE = OpenedSource()
"""A chain that reads its inputs."""


class ChainClock:
    """Event time and timers of one chain. `timer_ms`: when an operator wants a tick."""

    def __init__(
        self,
        plan: ChainPlan,
        inlets: Inlets,
        restored: RestoredChain,
        splits: tuple[SplitId, ...],
    ) -> None:
        self._splits: SplitTimes | None = None
        self._time: ChainTime | None = None
        if plan.source is None:
            self._time = ChainTime(inlets.times, restored.watermark)
        elif plan.source.time is not None:
            self._splits = SplitTimes(plan.source.time, splits, restored.times)
            self._time = ChainTime(self._splits, restored.watermark)
        self.timer_ms: WallMs | None = _AT_ONCE if plan.timed else None
        time = None if plan.source is None else plan.source.time
        self._chain = plan.chain
        self._max_drift_ms = None if time is None else time.max_drift_ms
        self._wall_ahead_ms = 0
        self._over = False

    # --- what is heard -------------------------------------------------------------------------

    def answered(self, event: SourceRead) -> None:
        """The source answered a read: where it found nothing (W2)."""
        if self._splits is not None:
            self._splits.answered(event.result, event.at.now_ms)

    def submitted(self, read: SourceBatch, time: BatchTime) -> None:
        """A batch of the source went to the lane."""
        assert self._splits is not None
        self._splits.submitted(read.split, time.max_ms, ended=read.split_ended)

    def passed(self, at: Moment) -> None:
        """Both clocks, now."""
        self._wall_ahead_ms = at.wall_ms - at.now_ms
        if self._splits is not None:
            self._splits.passed(at.now_ms)

    def end(self) -> None:
        """The data have ended, or are stopped: nothing more is said, no tick follows."""
        self._over = True

    def runs_ahead(self, slowest: Slowest) -> bool:
        """Whether the source is too far ahead of the job's slowest to be read now (W12)."""
        if self._max_drift_ms is None or slowest == NOBODY or slowest.chain == self._chain:
            return False
        return self.watermark is not None and self.watermark > slowest.time_ms + self._max_drift_ms

    # --- what is said --------------------------------------------------------------------------

    @property
    def watermark(self) -> EventTimeMs | None:
        """The last one that the operators were given."""
        return None if self._time is None else self._time.watermark

    @property
    def idle(self) -> bool:
        """Whether those behind were told that nothing is to be waited for."""
        return self._time is not None and self._time.idle

    def next(self) -> Watermark | Idle | None:
        """What is to follow the batches submitted so far."""
        return None if self._time is None or self._over else self._time.next()

    def rises(self, said: Watermark | Idle) -> bool:
        """Whether operators have not heard of it; a watermark that ends idleness may be old."""
        known = EARLIEST if self.watermark is None else self.watermark
        return isinstance(said, Watermark) and said.time_ms > known

    def took(self, said: Watermark | Idle) -> None:
        """It has its place."""
        assert self._time is not None
        self._time.took(said)

    def cut(self) -> tuple[SplitTime, ...]:
        """The splits at a cut."""
        return () if self._splits is None else self._splits.cut()

    def tick_due(self, at: Moment) -> bool:
        """Whether the moment that an operator asked for has come."""
        return not self._over and self.timer_ms is not None and at.wall_ms >= self.timer_ms

    def ticking(self) -> None:
        """A tick was ordered; its answer says when the next one is due."""
        self.timer_ms = None

    def deadline_ms(self, *, ticks: bool) -> MonotonicMs | None:
        """When time passes though nothing else happens; `ticks`: a tick could be ordered."""
        if self._over:
            return None
        idle_ms = None if self._splits is None else self._splits.deadline_ms()
        if self.timer_ms is None or not ticks:
            return idle_ms
        return deadline(idle_ms, MonotonicMs(self.timer_ms - self._wall_ahead_ms))

    def validate(self) -> None:
        """Assert the order of what was said."""
        if self._time is not None:
            self._time.validate()


__all__ = ["NO_SOURCE", "ChainClock", "OpenedSource"]
