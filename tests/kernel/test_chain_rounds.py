"""A chain's answers to rounds, its pending tokens, its publications (B0-B3, B6, X1, X2, X5)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.envelope import Barrier, Reset, RoundKind
from arkflow_kernel.errors import ChannelError, ProtocolError, SinkError
from arkflow_kernel.ids import (
    ChainId,
    CheckpointId,
    Generation,
    MonotonicMs,
    OperatorId,
    RequestToken,
    SplitId,
)
from arkflow_kernel.limits import PUBLISH_RETRY_MS, PUBLISH_TIMEOUT_MS
from arkflow_kernel.plan import Mode
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.protocol import (
    Deliver,
    OutcomeKind,
    PublishTokens,
    ReadSource,
    SealItem,
    SealSink,
    SnapshotUploaded,
    Submit,
    UploadSnapshot,
    Write,
)
from arkflow_kernel.snapshot import (
    ChainSnapshot,
    Epoch,
    LaneSnapshot,
    ObjectRef,
    RoundAnswer,
    RunRef,
    SinkToken,
    StateSnapshot,
)
from arkflow_kernel.task import Phase
from arkflow_kernel.testing.hand_driven_chain import G1, HandDrivenChain, sink_token
from arkflow_kernel.testing.plans import chain_plan, channel_plan


class OneSink(HandDrivenChain):
    """A source and an exactly-once sink; requests are found by their kind, not by their number."""

    def __init__(self, snapshot: ChainSnapshot | None = None) -> None:
        plan = chain_plan(mode=Mode.CHECKPOINT, exactly_once=("sink",))
        super().__init__(plan, snapshot=snapshot)
        self.control()

    def asked(self, kind: type) -> list[int]:
        """Tokens of requests of a kind that wait for their answer, oldest first."""
        waiting = self.waiting.values()
        return [r.token for r in waiting if isinstance(r, kind)]

    def seals(self) -> list[int]:
        """Tokens of the seals in the lane."""
        waiting = self.waiting.values()
        items = (r.item for r in waiting if isinstance(r, Submit))
        return [item.token for item in items if isinstance(item, SealItem)]

    def rows(self, rows: int) -> None:
        """A batch is read, worked off and written."""
        (read,) = self.asked_reads()
        self.read(read, rows)
        (run,) = self.asked(Submit)
        self.done(run, rows)
        (write,) = self.asked(Write)
        self.sealed(write)

    def asked_reads(self) -> list[int]:
        waiting = self.waiting.values()
        return [r.token for r in waiting if isinstance(r, ReadSource)]

    def seal_round(self, number: int, failed: int = 0) -> None:
        """A round goes as far as its upload can be ordered."""
        self.control(round_id=number, failed=failed)
        self.done(self.seals()[0])
        self.sealed(self.asked(SealSink)[0])

    def round(self, number: int, *tokens: SinkToken, failed: int = 0) -> None:
        """A whole round."""
        self.seal_round(number, failed)
        self.uploaded(self.asked(UploadSnapshot)[0], *tokens)

    def answer(self) -> RoundAnswer:
        answer = self.task.report(self.clock.moment()).answer
        assert answer is not None
        return answer

    def snapshot(self) -> ChainSnapshot:
        """What the newest answer holds."""
        snapshot = self.answer().snapshot
        assert snapshot is not None
        return snapshot

    def lane(self) -> LaneSnapshot:
        (lane,) = self.snapshot().lanes
        return lane

    def published_upto(self) -> int:
        return int(self.task.report(self.clock.moment()).published_upto)

    def publishing(self) -> tuple[SinkToken, ...]:
        """The tokens that are being published."""
        waiting = self.waiting.values()
        orders = [r for r in waiting if isinstance(r, PublishTokens)]
        return orders[0].tokens if orders else ()


def test_a_snapshot_has_the_positions_of_what_was_submitted_before_the_trigger() -> None:
    """B0, B3: what is read while the seal waits is of the next cut."""
    chain = OneSink()
    chain.rows(3)
    chain.control(round_id=1)
    (seal,) = chain.seals()
    (read,) = chain.asked_reads()
    chain.read(read, 2)
    chain.done(seal)
    chain.sealed(chain.asked(SealSink)[0])
    chain.uploaded(chain.asked(UploadSnapshot)[0], sink_token(1))
    assert chain.snapshot().sources == (SplitPosition(SplitId("a"), {"row": 3}),)
    assert chain.answer().new_bytes == 10
    assert not chain.snapshot().finished
    assert chain.task.frontier() == (), "nothing is completed"


def test_every_token_that_is_not_published_is_in_the_next_snapshot() -> None:
    """Those of failed rounds too (B0, B6, X1)."""
    chain = OneSink()
    chain.round(1, sink_token(1))
    chain.round(2, sink_token(2), failed=1)
    assert chain.lane().tokens == (sink_token(1), sink_token(2))
    assert chain.lane().published_upto is None
    chain.control(round_id=2, failed=1, completed=2)
    assert chain.publishing() == (sink_token(1), sink_token(2))
    chain.round(3, sink_token(3))
    assert chain.lane().tokens == (sink_token(1), sink_token(2), sink_token(3)), "not confirmed yet"
    chain.published(chain.asked(PublishTokens)[0])
    chain.round(4)
    assert chain.lane().tokens == (sink_token(3),)
    assert chain.lane().published_upto == sink_token(2).epoch


def test_published_upto_is_the_last_completed_round_without_a_pending_token() -> None:
    chain = OneSink()
    chain.round(1, sink_token(1))
    assert chain.published_upto() == 0
    chain.control(round_id=1, completed=1)
    assert chain.published_upto() == 0
    chain.published(chain.asked(PublishTokens)[0])
    assert chain.published_upto() == 1
    chain.round(2)
    chain.control(round_id=2, completed=2)
    assert chain.published_upto() == 2, "an epoch without rows has no token"
    chain.round(3, sink_token(3))
    chain.round(4, failed=3)
    chain.control(round_id=4, failed=3, completed=4)
    assert chain.published_upto() == 2


def test_a_publication_that_fails_is_tried_again_each_second_and_told_as_a_wait() -> None:
    chain = OneSink()
    chain.round(1, sink_token(1))
    chain.control(round_id=1, completed=1)
    chain.publish_failed(chain.asked(PublishTokens)[0], "the target is full")
    assert chain.publishing() == ()
    assert chain.task.next_deadline_ms() == PUBLISH_RETRY_MS
    chain.round(2, sink_token(2))
    chain.control(round_id=2, completed=2)
    assert chain.publishing() == (), "newer tokens wait for the oldest one"
    chain.tick(PUBLISH_RETRY_MS)
    assert chain.publishing() == (sink_token(1), sink_token(2))
    (wait,) = chain.task.waits(MonotonicMs(PUBLISH_RETRY_MS))
    assert (wait.on, wait.detail) == ("sink 'sink'", "publishing fails: the target is full")
    chain.published(chain.asked(PublishTokens)[0])
    assert chain.task.waits(MonotonicMs(PUBLISH_RETRY_MS)) == ()
    assert chain.published_upto() == 2


@pytest.mark.parametrize("heals", [False, True])
def test_a_sink_that_cannot_publish_for_ten_minutes_fails_the_chain(heals: bool) -> None:
    """X2: the token stays where it is, in the log."""
    chain = OneSink()
    chain.round(1, sink_token(1))
    chain.control(round_id=1, completed=1)
    chain.publish_failed(chain.asked(PublishTokens)[0])
    chain.tick(PUBLISH_TIMEOUT_MS)
    if heals:
        chain.published(chain.asked(PublishTokens)[0])
        chain.round(2, sink_token(2))
        chain.control(round_id=2, completed=2)
    chain.publish_failed(chain.asked(PublishTokens)[0], "still full")
    assert (chain.end is not None) is not heals
    if chain.end is not None:
        assert chain.end.outcome.kind is OutcomeKind.FAILED
        assert isinstance(chain.end.outcome.error, SinkError)
        assert "could not publish for 600 s: still full" in str(chain.end.outcome.error)


def test_a_restored_chain_goes_on_behind_the_tokens_that_its_driver_has_published() -> None:
    old = [sink_token(n, generation=1) for n in (4, 5)]
    lanes = (LaneSnapshot(OperatorId("sink"), 0, tuple(old), None),)
    chain = OneSink(ChainSnapshot(ChainId("chain-0"), (), lanes=lanes))
    chain.round(6)
    assert chain.lane().tokens == ()
    assert chain.lane().published_upto == Epoch(Generation(1), CheckpointId(5))


def test_lanes_without_a_subtask_are_told_until_a_record_says_that_nothing_of_them_waits() -> None:
    """X5: 0 is its own; 2 and 4 were of subtasks that are no more, and are never renumbered."""
    old = sink_token(4)
    lanes = tuple(
        LaneSnapshot(OperatorId("sink"), lane, (replace(old, lane=lane),)) for lane in (2, 0, 4)
    )
    chain = OneSink(ChainSnapshot(ChainId("chain-0"), (), lanes=lanes))

    def told() -> list[tuple[int, bool, Epoch | None]]:
        snapshot = chain.snapshot()
        return [(lane.lane, bool(lane.tokens), lane.published_upto) for lane in snapshot.lanes]

    published = [(lane, False, old.epoch) for lane in (0, 2, 4)]
    chain.round(6)
    assert told() == published
    chain.round(7, failed=6)
    assert told() == published, "no record holds them yet"
    chain.control(round_id=7, failed=6, completed=7)
    chain.round(8, sink_token(8))
    assert told() == [(0, True, old.epoch)]


def test_a_snapshot_lists_the_objects_of_its_states_and_forgets_those_that_none_lists() -> None:
    chain = OneSink()
    refs = {name: ObjectRef(name, 7, "") for name in ("one", "two")}
    chain.seal_round(1)
    upload = chain.asked(UploadSnapshot)[0]
    chain.uploaded(upload, states=_states("one"), objects=(refs["one"],))
    assert chain.snapshot().objects == (refs["one"],)
    chain.seal_round(2)
    upload = chain.asked(UploadSnapshot)[0]
    chain.uploaded(upload, states=_states("one", "two"), objects=(refs["two"],))
    assert chain.snapshot().objects == (refs["one"], refs["two"])
    assert chain.answer().new_bytes == 7
    chain.seal_round(3)
    chain.uploaded(chain.asked(UploadSnapshot)[0], states=_states("two"))
    assert chain.snapshot().objects == (refs["two"],)
    assert chain.answer().new_bytes == 0


def _states(*objects: str) -> tuple[StateSnapshot, ...]:
    runs = tuple(RunRef(f"run-{name}", name, 0, 7, 1, "", 0, 127) for name in objects)
    return (StateSnapshot(OperatorId("op"), "default", "count", ("k",), (), "int64", runs),)


def test_an_answer_stands_in_every_report_until_the_chain_hears_what_became_of_its_round() -> None:
    """B4, K8: with many inputs an answer is large, and then nobody needs it."""
    for completed, failed in ((1, 0), (0, 1)):
        chain = OneSink()
        chain.round(1)
        assert chain.answer().checkpoint == 1
        assert chain.answer().checkpoint == 1
        chain.control(round_id=1, completed=completed, failed=failed)
        assert chain.task.report(chain.clock.moment()).answer is None


def test_a_source_injects_each_round_once_and_none_that_has_failed() -> None:
    """B2: repeated and reordered control states change nothing."""
    chain = OneSink()
    chain.control(round_id=2, failed=2)
    assert chain.seals() == []
    chain.control(round_id=3)
    assert len(chain.seals()) == 1
    chain.control(round_id=1)
    chain.control(round_id=3, failed=2)
    assert len(chain.seals()) == 1


@given(
    st.lists(st.sampled_from(["round", "fail", "seal", "sink", "upload", "refuse"]), max_size=30)
)
def test_whatever_rounds_fail_uploads_go_one_by_one_in_order_and_the_last_cut_is_answered(
    script: list[str],
) -> None:
    """Seals, sinks and uploads are answered late; rounds fail and follow each other meanwhile."""
    chain, number, failed = OneSink(), 0, 0
    uploads: list[int] = []

    def step(name: str) -> None:
        nonlocal number, failed
        if name == "round" and failed == number:
            number += 1
            chain.control(round_id=number, failed=failed)
        elif name == "fail":
            failed = number
            chain.control(round_id=number, failed=failed)
        elif name == "seal" and chain.seals():
            chain.done(chain.seals()[0])
        elif name == "sink" and chain.asked(SealSink):
            chain.sealed(chain.asked(SealSink)[0])
        elif name in ("upload", "refuse") and chain.asked(UploadSnapshot):
            (token,) = chain.asked(UploadSnapshot)
            request = chain.waiting[RequestToken(token)]
            assert isinstance(request, UploadSnapshot)
            uploads.append(int(request.epoch.checkpoint))
            if name == "upload":
                chain.uploaded(token)
            else:
                chain.upload_failed(token)
            if uploads[-1] > failed:
                assert chain.answer().checkpoint == uploads[-1]
        assert len(chain.asked(UploadSnapshot)) <= 1

    for name in script:
        step(name)
    for _ in range(3 * len(script)):
        for name in ("seal", "sink", "upload"):
            step(name)
    assert uploads == sorted(set(uploads))
    assert not number or uploads[-1] == number


# --- a chain with inputs -------------------------------------------------------------------------


def _joining() -> HandDrivenChain:
    inputs = tuple(channel_plan(name, name, "sink-0") for name in ("left", "right"))
    chain = HandDrivenChain(chain_plan("sink-0", inputs=inputs, mode=Mode.CHECKPOINT))
    chain.control()
    return chain


def _barrier(chain: HandDrivenChain, edge: str, number: int, generation: Generation = G1) -> None:
    channel = channel_plan(edge).channel
    barrier = Barrier(CheckpointId(number), generation, RoundKind.PERIODIC)
    chain.take(Deliver(chain.clock.moment(), channel, barrier))


def _reset(chain: HandDrivenChain) -> None:
    for edge in ("left", "right"):
        chain.take(Deliver(chain.clock.moment(), channel_plan(edge).channel, Reset(G1)))


@pytest.mark.parametrize("what", ["failed", "completed"])
def test_inputs_that_wait_for_a_round_that_is_over_go_on(what: str) -> None:
    """B2: no input stays paused for a round that nobody completes here any more."""
    chain = _joining()
    _reset(chain)
    _barrier(chain, "left", 1)
    left = channel_plan("left").channel
    assert not chain.task.takes(left)
    chain.control(round_id=1, failed=what == "failed", completed=what == "completed")
    assert chain.task.takes(left)
    _barrier(chain, "right", 1)
    assert chain.task.takes(channel_plan("right").channel)
    assert chain.task.report(chain.clock.moment()).answer is None


def test_a_barrier_of_another_generation_or_a_second_one_breaks_the_attempt() -> None:
    for number, generation in ((2, Generation(2)), (1, G1)):
        chain = _joining()
        _reset(chain)
        _barrier(chain, "left", 1)
        _barrier(chain, "right", 1)
        _barrier(chain, "left", number, generation)
        assert chain.task.phase is Phase.ENDED
        assert chain.end is not None
        assert isinstance(chain.end.outcome.error, ChannelError)


def test_an_answer_that_was_not_asked_for_is_a_fault_of_the_driver() -> None:
    chain = OneSink()
    with pytest.raises(ProtocolError, match="answer to request 99"):
        chain.task.handle(SnapshotUploaded(chain.clock.moment(), RequestToken(99)))
