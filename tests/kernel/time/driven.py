"""A chain with event time whose driver is the test: its plans, its machine, what it said."""

from collections import deque
from dataclasses import replace

from arkflow_kernel.chain_clock import OpenedSource
from arkflow_kernel.envelope import (
    Barrier,
    Data,
    EndOfStream,
    Envelope,
    Idle,
    Reset,
    Watermark,
)
from arkflow_kernel.ids import (
    ChannelId,
    CheckpointId,
    EventTimeMs,
    Generation,
    OperatorId,
    OutputId,
    Sequence,
    SplitId,
    WallMs,
)
from arkflow_kernel.plan import (
    ChainPlan,
    ComponentPlan,
    JoinPlan,
    JoinSidePlan,
    Mode,
    OperatorPlan,
    TimePlan,
    WindowKind,
    WindowPlan,
)
from arkflow_kernel.ports import ReadResult, SourceBatch
from arkflow_kernel.protocol import (
    NOBODY,
    BatchTime,
    Control,
    ControlState,
    CreditGranted,
    Deliver,
    Desired,
    Emit,
    ItemDone,
    LaneItem,
    LaneSlice,
    NextSlice,
    Piece,
    ReadSource,
    Request,
    Slowest,
    SnapshotUploaded,
    SourceRead,
    Submit,
    Tick,
    UploadSnapshot,
)
from arkflow_kernel.snapshot import ChainSnapshot, RestoredChain
from arkflow_kernel.task import ChainTask
from arkflow_kernel.testing.components import rows_batch
from arkflow_kernel.testing.plans import chain_plan, channel_plan
from arkflow_kernel.testing.virtual_clock import VirtualClock

G1 = Generation(1)
A, B = SplitId("a"), SplitId("b")
OUT = channel_plan("out", "chain-0", "chain-1")
IN = channel_plan("in", "chain-9", "chain-0"), channel_plan("too", "chain-8", "chain-0")
WINDOW = WindowPlan(WindowKind.TUMBLING, "ts", size_ms=1_000)
COMPONENT = ComponentPlan("window", {})


def source_plan(*, timed: bool = False, idle_timeout_ms: int | None = None) -> ChainPlan:
    plan = chain_plan(sinks=(), channels=(OUT,), mode=Mode.CHECKPOINT)
    assert plan.source is not None
    time = TimePlan("ts", bound_ms=10, idle_timeout_ms=idle_timeout_ms)
    return _timed(replace(plan, source=replace(plan.source, time=time)), timed=timed)


def inner_plan(*, timed: bool) -> ChainPlan:
    plan = chain_plan(sinks=(), inputs=IN, channels=(OUT,), mode=Mode.CHECKPOINT)
    return _timed(plan, timed=timed)


def join_plan(window_ms: int, ttl_ms: int) -> ChainPlan:
    left, right = (JoinSidePlan(channel.edge, "k", "ts") for channel in IN)
    plan = JoinPlan(left, right, window_ms, ttl_ms)
    join = OperatorPlan(OperatorId("j"), "join", COMPONENT, join=plan)
    return replace(inner_plan(timed=False), operators=(join,))


def _timed(plan: ChainPlan, *, timed: bool) -> ChainPlan:
    window = OperatorPlan(OperatorId("w"), "window", COMPONENT, window=WINDOW)
    return replace(plan, operators=(window,)) if timed else plan


class Driven:
    """A chain's machine. Requests wait until the test answers them; credit is given at once."""

    def __init__(
        self, plan: ChainPlan, *splits: SplitId, snapshot: ChainSnapshot | None = None
    ) -> None:
        self.clock = VirtualClock()
        opened, restored = OpenedSource(splits=splits), RestoredChain(snapshot=snapshot)
        self.task = ChainTask(plan, G1, opened=opened, restored=restored)
        self.waiting: deque[Request] = deque()
        self.left: list[Envelope] = []
        self.control()

    def control(
        self, desired: Desired = Desired.RUN, round_id: int = 0, slowest: Slowest = NOBODY
    ) -> None:
        state = ControlState(G1, desired, CheckpointId(round_id), slowest=slowest)
        self._take(Control(self.clock.moment(), state))

    def _take(self, event: object) -> None:
        commands = self.task.handle(event)  # type: ignore[arg-type]
        self.task.validate()
        for command in commands:
            if isinstance(command, Emit):
                self.left.append(command.envelope)
                if isinstance(command.envelope, Data):
                    upto = command.envelope.sequence
                    at, channel = self.clock.moment(), command.channel
                    self._take(CreditGranted(at, channel, upto, Sequence(0)))
            elif isinstance(command, ReadSource | Submit | NextSlice | UploadSnapshot):
                self.waiting.append(command)

    def items(self) -> list[LaneItem]:
        """What the lane has to do, in order."""
        return [each.item for each in self.waiting if isinstance(each, Submit)]

    def read(self, result: ReadResult, max_ms: int | None = None) -> None:
        request = next(each for each in self.waiting if isinstance(each, ReadSource))
        self.waiting.remove(request)
        time = None if max_ms is None else BatchTime(EventTimeMs(max_ms))
        self._take(SourceRead(self.clock.moment(), request.token, result, 8, time))

    def rows(self, max_ms: int, split: SplitId = A, *quiet: SplitId) -> None:
        batch = rows_batch("a", range(1))
        self.read(SourceBatch(split, batch, {"row": max_ms}, quiet=quiet), max_ms)

    def done(self, *rows: int, more: bool = False, timer: int | None = None) -> None:
        """The lane is done with its oldest request."""
        request = next(each for each in self.waiting if isinstance(each, Submit | NextSlice))
        self.waiting.remove(request)
        pieces = (Piece(OutputId("out[0-0]"), rows_batch("a", range(n)), 8 * n) for n in rows)
        wall = None if timer is None else WallMs(timer)
        slice_ = LaneSlice(tuple(pieces))
        self._take(ItemDone(self.clock.moment(), request.token, slice_, more, (), wall))

    def uploaded(self) -> ChainSnapshot:
        request = next(each for each in self.waiting if isinstance(each, UploadSnapshot))
        self.waiting.remove(request)
        self._take(SnapshotUploaded(self.clock.moment(), request.token))
        answer = self.task.report(self.clock.moment()).answer
        assert answer is not None
        assert answer.snapshot is not None
        return answer.snapshot

    def deliver(self, number: int, envelope: Envelope) -> None:
        channel: ChannelId = IN[number].channel
        assert self.task.takes(channel)
        self._take(Deliver(self.clock.moment(), channel, envelope))

    def starts(self) -> None:
        for number in range(len(IN)):
            self.deliver(number, Reset(G1))

    def passes(self, by_ms: int) -> None:
        self._take(Tick(self.clock.advance(by_ms)))

    def said(self) -> list[str]:
        """What left so far, in short; the reset that begins every channel is left out."""
        told = {Data: "rows", Idle: "idle", Barrier: "barrier", EndOfStream: "end"}
        found = [
            str(each.time_ms) if isinstance(each, Watermark) else told[type(each)]
            for each in self.left
            if not isinstance(each, Reset)
        ]
        self.left.clear()
        return found


__all__ = ["G1", "IN", "OUT", "A", "B", "Driven", "inner_plan", "join_plan", "source_plan"]
