"""Planted bugs of event time: the minimum, idleness, the place behind the rows, the cut."""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any

from arkflow_kernel import watermark as watermarks
from arkflow_kernel.chain_flow import ChainFlow
from arkflow_kernel.chain_work import ChainWork
from arkflow_kernel.envelope import Data, EndOfStream, Envelope, Idle, Watermark
from arkflow_kernel.ids import (
    ChannelId,
    CheckpointId,
    MonotonicMs,
    RequestToken,
)
from arkflow_kernel.item_queue import BatchRef, ItemQueue
from arkflow_kernel.lane_schedule import LaneSchedule
from arkflow_kernel.outbox import Outbox
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import ReadResult, SourceBatch
from arkflow_kernel.protocol import (
    AdvanceItem,
    NextSlice,
    RunItem,
    SealItem,
    SourceRead,
    Submit,
)
from arkflow_kernel.snapshot import NOTHING_RESTORED, RestoredChain, SplitTime
from arkflow_kernel.task import ChainTask
from arkflow_kernel.testing.planted import PlantedRestore, PlantedTask
from arkflow_kernel.testing.sim_world import Machines
from arkflow_kernel.watermark import ChainTime, ChannelTimes, Part, SplitTimes

# --- the minimum -------------------------------------------------------------------------------


class _TimeTask(ChainTask):
    """A machine whose parts of time are of other classes; what a chain does not have, stays."""

    _planted_splits: type[SplitTimes] = SplitTimes
    _planted_channels: type[ChannelTimes] = ChannelTimes
    _planted_said: type[ChainTime] = ChainTime

    def __init__(self, plan: ChainPlan, *rest: Any, **named: Any) -> None:
        super().__init__(plan, *rest, **named)
        time = self._flow.time
        if time._splits is not None:
            time._splits.__class__ = self._planted_splits
        if time._time is not None:
            time._time.__class__ = self._planted_said
        self._flow.inlets.times.__class__ = self._planted_channels


def _never_idle(parts: Iterable[Part]) -> Seq[Part]:
    return tuple(Part(part.watermark, False, part.ended) for part in parts)


class _BusySplits(SplitTimes):
    @property
    def parts(self) -> Seq[Part]:
        return _never_idle(super().parts)


class IdleSplitsCount(_TimeTask):
    """A split that is idle holds the watermark of its source (W2)."""

    _planted_splits = _BusySplits


class _BusyChannels(ChannelTimes):
    @property
    def parts(self) -> Seq[Part]:
        return _never_idle(super().parts)


class IdleInputsCount(_TimeTask):
    """An input that is idle holds the watermark of the chain (W2)."""

    _planted_channels = _BusyChannels


class _SleepingSplits(SplitTimes):
    def answered(self, result: ReadResult, now_ms: MonotonicMs) -> None:
        idle = {name for name, split in self._splits.items() if split.idle}
        super().answered(result, now_ms)
        for name in idle:
            self._splits[name].idle = True


class SplitsAreNeverWoken(_TimeTask):
    """A split that was idle once has no say any more (W2)."""

    _planted_splits = _SleepingSplits


class _SleepingChannels(ChannelTimes):
    def delivered(self, channel: ChannelId, envelope: Envelope) -> None:
        idle = self._parts[channel].idle
        super().delivered(channel, envelope)
        self._parts[channel].idle |= idle and isinstance(envelope, Data | Watermark)


class InputsAreNeverWoken(_TimeTask):
    """An input that was idle once has no say any more (W2)."""

    _planted_channels = _SleepingChannels


class _WakingChannels(ChannelTimes):
    def delivered(self, channel: ChannelId, envelope: Envelope) -> None:
        if isinstance(envelope, EndOfStream):
            envelope = EndOfStream()
        super().delivered(channel, envelope)


class StoppedInputsLeave(_TimeTask):
    """An input that a user stopped leaves the minimum, as if its data had ended (W1)."""

    _planted_channels = _WakingChannels


class _HastySplits(SplitTimes):
    @property
    def parts(self) -> Seq[Part]:
        return tuple(part for part in super().parts if part.watermark is not None or part.ended)


class UnreadSplitsDoNotHold(_TimeTask):
    """A split of which nothing was read yet does not hold the watermark (W1)."""

    _planted_splits = _HastySplits


class _SilentTime(ChainTime):
    def next(self) -> Watermark | Idle | None:
        said = super().next()
        if isinstance(said, Watermark) and self._risen == self._given:
            self._idle = False  # nobody is told
            return None
        return said


class WakesWithoutAWord(_TimeTask):
    """Rows end an idleness, and no watermark is said before them (W2)."""

    _planted_said = _SilentTime


class _FallingTime(ChainTime):
    def next(self) -> Watermark | Idle | None:
        low = watermarks.lowest(self._times.parts)
        if self._idle and low is not None:
            self._risen = low
        return super().next()


class FallsWhenItWakes(_TimeTask):
    """Who ends an idleness says the minimum, which may be lower than what was said (W2)."""

    _planted_said = _FallingTime


# --- the place behind the rows -----------------------------------------------------------------


class _LeapingOutbox(Outbox):
    def say(self, said: Watermark | Idle, now_ms: MonotonicMs) -> None:
        del now_ms
        self._append(said)


class WatermarkOvertakesTheBuffer(PlantedTask):
    """A watermark leaves before the rows that wait for company (W11)."""

    parts = (("_flow.outputs._outboxes", _LeapingOutbox),)


class _FrontOutbox(Outbox):
    def say(self, said: Watermark | Idle, now_ms: MonotonicMs) -> None:
        super().say(said, now_ms)
        if self._queue and self._queue[-1] is said and self._queued:
            self._queue.rotate(1)


class WatermarkOvertakesTheQueue(PlantedTask):
    """A watermark leaves before the envelopes that wait for credit (W11)."""

    parts = (("_flow.outputs._outboxes", _FrontOutbox),)


class _HastyQueue(ItemQueue):
    def passing(self, said: Watermark | Idle, now_ms: MonotonicMs) -> None:
        super().passing(said, now_ms)
        if len(self._items) > 1 and self._items[-1].passes and not self._items[0].taken:
            self._items.rotate(1)


class PassingTimeOvertakesItems(PlantedTask):
    """Time that no operator looks at does not wait for the batches before it (W11)."""

    parts = (("_flow.items", _HastyQueue),)


class _HastyFlow(ChainFlow):
    def _submit_batch(self, item: RunItem, ref: BatchRef, now_ms: MonotonicMs) -> None:
        self._say_time(now_ms)
        super()._submit_batch(replace(item, token=self.outstanding.token()), ref, now_ms)


class AdvancesBeforeTheRows(PlantedTask):
    """Operators are told the watermark that a batch raised before they get the batch (W3)."""

    parts = (("_flow", _HastyFlow),)


# --- cuts --------------------------------------------------------------------------------------


class SealOvertakesTheAdvance(LaneSchedule):
    """A seal is done before a watermark that waits: the state is older than the cut (B0)."""

    def put(self, request: Submit | NextSlice) -> None:
        waiting = self._submits
        seals = isinstance(request, Submit) and isinstance(request.item, SealItem)
        if seals and waiting and isinstance(waiting[-1].item, AdvanceItem):
            assert isinstance(request, Submit)
            waiting.insert(len(waiting) - 1, request)
        else:
            super().put(request)


class _LazyFlow(ChainFlow):
    def _say_time(self, now_ms: MonotonicMs, *, at_cut: bool = False) -> None:
        if not at_cut:
            super()._say_time(now_ms)


class CutsBeforeTheNewestWatermark(PlantedTask):
    """A cut is made while a watermark that has risen waits for its turn (W13)."""

    parts = (("_flow", _LazyFlow),)


class _LosingQueue(ItemQueue):
    def sealing(self, token: RequestToken, checkpoint: CheckpointId, now_ms: MonotonicMs) -> None:
        if self._items and self._items[-1].passes:
            self._items.pop()
            self._light -= 1
        super().sealing(token, checkpoint, now_ms)


class LosesPassingTimeAtABarrier(PlantedTask):
    """Time that waits for its place is lost when a barrier comes."""

    parts = (("_flow.items", _LosingQueue),)


class _ReadingFlow(ChainFlow):
    def read(self, event: SourceRead) -> None:
        super().read(event)
        if isinstance(event.result, SourceBatch) and event.time is not None:
            self.time.submitted(event.result, event.time)


class CountsReadAheadTimes(PlantedTask):
    """The time of a batch counts when it is read, not when it goes to the lane (B0)."""

    parts = (("_flow", _ReadingFlow),)


class _TimelessCuts(SplitTimes):
    def cut(self) -> tuple[SplitTime, ...]:
        return tuple(replace(time, max_ms=None) for time in super().cut())


class CutsWithoutTimes(_TimeTask):
    """A cut does not hold the greatest times of its splits (W3)."""

    _planted_splits = _TimelessCuts


class ForgetsTheRestoredWatermark(PlantedRestore):
    """What operators were told before the restart is not known any more (W1)."""

    changed: Mapping[str, Any] = {"watermark": None}


class GateForgetsRestoredTimes(ChainWork):
    """After a restart the gate takes the first rows of a split for its first rows ever (W3)."""

    def open(self, restored: RestoredChain = NOTHING_RESTORED) -> None:
        super().open(restored)
        if self._gate is not None:
            self._gate.restore(())


TIME_BUGS: tuple[type[Any], ...] = (
    IdleSplitsCount,
    IdleInputsCount,
    SplitsAreNeverWoken,
    InputsAreNeverWoken,
    StoppedInputsLeave,
    UnreadSplitsDoNotHold,
    WakesWithoutAWord,
    FallsWhenItWakes,
    WatermarkOvertakesTheBuffer,
    WatermarkOvertakesTheQueue,
    PassingTimeOvertakesItems,
    AdvancesBeforeTheRows,
    SealOvertakesTheAdvance,
    CutsBeforeTheNewestWatermark,
    LosesPassingTimeAtABarrier,
    CountsReadAheadTimes,
    CutsWithoutTimes,
    ForgetsTheRestoredWatermark,
    GateForgetsRestoredTimes,
)


PLANTED_TIMES: dict[str, Machines] = {kind.__name__: Machines.planted(kind) for kind in TIME_BUGS}
"""Name of each planted bug, and the machines that have it."""

__all__ = ["PLANTED_TIMES"]
