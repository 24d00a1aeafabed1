"""Planted bugs of checkpoints in a chain: its rounds, its seal, its uploads, its publications."""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any

import pyarrow as pa

from arkflow_kernel.chain_flow import ChainFlow
from arkflow_kernel.chain_rounds import ChainRounds
from arkflow_kernel.chain_work import ChainWork
from arkflow_kernel.commit import SourceCuts
from arkflow_kernel.envelope import Barrier, EndOfStream, Reset
from arkflow_kernel.ids import ChannelId, CheckpointId, MonotonicMs, RequestToken
from arkflow_kernel.outbox import Outbox
from arkflow_kernel.ports import SourceBatch, SplitPosition
from arkflow_kernel.protocol import (
    ChainEvent,
    ControlState,
    ItemDone,
    LaneSlice,
    PublishTokens,
    Request,
    RunItem,
    SealItem,
    SnapshotUploaded,
    SourceRead,
    Submit,
    UploadSnapshot,
)
from arkflow_kernel.snapshot import (
    NOTHING_RESTORED,
    Epoch,
    ObjectRef,
    RestoredChain,
    RoundAnswer,
)
from arkflow_kernel.task import ChainTask
from arkflow_kernel.testing.planted import PlantedRestore, PlantedTask
from arkflow_kernel.testing.sim_store import OBJECTS, SimObjects, checksum_of
from arkflow_kernel.write_lane import WriteLane

# --- barriers ----------------------------------------------------------------------------------


class _StuckRounds(ChainRounds):
    def told(self, control: ControlState) -> None:
        self._failed = max(self._failed, control.failed_upto, key=int)
        self._completed = max(self._completed, control.completed_upto, key=int)


class KeepsInputsPaused(PlantedTask):
    """Inputs are not resumed after a failed round (B2)."""

    parts = (("_flow.rounds", _StuckRounds),)


class _DeafRounds(ChainRounds):
    def paused(self, channel: ChannelId) -> bool:
        del channel
        return False


class TakesPausedInputs(PlantedTask):
    """An input is taken while it waits for the barriers of others (B1)."""

    parts = (("_flow.rounds", _DeafRounds),)


class _HastyOutbox(Outbox):
    def put(self, control: Barrier | Reset | EndOfStream) -> None:
        if isinstance(control, Barrier) and not any(isinstance(e, Barrier) for e in self._queue):
            self._queue.append(control)
        else:
            super().put(control)


class BarrierOvertakesTheBuffer(PlantedTask):
    """A barrier leaves before the rows that wait for company (W11)."""

    parts = (("_flow.outputs._outboxes", _HastyOutbox),)


class _FrontOutbox(Outbox):
    def put(self, control: Barrier | Reset | EndOfStream) -> None:
        super().put(control)
        if isinstance(control, Barrier):
            self._queue.rotate(1)


class BarrierOvertakesTheQueue(PlantedTask):
    """A barrier leaves before the envelopes that wait for credit (W11)."""

    parts = (("_flow.outputs._outboxes", _FrontOutbox),)


class _HastySeals(WriteLane):
    def seal(self, epoch: Epoch) -> None:
        self._queue.appendleft(epoch)


class SealsBeforeTheWrites(PlantedTask):
    """A sink seals before the writes that wait in front of it (T1)."""

    parts = (("_flow.outputs._sinks", _HastySeals),)


# --- positions ---------------------------------------------------------------------------------


class _AskingFlow(ChainFlow):
    def read(self, event: SourceRead) -> None:
        super().read(event)
        if isinstance(event.result, SourceBatch) and isinstance(self.commits, SourceCuts):
            read = event.result
            position = SplitPosition(read.split, read.position, read.split_ended)
            self.commits._read[read.split] = position


class AsksTheComponent(PlantedTask):
    """Positions of a cut are those of the component, read-ahead included (B0)."""

    parts = (("_flow", _AskingFlow),)


class _HastyCuts(SourceCuts):
    def cut(self, checkpoint: CheckpointId) -> tuple[SplitPosition, ...]:
        found = super().cut(checkpoint)
        self._exposed = dict(self._read)
        self._due |= self._commits
        return found


class CommitsAtTheTrigger(PlantedTask):
    """A source is told of a cut before its record is there (F4)."""

    parts = (("_flow.commits", _HastyCuts),)


class ForgetsRestoredPositions(ChainTask):
    """A split that was not read since the restart is not in the next cut (F6)."""

    def __init__(self, *rest: Any, **named: Any) -> None:
        super().__init__(*rest, **named)
        if isinstance(self._flow.commits, SourceCuts):
            self._flow.commits._read = {}
            self._flow.commits._exposed = {}


# --- answers and tokens ------------------------------------------------------------------------


class _DroppingRounds(ChainRounds):
    def uploaded(self, event: SnapshotUploaded) -> None:
        over = self._cuts[0].round_id <= self._failed
        super().uploaded(replace(event, tokens=()) if over else event)


class DropsTokensOfFailedRounds(PlantedTask):
    """What was sealed for a round that failed is not in the next snapshot (B6)."""

    parts = (("_flow.rounds", _DroppingRounds),)


class _HastyRounds(ChainRounds):
    def uploaded(self, event: SnapshotUploaded) -> None:
        super().uploaded(event)
        if self._answer is not None:
            self._completed = max(self._completed, self._answer.checkpoint, key=int)


class PublishesBeforeTheRecord(PlantedTask):
    """A chain publishes once it has answered (X1)."""

    parts = (("_flow.rounds", _HastyRounds),)


class _BackwardRounds(ChainRounds):
    def requests(
        self, token: Callable[[], RequestToken], now_ms: MonotonicMs
    ) -> Iterator[UploadSnapshot | PublishTokens]:
        for request in super().requests(token, now_ms):
            if isinstance(request, PublishTokens):
                request = replace(request, tokens=request.tokens[::-1])
            yield request


class PublishesBackwards(PlantedTask):
    """Of several epochs the newest is shown first (X1)."""

    parts = (("_flow.rounds", _BackwardRounds),)


class EndsUnpublished(ChainTask):
    """A chain ends with the last round, and does not wait for its tokens (T3)."""

    def _may_end(self) -> bool:
        known = self._flow.rounds.published_upto
        control = self._control
        return control is not None and (known == control.completed_upto or super()._may_end())

    def _next_phase(self, now_ms: MonotonicMs) -> None:
        control, rounds = self._control, self._flow.rounds
        lanes = list(rounds._lanes.values())
        tokens = [lane.tokens for lane in lanes]
        if control is not None and control.desired == 4:
            for lane in lanes:
                lane.tokens = type(lane.tokens)()
        super()._next_phase(now_ms)
        for lane, known in zip(lanes, tokens, strict=True):
            lane.tokens = known


class FinishesAgain(PlantedRestore):
    """A chain that was restored as finished reads on and is finished again (B8)."""

    changed: Mapping[str, Any] = {"finished": False}


class _EarlyRounds(ChainRounds):
    """Answers with what it has, before the upload."""

    def requests(
        self, token: Callable[[], RequestToken], now_ms: MonotonicMs
    ) -> Iterator[UploadSnapshot | PublishTokens]:
        for request in super().requests(token, now_ms):
            if isinstance(request, UploadSnapshot):
                cut = self._cuts[0]
                states = () if self._answer is None else self._answer.snapshot
                known = states.states if states else ()
                self._answer = RoundAnswer(cut.round_id, self._snapshot(cut, known))
            yield request


class AnswersBeforeTheUpload(PlantedTask):
    """A chain answers a round when its upload is ordered."""

    parts = (("_flow.rounds", _EarlyRounds),)


# --- work --------------------------------------------------------------------------------------


class SealsOneItemLate(ChainWork):
    """The state is frozen after the next batch instead of before it (B3)."""

    _due: CheckpointId | None = None

    def perform(self, request: Request) -> ChainEvent:
        if isinstance(request, Submit) and isinstance(request.item, SealItem):
            self._due = request.item.checkpoint
            return ItemDone(self._clock.moment(), request.token, LaneSlice())
        if isinstance(request, UploadSnapshot):
            self._planted_seal()
        answer = super().perform(request)
        if isinstance(request, Submit) and isinstance(request.item, RunItem):
            self._planted_seal()
        return answer

    def _planted_seal(self) -> None:
        if self._due is not None:
            self._states.seal(self._due)
            self._due = None


class PublishesRestoredTokensNever(ChainWork):
    """Tokens of a restored record are not published before the sources start (X1)."""

    def _publish_restored(self, restored: RestoredChain) -> None:
        pass


class ForgetsRestoredRuns(ChainWork):
    """What was restored is not in the next snapshot."""

    def open(self, restored: RestoredChain = NOTHING_RESTORED) -> None:
        super().open(restored)
        for part in self._states._parts:
            part.runs = []


class AcknowledgesUnverified(SimObjects):
    """An object counts as durable when it is sent, not when it is there (M1)."""

    def put(self, name: str, parts: Seq[pa.Buffer | bytes]) -> ObjectRef:
        data = b"".join(bytes(part) for part in parts)

        def arrives() -> bool:
            self._store.files[OBJECTS + name] = data
            return True

        self._store.late.append(arrives)
        return ObjectRef(name, len(data), checksum_of(data))


CUT_BUGS: tuple[type[Any], ...] = (
    KeepsInputsPaused,
    TakesPausedInputs,
    BarrierOvertakesTheBuffer,
    BarrierOvertakesTheQueue,
    SealsBeforeTheWrites,
    AsksTheComponent,
    CommitsAtTheTrigger,
    ForgetsRestoredPositions,
    DropsTokensOfFailedRounds,
    PublishesBeforeTheRecord,
    PublishesBackwards,
    EndsUnpublished,
    FinishesAgain,
    AnswersBeforeTheUpload,
    SealsOneItemLate,
    PublishesRestoredTokensNever,
    ForgetsRestoredRuns,
    AcknowledgesUnverified,
)

__all__ = ["CUT_BUGS"]
