"""The watermark of a chain: merged from the splits of its source, or from its input channels.

Rules
- W1: the minimum over all that is neither ended nor idle; unknown as long as one of them is. A
  split that is known and has not begun holds it. It never goes back.
- W2: a split is idle when there was nothing in it for the time-out, by its source's own word; a
  channel from `Idle` to its next Data or Watermark. What is idle with all others has no say.
- Whoever was told `Idle` hears a watermark before the rows that end the idleness: else these rows
  could find the peer's watermark risen beyond them.
- A channel that ended because a user stopped the job keeps its watermark in the minimum: its rows
  are not at their end, and what waits for them must not fire before the job is resumed.

Who sees what: `ChainTime` decides what the chain says next, as envelopes; the machine gives each
its place behind the batches that were submitted before it (W11), and says when it has.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from arkflow_kernel.envelope import Data, EndOfStream, Envelope, Idle, Watermark
from arkflow_kernel.ids import EARLIEST, ChannelId, EventTimeMs, MonotonicMs, SplitId
from arkflow_kernel.plan import TimePlan
from arkflow_kernel.ports import NothingYet, ReadResult, SourceBatch
from arkflow_kernel.protocol import deadline
from arkflow_kernel.snapshot import SplitTime


@dataclass(slots=True)
class Part:
    """A split or a channel: its watermark (None: not known yet), and whether it has a say."""

    watermark: EventTimeMs | None = None
    idle: bool = False
    ended: bool = False


def lowest(parts: Iterable[Part]) -> EventTimeMs | None:
    """The minimum over the active parts; None while one is unknown, or if none is active (W1)."""
    active = [part.watermark for part in parts if not (part.idle or part.ended)]
    known = [watermark for watermark in active if watermark is not None]
    return min(known) if known and len(known) == len(active) else None


def all_idle(parts: Iterable[Part]) -> bool:
    """Whether nothing is active and something has not ended; also if there are no parts (W2)."""
    present = list(parts)
    left = [part for part in present if not part.ended]
    return all(part.idle for part in left) and (bool(left) or not present)


class ChannelTimes:
    """The watermarks of a chain's input channels. `changes` counts what may change the minimum."""

    def __init__(self, channels: Iterable[ChannelId]) -> None:
        self.changes = 0
        self._parts = {channel: Part() for channel in channels}

    def delivered(self, channel: ChannelId, envelope: Envelope) -> None:
        """An envelope was taken off a channel."""
        part = self._parts[channel]
        if isinstance(envelope, Data) and not part.idle:
            return
        self.changes += 1
        match envelope:
            case Watermark(time_ms):
                known = EARLIEST if part.watermark is None else part.watermark
                part.watermark = max(time_ms, known)
                part.idle = False
            case Data():
                part.idle = False
            case Idle():
                part.idle = True
            case EndOfStream(stopped):
                part.ended = not stopped
            case _:
                return

    @property
    def parts(self) -> Seq[Part]:
        """All channels."""
        return tuple(self._parts.values())

    def at(self, channel: ChannelId) -> Part:
        """One channel."""
        return self._parts[channel]


@dataclass(slots=True)
class _Split(Part):
    max_ms: EventTimeMs | None = None
    quiet_since_ms: MonotonicMs | None = None


class SplitTimes:
    """The event time of a source's splits (W1, W2), of the batches that went to the lane.

    `splits` are those known at the start, in reading order; others join with their first batch.
    `changes` counts what may change the minimum.
    """

    def __init__(
        self, plan: TimePlan, splits: Iterable[SplitId], restored: Iterable[SplitTime] = ()
    ) -> None:
        self.changes = 0
        self._plan = plan
        self._splits = {split: _Split() for split in splits}
        self._rests_until_ms: MonotonicMs | None = None
        for time in restored:
            split = self._splits.get(time.split)
            if split is not None:
                split.idle = time.idle
                self._rose(split, time.max_ms)

    def _rose(self, split: _Split, max_ms: EventTimeMs | None) -> None:
        if max_ms is not None:
            split.max_ms = max_ms
            split.watermark = EventTimeMs(max(max_ms - self._plan.bound_ms, EARLIEST))

    @property
    def parts(self) -> Seq[Part]:
        """The splits that have a say: with `ordered_splits`, the first that has not ended."""
        splits = tuple(self._splits.values())
        if not self._plan.ordered_splits:
            return splits
        return tuple(split for split in splits if not split.ended)[:1] or splits

    def answered(self, result: ReadResult, now_ms: MonotonicMs) -> None:
        """The source answered a read: what it says of where there is nothing (W2)."""
        self._rests_until_ms = None
        self.changes += 1
        quiet: Iterable[SplitId] = ()
        if isinstance(result, SourceBatch):
            read = self._splits.setdefault(result.split, _Split())
            read.quiet_since_ms, read.idle = None, False
            quiet = result.quiet
        elif isinstance(result, NothingYet):
            self._rests_until_ms = result.resume_ms
            quiet = self._splits if result.quiet is None else result.quiet
        for name in quiet:
            split = self._splits.setdefault(name, _Split())
            if split.quiet_since_ms is None:
                split.quiet_since_ms = now_ms
        self._judge(quiet, now_ms)

    def passed(self, now_ms: MonotonicMs) -> None:
        """Time passes while the source rests: it said itself that nothing comes before."""
        if self._rests_until_ms is not None:
            self.changes += 1
            self._judge(self._splits, min(now_ms, self._rests_until_ms, key=int))

    def _judge(self, names: Iterable[SplitId], now_ms: MonotonicMs) -> None:
        for name in names:
            split, due_ms = self._splits[name], self._due_ms(self._splits[name])
            split.idle |= due_ms is not None and now_ms >= due_ms

    def _due_ms(self, split: _Split) -> MonotonicMs | None:
        timeout_ms = self._plan.idle_timeout_ms
        if timeout_ms is None or split.quiet_since_ms is None or split.ended:
            return None
        return MonotonicMs(split.quiet_since_ms + timeout_ms)

    def submitted(self, name: SplitId, max_ms: EventTimeMs | None, *, ended: bool) -> None:
        """A batch went to the lane; `max_ms` is the greatest time of its split up to its end."""
        split = self._splits.setdefault(name, _Split())
        self.changes += 1
        split.ended = ended
        self._rose(split, max_ms)

    def deadline_ms(self) -> MonotonicMs | None:
        """When a split becomes idle though the source rests."""
        rests_ms = self._rests_until_ms
        if rests_ms is None:
            return None
        due = (self._due_ms(split) for split in self._splits.values() if not split.idle)
        return deadline(*(at if at is not None and at <= rests_ms else None for at in due))

    def cut(self) -> tuple[SplitTime, ...]:
        """The splits that have begun or are idle, at a cut (B0)."""
        return tuple(
            SplitTime(name, self._splits[name].max_ms, self._splits[name].idle)
            for name in sorted(self._splits)
            if self._splits[name].max_ms is not None or self._splits[name].idle
        )


class ChainTime:
    """What a chain says of time next. `restored` is the watermark that its operators have had."""

    def __init__(self, parts: SplitTimes | ChannelTimes, restored: EventTimeMs | None) -> None:
        self._times = parts
        self._given = self._risen = restored
        self._idle = False
        self._silent_at: int | None = None

    @property
    def watermark(self) -> EventTimeMs | None:
        """The last one that was given to the operators; it never goes back."""
        return self._given

    @property
    def idle(self) -> bool:
        """Whether `Idle` was the last that was said."""
        return self._idle

    def next(self) -> Watermark | Idle | None:
        """What is to follow the batches submitted so far, if anything. Changes nothing but what
        is known of the minimum; `took` says that it has its place.
        """
        if self._silent_at == self._times.changes:
            return None  # it is asked with every event, and most change nothing
        parts = self._times.parts
        low = lowest(parts)
        if low is not None and (self._risen is None or low > self._risen):
            self._risen = low
        idle = all_idle(parts)
        if self._risen != self._given or (self._idle and not idle):
            return Watermark(EARLIEST if self._risen is None else self._risen)
        if idle and not self._idle:
            return Idle()
        self._silent_at = self._times.changes
        return None

    def took(self, said: Watermark | Idle) -> None:
        """It has its place behind the batches submitted so far."""
        self._idle = isinstance(said, Idle)
        if isinstance(said, Watermark) and self._risen is not None:
            self._given = said.time_ms

    def validate(self) -> None:
        """Assert that nothing was given that had not risen."""
        assert self._given is None or (self._risen is not None and self._given <= self._risen)


__all__ = ["ChainTime", "ChannelTimes", "Part", "SplitTimes", "all_idle", "lowest"]
