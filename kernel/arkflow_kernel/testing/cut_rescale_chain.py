"""One chain of a simulated job that may be rescaled: what it must not do behind a rescale's cut."""

from typing import TYPE_CHECKING, Any

from arkflow_kernel.envelope import Barrier, Data, Idle, RoundKind, Watermark
from arkflow_kernel.ids import NO_CHECKPOINT, ChannelId, CheckpointId
from arkflow_kernel.protocol import (
    ChainCommand,
    ChainEvent,
    Control,
    ControlState,
    Desired,
    Emit,
    PublishTokens,
    ReadSource,
    Request,
    SealItem,
    Submit,
    TickItem,
)
from arkflow_kernel.testing.cut_chain import CutChain
from arkflow_kernel.testing.lineage import ViolationError
from arkflow_kernel.testing.sim_channel import SimChannel

if TYPE_CHECKING:
    from arkflow_kernel.testing.cut_rescale_run import RescaleRun


class RescaleChain(CutChain):
    """After its cut of a rescale's round a source does nothing more, and no chain ticks, until that
    round has failed or the user stops the job. What a source that knows of that sends may come to
    chains that do not know yet.
    """

    run: "RescaleRun"

    def __init__(self, *rest: Any, **named: Any) -> None:
        self._rescales: set[CheckpointId] = set()
        self._failed_upto = self._cut = NO_CHECKPOINT
        self._said: dict[ChannelId, CheckpointId] = {}
        self._stops = False
        super().__init__(*rest, **named)

    def control(self, state: ControlState) -> None:
        """A control message arrived."""
        self._note_kind(state.round_id, state.round_kind)
        super().control(state)
        self.run.controlled(self)

    def _deliver(self, channel: SimChannel) -> None:
        envelope = channel.queue[0]
        if isinstance(envelope, Barrier):
            self._note_kind(envelope.round_id, envelope.kind)
        super()._deliver(channel)

    def _note_kind(self, number: CheckpointId, kind: RoundKind) -> None:
        if kind is RoundKind.RESCALE:
            self._rescales.add(number)

    def _handle(self, event: ChainEvent) -> None:
        if isinstance(event, Control) and event.state.generation == self.generation:
            self._failed_upto = max(self._failed_upto, event.state.failed_upto, key=int)
            self._stops |= event.state.desired in (Desired.STOP, Desired.DRAIN)
        super()._handle(event)
        if self.outcome is None and not self._holds(self._cut) and self.task._flow.rounds.holds:
            raise ViolationError(f"{self.name} is held by round {self._cut}, which has failed (K2)")

    def _perform(self, command: ChainCommand) -> None:
        if isinstance(command, ReadSource):
            self._must_go_on("reads")
        super()._perform(command)

    def _submitted(self, command: Submit) -> None:
        item = command.item
        works = self.plan.source is not None and not isinstance(item, SealItem)
        if works or isinstance(item, TickItem):
            self._must_go_on(f"submits a {type(item).__name__}")
        super()._submitted(command)
        if isinstance(item, SealItem) and item.checkpoint in self._rescales:
            self._cut = item.checkpoint
            if self.plan.source is not None:
                self.run.injected(self, item.checkpoint)

    def _must_go_on(self, what: str) -> None:
        if self._holds(self._cut):
            raise ViolationError(f"{self.name} {what} behind its cut {self._cut} of a rescale (K2)")

    def _holds(self, round_id: CheckpointId) -> bool:
        return round_id > self._failed_upto and not self._stops

    def _emit(self, command: Emit) -> None:
        envelope = command.envelope
        if isinstance(envelope, Barrier) and envelope.round_id in self._rescales:
            self._said[command.channel] = envelope.round_id
        elif self.plan.source is not None and isinstance(envelope, Data | Watermark | Idle):
            said = self._said.get(command.channel, NO_CHECKPOINT)
            if self._holds(said):
                kind = type(envelope).__name__
                raise ViolationError(f"{kind} follows the barrier {said} of a rescale (K2)")
        super()._emit(command)

    def _answer(self, request: Request) -> ChainEvent:
        answer = super()._answer(request)
        if isinstance(request, PublishTokens):
            self.run.publishes(self)
        return answer


__all__ = ["RescaleChain"]
