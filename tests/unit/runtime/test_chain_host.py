"""The chain host: a real loop and real threads over scripted components (P5, T4)."""

import asyncio
import threading
from collections.abc import Sequence as Seq
from typing import cast

import pyarrow as pa
import pytest

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.checkpoint_ports import Staging
from arkflow_kernel.errors import OperatorTimeoutError, ProtocolError, SinkError, SourceError
from arkflow_kernel.ids import (
    ChainId,
    Generation,
    MonotonicMs,
    OperatorId,
    OutputId,
    Sequence,
    SplitId,
)
from arkflow_kernel.plan import (
    ONLY_SUBTASK,
    ChainPlan,
    ComponentPlan,
    OperatorPlan,
    SinkPlan,
    SourcePlan,
    Subtask,
)
from arkflow_kernel.ports import (
    NothingYet,
    Operator,
    OperatorResult,
    ReadResult,
    ReplayKind,
    SinkWriter,
    SourceBatch,
    SourceEnded,
    SourceReader,
    SplitPosition,
    WriteReceipt,
)
from arkflow_kernel.protocol import ChainOutcome, ControlState, Desired, OutcomeKind
from arkflow_ray.runtime.chain_host import ChainHost
from arkflow_ray.runtime.clock import SystemClock

RUN = ControlState(Generation(1))
STOP = ControlState(Generation(1), Desired.STOP)
CANCEL = ControlState(Generation(1), Desired.CANCEL)


class Numbers:
    """Yields batches of one row, 0 to `count` - 1; without `count` it never ends."""

    replay = ReplayKind.POSITION
    commits = False

    def __init__(self, count: int | None) -> None:
        self.count = count
        self.next = 0
        self.closed = 0

    def open(self, restored: Seq[SplitPosition], assigned: Seq[SplitId] | None = None) -> None:
        if restored:
            self.next = cast(int, restored[0].position["next"])

    def splits(self) -> Seq[SplitId]:
        return (SplitId("numbers"),)

    def read(self, now_ms: MonotonicMs) -> ReadResult:
        if self.count is not None and self.next >= self.count:
            return SourceEnded()
        batch = pa.record_batch({"n": [self.next]})
        self.next += 1
        position = {"next": self.next}
        return SourceBatch(SplitId("numbers"), batch, position, Origin("numbers"))

    def commit(self, positions: Seq[SplitPosition]) -> None:
        raise AssertionError("it asked for no commits")

    def close(self) -> None:
        self.closed += 1


class Passing:
    """Hands batches on; `gate`, if given, holds each call until it is set."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.gate = gate
        self.entered = threading.Event()
        self.closed = 0

    def open(self) -> None:
        pass

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(10)
        return OperatorResult((batch,))

    def finish(self) -> OperatorResult:
        return OperatorResult(())

    def close(self) -> None:
        self.closed += 1


class Kept:
    """Keeps the rows; `failing` raises on the first write."""

    def __init__(self, failing: bool = False) -> None:
        self.rows: list[int] = []
        self.failing = failing
        self.wrote = threading.Event()
        self.closed = 0

    def open(self) -> None:
        pass

    def write(self, sequence: Sequence, batch: pa.RecordBatch, now_ms: MonotonicMs) -> WriteReceipt:
        if self.failing:
            raise OSError(28, "No space left on device")
        self.rows += cast("list[int]", batch.column(0).to_pylist())
        self.wrote.set()
        self.last = sequence
        return WriteReceipt(sequence)

    def roll(self, now_ms: MonotonicMs) -> WriteReceipt:
        return WriteReceipt(self.last)

    flush = roll

    def close(self) -> None:
        self.closed += 1


class Parts:
    """A `ComponentFactory` over ready objects."""

    def __init__(self, source: SourceReader, operator: Operator, sink: SinkWriter) -> None:
        self._parts = (source, operator, sink)

    def source(self, plan: SourcePlan) -> SourceReader:
        return self._parts[0]

    def operator(self, plan: OperatorPlan, workers: int) -> Operator:
        return self._parts[1]

    def sink(
        self, plan: SinkPlan, staging: Staging | None = None, subtask: Subtask = ONLY_SUBTASK
    ) -> SinkWriter:
        return self._parts[2]


def plan(workers: int = 1, timeout_ms: int | None = None) -> ChainPlan:
    component = ComponentPlan("scripted", {})
    return ChainPlan(
        ChainId("numbers-0"),
        SourcePlan(OperatorId("numbers"), component),
        (OperatorPlan(OperatorId("pass"), "map", component, timeout_ms),),
        (SinkPlan(OperatorId("kept"), component),),
        (OutputId("kept"),),
        workers=workers,
    )


def host(
    parts: Parts,
    *,
    workers: int = 1,
    timeout_ms: int | None = None,
    teardown_timeout_ms: int = 5_000,
) -> ChainHost:
    made = ChainHost(
        plan(workers, timeout_ms),
        Generation(1),
        parts,
        SystemClock(),
        teardown_timeout_ms=teardown_timeout_ms,
    )
    made.open()
    return made


@pytest.mark.parametrize("workers", [1, 4])
def test_a_bounded_source_is_processed_in_order_and_everything_is_closed(workers: int) -> None:
    source, operator, sink = Numbers(200), Passing(), Kept()
    chain = host(Parts(source, operator, sink), workers=workers)
    chain.control(RUN)
    outcome = asyncio.run(chain.run())
    assert outcome.kind is OutcomeKind.FINISHED, outcome
    assert sink.rows == list(range(200))
    assert outcome.frontier[0].position == {"next": 200}
    assert (source.closed, operator.closed, sink.closed) == (1, 1, 1)
    assert chain.report().result().statistics.rows_in == 200


def test_nothing_is_read_before_the_first_control_state() -> None:
    source = Numbers(3)
    chain = host(Parts(source, Passing(), Kept()))

    async def scenario() -> int:
        running = asyncio.create_task(chain.run())
        done, _ = await asyncio.wait({running}, timeout=0.05)
        assert not done
        before = source.next
        chain.control(RUN)
        await running
        return before

    assert asyncio.run(scenario()) == 0


def test_stop_settles_what_was_read_and_reads_no_further() -> None:
    source, sink = Numbers(None), Kept()
    chain = host(Parts(source, Passing(), sink))

    async def scenario() -> ChainOutcome:
        chain.control(RUN)
        running = asyncio.create_task(chain.run())
        await asyncio.to_thread(sink.wrote.wait, 10)
        chain.control(STOP)
        return await running

    outcome = asyncio.run(scenario())
    assert outcome.kind is OutcomeKind.STOPPED
    assert sink.rows == list(range(len(sink.rows)))
    assert outcome.frontier[0].position == {"next": len(sink.rows)}


def test_cancel_ends_while_an_operator_is_at_work_and_closes_all() -> None:
    gate = threading.Event()
    source, operator, sink = Numbers(None), Passing(gate), Kept()
    chain = host(Parts(source, operator, sink))

    async def scenario() -> ChainOutcome:
        chain.control(RUN)
        running = asyncio.create_task(chain.run())
        await asyncio.to_thread(operator.entered.wait, 10)
        chain.control(CANCEL)
        gate.set()
        return await running

    outcome = asyncio.run(scenario())
    assert outcome.kind is OutcomeKind.CANCELLED
    assert (source.closed, operator.closed, sink.closed) == (1, 1, 1)
    assert not chain.hung


def test_an_operator_over_its_timeout_fails_the_chain_and_is_left_behind() -> None:
    gate = threading.Event()
    chain = host(Parts(Numbers(1), Passing(gate), Kept()), timeout_ms=50)
    chain.control(RUN)
    outcome = asyncio.run(chain.run())
    gate.set()
    assert isinstance(outcome.error, OperatorTimeoutError)
    assert "50 ms" in str(outcome.error)
    assert chain.hung


def test_a_sink_that_fails_ends_the_chain_with_its_name_and_reason() -> None:
    chain = host(Parts(Numbers(None), Passing(), Kept(failing=True)))
    chain.control(RUN)
    outcome = asyncio.run(chain.run())
    assert isinstance(outcome.error, SinkError)
    assert "'kept' failed to write" in str(outcome.error)
    assert "No space left" in str(outcome.error)


def test_a_component_that_does_not_close_after_a_failure_is_left_behind() -> None:
    free = threading.Event()

    class Stuck(Numbers):
        def close(self) -> None:
            assert free.wait(20)

    parts = Parts(Stuck(None), Passing(), Kept(failing=True))
    chain = host(parts, teardown_timeout_ms=50)
    chain.control(RUN)
    outcome = asyncio.run(chain.run())
    free.set()
    assert isinstance(outcome.error, SinkError)
    assert chain.hung


def test_a_chain_answers_how_it_is_while_its_components_are_being_closed() -> None:
    closing, free = threading.Event(), threading.Event()

    class Slow(Numbers):
        def close(self) -> None:
            closing.set()
            assert free.wait(20)

    chain = host(Parts(Slow(3), Passing(), Kept()))

    async def scenario() -> ChainOutcome:
        chain.control(RUN)
        running = asyncio.create_task(chain.run())
        await asyncio.to_thread(closing.wait, 20)
        report = await asyncio.wrap_future(chain.report())
        assert report.statistics.settled_rows == 3
        assert not running.done()
        free.set()
        return await running

    assert asyncio.run(scenario()).kind is OutcomeKind.FINISHED


def test_a_source_that_fails_to_open_leaves_nothing_open() -> None:
    class Closed(Numbers):
        def open(self, restored: Seq[SplitPosition], assigned: Seq[SplitId] | None = None) -> None:
            raise PermissionError(13, "Permission denied")

    source, operator, sink = Closed(1), Passing(), Kept()
    with pytest.raises(SourceError, match="'numbers' failed to open"):
        host(Parts(source, operator, sink))
    assert (source.closed, operator.closed, sink.closed) == (1, 0, 0)


def test_a_source_that_has_nothing_yet_is_asked_again_at_its_time() -> None:
    class Waiting(Numbers):
        asked = 0

        def read(self, now_ms: MonotonicMs) -> ReadResult:
            self.asked += 1
            if self.asked == 1:
                return NothingYet(MonotonicMs(now_ms + 20))
            return super().read(now_ms)

    source, sink = Waiting(1), Kept()
    chain = host(Parts(source, Passing(), sink))
    chain.control(RUN)
    assert asyncio.run(chain.run()).kind is OutcomeKind.FINISHED
    assert sink.rows == [0]
    assert source.asked == 3


def test_a_fault_of_the_machine_ends_the_chain_and_closes_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, operator, sink = Numbers(3), Passing(), Kept()
    chain = host(Parts(source, operator, sink))

    def broken(event: object) -> None:
        raise AssertionError("planted")

    monkeypatch.setattr(chain._task, "handle", broken)
    chain.control(RUN)
    outcome = asyncio.run(chain.run())
    assert isinstance(outcome.error, ProtocolError)
    assert "AssertionError: planted" in str(outcome.error)
    assert (source.closed, operator.closed, sink.closed) == (1, 1, 1)
