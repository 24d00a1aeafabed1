"""The machine of a chain: any legal events lead to a legal state, illegal ones to a typed error."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.chain_clock import OpenedSource
from arkflow_kernel.errors import BadRowError, ProtocolError, SinkError, SourceError
from arkflow_kernel.ids import Generation, MonotonicMs, OutputId, RequestToken, Sequence, SplitId
from arkflow_kernel.ports import NothingYet, SourceBatch, SourceEnded, SplitPosition, WriteReceipt
from arkflow_kernel.protocol import (
    ChainEvent,
    CommitSource,
    Control,
    ControlState,
    Desired,
    Emit,
    EndChain,
    FlushSink,
    GrantCredit,
    ItemDone,
    LaneSlice,
    NextSlice,
    OutcomeKind,
    Piece,
    ReadSource,
    ReportSoon,
    Request,
    RequestFailed,
    RollSink,
    RunItem,
    SourceCommitted,
    SourceRead,
    Submit,
    Tick,
    Write,
    WriteDone,
)
from arkflow_kernel.task import ChainTask, Phase
from arkflow_kernel.testing.components import bad_rows, rows_batch
from arkflow_kernel.testing.plans import chain_plan
from arkflow_kernel.testing.virtual_clock import VirtualClock

G1 = Generation(1)


def _slice(*numbers: int) -> LaneSlice:
    """One batch of one row for the sink per number."""
    return LaneSlice(tuple(Piece(OutputId("sink"), rows_batch("a", [n]), 10) for n in numbers))


class Driver:
    """Performs what the machine asks for as Hypothesis (or a test) decides."""

    def __init__(self, task: ChainTask) -> None:
        self.task, self.clock = task, VirtualClock()
        self.open: dict[RequestToken, Request] = {}
        self.slices: dict[RequestToken, int] = {}
        self.written = self.rows = 0
        self.end: EndChain | None = None

    def take(self, event: Any) -> None:
        for command in self.task.handle(event):
            assert self.end is None, "nothing follows the end"
            if isinstance(command, EndChain):
                self.end = command
            else:
                assert not isinstance(command, Emit | GrantCredit | ReportSoon), (
                    "it has no channels"
                )
                self.open[command.token] = command
        self.task.validate()

    def control(self, desired: Desired = Desired.RUN) -> None:
        self.take(Control(self.clock.moment(), ControlState(G1, desired)))

    def answer(self, request: Request, choice: int) -> None:
        del self.open[request.token]
        at, token = self.clock.moment(), request.token
        match request:
            case ReadSource():
                self.take(SourceRead(at, token, self._result(choice)))
            case Submit() | NextSlice():
                left = self.slices.pop(token, choice % 3)
                more = left > 0 and isinstance(request, Submit | NextSlice)
                if more:
                    self.slices[token] = left - 1
                slice_ = _slice(1, 1)
                self.take(ItemDone(at, token, slice_ if choice % 2 else LaneSlice(), more))
            case Write() | RollSink() | FlushSink():
                if isinstance(request, Write):
                    self.written = request.sequence
                whole = not isinstance(request, Write) or choice % 3 > 0
                self.confirmed = self.written if whole else getattr(self, "confirmed", 0)
                roll = None if whole else MonotonicMs(at.now_ms + 5)
                self.take(WriteDone(at, token, WriteReceipt(Sequence(self.confirmed), roll)))
            case CommitSource():
                self.take(SourceCommitted(at, token))

    def _result(self, choice: int) -> Any:
        if choice == 0:
            return SourceEnded()
        if choice == 1:
            return NothingYet(MonotonicMs(self.clock.moment().now_ms + 3))
        split = SplitId("ab"[choice % 2])
        self.rows += 1
        return SourceBatch(split, rows_batch(split, [self.rows] * (choice % 3)), {"row": self.rows})


@given(
    commits=st.booleans(),
    workers=st.integers(1, 3),
    script=st.lists(st.tuples(st.integers(0, 19), st.integers(0, 9)), min_size=50),
)
def test_any_legal_sequence_of_events_leads_to_a_legal_state(
    commits: bool, workers: int, script: list[tuple[int, int]]
) -> None:
    plan = chain_plan(operators=("op",), workers=workers, error_sink="errors")
    driver = Driver(ChainTask(plan, G1, opened=OpenedSource(commits)))
    for what, choice in script:
        if what == 0:
            driver.control(Desired.STOP if choice == 0 else Desired.RUN)
        elif what == 1 and choice == 0:
            driver.control(Desired.CANCEL)
        elif what == 2:
            driver.clock.advance(choice)
            driver.take(Tick(driver.clock.moment()))
        elif what == 3 and choice == 0 and driver.open:
            token = next(iter(driver.open))
            driver.take(RequestFailed(driver.clock.moment(), token, SourceError("no")))
        elif driver.open:
            requests = list(driver.open.values())
            driver.answer(requests[what % len(requests)], choice)
        elif driver.task.phase is Phase.WAITING:
            driver.control()
    assert (driver.end is not None) == (driver.task.phase is Phase.ENDED)


@given(
    script=st.lists(st.integers(0, 9), max_size=40), kind=st.integers(0, 4), off=st.integers(1, 9)
)
def test_an_answer_that_nobody_asked_for_is_a_protocol_error_with_the_story(
    script: list[int], kind: int, off: int
) -> None:
    driver = Driver(ChainTask(chain_plan(), G1))
    driver.control()
    for choice in script:
        if driver.open:
            driver.answer(list(driver.open.values())[choice % len(driver.open)], choice)
    if driver.end is not None:
        return
    at = driver.clock.moment()
    token = RequestToken(max(driver.open, default=0) + 1_000 + off)
    events: list[ChainEvent] = [
        SourceRead(at, token, SourceEnded()),
        ItemDone(at, token, LaneSlice()),
        WriteDone(at, token, WriteReceipt(Sequence(0))),
        SourceCommitted(at, token),
        RequestFailed(at, token, SourceError("no")),
    ]
    event = events[kind]
    with pytest.raises(ProtocolError, match="chain 'chain-0'") as failure:
        driver.task.handle(event)
    assert failure.value.story[-1].startswith(type(event).__name__)


def test_an_answer_of_the_wrong_kind_is_a_protocol_error() -> None:
    driver = Driver(ChainTask(chain_plan(), G1))
    driver.control()
    (read,) = driver.open
    at = driver.clock.moment()
    for event in (SourceCommitted(at, read), WriteDone(at, read, WriteReceipt(Sequence(0)))):
        driver = Driver(ChainTask(chain_plan(), G1))
        driver.control()
        with pytest.raises(ProtocolError):
            driver.task.handle(event)


def _read(driver: Driver, batch: SourceBatch) -> None:
    read = next(r for r in driver.open.values() if isinstance(r, ReadSource))
    del driver.open[read.token]
    driver.take(SourceRead(driver.clock.moment(), read.token, batch))


def test_a_bad_row_without_an_error_output_fails_the_chain_and_names_the_place() -> None:
    driver = Driver(ChainTask(chain_plan(), G1))
    driver.control()
    origin = Origin("a.json", None, 4)
    batch = SourceBatch(SplitId("a"), rows_batch("a", [1]), {"row": 2}, origin, bad_rows("a", [0]))
    _read(driver, batch)
    assert driver.end is not None
    assert driver.end.outcome.kind is OutcomeKind.FAILED
    assert isinstance(driver.end.outcome.error, BadRowError)
    assert driver.end.outcome.frontier == ()


def test_an_empty_batch_of_bad_rows_fails_nothing() -> None:
    driver = Driver(ChainTask(chain_plan(), G1))
    driver.control()
    batch = SourceBatch(SplitId("a"), rows_batch("a", [1]), {"row": 1}, bad=bad_rows("a", []))
    _read(driver, batch)
    assert driver.end is None


def test_a_slice_with_more_batches_than_the_sink_takes_leaves_in_parts() -> None:
    driver = Driver(ChainTask(chain_plan(), G1))
    driver.control()
    _read(driver, SourceBatch(SplitId("a"), rows_batch("a", range(9)), {"row": 9}))
    item = next(r for r in driver.open.values() if isinstance(r, Submit))
    assert isinstance(item.item, RunItem)
    slice_ = _slice(*range(9))
    driver.take(ItemDone(driver.clock.moment(), item.token, slice_))
    seen = []
    for n in range(1, 10):
        write = next(r for r in driver.open.values() if isinstance(r, Write))
        del driver.open[write.token]
        seen.append(write.batch.column("n")[0].as_py())
        assert driver.task.frontier() == ()
        receipt = WriteReceipt(Sequence(n))
        driver.take(WriteDone(driver.clock.moment(), write.token, receipt))
    assert seen == list(range(9))
    assert driver.task.frontier() == (SplitPosition(SplitId("a"), {"row": 9}),)
    assert driver.task.statistics().settled_rows == 9


def test_a_sink_that_confirms_what_it_was_not_given_fails_the_chain() -> None:
    driver = Driver(ChainTask(chain_plan(), G1))
    driver.control()
    _read(driver, SourceBatch(SplitId("a"), rows_batch("a", [1]), {"row": 1}))
    item = next(r for r in driver.open.values() if isinstance(r, Submit))
    slice_ = _slice(1)
    driver.take(ItemDone(driver.clock.moment(), item.token, slice_))
    write = next(r for r in driver.open.values() if isinstance(r, Write))
    driver.take(WriteDone(driver.clock.moment(), write.token, WriteReceipt(Sequence(2))))
    assert driver.end is not None
    assert isinstance(driver.end.outcome.error, SinkError)


def test_a_stop_before_anything_was_read_ends_the_chain_at_once() -> None:
    driver = Driver(ChainTask(chain_plan(), G1))
    driver.control(Desired.STOP)
    assert driver.end is not None
    assert driver.end.outcome.kind is OutcomeKind.STOPPED
    assert driver.task.next_deadline_ms() is None


def test_a_stop_during_finishing_lets_the_chain_finish() -> None:
    driver = Driver(ChainTask(chain_plan(), G1))
    driver.control()
    read = next(iter(driver.open.values()))
    driver.answer(read, 0)
    assert driver.task.phase is Phase.FINISHING
    driver.control(Desired.STOP)
    driver.take(ItemDone(driver.clock.moment(), next(iter(driver.open)), LaneSlice()))
    assert driver.end is None or driver.end.outcome.kind is OutcomeKind.FINISHED
    assert driver.end is not None


def test_control_of_another_attempt_is_counted_and_changes_nothing() -> None:
    task = ChainTask(chain_plan(), G1)
    assert task.handle(Control(VirtualClock().moment(), ControlState(Generation(2)))) == []
    assert task.phase is Phase.WAITING
    assert task.statistics().stale_controls == 1
