"""The machine of a chain with inputs and channels (T1, T3, D5, E1-E6, E8, F3, F5).

A naive model stands beside the machine: items in the order of submission, the pieces each led to,
and what sinks and peers have confirmed. What the machine grants must be exactly what it says.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.channel import SequenceCheck
from arkflow_kernel.envelope import Data, EndOfStream, Envelope, Idle, Reset, Watermark
from arkflow_kernel.ids import (
    ChannelId,
    EventTimeMs,
    Generation,
    MonotonicMs,
    OutputId,
    RequestToken,
    Sequence,
    SplitId,
)
from arkflow_kernel.ports import NothingYet, SourceBatch, SourceEnded, WriteReceipt
from arkflow_kernel.protocol import (
    Control,
    ControlState,
    CreditGranted,
    Deliver,
    Desired,
    Emit,
    EndChain,
    FinishItem,
    GrantCredit,
    ItemDone,
    LaneSlice,
    NextSlice,
    OutcomeKind,
    Piece,
    ReadSource,
    Request,
    RunItem,
    SourceRead,
    Submit,
    Tick,
    Write,
    WriteDone,
)
from arkflow_kernel.task import ChainTask, Phase
from arkflow_kernel.testing.components import rows_batch
from arkflow_kernel.testing.plans import chain_plan, channel_plan
from arkflow_kernel.testing.virtual_clock import VirtualClock

pytestmark = pytest.mark.thorough

G1 = Generation(1)
BATCH = rows_batch("a", [1])
SINK = OutputId("sink")


@dataclass
class Item:
    """One lane item: the stream and number it came from (none for finish), what it led to."""

    stream: str | None
    number: int
    outputs: list[OutputId] = field(default_factory=list)
    complete: bool = False


@dataclass
class Sent:
    """One outgoing channel: the envelope of each piece, and the peer's word."""

    check: SequenceCheck
    envelopes: list[Envelope] = field(default_factory=list)
    number_of: list[int] = field(default_factory=list)
    sent: int = 0
    taken: int = 0
    settled: int = 0


class World:
    """A chain of `inputs` input channels (0: it reads a source) and `channels` outgoing ones."""

    def __init__(self, *, inputs: int, channels: int, workers: int, capacity: int) -> None:
        into = [channel_plan(f"in{n}") for n in range(inputs)]
        out = [channel_plan(f"out{n}", capacity=capacity) for n in range(channels)]
        plan = chain_plan(operators=("op",), workers=workers, inputs=into, channels=out)
        self.capacity = capacity
        self.inputs = [channel.channel for channel in into]
        self.queues = {channel: deque[Envelope]([Reset(G1)]) for channel in self.inputs}
        self.numbers: dict[str, int] = dict.fromkeys([*self.inputs, "a", "b"], 0)
        self.read: deque[tuple[str, int]] = deque()
        self.outputs = [SINK, *(channel.output for channel in out)]
        self.sent = {each.output: Sent(SequenceCheck(each.channel, G1)) for each in out}
        self.task, self.clock = ChainTask(plan, G1), VirtualClock()
        self.open: dict[RequestToken, Request] = {}
        self.items: dict[RequestToken, Item] = {}
        self.granted = dict.fromkeys(self.inputs, (0, 0))
        self.written = self.confirmed = 0
        self.stopped: set[ChannelId] = set()
        self.end: EndChain | None = None
        self.control(Desired.RUN)

    # --- events --------------------------------------------------------------------------------

    def take(self, event: Any) -> None:
        for command in self.task.handle(event):
            assert self.end is None, "nothing follows the end"
            match command:
                case Emit():
                    self._emitted(command)
                case GrantCredit():
                    grant = (int(command.taken_upto), int(command.settled_upto))
                    assert grant != self.granted[command.channel], "a grant without news"
                    self.granted[command.channel] = grant
                case EndChain():
                    self.end = command
                case _:
                    self._ordered(command)
        self.task.validate()
        self._compare()

    def control(self, desired: Desired) -> None:
        self.take(Control(self.clock.moment(), ControlState(G1, desired)))

    def tick(self, by_ms: int) -> None:
        self.take(Tick(self.clock.advance(by_ms)))

    def feed(self, channel: ChannelId, choice: int) -> None:
        """The sender puts something into the channel's queue."""
        if not self._open(channel):
            return
        queue = self.queues[channel]
        if choice < 7:
            self.numbers[channel] += 1
            queue.append(Data(Sequence(self.numbers[channel]), (BATCH,), 10))
        else:
            queue.append(Watermark(EventTimeMs(choice)) if choice == 7 else Idle())

    def finish(self, channel: ChannelId, *, stopped: bool) -> None:
        """The sender ends the data."""
        if self._open(channel):
            self.queues[channel].append(EndOfStream(stopped))

    def deliver(self, channel: ChannelId) -> bool:
        """The head of the queue, if the chain takes it."""
        if self.end is not None or not self.queues[channel] or not self.task.takes(channel):
            return False
        envelope = self.queues[channel].popleft()
        if isinstance(envelope, EndOfStream):
            self.closed_by(channel, envelope)
        self.take(Deliver(self.clock.moment(), channel, envelope))
        return True

    def closed_by(self, channel: ChannelId, envelope: EndOfStream) -> None:
        self.queues.pop(channel)
        if envelope.stopped:
            self.stopped.add(channel)

    def _open(self, channel: ChannelId) -> bool:
        return channel in self.queues and not any(
            isinstance(envelope, EndOfStream) for envelope in self.queues[channel]
        )

    def grant(self, output: OutputId, taken: int, settled: int) -> None:
        """The peer's word on an outgoing channel."""
        sent = self.sent[output]
        sent.taken = min(sent.taken + taken, sent.sent)
        sent.settled = min(sent.settled + settled, sent.taken)
        numbers = Sequence(sent.taken), Sequence(sent.settled)
        self.take(CreditGranted(self.clock.moment(), ChannelId(output), *numbers))

    def answer(self, request: Request, choice: int, *, last: bool = False) -> None:
        del self.open[request.token]
        at, token = self.clock.moment(), request.token
        match request:
            case ReadSource():
                self.take(SourceRead(at, token, SourceEnded() if last else self._result(choice)))
            case Submit() | NextSlice():
                more = choice % 4 == 3 and not last
                targets = [
                    self.outputs[(choice + n) % len(self.outputs)] for n in range(choice % 5)
                ]
                self.items[token].outputs += targets
                self.items[token].complete = not more
                slice_ = LaneSlice(tuple(Piece(target, BATCH, 10) for target in targets))
                self.take(ItemDone(at, token, slice_, more))
            case _:
                if isinstance(request, Write):
                    self.written = int(request.sequence)
                whole = choice % 3 > 0 or not isinstance(request, Write)
                self.confirmed = self.written if whole else self.confirmed
                receipt = WriteReceipt(Sequence(self.confirmed))
                self.take(WriteDone(at, token, receipt))

    def _result(self, choice: int) -> Any:
        if choice == 9:
            return NothingYet(MonotonicMs(self.clock.moment().now_ms + 3))
        split = SplitId("ab"[choice % 2])
        self.numbers[split] += 1
        self.read.append((split, self.numbers[split]))
        return SourceBatch(split, BATCH, {"row": self.numbers[split]})

    # --- the model -----------------------------------------------------------------------------

    def _ordered(self, request: Any) -> None:
        assert request.token not in self.open
        self.open[request.token] = request
        if isinstance(request, Submit):
            self.items[request.token] = self._item(request)
        assert not (isinstance(request, ReadSource) and self.inputs)

    def _item(self, submit: Submit) -> Item:
        if isinstance(submit.item, FinishItem):
            return Item(None, 0)
        if not self.inputs:
            return Item(*self.read.popleft())
        assert isinstance(submit.item, RunItem), "there are no rounds in ack mode"
        origin = submit.item.origin
        assert origin.source is not None
        assert origin.offset is not None
        return Item(origin.source.removeprefix("channel "), int(origin.offset))

    def _emitted(self, emit: Emit) -> None:
        sent = self.sent[OutputId(emit.channel)]
        sent.check.check(emit.envelope)
        sent.envelopes.append(emit.envelope)
        if isinstance(emit.envelope, Data):
            sent.sent = int(emit.envelope.sequence)
            sent.number_of += [sent.sent] * len(emit.envelope.pieces)
            assert sent.sent - sent.taken <= self.capacity, "credit"

    def _left(self) -> Iterator[Item]:
        """Items whose results have all left the lane, in the order of submission."""
        left = dict(self.task.statistics().rows_to)
        for item in self.items.values():
            for output in item.outputs:
                left[output] -= 1
            if not item.complete or min(left.values()) < 0:
                return
            yield item

    def _settled(self) -> Iterator[Item]:
        """Those of them behind which nothing is unconfirmed, in any output."""
        given_ = dict.fromkeys(self.outputs, 0)
        for item in self._left():
            for output in item.outputs:
                given_[output] += 1
            if not all(self._is_confirmed(output, count) for output, count in given_.items()):
                return
            yield item

    def _is_confirmed(self, output: OutputId, count: int) -> bool:
        if output == SINK:
            return count <= self.confirmed
        sent = self.sent[output]
        if count == 0:
            return True
        return count <= len(sent.number_of) and sent.number_of[count - 1] <= sent.settled

    def _compare(self) -> None:
        if self.end is not None and self.end.outcome.kind not in (
            OutcomeKind.FINISHED,
            OutcomeKind.STOPPED,
        ):
            return
        rows = {item.stream: item.number for item in self._settled() if item.stream is not None}
        told = {position.split: position.position["row"] for position in self.task.frontier()}
        assert told == ({} if self.inputs else rows)
        for channel in self.inputs:
            taken = [item.number for item in self._left() if item.stream == channel]
            settled = [item.number for item in self._settled() if item.stream == channel]
            assert taken == [*range(1, len(taken) + 1)]
            assert self.granted[channel] == (len(taken), len(settled))

    # --- to the end ----------------------------------------------------------------------------

    def drain(self) -> None:
        """Everybody answers, grants and ends: the chain must come to its end."""
        for _ in range(1_000):
            if self.end is not None:
                return
            for channel in list(self.queues):
                self.finish(channel, stopped=False)
                self.deliver(channel)
            for request in list(self.open.values()):
                if request.token in self.open and self.end is None:
                    self.answer(request, 1, last=True)
            for output in self.sent:
                if self.end is None:
                    self.grant(output, 99, 99)
            if self.end is None:
                self.tick(10)
        raise AssertionError(f"no end in {self.task.phase}, waiting for {self.open}")


scripts = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=50)


def _step(world: World, what: int, choice: int) -> None:
    """One event that a driver may hand over now."""
    channel = world.inputs[choice % len(world.inputs)] if world.inputs else None
    if what < 3 and channel is not None:
        world.feed(channel, choice)
        if channel in world.queues:
            world.deliver(channel)
    elif what == 3 and choice < 3 and channel is not None:
        world.finish(channel, stopped=choice == 0)
    elif what == 4 and world.sent:
        world.grant(list(world.sent)[choice % len(world.sent)], choice % 3, choice % 4)
    elif what == 5:
        world.tick(choice * 2)
    elif what == 6 and choice == 9:
        world.control(Desired.STOP)
    elif world.open:
        requests = list(world.open.values())
        world.answer(requests[what % len(requests)], choice)


@given(st.integers(1, 3), st.integers(0, 2), st.integers(1, 3), st.integers(1, 3), scripts)
def test_grants_and_settlement_are_exactly_those_of_the_naive_model_and_the_chain_ends(
    inputs: int, channels: int, workers: int, capacity: int, script: list[tuple[int, int]]
) -> None:
    world = World(inputs=inputs, channels=channels, workers=workers, capacity=capacity)
    for what, choice in script:
        if world.end is None:
            _step(world, what, choice)
    world.drain()
    assert world.end is not None
    _is_complete(world)


def _is_complete(world: World) -> None:
    """Everything that was fed came out, in order, and each channel was ended once, at last."""
    assert world.end is not None
    stopped = bool(world.stopped)
    kind = OutcomeKind.STOPPED if stopped else OutcomeKind.FINISHED
    assert world.end.outcome.kind is kind
    finishes = [item for item in world.items.values() if item.stream is None]
    assert len(finishes) == (0 if stopped else 1), "finished once, and not after a stop"
    assert list(world._settled()) == list(world.items.values()), "all is settled"
    for channel in world.inputs:
        assert world.granted[channel] == (world.numbers[channel],) * 2
    given_ = [output for item in world.items.values() for output in item.outputs]
    assert world.written == world.confirmed == given_.count(SINK)
    for output, sent in world.sent.items():
        assert sent.envelopes[0] == Reset(G1)
        assert sent.envelopes[-1] == EndOfStream(stopped)
        assert len(sent.number_of) == given_.count(output)
    assert world.task.next_deadline_ms() is None
    assert world.task.phase is Phase.ENDED


@given(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), scripts, st.booleans())
def test_a_source_is_settled_exactly_as_far_as_all_channels_of_its_chain_are(
    channels: int, workers: int, capacity: int, script: list[tuple[int, int]], stop: bool
) -> None:
    world = World(inputs=0, channels=channels, workers=workers, capacity=capacity)
    for what, choice in script:
        if world.end is None:
            _step(world, what, choice)
    if stop and world.end is None:
        world.control(Desired.STOP)
    world.drain()
    assert world.end is not None
    items = [item for item in world.items.values() if item.stream is not None]
    assert len(list(world._settled())) == len(world.items)
    assert world.task.statistics().settled_rows == len(items)
    stopped = world.end.outcome.kind is OutcomeKind.STOPPED
    for sent in world.sent.values():
        assert sent.envelopes[-1] == EndOfStream(stopped)
        assert sent.settled == sent.sent
