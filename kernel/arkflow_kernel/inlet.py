"""The receiving side of a chain's machine: its input channels (E6, E8, T1).

A part of `task.py`. The driver keeps the queues; an inlet knows what was taken off its queue,
what is done with it, and what is settled behind it. What it tells the sender is cumulative.
"""

from collections.abc import Iterator

from arkflow_kernel.channel import SequenceCheck
from arkflow_kernel.commit import SettledRange, StreamKey
from arkflow_kernel.envelope import Data, EndOfStream, Envelope
from arkflow_kernel.ids import ChannelId, Generation, Sequence
from arkflow_kernel.plan import ChainPlan, ChannelPlan
from arkflow_kernel.protocol import GrantCredit
from arkflow_kernel.snapshot import InputSnapshot
from arkflow_kernel.watermark import ChannelTimes


class Inlet:
    """One input channel."""

    def __init__(self, plan: ChannelPlan, generation: Generation) -> None:
        self._plan = plan
        self._check = SequenceCheck(plan.channel, generation)
        self._submitted = Sequence(0)
        self._taken = Sequence(0)
        self._settled = Sequence(0)
        self._granted = (Sequence(0), Sequence(0))
        self._ended = False
        self._stopped = False

    @property
    def ended(self) -> bool:
        """Its data have ended."""
        return self._ended

    @property
    def stopped(self) -> bool:
        """They ended because a user stopped the job."""
        return self._stopped

    def delivered(self, envelope: Envelope) -> None:
        """An envelope was taken off the queue. `ChannelError` if it may not come now."""
        self._check.check(envelope)
        if isinstance(envelope, Data):
            self._submitted = envelope.sequence
        elif isinstance(envelope, EndOfStream):
            self._ended, self._stopped = True, envelope.stopped

    def taken(self, sequence: Sequence) -> None:
        """The results of this batch, and of all before it, have left the lane (T1)."""
        self._taken = sequence

    def settled(self, sequence: Sequence) -> None:
        """This batch, and all before it, are settled (F3)."""
        self._settled = sequence

    def grant(self) -> GrantCredit | None:
        """What the sender does not know yet, or None."""
        now = (self._taken, self._settled)
        if now == self._granted:
            return None
        self._granted = now
        return GrantCredit(self._plan.channel, *now)

    def validate(self) -> None:
        """Assert the order of what happens to a batch."""
        assert self._settled <= self._taken <= self._submitted


class Inlets:
    """All input channels of one chain; none in a chain that reads a source."""

    def __init__(self, plan: ChainPlan, generation: Generation) -> None:
        self._inlets = {input.channel: Inlet(input, generation) for input in plan.inputs}
        self.times = ChannelTimes(self._inlets)

    def __contains__(self, channel: ChannelId) -> bool:
        return channel in self._inlets

    def takes(self, channel: ChannelId) -> bool:
        """Whether the channel's data have not ended."""
        return not self._inlets[channel].ended

    def delivered(self, channel: ChannelId, envelope: Envelope) -> None:
        """An envelope was taken off a queue. `ChannelError` if it may not come now."""
        self._inlets[channel].delivered(envelope)
        self.times.delivered(channel, envelope)

    def taken(self, stream: StreamKey, sequence: Sequence) -> None:
        """The results of a batch have left the lane; nothing for a batch of a source."""
        inlet = self._inlets.get(ChannelId(stream))
        if inlet is not None:
            inlet.taken(sequence)

    def settled(self, settled: SettledRange) -> bool:
        """Batches are settled. False if they did not come in a channel."""
        inlet = self._inlets.get(ChannelId(settled.stream))
        if inlet is not None:
            inlet.settled(settled.last)
        return inlet is not None

    def grants(self) -> Iterator[GrantCredit]:
        """What the senders do not know yet."""
        grants = (inlet.grant() for inlet in self._inlets.values())
        return (grant for grant in grants if grant is not None)

    def snapshots(self) -> tuple[InputSnapshot, ...]:
        """The inputs at a cut (B0, 3)."""
        return tuple(
            InputSnapshot(
                channel,
                inlet.ended and not inlet.stopped,
                self.times.at(channel).watermark,
                self.times.at(channel).idle,
            )
            for channel, inlet in self._inlets.items()
        )

    @property
    def ended(self) -> bool:
        """No batch will come any more."""
        return all(inlet.ended for inlet in self._inlets.values())

    @property
    def stopped(self) -> bool:
        """Some input ended because a user stopped the job."""
        return any(inlet.stopped for inlet in self._inlets.values())

    def validate(self) -> None:
        """Assert the invariants of every inlet."""
        for inlet in self._inlets.values():
            inlet.validate()


__all__ = ["Inlet", "Inlets"]
