"""The rounds of a chain in checkpoint mode: from a trigger to the answer, and what follows (B0-B3).

A part of `task.py`. A cut goes through stages, each behind the one of the cut before:

    seal submitted ─▶ barriers out, sinks seal ─▶ upload ─▶ answered ─record completed─▶ published

What is decided here is which of them comes next; the requests go out through the machine. A failed
round undoes nothing (B6): its sealed epochs stay pending and stand in the next snapshot.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from arkflow_kernel.barrier import Aligner
from arkflow_kernel.envelope import Barrier, RoundKind
from arkflow_kernel.errors import ArkflowError, SinkError
from arkflow_kernel.ids import (
    NO_CHECKPOINT,
    ChannelId,
    CheckpointId,
    EventTimeMs,
    Generation,
    MonotonicMs,
    OutputId,
    RequestToken,
)
from arkflow_kernel.limits import PUBLISH_RETRY_MS, PUBLISH_TIMEOUT_MS
from arkflow_kernel.metrics import Wait
from arkflow_kernel.plan import ChainPlan, SinkPlan
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.protocol import (
    CommitPermit,
    ControlState,
    Desired,
    PublishTokens,
    SnapshotUploaded,
    UploadSnapshot,
    deadline,
)
from arkflow_kernel.snapshot import (
    ChainPhases,
    ChainSnapshot,
    Epoch,
    InputSnapshot,
    LaneSnapshot,
    ObjectRef,
    RestoredChain,
    RoundAnswer,
    SinkToken,
    SplitTime,
    StateSnapshot,
)


@dataclass(frozen=True, slots=True)
class CutPlace:
    """Where a chain is at a cut: what its machine knows of it (B0, 1 and 3)."""

    sources: tuple[SplitPosition, ...] = ()
    times: tuple[SplitTime, ...] = ()
    inputs: tuple[InputSnapshot, ...] = ()
    watermark: EventTimeMs | None = None
    finished: bool = False


@dataclass(slots=True)
class Cut:
    """One round in this chain. `sealing`: sinks that have not sealed; None before the barrier.

    `pause_ms`: the longest time without a batch done in the lane, from the cut to the first one
    behind the seal; `done_ms`: when the last one was done.
    """

    round_id: CheckpointId
    kind: RoundKind
    place: CutPlace
    at_ms: MonotonicMs
    sealing: set[OutputId] | None = None
    uploading_ms: MonotonicMs | None = None
    pause_ms: int = 0
    done_ms: MonotonicMs | None = None
    paused: bool = True


@dataclass(slots=True)
class EpochLane:
    """One lane of an exactly-once sink: tokens that are not known to be published, in order."""

    sink: SinkPlan
    lane: int
    tokens: deque[SinkToken] = field(default_factory=deque)
    published_upto: Epoch | None = None
    publishing: tuple[SinkToken, ...] = ()
    retry_ms: MonotonicMs | None = None
    failing_since_ms: MonotonicMs | None = None
    error: ArkflowError | None = None

    def snapshot(self) -> LaneSnapshot:
        """The lane in a cut (B0, 4)."""
        operator = self.sink.operator
        return LaneSnapshot(operator, self.lane, tuple(self.tokens), self.published_upto)

    def published(self) -> None:
        """What was ordered to be published is."""
        for token in self.publishing:
            first = self.tokens.popleft()
            assert first == token, (first, token)
            self.published_upto = token.epoch
        self.publishing = ()
        self.retry_ms = self.failing_since_ms = self.error = None


class ChainRounds:
    """What a chain knows of its rounds. `restored` tokens are published when the machine starts."""

    def __init__(self, plan: ChainPlan, generation: Generation, restored: RestoredChain) -> None:
        self._plan = plan
        self._generation = generation
        self._aligner = Aligner(channel.channel for channel in plan.inputs)
        self._cuts: deque[Cut] = deque()
        self._begun = NO_CHECKPOINT
        self._held = NO_CHECKPOINT
        self._stops = False
        self._failed = NO_CHECKPOINT
        self._completed = NO_CHECKPOINT
        self._answer: RoundAnswer | None = None
        self._objects: dict[str, ObjectRef] = {}
        self._lanes = {
            sink.output: EpochLane(sink, int(plan.subtask))
            for sink in plan.sinks
            if sink.exactly_once
        }
        self._left: list[LaneSnapshot] = []
        self._left_told: CheckpointId | None = None
        if restored.snapshot is not None:
            self._objects = {ref.name: ref for ref in restored.snapshot.objects}
            self._take_over(restored.snapshot.lanes)

    def _take_over(self, lanes: Iterable[LaneSnapshot]) -> None:
        """Go on behind what the driver has published of the restored lanes (X5).

        Lanes that no subtask writes to any more are told once more, without their tokens.
        """
        for lane in lanes:
            own = self._lanes.get(OutputId(lane.sink))
            if own is None:
                continue
            published = lane.without_tokens()
            if own.lane == lane.lane:
                own.published_upto = published.published_upto
            else:
                self._left.append(published)

    # --- triggers ------------------------------------------------------------------------------

    def told(self, control: ControlState) -> None:
        """What the coordinator says of rounds: all of it only grows."""
        self._failed = max(self._failed, control.failed_upto, key=int)
        self._completed = max(self._completed, control.completed_upto, key=int)
        self._stops |= control.desired in (Desired.STOP, Desired.DRAIN)
        if self._left_told is not None and self._left_told <= self._completed:
            self._left = []
        self._aligner.over(max(self._failed, self._completed, key=int))

    def due(self, control: ControlState | None) -> Barrier | None:
        """The barrier that a source is to inject now, or None (B2)."""
        if self._plan.source is None or control is None:
            return None
        if control.round_id <= max(self._begun, self._failed, key=int):
            return None
        return Barrier(control.round_id, self._generation, control.round_kind)

    @property
    def holds(self) -> bool:
        """Nothing may follow the newest cut: it is of a rescale's round, which has not failed (K2).

        A stop ends that: what was to follow the round is not to come.
        """
        return self._held > self._failed and not self._stops

    def paused(self, channel: ChannelId) -> bool:
        """Whether an input waits for the barriers of others (B1)."""
        return self._aligner.paused(channel)

    def delivered(self, channel: ChannelId, barrier: Barrier) -> bool:
        """A barrier came in. True: the last of its round, so the cut is here."""
        return self._aligner.delivered(channel, barrier)

    # --- stages of a cut -----------------------------------------------------------------------

    def cut(self, barrier: Barrier, place: CutPlace, now_ms: MonotonicMs) -> None:
        """The seal of a round goes to the lane: this is its cut (B0)."""
        assert barrier.round_id > self._begun
        self._begun = barrier.round_id
        self._held = self._begun if barrier.kind is RoundKind.RESCALE else NO_CHECKPOINT
        self._cuts.append(Cut(barrier.round_id, barrier.kind, place, now_ms))

    def item_done(self, now_ms: MonotonicMs) -> None:
        """The lane has done a batch: cuts that it sealed before pause it no longer."""
        for cut in self._cuts:
            if cut.paused:
                since_ms = cut.at_ms if cut.done_ms is None else cut.done_ms
                cut.pause_ms = max(cut.pause_ms, now_ms - since_ms)
                cut.done_ms, cut.paused = now_ms, cut.sealing is None

    def sealed(self, checkpoint: CheckpointId) -> Barrier:
        """The lane has sealed, and all rows before have left: the barrier that follows them."""
        cut = self._cut(checkpoint)
        cut.sealing = {sink.output for sink in self._plan.sinks}
        return Barrier(checkpoint, self._generation, cut.kind)

    def sink_sealed(self, output: OutputId, checkpoint: CheckpointId) -> None:
        """A sink has sealed its epoch, or confirmed its writes."""
        cut = self._cut(checkpoint)
        assert cut.sealing is not None
        cut.sealing.remove(output)

    def requests(
        self, token: Callable[[], RequestToken], now_ms: MonotonicMs
    ) -> Iterator[UploadSnapshot | PublishTokens]:
        """What is to be uploaded and published now."""
        while self._cuts and self._cuts[0].sealing == set():
            cut = self._cuts[0]
            if cut.uploading_ms is not None:
                break
            if cut.round_id <= self._failed and len(self._cuts) > 1:
                self._cuts.popleft()  # the next cut's upload takes what it sealed
                continue
            cut.uploading_ms = now_ms
            yield UploadSnapshot(token(), Epoch(self._generation, cut.round_id))
        for output, lane in self._lanes.items():
            if lane.publishing or (lane.retry_ms is not None and now_ms < lane.retry_ms):
                continue
            due = self._due(lane)
            if due:
                lane.publishing = due
                permit = CommitPermit(f"checkpoint {self._completed} is completed")
                yield PublishTokens(token(), output, permit, due)

    def uploaded(self, event: SnapshotUploaded) -> None:
        """The head's upload was answered: that is the chain's answer to the round."""
        cut = self._cuts.popleft()
        for token in event.tokens:
            self._lanes[OutputId(token.sink)].tokens.append(token)
        self._objects.update({ref.name: ref for ref in event.objects})
        staged = sum(staged.object.size for token in event.tokens for staged in token.objects)
        new_bytes = staged + sum(ref.size for ref in event.objects)
        snapshot, phases = self._snapshot(cut, event.states), _phases(cut, event.at.now_ms)
        self._answer = RoundAnswer(cut.round_id, snapshot, None, new_bytes, phases)

    def upload_failed(self, error: ArkflowError) -> None:
        """The head could not be uploaded: the round fails, what was sealed stays pending (B6)."""
        cut = self._cuts.popleft()
        self._answer = RoundAnswer(cut.round_id, None, error)

    def _snapshot(self, cut: Cut, states: tuple[StateSnapshot, ...]) -> ChainSnapshot:
        listed = {run.object for state in states for run in state.runs}
        self._objects = {name: ref for name, ref in self._objects.items() if name in listed}
        place = cut.place
        if self._left_told is None:
            self._left_told = cut.round_id
        return ChainSnapshot(
            self._plan.chain,
            self._plan.tasks,
            place.sources,
            place.inputs,
            place.finished,
            states,
            (*(lane.snapshot() for lane in self._lanes.values()), *self._left),
            tuple(self._objects[name] for name in sorted(listed)),
            place.times,
            place.watermark,
        )

    # --- publication ---------------------------------------------------------------------------

    def published(self, output: OutputId) -> None:
        """A sink has published what was ordered."""
        self._lanes[output].published()

    def publish_failed(self, output: OutputId, error: ArkflowError, now_ms: MonotonicMs) -> None:
        """A sink has not: it is tried again. `SinkError` after `PUBLISH_TIMEOUT_MS` (X2)."""
        lane = self._lanes[output]
        lane.publishing, lane.error = (), error
        lane.retry_ms = MonotonicMs(now_ms + PUBLISH_RETRY_MS)
        if lane.failing_since_ms is None:
            lane.failing_since_ms = now_ms
        elif now_ms - lane.failing_since_ms >= PUBLISH_TIMEOUT_MS:
            seconds = PUBLISH_TIMEOUT_MS // 1000
            raise SinkError(f"sink '{output}' could not publish for {seconds} s: {error}")

    @property
    def published_upto(self) -> CheckpointId:
        """Every token of a round up to this one is published."""
        waiting = (lane.tokens[0].epoch.checkpoint for lane in self._lanes.values() if lane.tokens)
        first = min(waiting, default=CheckpointId(self._completed + 1))
        return CheckpointId(min(first - 1, self._completed))

    @property
    def answer(self) -> RoundAnswer | None:
        """The answer to the newest round that was answered."""
        return self._answer

    @property
    def due_answer(self) -> RoundAnswer | None:
        """That answer until it is known what became of its round: then nobody needs it (K8)."""
        known = max(self._failed, self._completed, key=int)
        return None if self._answer is None or self._answer.checkpoint <= known else self._answer

    def deadline_ms(self) -> MonotonicMs | None:
        """When a publication is tried again."""
        waiting = (lane for lane in self._lanes.values() if not lane.publishing)
        return deadline(*(lane.retry_ms for lane in waiting if self._due(lane)))

    def waits(self, now_ms: MonotonicMs) -> Iterable[Wait]:
        """Publications that fail, and why (E5)."""
        for output, lane in self._lanes.items():
            if lane.failing_since_ms is not None and lane.error is not None:
                waited = now_ms - lane.failing_since_ms
                yield Wait(f"sink '{output}'", f"publishing fails: {lane.error}", waited)

    def validate(self) -> None:
        """Assert the order of cuts and of epochs."""
        self._aligner.validate()
        numbers = [cut.round_id for cut in self._cuts]
        assert numbers == sorted(set(numbers))
        assert not numbers or numbers[-1] <= self._begun
        assert self._held in (NO_CHECKPOINT, self._begun), "only the newest cut is held"
        assert sum(cut.uploading_ms is not None for cut in self._cuts) <= 1
        for lane in self._lanes.values():
            epochs = [token.epoch for token in lane.tokens]
            assert epochs == sorted(set(epochs)), "epochs of a lane are in order"
            assert all(t.epoch.checkpoint <= self._completed for t in lane.publishing)

    def _due(self, lane: EpochLane) -> tuple[SinkToken, ...]:
        """Tokens that a completed record lists, and that are not published yet."""
        return tuple(t for t in lane.tokens if t.epoch.checkpoint <= self._completed)

    def _cut(self, checkpoint: CheckpointId) -> Cut:
        for cut in self._cuts:
            if cut.round_id == checkpoint:
                return cut
        raise AssertionError(f"no cut of round {checkpoint}")


def _phases(cut: Cut, now_ms: MonotonicMs) -> ChainPhases:
    """How long the cut took; without an item since, the pause lasts until its upload began."""
    assert cut.uploading_ms is not None
    sealed_ms = cut.uploading_ms - cut.at_ms
    if cut.paused:
        since_ms = cut.at_ms if cut.done_ms is None else cut.done_ms
        cut.pause_ms = max(cut.pause_ms, cut.uploading_ms - since_ms)
    return ChainPhases(cut.pause_ms, sealed_ms, now_ms - cut.uploading_ms)


__all__ = ["ChainRounds", "CutPlace"]
