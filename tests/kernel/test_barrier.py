"""Barriers: inputs wait for each other, and never for a round that is over (B1, B2, B4, B5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.barrier import Ack, Aligner, BarrierCoordinator
from arkflow_kernel.envelope import Barrier, RoundKind
from arkflow_kernel.errors import ChannelError, StoreError
from arkflow_kernel.ids import ChainId, ChannelId, CheckpointId, Generation, MonotonicMs
from arkflow_kernel.snapshot import ChainSnapshot, RoundAnswer

A, B, C = (ChainId(name) for name in "abc")
NOW = MonotonicMs(0)


def _barrier(round_id: int) -> Barrier:
    return Barrier(CheckpointId(round_id), Generation(1), RoundKind.PERIODIC)


class NaiveAligner:
    """Keeps everything that ever happened, and looks at all of it each time."""

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.delivered: list[list[int]] = [[] for _ in range(inputs)]
        self.over = 0
        self.aligned: list[int] = []

    def deliver(self, channel: int, round_id: int) -> bool:
        self.delivered[channel].append(round_id)
        late = round_id <= self.over or round_id < self.waiting_for()
        if not late and all(round_id in rounds for rounds in self.delivered):
            self.over = round_id
            self.aligned.append(round_id)
            return True
        return False

    def waiting_for(self) -> int:
        """The newest round that some input has delivered, if it is not over."""
        newest = max((rounds[-1] for rounds in self.delivered if rounds), default=0)
        return newest if newest > self.over else 0

    def paused(self, channel: int) -> bool:
        wanted = self.waiting_for()
        return wanted > 0 and wanted in self.delivered[channel]


@given(st.integers(1, 4), st.data())
def test_whatever_the_interleaving_inputs_are_paused_as_in_the_naive_model(
    inputs: int, data: st.DataObject
) -> None:
    """Each input delivers some of the rounds, in order; rounds fail in between (B1, B2)."""
    channels = [ChannelId(f"edge[{i}-0]") for i in range(inputs)]
    aligner, naive, last = Aligner(channels), NaiveAligner(inputs), [0] * inputs
    for _ in range(data.draw(st.integers(0, 40))):
        free = [i for i in range(inputs) if not aligner.paused(channels[i])]
        assert free, "somebody can always go on"
        if data.draw(st.integers(0, 6)) == 0:
            failed = data.draw(st.integers(0, max(last) + 1))
            aligner.over(CheckpointId(failed))
            naive.over = max(naive.over, failed)
        else:
            channel = data.draw(st.sampled_from(free))
            last[channel] += data.draw(st.integers(1, 2))
            done = aligner.delivered(channels[channel], _barrier(last[channel]))
            assert done == naive.deliver(channel, last[channel])
            assert not done or all(rounds[-1] >= last[channel] for rounds in naive.delivered)
        aligner.validate()
        for i in range(inputs):
            assert aligner.paused(channels[i]) == naive.paused(i)
        assert aligner.aligning == naive.waiting_for()
        owing = [channels[i] for i in range(inputs) if not naive.paused(i)]
        assert aligner.missing() == (owing if naive.waiting_for() else [])
    assert naive.aligned == sorted(set(naive.aligned)), "each round is cut once, in order"


def test_a_failed_round_resumes_its_inputs_and_its_late_barriers_are_counted() -> None:
    left, right = ChannelId("left"), ChannelId("right")
    aligner = Aligner((left, right))
    assert not aligner.delivered(left, _barrier(1))
    assert aligner.paused(left)
    assert aligner.missing() == [right]
    aligner.over(CheckpointId(1))
    assert not aligner.paused(left)
    assert not aligner.delivered(right, _barrier(1))
    assert not aligner.paused(right)
    assert aligner.swallowed == 1


def test_a_newer_round_supersedes_the_one_that_is_being_aligned() -> None:
    left, right = ChannelId("left"), ChannelId("right")
    aligner = Aligner((left, right))
    aligner.delivered(left, _barrier(1))
    assert not aligner.delivered(right, _barrier(2))
    assert not aligner.paused(left), "round 1 will never be complete"
    assert aligner.paused(right)
    assert aligner.delivered(left, _barrier(2))
    assert not aligner.paused(right)


@pytest.mark.parametrize("again", [1, 2])
def test_an_input_that_delivers_a_round_twice_or_goes_back_is_broken(again: int) -> None:
    aligner = Aligner((ChannelId("left"), ChannelId("right")))
    aligner.delivered(ChannelId("left"), _barrier(2))
    with pytest.raises(ChannelError, match=f"left delivered the barrier of round {again}"):
        aligner.delivered(ChannelId("left"), _barrier(again))


# --- rounds of a job ---------------------------------------------------------------------------


def _answer(round_id: int, chain: ChainId = A, *, good: bool = True) -> RoundAnswer:
    if good:
        return RoundAnswer(CheckpointId(round_id), ChainSnapshot(chain, ()))
    return RoundAnswer(CheckpointId(round_id), None, StoreError("full"))


def _rounds(last: int = 0) -> BarrierCoordinator:
    return BarrierCoordinator((A, B, C), last=CheckpointId(last), timeout_ms=100)


def test_rounds_continue_above_the_highest_number_of_the_log() -> None:
    rounds = _rounds(last=41)
    opened = rounds.open(RoundKind.PERIODIC, NOW)
    assert (opened.number, opened.deadline_ms) == (42, 100)
    rounds.close()
    assert rounds.open(RoundKind.FINAL, NOW, closing=True).number == 43


@given(st.data())
def test_an_incomplete_set_never_completes_a_round_and_foreign_answers_change_nothing(
    data: st.DataObject,
) -> None:
    """Against a set of names; every verdict is one of B4's four."""
    rounds = _rounds(last=4)
    rounds.open(RoundKind.PERIODIC, NOW)
    good: set[ChainId] = set()
    answered: set[ChainId] = set()
    for _ in range(data.draw(st.integers(0, 15))):
        chain = ChainId(data.draw(st.sampled_from("abcx")))
        number = data.draw(st.integers(3, 6))
        is_good = data.draw(st.booleans())
        told = rounds.answered(chain, _answer(number, chain, good=is_good))
        if chain == "x" or number > 5:
            assert told is Ack.UNKNOWN
        elif number < 5:
            assert told is Ack.STALE
        elif chain in answered:
            assert told is Ack.DUPLICATE
        else:
            assert told is Ack.ACCEPTED
            answered.add(chain)
            good |= {chain} if is_good else set()
        assert set(rounds.missing) == {A, B, C} - answered
        found = rounds.snapshots()
        assert (found is not None) == (good == {A, B, C})
        if found is not None:
            assert [snapshot.chain for snapshot in found] == [A, B, C], "in the plan's order"
        declined = rounds.declined
        assert (declined is None) == (answered == good)
        assert declined is None or declined[0] in answered - good


def test_a_round_expires_only_while_answers_are_missing() -> None:
    """B5: the deadline is for the answers; a record that is being appended has none (M1)."""
    rounds = _rounds()
    assert rounds.deadline_ms() is None
    rounds.open(RoundKind.PERIODIC, NOW)
    assert rounds.deadline_ms() == 100
    assert not rounds.expired(MonotonicMs(99))
    assert rounds.expired(MonotonicMs(100))
    for chain in (A, B, C):
        rounds.answered(chain, _answer(1, chain))
    assert not rounds.expired(MonotonicMs(100))
    assert rounds.deadline_ms() is None


def test_answers_to_a_closed_round_are_stale() -> None:
    rounds = _rounds()
    rounds.open(RoundKind.PERIODIC, NOW)
    rounds.close()
    assert rounds.answered(A, _answer(1)) is Ack.STALE
    assert rounds.snapshots() is None
    assert rounds.declined is None
    assert rounds.missing == ()
