"""The driver's half of a chain: every request gets one answer, every failure its type and name."""

import pytest

from arkflow_kernel.chain_work import ChainWork, LaneKey, LaneName, lane_of
from arkflow_kernel.errors import (
    ArkflowError,
    ComponentError,
    OperatorTimeoutError,
    ProcessingError,
    SinkError,
    SourceError,
)
from arkflow_kernel.ids import OutputId, RequestToken, Sequence, SplitId
from arkflow_kernel.ports import OperatorResult, SourceBatch, SplitPosition
from arkflow_kernel.protocol import (
    CommitPermit,
    CommitSource,
    FinishItem,
    FlushSink,
    ItemDone,
    NextSlice,
    ReadSource,
    Request,
    RequestFailed,
    RollSink,
    RunItem,
    SourceCommitted,
    SourceRead,
    Submit,
    Write,
    WriteDone,
)
from arkflow_kernel.snapshot import ChainSnapshot, RestoredChain
from arkflow_kernel.testing.components import (
    ScriptedComponents,
    ScriptedOperator,
    ScriptedSink,
    ScriptedSource,
    rows_batch,
)
from arkflow_kernel.testing.plans import chain_plan, channel_plan
from arkflow_kernel.testing.virtual_clock import VirtualClock

T = RequestToken(1)
SINK = OutputId("sink")
BATCH = rows_batch("a", [1, 2])
COMMIT = CommitSource(T, CommitPermit("test"), (SplitPosition(SplitId("a"), {"row": 1}),))


class Parts:
    def __init__(
        self,
        source: ScriptedSource | None = None,
        operator: ScriptedOperator | None = None,
        sink: ScriptedSink | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        self.source = source or ScriptedSource({"a": (2, 2)}, commits=True)
        self.operator = operator or ScriptedOperator()
        self.sink = sink or ScriptedSink()
        self.clock = VirtualClock()
        components = ScriptedComponents(
            {"source": self.source}, {"op": self.operator}, {"sink": self.sink}
        )
        plan = chain_plan(operators=("op",), timeout_ms=timeout_ms)
        self.work = ChainWork(plan, components, self.clock)

    @property
    def counts(self) -> list[tuple[int, int]]:
        parts = (self.source, self.operator, self.sink)
        return [(part.opened, part.closed) for part in parts]


def test_each_request_is_worked_off_in_its_lane_and_answered_by_its_event() -> None:
    parts = Parts()
    at = SplitPosition(SplitId("a"), {"row": 2})
    snapshot = ChainSnapshot(parts.work.plan.chain, (), sources=(at,))
    parts.work.open(RestoredChain(snapshot=snapshot))
    assert parts.work.opened.commits
    write = Write(T, SINK, Sequence(1), BATCH)
    cases: list[tuple[Request, LaneName, type]] = [
        (ReadSource(T), LaneName.READ, SourceRead),
        (COMMIT, LaneName.READ, SourceCommitted),
        (Submit(RunItem(T, BATCH)), LaneName.PROCESS, ItemDone),
        (Submit(FinishItem(T)), LaneName.PROCESS, ItemDone),
        (write, LaneName.WRITE, WriteDone),
        (FlushSink(T, SINK), LaneName.WRITE, WriteDone),
    ]
    for request, lane, kind in cases:
        assert lane_of(request).name is lane
        event = parts.work.perform(request)
        assert type(event) is kind
        assert isinstance(event, SourceRead | SourceCommitted | ItemDone | WriteDone)
        assert event.token == T
        if isinstance(event, SourceRead):
            assert isinstance(event.result, SourceBatch)
            assert event.result.position == {"row": 4}, "restored in the middle"
    assert lane_of(NextSlice(T)) == lane_of(Submit(FinishItem(T)))
    assert lane_of(write) == LaneKey(LaneName.WRITE, SINK) != LaneKey(LaneName.WRITE)
    assert parts.source.committed == [COMMIT.positions]
    assert parts.work.close() == []
    assert parts.work.close() == []
    assert parts.counts == [(1, 1)] * 3


def test_what_a_source_can_repeat_is_known_and_a_chain_without_a_source_repeats_nothing() -> None:
    parts = Parts()
    assert (parts.work.replay, parts.work.opened.commits) == (parts.source.replay, True)
    plan = chain_plan(operators=("op",), inputs=(channel_plan(),))
    components = ScriptedComponents({}, {"op": parts.operator}, {"sink": parts.sink})
    work = ChainWork(plan, components, parts.clock)
    assert (work.replay, work.opened.commits) == (None, False)
    work.open()
    event = work.perform(Submit(RunItem(T, BATCH)))
    assert isinstance(event, ItemDone)
    (piece,) = event.slice.pieces
    assert (piece.output, piece.batch.num_rows) == (SINK, 2)
    assert piece.size_bytes > 0
    assert work.close() == []
    assert [(part.opened, part.closed) for part in (parts.operator, parts.sink)] == [(1, 1)] * 2


def test_a_roll_reaches_the_sink() -> None:
    parts = Parts(sink=ScriptedSink(roll_ms=10))
    parts.work.open()
    parts.work.perform(Write(T, SINK, Sequence(1), BATCH))
    parts.clock.advance(10)
    event = parts.work.perform(RollSink(T, SINK))
    assert isinstance(event, WriteDone)
    assert event.receipt.confirmed_upto == 1


def test_later_slices_are_answered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arkflow_kernel.pieces.SLICE_ROWS_MAX", 1)
    parts = Parts()
    parts.work.open()
    first = parts.work.perform(Submit(RunItem(T, BATCH)))
    assert isinstance(first, ItemDone)
    assert first.more
    last = parts.work.perform(NextSlice(T))
    assert isinstance(last, ItemDone)
    assert not last.more


@pytest.mark.parametrize(
    ("request_", "kind", "text"),
    [
        (ReadSource(T), SourceError, "'source' failed to read: OSError"),
        (COMMIT, SourceError, "'source' failed to commit: OSError"),
        (Submit(RunItem(T, BATCH)), ProcessingError, "operator 'op' failed: ValueError"),
        (Write(T, SINK, Sequence(1), BATCH), SinkError, "'sink' failed to write: OSError"),
    ],
)
def test_a_failure_of_a_component_is_an_answer_that_names_it(
    request_: Request, kind: type[ArkflowError], text: str
) -> None:
    parts = Parts(
        ScriptedSource({"a": (1,)}, fail_read_at=1, fail_commit_at=1),
        ScriptedOperator(fails=lambda _s, _n: True),
        ScriptedSink(fail_write_at=1),
    )
    parts.work.open()
    event = parts.work.perform(request_)
    assert isinstance(event, RequestFailed)
    assert type(event.error) is kind
    assert text in str(event.error)


@pytest.mark.parametrize(
    ("source", "operator", "sink", "kind", "counts"),
    [
        (True, False, False, SourceError, [(1, 1), (0, 0), (0, 0)]),
        (False, True, False, ComponentError, [(1, 1), (1, 1), (0, 0)]),
        (False, False, True, SinkError, [(1, 1), (1, 1), (1, 1)]),
    ],
)
def test_a_component_that_does_not_open_leaves_nothing_open(
    source: bool,
    operator: bool,
    sink: bool,
    kind: type[ArkflowError],
    counts: list[tuple[int, int]],
) -> None:
    parts = Parts(
        ScriptedSource({}, fail_open=source),
        ScriptedOperator(fail_open=operator),
        ScriptedSink(fail_open=sink),
    )
    with pytest.raises(kind, match="failed to open: OSError"):
        parts.work.open()
    assert parts.counts == counts
    assert parts.work.close() == []


def test_an_overdue_operator_fails_its_request() -> None:
    seen: list[RequestFailed | None] = []

    class Slow(ScriptedOperator):
        def finish(self) -> OperatorResult:
            seen.append(parts.work.overdue())
            parts.clock.advance(101)
            seen.append(parts.work.overdue())
            return super().finish()

    parts = Parts(operator=Slow(), timeout_ms=100)
    parts.work.open()
    parts.work.perform(Submit(FinishItem(T)))
    assert seen[0] is None
    assert seen[1] is not None
    assert seen[1].token == T
    assert isinstance(seen[1].error, OperatorTimeoutError)
