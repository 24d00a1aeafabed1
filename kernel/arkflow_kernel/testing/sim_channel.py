"""One channel inside the simulation: what is under way in it, both ways, and what may be.

Envelopes arrive in order, and late. A grant that is newer than another may swallow it. What one
attempt put into a channel is gone with the attempt.
"""

from collections import deque

from arkflow_kernel.envelope import Data, Envelope, Reset
from arkflow_kernel.ids import Generation
from arkflow_kernel.plan import ChannelPlan
from arkflow_kernel.protocol import GrantCredit
from arkflow_kernel.testing.lineage import ViolationError
from arkflow_kernel.testing.sim_rows import ROW_BYTES


class SimChannel:
    """`wire` is under way, `queue` waits at the receiver, `grants` are on their way back."""

    def __init__(self, plan: ChannelPlan, generation: Generation) -> None:
        self.plan, self.id, self.generation = plan, plan.channel, generation
        self.wire: deque[Envelope] = deque()
        self.queue: deque[Envelope] = deque()
        self.grants: deque[GrantCredit] = deque()
        self._out: deque[int] = deque()
        self._out_bytes = 0
        self._known = 0
        self.sent = 0
        self.settled = 0
        self.rows_sent = 0
        self.rows_delivered = 0
        self._next = 0
        self._refused = False

    # --- the sender ----------------------------------------------------------------------------

    def emit(self, envelope: Envelope) -> None:
        """The sender's machine lets an envelope go: within its credit (E4), or it is a bug."""
        if isinstance(envelope, Data):
            self.sent += 1
            self._out.append(envelope.size_bytes)
            self._out_bytes += envelope.size_bytes
            self.rows_sent += envelope.num_rows
            plan, out = self.plan, len(self._out)
            over = out > plan.capacity or self._out_bytes > plan.capacity_bytes
            if over and out > 1:
                raise ViolationError(f"{self.id}: {out} envelopes, {self._out_bytes} bytes are out")
            if envelope.size_bytes < ROW_BYTES * envelope.num_rows - len(envelope.pieces):
                raise ViolationError(f"{self.id}: an envelope is larger than it says")
        self.wire.append(envelope)

    def granted(self, grant: GrantCredit) -> None:
        """The sender hears of a grant."""
        while self._known < grant.taken_upto:
            self._known += 1
            self._out_bytes -= self._out.popleft()
        self.settled = max(self.settled, int(grant.settled_upto))

    # --- the receiver --------------------------------------------------------------------------

    def arrive(self) -> None:
        """The oldest envelope under way comes to the receiver's queue."""
        self.queue.append(self.wire.popleft())

    def delivered(self, envelope: Envelope) -> bool:
        """The head of the queue goes to the machine. False if the machine must refuse it (E6)."""
        if isinstance(envelope, Reset):
            fits = self._next == 0 and envelope.generation == self.generation
            self._next = 1
        elif isinstance(envelope, Data):
            fits = self._next == envelope.sequence
            self._next += 1
            self.rows_delivered += envelope.num_rows
        else:
            fits = self._next > 0
        self._refused |= not fits
        return not self._refused

    def check_done(self) -> None:
        """At the end of a job in order: nothing is left, nothing was lost (T6)."""
        if self.rows_sent != self.rows_delivered or self.wire or self.queue:
            raise ViolationError(
                f"{self.id}: {self.rows_sent} rows were sent and {self.rows_delivered} taken"
            )

    # --- faults --------------------------------------------------------------------------------

    def lose(self) -> bool:
        """Lose a batch that another one follows. False if there is none."""
        waiting = [*((self.queue, e) for e in self.queue), *((self.wire, e) for e in self.wire)]
        batches = [(where, e) for where, e in waiting if isinstance(e, Data)]
        if len(batches) < 2:
            return False
        where, lost = batches[0]
        where.remove(lost)
        return True

    def repeat(self) -> bool:
        """A batch comes twice. False if there is none."""
        if self.wire and isinstance(self.wire[-1], Data):
            self.wire.append(self.wire[-1])
            return True
        return False

    def stray(self) -> bool:
        """A word of the generation before comes in front of all others."""
        if self.generation == 1:
            return False
        self.wire.appendleft(Reset(Generation(self.generation - 1)))
        return True

    def cut(self, kept: int) -> None:
        """The sender's process is gone, and all but the oldest `kept` envelopes with it."""
        while len(self.wire) > kept:
            self.wire.pop()


__all__ = ["SimChannel"]
