"""One chain of an inline job: its machine, its work, and all that waits for them.

A part of `inline.py`, which handles one event or works off one request at a time: from the outputs
back to the source, so that little waits in memory.
"""

from collections import deque

from arkflow_kernel.chain_work import ChainWork, LaneName, lane_of
from arkflow_kernel.envelope import Data, Envelope
from arkflow_kernel.ids import ChannelId, Generation
from arkflow_kernel.lane_schedule import LaneSchedule
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import (
    ChainEvent,
    ChainOutcome,
    Deliver,
    ItemDone,
    NextSlice,
    Request,
    Submit,
)
from arkflow_kernel.task import ChainTask


class InlineChain:
    """A chain and its queues. `outcome` is set once it has ended."""

    def __init__(
        self, plan: ChainPlan, generation: Generation, work: ChainWork, task: ChainTask
    ) -> None:
        self.plan = plan
        self.generation = generation
        self.work = work
        self.task = task
        self.controls: deque[ChainEvent] = deque()
        self.events: deque[ChainEvent] = deque()
        self.outcome: ChainOutcome | None = None
        self._inputs: dict[ChannelId, deque[Envelope]] = {c.channel: deque() for c in plan.inputs}
        self._writes: deque[Request] = deque()
        self._reads: deque[Request] = deque()
        self._schedule = LaneSchedule(1)

    def order(self, request: Request) -> None:
        """Queue a request in its lane."""
        if isinstance(request, Submit | NextSlice):
            self._schedule.put(request)
        elif lane_of(request).name is LaneName.READ:
            self._reads.append(request)
        else:
            self._writes.append(request)

    def next_request(self) -> Request | None:
        """The request to work off now: writes, uploads and publications first, reads last."""
        if self._writes:
            return self._writes.popleft()
        request = self._schedule.next()
        if request is not None:
            return request
        return self._reads.popleft() if self._reads else None

    def answered(self, event: ChainEvent, request: Request) -> None:
        """A request was worked off."""
        self.events.append(event)
        if isinstance(request, Submit | NextSlice):
            more = isinstance(event, ItemDone) and event.more
            self._schedule.answered(request.token, more=more)

    def arrived(self, channel: ChannelId, envelope: Envelope) -> None:
        """An envelope came in one of its channels."""
        joined = envelope.joined() if isinstance(envelope, Data) else envelope
        self._inputs[channel].append(joined)

    def next_event(self, moment: Moment) -> ChainEvent | None:
        """The event to handle now: control first, then answers, then its inputs in turn (T1)."""
        queue = self.controls or self.events
        if queue:
            return queue.popleft()
        for channel, waiting in list(self._inputs.items()):
            if waiting and self.task.takes(channel):
                self._inputs[channel] = self._inputs.pop(channel)  # the last one next time
                return Deliver(moment, channel, waiting.popleft())
        return None


__all__ = ["InlineChain"]
