"""What a chain tells the senders of its input channels, and when inputs have ended (E1, E6, E8)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.commit import SettledRange
from arkflow_kernel.envelope import Data, EndOfStream, Idle, Reset
from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import ChannelId, Generation, Sequence, SplitId
from arkflow_kernel.inlet import Inlet, Inlets
from arkflow_kernel.protocol import GrantCredit
from arkflow_kernel.testing.components import rows_batch
from arkflow_kernel.testing.plans import chain_plan, channel_plan

G1 = Generation(1)
BATCH = rows_batch("a", [1])
LEFT, RIGHT = ChannelId("left[0-0]"), ChannelId("right[0-0]")


def _inlets() -> Inlets:
    channels = (channel_plan("left"), channel_plan("right"))
    inlets = Inlets(chain_plan("chain-1", inputs=channels), G1)
    for channel in (LEFT, RIGHT):
        inlets.delivered(channel, Reset(G1))
    return inlets


def _data(sequence: int) -> Data:
    return Data(Sequence(sequence), (BATCH,), 10)


steps = st.lists(st.sampled_from(["deliver", "take", "settle", "grant"]), min_size=30)


@given(steps)
def test_grants_say_all_that_is_taken_and_settled_and_nothing_twice(script: list[str]) -> None:
    inlet = Inlet(channel_plan("left"), G1)
    inlet.delivered(Reset(G1))
    delivered = taken = settled = 0
    told = (0, 0)
    for step in script:
        if step == "deliver":
            delivered += 1
            inlet.delivered(_data(delivered))
        elif step == "take" and taken < delivered:
            taken += 1
            inlet.taken(Sequence(taken))
        elif step == "settle" and settled < taken:
            settled = taken
            inlet.settled(Sequence(settled))
        elif step == "grant":
            news = (taken, settled)
            grant = inlet.grant()
            expected = GrantCredit(LEFT, Sequence(taken), Sequence(settled))
            assert grant == (None if news == told else expected)
            told = news
        inlet.validate()


def test_each_channel_is_granted_for_itself() -> None:
    inlets = _inlets()
    for channel in (LEFT, RIGHT):
        inlets.delivered(channel, _data(1))
    inlets.taken(RIGHT, Sequence(1))
    assert list(inlets.grants()) == [GrantCredit(RIGHT, Sequence(1), Sequence(0))]
    assert list(inlets.grants()) == []
    inlets.taken(LEFT, Sequence(1))
    assert inlets.settled(SettledRange(RIGHT, Sequence(1), Sequence(1)))
    assert list(inlets.grants()) == [
        GrantCredit(LEFT, Sequence(1), Sequence(0)),
        GrantCredit(RIGHT, Sequence(1), Sequence(1)),
    ]
    inlets.validate()


def test_batches_of_a_split_are_not_the_inlets_to_settle() -> None:
    inlets = _inlets()
    inlets.taken(SplitId("file"), Sequence(3))
    assert not inlets.settled(SettledRange(SplitId("file"), Sequence(1), Sequence(3)))
    assert list(inlets.grants()) == []


@pytest.mark.parametrize("stopped", [(False, False), (True, False), (False, True), (True, True)])
def test_the_inputs_have_ended_when_the_last_has_and_were_stopped_if_one_was(
    stopped: tuple[bool, bool],
) -> None:
    inlets = _inlets()
    inlets.delivered(LEFT, EndOfStream(stopped[0]))
    assert not inlets.ended
    assert inlets.stopped == stopped[0]
    assert not inlets.takes(LEFT)
    assert inlets.takes(RIGHT)
    inlets.delivered(RIGHT, EndOfStream(stopped[1]))
    assert inlets.ended
    assert inlets.stopped == any(stopped)


def test_a_chain_without_inputs_has_ended_ones_and_grants_nothing() -> None:
    inlets = Inlets(chain_plan(), G1)
    assert inlets.ended
    assert not inlets.stopped
    assert list(inlets.grants()) == []


def test_what_may_not_come_is_refused_and_does_not_count() -> None:
    inlets = _inlets()
    for envelope in (_data(2), Reset(G1), Reset(Generation(2))):
        with pytest.raises(ChannelError, match="left"):
            inlets.delivered(LEFT, envelope)
    inlets.delivered(LEFT, Idle())
    inlets.delivered(LEFT, _data(1))
    inlets.validate()
