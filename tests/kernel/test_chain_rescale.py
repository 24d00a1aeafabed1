"""A chain in the round of a rescale: nothing follows its cut, unless the round fails (K2, B3)."""

from dataclasses import replace

import pytest

from arkflow_kernel.envelope import Data, EndOfStream, RoundKind
from arkflow_kernel.errors import ProtocolError
from arkflow_kernel.ids import MonotonicMs, OperatorId, SplitId
from arkflow_kernel.plan import (
    ChainPlan,
    ComponentPlan,
    Mode,
    OperatorPlan,
    TimePlan,
    WindowKind,
    WindowPlan,
)
from arkflow_kernel.ports import NothingYet, SourceEnded
from arkflow_kernel.protocol import (
    CommitSource,
    Desired,
    OutcomeKind,
    PublishTokens,
    ReadSource,
    RunItem,
    SealItem,
    SealSink,
    Submit,
    TickItem,
    UploadSnapshot,
    Write,
)
from arkflow_kernel.task import Phase
from arkflow_kernel.testing.hand_driven_chain import HandDrivenChain, sink_token
from arkflow_kernel.testing.plans import chain_plan, channel_plan
from arkflow_kernel.testing.transcript import Transcript
from arkflow_kernel.testing.virtual_clock import VirtualClock

RESCALE = RoundKind.RESCALE


def _plan() -> ChainPlan:
    return chain_plan(operators=("op",), mode=Mode.CHECKPOINT, exactly_once=("sink",))


def _waiting(chain: HandDrivenChain, kind: type) -> list[int]:
    """Requests of a kind that are not answered; one to the lane is of its item's kind, too."""
    return [
        int(token)
        for token, request in chain.waiting.items()
        if isinstance(request, kind)
        or (isinstance(request, Submit) and isinstance(request.item, kind))
    ]


def _runs(chain: HandDrivenChain) -> list[int]:
    """Batches that were submitted and are not answered."""
    return _waiting(chain, RunItem)


def _seal(chain: HandDrivenChain) -> int:
    return _only(chain, SealItem)


def _only(chain: HandDrivenChain, kind: type) -> int:
    (found,) = _waiting(chain, kind)
    return found


def _cut(*, commits: bool = False) -> HandDrivenChain:
    """A source chain behind its cut: a row is in the cut, and a read is outstanding."""
    chain = HandDrivenChain(_plan(), commits=commits)
    chain.control()
    chain.read(_only(chain, ReadSource), 1)
    (run,) = _runs(chain)
    chain.control(round_id=1, kind=RESCALE)
    chain.done(run, 1)
    return chain


def _answered(chain: HandDrivenChain) -> None:
    """The cut is sealed, staged and answered."""
    chain.done(_seal(chain))
    while asked := (*_waiting(chain, Write), *_waiting(chain, SealSink)):
        chain.wrote(asked[0], 1)
    chain.uploaded(_only(chain, UploadSnapshot), sink_token(1))


def test_a_source_submits_and_reads_no_further_behind_its_cut() -> None:
    chain = _cut()
    chain.read(_only(chain, ReadSource), 2)
    assert not _runs(chain)
    assert not _waiting(chain, ReadSource)
    _answered(chain)
    chain.tick(60_000)
    assert not _runs(chain)
    assert not _waiting(chain, ReadSource)
    assert chain.task.next_deadline_ms() is None, "nobody has to call it"
    answer = chain.task.report(chain.clock.moment()).answer
    assert answer is not None
    assert answer.snapshot is not None
    assert [each.position for each in answer.snapshot.sources] == [{"row": 1}]


def test_a_round_that_has_failed_lets_it_go_on_where_it_was() -> None:
    chain = _cut()
    chain.read(_only(chain, ReadSource), 2)
    _answered(chain)
    chain.control(round_id=1, kind=RESCALE, failed=1)
    assert len(_runs(chain)) == 1, "what was read ahead"
    assert len(_waiting(chain, ReadSource)) == 1
    chain.control(round_id=2, kind=RoundKind.PERIODIC, failed=1)
    assert _seal(chain)


def test_a_source_that_ends_behind_its_cut_is_not_finished_before_the_round_has_failed() -> None:
    chain = _cut()
    chain.read(_only(chain, ReadSource), SourceEnded())
    _answered(chain)
    phases = [chain.task.phase]
    assert not chain.task.report(chain.clock.moment()).drained
    chain.control(round_id=1, kind=RESCALE, failed=1)
    assert [*phases, chain.task.phase] == [Phase.RUNNING, Phase.FINISHING]


def test_a_completed_round_lets_it_publish_commit_and_end_as_stopped() -> None:
    chain = _cut(commits=True)
    _answered(chain)
    chain.control(Desired.END, round_id=1, kind=RESCALE, completed=1)
    assert chain.task.phase is Phase.STOPPING, "a read is outstanding"
    commit, publish = _only(chain, CommitSource), _only(chain, PublishTokens)
    chain.read(_only(chain, ReadSource), 5)
    assert not _runs(chain), "what it read belongs to the next plan"
    chain.committed(commit)
    assert chain.end is None, "its rows are not published yet"
    chain.published(publish)
    assert chain.end is not None
    outcome = chain.end.outcome
    assert (outcome.kind, outcome.error) == (OutcomeKind.STOPPED, None)
    assert [each.position for each in outcome.frontier] == [{"row": 1}]


def test_a_chain_without_anything_to_publish_ends_at_once() -> None:
    chain = _cut()
    chain.read(_only(chain, ReadSource), NothingYet(MonotonicMs(10_000)))
    _answered(chain)
    chain.control(Desired.END, round_id=1, kind=RESCALE, completed=1)
    chain.published(_only(chain, PublishTokens))
    assert chain.end is not None
    assert chain.end.outcome.kind is OutcomeKind.STOPPED


@pytest.mark.parametrize("desired", [Desired.STOP, Desired.DRAIN])
def test_a_stop_takes_the_hold_away(desired: Desired) -> None:
    """What was to follow the round does not: it is a round as any other."""
    chain = _cut()
    chain.read(_only(chain, ReadSource), 2)
    _answered(chain)
    chain.control(desired, round_id=1, kind=RESCALE)
    if desired is Desired.DRAIN:
        assert chain.task.phase is Phase.FINISHING
    else:
        assert chain.task.phase is Phase.DRAINED
    chain.control(desired, round_id=1, kind=RESCALE, completed=1)
    assert chain.end is None, "the last round follows"


def test_a_cancel_ends_a_chain_that_is_held() -> None:
    chain = _cut()
    chain.control(Desired.CANCEL, round_id=1, kind=RESCALE)
    assert chain.end is not None
    assert chain.end.outcome.kind is OutcomeKind.CANCELLED


@pytest.mark.parametrize("kind", [RoundKind.PERIODIC, RoundKind.SAVEPOINT])
def test_no_other_round_holds_anything(kind: RoundKind) -> None:
    chain = HandDrivenChain(_plan())
    chain.control()
    chain.control(round_id=1, kind=kind)
    chain.read(_only(chain, ReadSource), 1)
    assert len(_runs(chain)) == 1


# --- chains behind ---------------------------------------------------------------------------


class _Pair:
    """A source chain and one behind it, with one transcript."""

    def __init__(self) -> None:
        channel = channel_plan()
        log, clock = Transcript(), VirtualClock()
        mode = Mode.CHECKPOINT
        above = chain_plan(sinks=(), channels=(channel,), mode=mode)
        below = chain_plan(
            *("chain-1",), operators=("op",), inputs=(channel,), mode=mode, exactly_once=("sink",)
        )
        self.above = HandDrivenChain(above, log=log, clock=clock)
        self.below = HandDrivenChain(below, log=log, clock=clock)

    def carry(self) -> None:
        while self.above.emitted:
            self.below.deliver(self.above)

    def cut(self) -> None:
        """Both are behind the cut of round 1, and have answered it."""
        for chain in (self.above, self.below):
            chain.control()
        self.above.control(round_id=1, kind=RESCALE)
        self.above.done(_seal(self.above))
        self.above.uploaded(_only(self.above, UploadSnapshot))
        self.below.control(round_id=1, kind=RESCALE)
        self.carry()
        _answered(self.below)


def test_a_chain_behind_ends_when_the_stream_does_and_its_tokens_are_published() -> None:
    pair = _Pair()
    pair.cut()
    pair.below.control(Desired.END, round_id=1, kind=RESCALE, completed=1)
    publish = _only(pair.below, PublishTokens)
    pair.below.published(publish)
    assert pair.below.end is None, "the one before may not have heard of it"
    pair.above.control(Desired.END, round_id=1, kind=RESCALE, completed=1)
    pair.above.read(_only(pair.above, ReadSource), 3)
    assert pair.above.end is not None
    assert [type(envelope) for _, envelope in pair.above.emitted] == [EndOfStream]
    pair.carry()
    assert pair.below.end is not None
    assert pair.below.end.outcome.kind is OutcomeKind.STOPPED
    assert pair.above.end.outcome.kind is OutcomeKind.STOPPED


def test_nothing_but_the_end_of_the_stream_follows_the_barrier() -> None:
    pair = _Pair()
    pair.cut()
    pair.above.read(_only(pair.above, ReadSource), 3)
    pair.above.tick(5_000)
    assert not pair.above.emitted
    pair.above.control(round_id=1, kind=RESCALE, failed=1)
    (run,) = _runs(pair.above)
    pair.above.done(run, 3, output="edge[0-0]")
    assert [type(each) for _, each in pair.above.emitted] == [Data]
    pair.carry()
    assert len(_runs(pair.below)) == 1, "it may hear of the failure later"


def test_a_chain_whose_data_had_ended_at_the_cut_ends_as_finished() -> None:
    chain = HandDrivenChain(_plan())
    chain.control()
    chain.read(_only(chain, ReadSource), SourceEnded())
    chain.done(min(chain.waiting))
    assert chain.task.phase is Phase.DRAINED
    chain.control(round_id=1, kind=RESCALE)
    _answered(chain)
    chain.control(Desired.END, round_id=1, kind=RESCALE, completed=1)
    chain.published(_only(chain, PublishTokens))
    assert chain.end is not None
    assert chain.end.outcome.kind is OutcomeKind.FINISHED


def test_a_held_chain_takes_an_answer_only_to_what_it_asked() -> None:
    chain = _cut()
    with pytest.raises(ProtocolError):
        chain.done(99)


# --- time ------------------------------------------------------------------------------------


def _timed() -> HandDrivenChain:
    """A source with event time and an idle time-out, and a window, behind the cut of a rescale.

    The window wants a tick at once, and the source is idle 100 ms after its last row.
    """
    plan = chain_plan(mode=Mode.CHECKPOINT, exactly_once=("sink",))
    assert plan.source is not None
    time = TimePlan("ts", bound_ms=10, idle_timeout_ms=100)
    shape = WindowPlan(WindowKind.TUMBLING, "ts", size_ms=40)
    window = OperatorPlan(OperatorId("w"), "window", ComponentPlan("window", {}), window=shape)
    plan = replace(plan, source=replace(plan.source, time=time), operators=(window,))
    chain = HandDrivenChain(plan, splits=(SplitId("a"),))
    chain.control()
    chain.done(_only(chain, Submit))  # the tick with which a window begins
    chain.read(_only(chain, ReadSource), 1, max_ms=60)
    run, advance = _waiting(chain, Submit)
    chain.done(run, 1)
    chain.done(advance, timer=50)
    chain.control(round_id=1, kind=RESCALE)
    return chain


def test_a_window_is_not_called_and_no_time_is_said_behind_the_cut() -> None:
    chain = _timed()
    chain.done(_seal(chain), timer=50)
    chain.read(_only(chain, ReadSource), 1, max_ms=500)
    chain.tick(1_000)
    assert not _waiting(chain, Submit), "neither a tick nor a watermark"
    assert chain.task.statistics().watermark == 50
    assert not chain.task.statistics().idle
    assert chain.task.next_deadline_ms() is None


def test_what_was_due_meanwhile_comes_when_the_round_has_failed() -> None:
    chain = _timed()
    chain.done(_seal(chain), timer=50)
    chain.read(_only(chain, ReadSource), NothingYet(MonotonicMs(9_000)))
    chain.tick(1_000)
    assert not chain.task.statistics().idle
    chain.control(round_id=1, kind=RESCALE, failed=1)
    items = [each.item for each in chain.waiting.values() if isinstance(each, Submit)]
    assert [type(item) for item in items] == [TickItem]
    assert chain.task.statistics().idle
