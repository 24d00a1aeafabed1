"""Time in the machine of a chain: its place behind rows, ticks, cuts, idle (W2, W11, W13, N5)."""

from dataclasses import replace

from arkflow_kernel.envelope import (
    Barrier,
    Data,
    EndOfStream,
    Idle,
    RoundKind,
    Watermark,
)
from arkflow_kernel.ids import (
    EARLIEST,
    ChainId,
    CheckpointId,
    EventTimeMs,
    MonotonicMs,
    Sequence,
)
from arkflow_kernel.limits import WATERMARK_INTERVAL_MS
from arkflow_kernel.ports import NothingYet, SourceEnded
from arkflow_kernel.protocol import (
    AdvanceItem,
    Desired,
    FinishItem,
    LaneItem,
    ReadSource,
    RunItem,
    SealItem,
    Slowest,
    TickItem,
)
from arkflow_kernel.snapshot import ChainSnapshot, SplitTime
from arkflow_kernel.testing.components import rows_batch
from tests.kernel.time.driven import G1, A, B, Driven, inner_plan, join_plan, source_plan


def _mark(value: int) -> Watermark:
    return Watermark(EventTimeMs(value))


def _kinds(items: list[LaneItem]) -> list[type]:
    return [type(item) for item in items]


def _data(sequence: int) -> Data:
    return Data(Sequence(sequence), (rows_batch("a", range(1)),), 8)


def test_a_watermark_follows_the_rows_that_raised_it() -> None:
    chain = Driven(source_plan(), A)
    chain.rows(50)
    chain.rows(60)
    assert chain.said() == []
    chain.done(1)
    assert chain.said() == ["rows", "40"]
    chain.done(1)
    assert chain.said() == ["rows", "50"]


def test_operators_get_the_watermark_behind_the_rows_and_it_leaves_behind_what_they_fire() -> None:
    chain = Driven(source_plan(timed=True), A)
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
    chain = Driven(inner_plan(timed=True))
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
    chain = Driven(source_plan(timed=True), A)
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
    chain = Driven(inner_plan(timed=False))
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
    plan = source_plan()
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
    chain = Driven(source_plan(timed=True), A)
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
    chain = Driven(source_plan(timed=True), A)
    wall_ms = chain.clock.moment().wall_ms
    chain.done(timer=wall_ms + 500)
    chain.control(Desired.STOP)
    chain.read(NothingYet())
    assert chain.said() == ["end"]
    chain.passes(10_000)
    assert chain.items() == []
    assert chain.said() == []


def test_the_finish_comes_behind_the_last_watermark_and_no_time_follows_it() -> None:
    chain = Driven(source_plan(timed=True), A)
    chain.done()
    chain.rows(50)
    chain.read(SourceEnded())
    assert _kinds(chain.items()) == [RunItem, AdvanceItem, FinishItem]
    for _ in range(3):
        chain.done()
    assert chain.said() == ["40", "end"]


def test_a_source_that_rests_says_that_it_is_idle_and_a_watermark_before_its_next_rows() -> None:
    chain = Driven(source_plan(idle_timeout_ms=100), A)
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
    chain = Driven(inner_plan(timed=False))
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
    chain = Driven(inner_plan(timed=False))
    chain.starts()
    chain.deliver(0, _mark(5))
    chain.deliver(0, EndOfStream(stopped=True))
    chain.deliver(1, _mark(90))
    chain.passes(WATERMARK_INTERVAL_MS)
    assert chain.said() == ["5"]
    ended = Driven(inner_plan(timed=False))
    ended.starts()
    ended.deliver(0, EndOfStream())
    ended.deliver(1, _mark(90))
    assert ended.said() == ["90"]


def test_rows_that_end_the_idleness_of_an_input_let_the_chain_wake_those_behind_it() -> None:
    chain = Driven(inner_plan(timed=False))
    chain.starts()
    chain.deliver(0, _mark(7))
    for number in range(2):
        chain.deliver(number, Idle())
    assert chain.said() == ["idle"]
    chain.deliver(1, _data(1))
    chain.done(1)
    assert chain.said() == [str(EARLIEST), "rows"], "a watermark tells that it is awake"


def test_time_that_nobody_looks_at_waits_for_the_rows_before_it() -> None:
    chain = Driven(source_plan(), A, B)
    chain.rows(50, A)
    chain.rows(70, B)
    chain.done(1)
    assert chain.said() == ["rows"]
    chain.done(1)
    assert chain.said() == ["rows", "40"]


def test_a_source_that_runs_ahead_of_the_slowest_is_not_read_until_that_follows() -> None:
    plan = source_plan(idle_timeout_ms=100)
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


def test_the_watermark_that_leaves_a_join_is_behind_the_one_that_came_in() -> None:
    """By the window and the TTL (J3): rows that it keeps may leave until then."""
    chain = Driven(join_plan(window_ms=30, ttl_ms=5))
    chain.starts()
    chain.deliver(0, _mark(100))
    chain.deliver(1, _mark(120))
    chain.done()  # the tick of the start
    assert chain.items() == [AdvanceItem(chain.items()[0].token, EventTimeMs(100))]
    chain.done(1)
    assert chain.said() == ["rows", "65"]


def test_idleness_leaves_a_join_when_both_sides_are_idle() -> None:
    chain = Driven(join_plan(window_ms=30, ttl_ms=5))
    chain.starts()
    chain.done()
    chain.deliver(0, Idle())
    chain.deliver(1, _mark(100))
    chain.done()
    assert chain.said() == ["65"]
    chain.deliver(1, Idle())
    assert chain.said() == ["idle"]
    chain.deliver(0, _mark(90))
    assert chain.said() == ["65"]


def test_a_restored_join_tells_its_watermark_held_back() -> None:
    plan = join_plan(window_ms=30, ttl_ms=5)
    snapshot = ChainSnapshot(
        plan.chain, plan.tasks, (), (), finished=False, watermark=EventTimeMs(100)
    )
    chain = Driven(plan, snapshot=snapshot)
    assert chain.said() == ["65"]


def test_a_watermark_that_is_less_than_a_join_holds_back_from_the_beginning_is_the_earliest() -> (
    None
):
    chain = Driven(join_plan(window_ms=30, ttl_ms=5))
    chain.starts()
    chain.done()
    chain.deliver(0, _mark(EARLIEST + 1))
    chain.deliver(1, _mark(EARLIEST + 1))
    chain.done()
    assert chain.said() == [str(int(EARLIEST))]
