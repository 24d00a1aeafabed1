"""Time in the machine of a chain: its place behind rows, ticks, cuts, idle (W2, W11, W13, N5)."""

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
    RoundKind,
    Watermark,
)
from arkflow_kernel.ids import (
    EARLIEST,
    ChainId,
    ChannelId,
    CheckpointId,
    EventTimeMs,
    Generation,
    MonotonicMs,
    OperatorId,
    OutputId,
    Sequence,
    SplitId,
    WallMs,
)
from arkflow_kernel.limits import WATERMARK_INTERVAL_MS
from arkflow_kernel.plan import (
    ChainPlan,
    ComponentPlan,
    Mode,
    OperatorPlan,
    TimePlan,
    WindowKind,
    WindowPlan,
)
from arkflow_kernel.ports import NothingYet, ReadResult, SourceBatch, SourceEnded
from arkflow_kernel.protocol import (
    NOBODY,
    AdvanceItem,
    BatchTime,
    Control,
    ControlState,
    CreditGranted,
    Deliver,
    Desired,
    Emit,
    FinishItem,
    ItemDone,
    LaneItem,
    LaneSlice,
    NextSlice,
    Piece,
    ReadSource,
    Request,
    RunItem,
    SealItem,
    Slowest,
    SnapshotUploaded,
    SourceRead,
    Submit,
    Tick,
    TickItem,
    UploadSnapshot,
)
from arkflow_kernel.snapshot import ChainSnapshot, RestoredChain, SplitTime
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


def _source_plan(*, timed: bool = False, idle_timeout_ms: int | None = None) -> ChainPlan:
    plan = chain_plan(sinks=(), channels=(OUT,), mode=Mode.CHECKPOINT)
    assert plan.source is not None
    time = TimePlan("ts", bound_ms=10, idle_timeout_ms=idle_timeout_ms)
    return _timed(replace(plan, source=replace(plan.source, time=time)), timed=timed)


def _inner_plan(*, timed: bool) -> ChainPlan:
    plan = chain_plan(sinks=(), inputs=IN, channels=(OUT,), mode=Mode.CHECKPOINT)
    return _timed(plan, timed=timed)


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


def _mark(value: int) -> Watermark:
    return Watermark(EventTimeMs(value))


def _kinds(items: list[LaneItem]) -> list[type]:
    return [type(item) for item in items]


def _data(sequence: int) -> Data:
    return Data(Sequence(sequence), (rows_batch("a", range(1)),), 8)


def test_a_watermark_follows_the_rows_that_raised_it() -> None:
    chain = Driven(_source_plan(), A)
    chain.rows(50)
    chain.rows(60)
    assert chain.said() == []
    chain.done(1)
    assert chain.said() == ["rows", "40"]
    chain.done(1)
    assert chain.said() == ["rows", "50"]


def test_operators_get_the_watermark_behind_the_rows_and_it_leaves_behind_what_they_fire() -> None:
    chain = Driven(_source_plan(timed=True), A)
    chain.done()  # the tick of the start
    chain.rows(50)
    assert _kinds(chain.items()) == [RunItem, AdvanceItem]
    chain.done()
    assert chain.said() == []
    chain.done(3, more=True)
    assert chain.said() == ["rows"]
    chain.done(2)
    assert chain.said() == ["rows", "40"]


def test_operators_have_one_watermark_at_a_time_and_the_next_is_the_newest() -> None:
    chain = Driven(_inner_plan(timed=True))
    chain.done()
    chain.starts()
    chain.deliver(0, EndOfStream())
    for mark in (10, 20, 30):
        chain.deliver(1, _mark(mark))
    assert [item.watermark for item in chain.items() if isinstance(item, AdvanceItem)] == [10]
    chain.done()
    assert [item.watermark for item in chain.items() if isinstance(item, AdvanceItem)] == [30]
    chain.done()
    chain.passes(WATERMARK_INTERVAL_MS)
    assert chain.said() == ["10", "30"]


def test_a_cut_holds_the_newest_watermark_and_operators_have_it_before_the_seal() -> None:
    chain = Driven(_source_plan(timed=True), A)
    chain.done()
    chain.rows(50)
    chain.rows(90)
    chain.control(round_id=1)
    items = chain.items()
    assert _kinds(items) == [RunItem, AdvanceItem, RunItem, AdvanceItem, SealItem]
    assert isinstance(items[3], AdvanceItem)
    assert items[3].watermark == 80
    chain.rows(200)  # behind the cut
    for _ in range(5):
        chain.done()
    snapshot = chain.uploaded()
    assert snapshot.watermark == 80
    assert snapshot.times == (SplitTime(A, EventTimeMs(90)),)
    assert chain.said() == ["40", "80", "barrier"]


def test_a_cut_of_an_inner_chain_holds_what_its_inputs_said() -> None:
    chain = Driven(_inner_plan(timed=False))
    chain.starts()
    chain.deliver(0, _mark(30))
    chain.deliver(1, _mark(70))
    chain.deliver(1, Idle())
    for number in range(2):
        chain.deliver(number, Barrier(CheckpointId(1), G1, RoundKind.PERIODIC))
    chain.done()
    snapshot = chain.uploaded()
    assert [(each.watermark, each.idle) for each in snapshot.inputs] == [(30, False), (70, True)]
    assert snapshot.watermark == 30
    assert chain.said() == ["30", "barrier"]


def test_a_restored_chain_tells_its_watermark_first_and_continues_from_it() -> None:
    plan = _source_plan()
    snapshot = ChainSnapshot(
        plan.chain, plan.tasks, times=(SplitTime(A, EventTimeMs(90)),), watermark=EventTimeMs(80)
    )
    chain = Driven(plan, A, snapshot=snapshot)
    assert chain.said() == ["80"]
    chain.rows(90)
    chain.done(1)
    assert chain.said() == ["rows"], "nothing has risen"
    chain.rows(95)
    chain.done(1)
    assert chain.said() == ["rows", "85"]


def test_a_chain_ticks_at_its_start_and_when_an_operator_asked_for_it() -> None:
    chain = Driven(_source_plan(timed=True), A)
    wall_ms = chain.clock.moment().wall_ms
    assert _kinds(chain.items()) == [TickItem]
    chain.done(timer=wall_ms + 500)
    assert chain.task.next_deadline_ms() == MonotonicMs(chain.clock.now_ms + 500)
    chain.passes(499)
    assert chain.items() == []
    chain.passes(1)
    assert _kinds(chain.items()) == [TickItem]
    assert chain.task.next_deadline_ms() is None, "one tick at a time"
    chain.done(4)
    assert chain.said() == ["rows"]
    assert chain.task.next_deadline_ms() is None, "nobody asked again"


def test_nothing_ticks_and_no_time_is_said_behind_the_end_of_a_stopped_source() -> None:
    chain = Driven(_source_plan(timed=True), A)
    wall_ms = chain.clock.moment().wall_ms
    chain.done(timer=wall_ms + 500)
    chain.control(Desired.STOP)
    chain.read(NothingYet())
    assert chain.said() == ["end"]
    chain.passes(10_000)
    assert chain.items() == []
    assert chain.said() == []


def test_the_finish_comes_behind_the_last_watermark_and_no_time_follows_it() -> None:
    chain = Driven(_source_plan(timed=True), A)
    chain.done()
    chain.rows(50)
    chain.read(SourceEnded())
    assert _kinds(chain.items()) == [RunItem, AdvanceItem, FinishItem]
    for _ in range(3):
        chain.done()
    assert chain.said() == ["40", "end"]


def test_a_source_that_rests_says_that_it_is_idle_and_a_watermark_before_its_next_rows() -> None:
    chain = Driven(_source_plan(idle_timeout_ms=100), A)
    chain.rows(50)
    chain.done(1)
    chain.read(NothingYet(MonotonicMs(chain.clock.now_ms + 5_000)))
    assert chain.task.next_deadline_ms() == chain.clock.now_ms + 100
    chain.passes(100)
    assert chain.said() == ["rows", "40", "idle"]
    chain.passes(4_900)
    chain.rows(45)
    chain.done(1)
    assert chain.said() == ["40", "rows"]


def test_an_edge_without_rows_hears_of_time_now_and_then() -> None:
    chain = Driven(_inner_plan(timed=False))
    chain.starts()
    chain.deliver(0, EndOfStream())
    for mark in range(10):
        chain.deliver(1, _mark(mark))
    assert chain.said() == ["0"]
    deadline_ms = chain.task.next_deadline_ms()
    assert deadline_ms == chain.clock.now_ms + WATERMARK_INTERVAL_MS
    chain.passes(WATERMARK_INTERVAL_MS)
    assert chain.said() == ["9"]


def test_a_stopped_input_holds_the_watermark_and_an_ended_one_does_not() -> None:
    chain = Driven(_inner_plan(timed=False))
    chain.starts()
    chain.deliver(0, _mark(5))
    chain.deliver(0, EndOfStream(stopped=True))
    chain.deliver(1, _mark(90))
    chain.passes(WATERMARK_INTERVAL_MS)
    assert chain.said() == ["5"]
    ended = Driven(_inner_plan(timed=False))
    ended.starts()
    ended.deliver(0, EndOfStream())
    ended.deliver(1, _mark(90))
    assert ended.said() == ["90"]


def test_rows_that_end_the_idleness_of_an_input_let_the_chain_wake_those_behind_it() -> None:
    chain = Driven(_inner_plan(timed=False))
    chain.starts()
    chain.deliver(0, _mark(7))
    for number in range(2):
        chain.deliver(number, Idle())
    assert chain.said() == ["idle"]
    chain.deliver(1, _data(1))
    chain.done(1)
    assert chain.said() == [str(EARLIEST), "rows"], "a watermark tells that it is awake"


def test_time_that_nobody_looks_at_waits_for_the_rows_before_it() -> None:
    chain = Driven(_source_plan(), A, B)
    chain.rows(50, A)
    chain.rows(70, B)
    chain.done(1)
    assert chain.said() == ["rows"]
    chain.done(1)
    assert chain.said() == ["rows", "40"]


def test_a_source_that_runs_ahead_of_the_slowest_is_not_read_until_that_follows() -> None:
    plan = _source_plan(idle_timeout_ms=100)
    assert plan.source is not None
    assert plan.source.time is not None
    drifting = replace(plan.source.time, max_drift_ms=100)
    chain = Driven(replace(plan, source=replace(plan.source, time=drifting)), A)
    chain.control(slowest=Slowest(EventTimeMs(0), ChainId("other-0")))
    chain.rows(110)
    chain.done(1)
    chain.rows(111)
    chain.done(1)
    assert not any(isinstance(each, ReadSource) for each in chain.waiting)
    chain.passes(5_000)
    assert chain.said() == ["rows", "100", "rows", "101"], "it is not idle (W12)"
    chain.control(slowest=Slowest(EventTimeMs(1), ChainId("other-0")))
    chain.rows(500)
    chain.control(slowest=Slowest(EventTimeMs(2), chain.task.report(chain.clock.moment()).chain))
    chain.rows(900)
