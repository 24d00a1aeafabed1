"""What waits for the machine of one chain, in the order in which it is due (T1).

Control goes first, then the answers of the lanes, then what the channels brought: a word of credit
and the head of an input queue, in turn. An envelope stays in its queue until the machine takes
from that channel; the channels take turns, so none waits for ever behind a busy one. Answers
cannot starve the channels: each was asked for by the machine, and there are only so many at once.

The I/O thread hands over once per pass, as one post (H8a); the queues belong to the loop alone.
"""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace

from arkflow_kernel.envelope import Data, Envelope
from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import ChannelId, MonotonicMs, Sequence
from arkflow_kernel.ports import Clock
from arkflow_kernel.protocol import (
    ChainEvent,
    ChainReport,
    ChannelBroken,
    Control,
    ControlState,
    CreditGranted,
    Deliver,
)
from arkflow_ray.runtime.mailbox import Mailbox


@dataclass(frozen=True, slots=True)
class ReportWanted:
    """Somebody asks how the chain is. Its loop answers, which shows that it runs (D2).

    `asked_ms` tells how long the loop took to come to it: its lag (P5).
    """

    answer: "Future[ChainReport]"
    asked_ms: MonotonicMs

    def tell(self, report: ChainReport) -> None:
        """Answer, unless nobody waits any more."""
        if not self.answer.set_running_or_notify_cancel():
            return
        lag_ms = max(0, report.at.now_ms - self.asked_ms)
        usage = None if report.usage is None else replace(report.usage, loop_lag_ms=lag_ms)
        self.answer.set_result(replace(report, usage=usage))


@dataclass(frozen=True, slots=True)
class _Arrived:
    envelopes: list[tuple[ChannelId, Envelope]]


@dataclass(frozen=True, slots=True)
class _Granted:
    grants: list[tuple[ChannelId, Sequence, Sequence]]


class ChainInbox:
    """Mailbox and input queues of one chain; an `Inbox` for its exchange.

    Any thread may put something in; `take` and `wait` are for the loop that attached.
    """

    def __init__(self, inputs: Iterable[ChannelId], clock: Clock) -> None:
        self._clock = clock
        self._mailbox: Mailbox[ChainEvent | ReportWanted | _Arrived | _Granted] = Mailbox()
        self._queues: dict[ChannelId, deque[Envelope]] = {channel: deque() for channel in inputs}
        self._waiting: deque[ChannelId] = deque()
        self._grants: dict[ChannelId, tuple[Sequence, Sequence]] = {}
        self._grants_turn = True
        self._held_bytes = 0

    # --- from any thread -----------------------------------------------------------------------

    def control(self, state: ControlState) -> None:
        """The coordinator's state: before everything else."""
        self._mailbox.post(Control(self._clock.moment(), state), control=True)

    def ask(self, wanted: ReportWanted) -> None:
        """A question of the coordinator: before everything but control."""
        self._mailbox.post(wanted, control=True)

    def answered(self, event: ChainEvent) -> None:
        """The answer of a lane."""
        self._mailbox.post(event)

    def arrived(self, envelopes: list[tuple[ChannelId, Envelope]]) -> None:
        """See `Inbox.arrived`."""
        self._mailbox.post(_Arrived(envelopes))

    def granted(self, grants: list[tuple[ChannelId, Sequence, Sequence]]) -> None:
        """See `Inbox.granted`."""
        self._mailbox.post(_Granted(grants))

    def broken(self, error: ChannelError) -> None:
        """See `Inbox.broken`."""
        self._mailbox.post(ChannelBroken(self._clock.moment(), error))

    # --- on the loop ---------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """Bytes of the batches that wait in the queues."""
        return self._held_bytes

    def attach(self) -> None:
        """Bind to the running loop."""
        self._mailbox.attach()

    def detach(self) -> None:
        """Wake nobody any more; give up what waits in the queues."""
        self._mailbox.detach()
        for queue in self._queues.values():
            queue.clear()
        self._waiting.clear()
        self._held_bytes = 0

    def take(self, takes: Callable[[ChannelId], bool]) -> ChainEvent | ReportWanted | None:
        """What is due now, or None. `takes`: whether the machine takes from a channel now."""
        while (post := self._mailbox.take()) is not None:
            if isinstance(post, _Arrived):
                self._queue(post.envelopes)
            elif isinstance(post, _Granted):
                for channel, taken_upto, settled_upto in post.grants:
                    self._grants[channel] = (taken_upto, settled_upto)
            else:
                return post
        self._grants_turn = not self._grants_turn
        if self._grants_turn:
            return self._grant() or self._head(takes)
        return self._head(takes) or self._grant()

    def questions(self) -> Iterable[ReportWanted]:
        """Take off everything; yield the questions in it. For a chain whose machine has ended."""
        while (post := self._mailbox.take()) is not None:
            if isinstance(post, ReportWanted):
                yield post

    async def wait(self, timeout_s: float | None) -> None:
        """Return when something was put in, or after the time-out. Only after `take` gave None."""
        await self._mailbox.wait(timeout_s)

    def wake(self) -> None:
        """End the wait in progress. On the loop."""
        self._mailbox.wake()

    def _queue(self, envelopes: list[tuple[ChannelId, Envelope]]) -> None:
        for channel, envelope in envelopes:
            queue = self._queues[channel]
            if not queue:
                self._waiting.append(channel)
            queue.append(envelope)
            if isinstance(envelope, Data):
                self._held_bytes += envelope.size_bytes

    def _grant(self) -> CreditGranted | None:
        if not self._grants:
            return None
        channel, word = self._grants.popitem()
        return CreditGranted(self._clock.moment(), channel, *word)

    def _head(self, takes: Callable[[ChannelId], bool]) -> Deliver | None:
        """The head of the first queue in turn that the machine takes from."""
        for _ in range(len(self._waiting)):
            channel = self._waiting.popleft()
            if not takes(channel):
                self._waiting.append(channel)
                continue
            queue = self._queues[channel]
            envelope = queue.popleft()
            if queue:
                self._waiting.append(channel)
            if isinstance(envelope, Data):
                self._held_bytes -= envelope.size_bytes
            return Deliver(self._clock.moment(), channel, envelope)
        return None


__all__ = ["ChainInbox", "ReportWanted"]
