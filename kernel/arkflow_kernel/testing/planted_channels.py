"""Planted bugs of channels: credit, coalescing, ends, generations, settlement between chains."""

from typing import Any

from arkflow_kernel.chain_flow import ChainFlow
from arkflow_kernel.chain_work import ChainWork
from arkflow_kernel.channel import CreditLedger, SequenceCheck
from arkflow_kernel.envelope import Barrier, Data, EndOfStream, Envelope, Reset
from arkflow_kernel.ids import ChannelId
from arkflow_kernel.inlet import Inlet, Inlets
from arkflow_kernel.outbox import Outbox
from arkflow_kernel.protocol import CreditGranted, ItemDone
from arkflow_kernel.task import ChainTask
from arkflow_kernel.testing.planted import PlantedTask

# --- credit ------------------------------------------------------------------------------------


class _EagerInlet(Inlet):
    def delivered(self, envelope: Envelope) -> None:
        super().delivered(envelope)
        self._taken = self._submitted


class GrantsAtDelivery(PlantedTask):
    """Credit goes back when an envelope is taken off its queue, not when its item is done."""

    parts = (("_flow.inlets._inlets", _EagerInlet),)


class _HastyFlow(ChainFlow):
    def item_done(self, event: ItemDone) -> None:
        item = self.items._by_token[event.token]
        super().item_done(event)
        if item.batch is not None and item is self.items.head():
            self.inlets.taken(item.batch.stream, item.batch.sequence)


class GrantsAtTheFirstSlice(PlantedTask):
    """Credit goes back with an item's first answer, though slices of it are in the lane."""

    parts = (("_flow", _HastyFlow),)


class _EndlessCredit(CreditLedger):
    def can_send(self, size_bytes: int) -> bool:
        del size_bytes
        return True

    def validate(self) -> None:
        pass


class IgnoresCredit(PlantedTask):
    """An outbox sends whatever it has."""

    parts = (("_flow.outputs._outboxes._ledger", _EndlessCredit),)


class _BytelessCredit(CreditLedger):
    def can_send(self, size_bytes: int) -> bool:
        del size_bytes
        return len(self._sizes) < self._capacity

    def validate(self) -> None:
        pass


class IgnoresBytes(PlantedTask):
    """Credit counts envelopes and forgets their bytes."""

    parts = (("_flow.outputs._outboxes._ledger", _BytelessCredit),)


class _LateCredit(Outbox):
    def granted(self, event: CreditGranted) -> None:
        words = event.settled_upto, event.settled_upto
        super().granted(CreditGranted(event.at, event.channel, *words))


class CreditBySettlement(PlantedTask):
    """A sender waits until its envelopes are settled, where taken is enough."""

    parts = (("_flow.outputs._outboxes", _LateCredit),)


class TakesWithoutRoom(ChainTask):
    """An envelope may be delivered though the lane has no room."""

    def takes(self, channel: ChannelId) -> bool:
        return self._flow.inlets.takes(channel)


class _OneByOne(Inlets):
    def takes(self, channel: ChannelId) -> bool:
        first = next((name for name, inlet in self._inlets.items() if not inlet.ended), None)
        return channel == first


class StarvesInputs(PlantedTask):
    """One input after the other is taken, each to its end."""

    parts = (("_flow.inlets", _OneByOne),)


# --- order and ends ----------------------------------------------------------------------------


class _ShufflingOutbox(Outbox):
    def close_open(self) -> None:
        if self._open is not None:
            self._open.pieces.reverse()
        super().close_open()


class CoalescesBackwards(PlantedTask):
    """Small pieces are joined in the wrong order."""

    parts = (("_flow.outputs._outboxes", _ShufflingOutbox),)


class _HastyOutbox(Outbox):
    def put(self, control: Barrier | Reset | EndOfStream) -> None:
        if isinstance(control, EndOfStream):
            self._queue.append(control)
        else:
            super().put(control)


class EndOvertakesTheBuffer(PlantedTask):
    """The end of a stream overtakes the rows that wait for company (W11)."""

    parts = (("_flow.outputs._outboxes", _HastyOutbox),)


class _ForgetfulOutbox(Outbox):
    def close_open(self) -> None:
        if self._open is not None and len(self._open.pieces) > 2:
            self._open.pieces.pop()
        super().close_open()


class LosesACoalescedPiece(PlantedTask):
    """Of several small pieces, the last is lost."""

    parts = (("_flow.outputs._outboxes", _ForgetfulOutbox),)


class _RunOn(Inlets):
    @property
    def stopped(self) -> bool:
        return False


class FinishesAtAStop(PlantedTask):
    """A stop reaches the chains behind as if the data had ended: operators are finished (D5)."""

    parts = (("_flow.inlets", _RunOn),)


class _BlindFlow(ChainFlow):
    @property
    def settled(self) -> bool:
        sinks = all(sink.settled for sink in self.outputs._sinks.values())
        return sinks and not any(box._queue for box in self.outputs._outboxes.values())


class EndsWithItsInputs(PlantedTask):
    """The end of the stream is sent, so the chain is done: nobody waits for what lies behind."""

    parts = (("_flow", _BlindFlow),)


# --- settlement --------------------------------------------------------------------------------


class _TrustingOutbox(Outbox):
    def granted(self, event: CreditGranted) -> None:
        words = event.taken_upto, event.taken_upto
        super().granted(CreditGranted(event.at, event.channel, *words))


class TakenIsSettled(PlantedTask):
    """What the peer has taken counts as settled."""

    parts = (("_flow.outputs._outboxes", _TrustingOutbox),)


class _EarlyOutbox(Outbox):
    @property
    def last_sequence(self) -> Any:
        return self._closed


class ForgetsTheOpenEnvelope(PlantedTask):
    """A batch that waits for company is settled with the envelope before it."""

    parts = (("_flow.outputs._outboxes", _EarlyOutbox),)


# --- generations and gaps ----------------------------------------------------------------------


class _WelcomingCheck(SequenceCheck):
    def check(self, envelope: Envelope) -> None:
        if isinstance(envelope, Reset):
            self._started = True
        else:
            super().check(envelope)


class AcceptsOldGenerations(PlantedTask):
    """Any reset starts a channel, also one of the generation before (E1)."""

    parts = (("_flow.inlets._inlets._check", _WelcomingCheck),)


class _CarelessCheck(SequenceCheck):
    def check(self, envelope: Envelope) -> None:
        if isinstance(envelope, Data):
            self._last = envelope.sequence - 1
        super().check(envelope)


class AcceptsGaps(PlantedTask):
    """A batch with any number is taken (E6)."""

    parts = (("_flow.inlets._inlets._check", _CarelessCheck),)


# --- outlets -----------------------------------------------------------------------------------


class WrongKeyGroups(ChainWork):
    """Key groups go to the subtasks in the wrong order (G3)."""

    def __init__(self, *rest: Any) -> None:
        super().__init__(*rest)
        for router in self._lane._outlets._routers.values():
            router._owners = router._owners[::-1]


CHANNEL_BUGS: tuple[type[Any], ...] = (
    GrantsAtDelivery,
    GrantsAtTheFirstSlice,
    IgnoresCredit,
    IgnoresBytes,
    CreditBySettlement,
    TakesWithoutRoom,
    StarvesInputs,
    CoalescesBackwards,
    EndOvertakesTheBuffer,
    LosesACoalescedPiece,
    FinishesAtAStop,
    EndsWithItsInputs,
    TakenIsSettled,
    ForgetsTheOpenEnvelope,
    AcceptsOldGenerations,
    AcceptsGaps,
    WrongKeyGroups,
)

__all__ = ["CHANNEL_BUGS"]
