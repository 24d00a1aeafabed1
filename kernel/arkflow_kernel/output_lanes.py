"""The writing side of a chain's machine: its sinks' write lanes and its channels' outboxes.

A part of `task.py`. Both kinds take batches, number them, and know up to which number they are
confirmed: by the sink, or by the peer for all that lies behind it. So settlement treats them
alike (F3, F5).
"""

from collections.abc import Callable, Iterator

from arkflow_kernel.envelope import Barrier, EndOfStream, Idle, Reset, Watermark
from arkflow_kernel.ids import ChannelId, Generation, MonotonicMs, OutputId, RequestToken, Sequence
from arkflow_kernel.metrics import ChannelStatistics, Wait
from arkflow_kernel.outbox import Outbox, limit_open_bytes
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import WriteReceipt
from arkflow_kernel.protocol import CreditGranted, Emit, Piece, WriteRequest, deadline
from arkflow_kernel.snapshot import Epoch
from arkflow_kernel.write_lane import WriteLane


class OutputLanes:
    """All outputs of one chain: sinks first, then channels, in the order of the plan."""

    def __init__(self, plan: ChainPlan) -> None:
        self._sinks = {
            sink.output: WriteLane(sink.output, stages=sink.exactly_once) for sink in plan.sinks
        }
        self._outboxes = {channel.output: Outbox(channel) for channel in plan.channels}
        self._all: dict[OutputId, WriteLane | Outbox] = {**self._sinks, **self._outboxes}
        self.rows_to = dict.fromkeys(self._all, 0)

    def __len__(self) -> int:
        return len(self._all)

    # --- batches -------------------------------------------------------------------------------

    def give(self, piece: Piece, now_ms: MonotonicMs) -> bool:
        """Hand a batch to its output; False if that has no room now."""
        lane = self._all[piece.output]
        if not lane.has_room:
            return False
        lane.give(piece.batch, piece.size_bytes, now_ms)
        self.rows_to[piece.output] += piece.batch.num_rows
        return True

    def marks(self) -> tuple[Sequence, ...]:
        """Per output, the number of what it was given last."""
        return tuple(lane.last_sequence for lane in self._all.values())

    def confirmed(self) -> Iterator[Sequence]:
        """Per output, the number up to which it is confirmed."""
        return (lane.confirmed_upto for lane in self._all.values())

    @property
    def settled(self) -> bool:
        """Nothing waits in any output, and everything is confirmed."""
        return all(lane.settled for lane in self._all.values())

    # --- sinks ---------------------------------------------------------------------------------

    def requests(
        self, token: Callable[[], RequestToken], now_ms: MonotonicMs
    ) -> Iterator[WriteRequest]:
        """What the sinks are to do now; `token` gives the token of the next request."""
        for sink in self._sinks.values():
            request = sink.next_request(token(), now_ms)
            if request is not None:
                yield request

    def has_sink(self, output: OutputId) -> bool:
        """Whether one of its sinks is called so."""
        return output in self._sinks

    def written(self, output: OutputId, receipt: WriteReceipt, now_ms: MonotonicMs) -> Epoch | None:
        """A sink answered; the epoch if it was a seal. `SinkError` if its answer cannot be true."""
        return self._sinks[output].answered(receipt, now_ms)

    @property
    def confirmed_writes(self) -> int:
        """Writes that sinks have confirmed."""
        return sum(int(sink.confirmed_upto) for sink in self._sinks.values())

    # --- channels ------------------------------------------------------------------------------

    def start(self, generation: Generation) -> None:
        """Start every channel anew (E1)."""
        for outbox in self._outboxes.values():
            outbox.put(Reset(generation))

    def say(self, said: Watermark | Idle, now_ms: MonotonicMs) -> None:
        """Tell every channel what time it is, behind the batches before it (E2, W11)."""
        for outbox in self._outboxes.values():
            outbox.say(said, now_ms)

    def emits(self, now_ms: MonotonicMs) -> Iterator[Emit]:
        """What may leave in the channels now."""
        outboxes = [outbox for outbox in self._outboxes.values() if outbox.holds]
        if len(outboxes) > 1:
            limit_open_bytes(outboxes)
        for outbox in outboxes:
            yield from outbox.emits(now_ms)

    def has_channel(self, channel: ChannelId) -> bool:
        """Whether one of its channels is called so."""
        return OutputId(channel) in self._outboxes

    def granted(self, event: CreditGranted) -> None:
        """A peer's word. `ChannelError` if it cannot be true."""
        self._outboxes[OutputId(event.channel)].granted(event)

    # --- ends and measures ---------------------------------------------------------------------

    def seal(self, barrier: Barrier) -> None:
        """A cut: the barrier goes into every channel, behind what waits there, and every sink
        seals behind its writes (B3, E2).
        """
        for outbox in self._outboxes.values():
            outbox.put(barrier)
        for sink in self._sinks.values():
            sink.seal(Epoch(barrier.generation, barrier.round_id))

    def end(self, *, stopped: bool) -> None:
        """No batch follows: channels end (E2)."""
        for outbox in self._outboxes.values():
            outbox.put(EndOfStream(stopped))

    def flush(self) -> None:
        """Sinks confirm everything; nothing is given afterwards."""
        for sink in self._sinks.values():
            sink.flush()

    def deadline_ms(self) -> MonotonicMs | None:
        """When an output wants to be looked at though nothing else happens."""
        return deadline(*(lane.deadline_ms() for lane in self._all.values()))

    @property
    def held_bytes(self) -> int:
        """Bytes of batches that wait in outputs or are being written."""
        return sum(lane.held_bytes for lane in self._all.values())

    def waits(self, now_ms: MonotonicMs) -> Iterator[Wait]:
        """Outputs without progress for too long (E5)."""
        for lane in self._all.values():
            wait = lane.wait(now_ms)
            if wait is not None:
                yield wait

    def channel_statistics(self) -> tuple[ChannelStatistics, ...]:
        """An immutable snapshot of the channels."""
        return tuple(outbox.statistics() for outbox in self._outboxes.values())

    def validate(self) -> None:
        """Assert the bounds of every output."""
        for lane in self._all.values():
            lane.validate()


__all__ = ["OutputLanes"]
