"""Credit and order of one channel, without I/O (E3, E4, E6).

Rules
- Credit counts data envelopes and their bytes. The receiver's word is cumulative: "taken up to n".
  A late, repeated or lost word is harmless, because the next one says all of it again.
- What is outstanding never passes the capacity, but an empty channel takes one envelope of any
  size, or a large one could never leave.
- Control takes no credit.

Who sees what: the sender's machine holds the `CreditLedger`, the receiver's driver the
`SequenceCheck`. What can conflict: nothing; each has one owner.
"""

from collections import deque

from arkflow_kernel.envelope import Barrier, Data, EndOfStream, Envelope, Reset
from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import ChannelId, Generation, Sequence


class CreditLedger:
    """What the sender of one channel has outstanding: envelopes, and their bytes."""

    def __init__(self, channel: ChannelId, capacity: int, capacity_bytes: int) -> None:
        assert capacity > 0
        assert capacity_bytes > 0
        self._channel = channel
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._sizes: deque[int] = deque()
        self._bytes = 0
        self._taken = 0
        self._settled = 0

    @property
    def sent(self) -> Sequence:
        """Number of the last data envelope that was sent."""
        return Sequence(self._taken + len(self._sizes))

    @property
    def taken(self) -> Sequence:
        """Number up to which the receiver has taken everything."""
        return Sequence(self._taken)

    @property
    def settled(self) -> Sequence:
        """Number up to which everything is settled, behind the receiver too (E8)."""
        return Sequence(self._settled)

    @property
    def outstanding(self) -> int:
        """Data envelopes that the receiver has not taken."""
        return len(self._sizes)

    @property
    def outstanding_bytes(self) -> int:
        """Their bytes."""
        return self._bytes

    def can_send(self, size_bytes: int) -> bool:
        """Whether there is credit for an envelope of this size."""
        if not self._sizes:
            return True
        room = self._bytes + size_bytes <= self._capacity_bytes
        return room and len(self._sizes) < self._capacity

    def send(self, size_bytes: int) -> Sequence:
        """Take credit for one envelope. Returns its number."""
        assert self.can_send(size_bytes)
        self._sizes.append(size_bytes)
        self._bytes += size_bytes
        return self.sent

    def granted(self, taken_upto: Sequence, settled_upto: Sequence) -> bool:
        """The receiver's word. True if it says something new. `ChannelError` if it cannot be."""
        if not settled_upto <= taken_upto <= self.sent:
            raise ChannelError(
                f"channel {self._channel}: the receiver claims to have taken {taken_upto} and "
                f"settled {settled_upto} of {self.sent} envelopes"
            )
        news = taken_upto > self._taken or settled_upto > self._settled
        while self._taken < taken_upto:
            self._bytes -= self._sizes.popleft()
            self._taken += 1
        self._settled = max(self._settled, settled_upto)
        return news

    def validate(self) -> None:
        """Assert the invariants."""
        assert self._bytes == sum(self._sizes) >= 0
        assert len(self._sizes) <= self._capacity
        assert self._bytes <= self._capacity_bytes or len(self._sizes) == 1
        assert self._settled <= self._taken


class SequenceCheck:
    """What may arrive next on a channel (E1, E6): anything else breaks the attempt, loudly."""

    def __init__(self, channel: ChannelId, generation: Generation) -> None:
        self._channel = channel
        self._generation = generation
        self._started = False
        self._ended = False
        self._last = 0

    def check(self, envelope: Envelope) -> None:
        """Take note of an envelope, or raise `ChannelError`."""
        if isinstance(envelope, Reset):
            self._reset(envelope)
            return
        if not self._started:
            self._refuse(f"{type(envelope).__name__} before the channel was reset")
        if isinstance(envelope, Barrier):
            if envelope.generation != self._generation:
                self._refuse(f"a barrier of generation {envelope.generation}")
            return
        if self._ended:
            self._refuse(f"{type(envelope).__name__} after the end of the stream")
        if isinstance(envelope, Data):
            if envelope.sequence != self._last + 1:
                self._refuse(f"batch {envelope.sequence} after batch {self._last}")
            self._last += 1
        else:
            self._ended = isinstance(envelope, EndOfStream)

    def _reset(self, envelope: Reset) -> None:
        if self._started:
            self._refuse("a second reset")
        if envelope.generation != self._generation:
            self._refuse(f"a reset for generation {envelope.generation}")
        self._started = True

    def _refuse(self, what: str) -> None:
        raise ChannelError(
            f"channel {self._channel} of generation {self._generation} delivered {what}"
        )


__all__ = ["CreditLedger", "SequenceCheck"]
