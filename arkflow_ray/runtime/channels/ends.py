"""The two ends of a connection: one sends envelopes, the other grants credit (H3, H4, E6)."""

import socket
from collections import deque
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import pyarrow as pa

from arkflow_kernel.channel import SequenceCheck
from arkflow_kernel.envelope import Data, Envelope
from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import ChannelId, Sequence
from arkflow_kernel.plan import ChannelPlan
from arkflow_ray.runtime.channels.batches import BatchDecoder, BatchEncoder
from arkflow_ray.runtime.channels.connection import WRITE_AHEAD_BYTES, Connection
from arkflow_ray.runtime.channels.counters import Counters
from arkflow_ray.runtime.channels.frames import (
    TO_SOURCE,
    TO_TARGET,
    FrameKind,
    FrameRules,
    Header,
    control_envelope,
    control_frame,
    grants_frame,
)
from arkflow_ray.runtime.channels.handshake import Pair


@dataclass(slots=True)
class Received:
    """What came in one pass of the I/O thread; of grants the newest of each channel."""

    envelopes: list[tuple[ChannelId, Envelope]] = field(default_factory=list)
    grants: dict[ChannelId, tuple[Sequence, Sequence]] = field(default_factory=dict)


class SendingEnd(Connection):
    """The source's end: envelopes out, grants in."""

    def __init__(
        self,
        sock: socket.socket,
        pair: Pair,
        channels: Items[ChannelPlan],
        counters: Counters,
        received: Received,
        now: float,
    ) -> None:
        rules = FrameRules(TO_SOURCE, [plan.number for plan in channels])
        super().__init__(sock, pair, pair.target, channels, rules, counters, now)
        self._rules = rules
        self._names = {plan.number: plan.channel for plan in channels}
        self._received = received
        self._encoder = BatchEncoder()
        self._waiting: deque[tuple[int, Envelope]] = deque()

    @property
    def owes(self) -> bool:
        """Whether envelopes have not gone out; a ping is none."""
        return bool(self._waiting) or self._unsent_envelopes

    def put(self, number: int, envelope: Envelope) -> None:
        """Queue an envelope. `ChannelError` if the peer has said Bye."""
        if self._bye_heard:
            raise self.error("it ended while there was more to send")
        self._waiting.append((number, envelope))

    def _heard_bye(self) -> None:
        if self.owes:
            raise self.error("it ended while there was more to send")
        super()._heard_bye()

    def _take(self, _: Header, body: pa.Buffer, /) -> None:
        for number, taken_upto, settled_upto in self._rules.grants(memoryview(body)):
            self._received.grants[self._names[number]] = (taken_upto, settled_upto)

    def _refill(self) -> bool:
        waiting = self._waiting
        while waiting and self._unsent_bytes < WRITE_AHEAD_BYTES:
            number, envelope = waiting.popleft()
            self._unsent_envelopes = True
            if isinstance(envelope, Data):
                try:
                    parts, size = self._encoder.frames(number, envelope)
                except (ChannelError, pa.ArrowException) as error:
                    reason = f"channel {self._names[number]} cannot send a batch: {error}"
                    raise self.error(reason) from error
                self._queue(parts, size)
            else:
                frame = control_frame(number, envelope)
                self._queue([frame], len(frame))
        return not waiting


class ReceivingEnd(Connection):
    """The target's end: envelopes in, checked, grants out."""

    def __init__(
        self,
        sock: socket.socket,
        pair: Pair,
        channels: Items[ChannelPlan],
        counters: Counters,
        received: Received,
        now: float,
    ) -> None:
        rules = FrameRules(TO_TARGET, [plan.number for plan in channels])
        super().__init__(sock, pair, pair.source, channels, rules, counters, now)
        self._checks = {
            plan.number: (plan.channel, SequenceCheck(plan.channel, pair.generation))
            for plan in channels
        }
        self._received = received
        self._decoder = BatchDecoder()
        self._grants: dict[int, tuple[Sequence, Sequence]] = {}

    @property
    def owes(self) -> bool:
        """Grants are no envelopes: nothing is lost without them."""
        return False

    def grant(self, number: int, taken_upto: Sequence, settled_upto: Sequence) -> None:
        """Queue a grant; it replaces an older one that has not gone out. After Bye: nothing."""
        if not self._bye_heard:
            self._grants[number] = (taken_upto, settled_upto)

    def _take(self, header: Header, body: pa.Buffer, /) -> None:
        if header.kind is FrameKind.SCHEMA:
            self._decoder.learn(header.schema_id, body)
            return
        channel, check = self._checks[header.number]
        envelope: Envelope
        if header.kind is FrameKind.DATA:
            batch = self._decoder.batch(header.schema_id, body)
            envelope = Data(Sequence(header.sequence), (batch,), header.weight)
        else:
            envelope = control_envelope(header.kind, memoryview(body))
        try:
            check.check(envelope)
        except ChannelError as error:
            raise self.error(f"it broke the order: {error}") from error
        self._received.envelopes.append((channel, envelope))

    def _refill(self) -> bool:
        if self._grants:
            frame = grants_frame(self._grants)
            self._grants = {}
            self._queue([frame], len(frame))
        return True


__all__ = ["Received", "ReceivingEnd", "SendingEnd"]
