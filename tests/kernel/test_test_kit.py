"""The parts of the test kit that other tests rely on without looking at them."""

import pytest

from arkflow_kernel.bad_rows import NOWHERE, Origin, failed_batch
from arkflow_kernel.envelope import Data
from arkflow_kernel.ids import ChannelId, MonotonicMs, Sequence
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.protocol import CommitPermit, Emit
from arkflow_kernel.testing.components import rows_batch, rows_of
from arkflow_kernel.testing.dice import Dice
from arkflow_kernel.testing.hand_driven_chain import HandDrivenChain
from arkflow_kernel.testing.plans import chain_plan, channel_plan, job_plan
from arkflow_kernel.testing.transcript import describe
from arkflow_kernel.testing.virtual_clock import VirtualClock

FIRST_THROWS = [534, 491, 653]


def test_virtual_time_moves_when_somebody_waits_and_never_back() -> None:
    clock = VirtualClock(100)
    wall = clock.moment().wall_ms
    clock.wait_until(MonotonicMs(150))
    clock.wait_until(MonotonicMs(10))
    assert clock.moment().now_ms == 150
    assert clock.moment().wall_ms == wall + 50
    clock.shift_wall(-1_000)
    assert clock.moment().wall_ms == wall - 950
    assert clock.moment().now_ms == 150
    with pytest.raises(AssertionError, match="never goes back"):
        clock.advance(-1)


def test_a_wake_ends_the_next_wait_and_a_wait_without_end_is_a_mistake() -> None:
    clock = VirtualClock()
    clock.wake()
    clock.wait_until(MonotonicMs(500))
    assert clock.moment().now_ms == 0
    with pytest.raises(AssertionError, match="waits for ever"):
        clock.wait_until(None)


def test_the_same_seed_gives_the_same_choices_everywhere() -> None:
    first, second = Dice(7), Dice(7)
    assert [first.below(1000) for _ in range(5)] == [second.below(1000) for _ in range(5)]
    assert [Dice(0).below(1000), Dice(1).below(1000), Dice(2).below(1000)] == FIRST_THROWS
    assert {Dice(seed).between(3, 5) for seed in range(50)} == {3, 4, 5}


def test_scripted_rows_can_be_read_back_from_failed_batches() -> None:
    batch = rows_batch("a", [1, 2])
    failed = failed_batch(batch, error="no", operator="op", origin=Origin("f", 3, 9))
    assert rows_of(failed) == [("a", 1), ("a", 2)]
    assert str(Origin("f", 3, 9)) == "f, partition 3, offset 9"
    assert str(NOWHERE) == "an unknown source position"


def test_a_plan_finds_its_chains_by_name() -> None:
    graph = job_plan(chain_plan("a"), chain_plan("b"))
    found: ChainPlan = graph.chain(graph.chains[1].chain)
    assert found.chain == "b"
    with pytest.raises(KeyError):
        graph.chain(chain_plan("c").chain)


def test_permits_compare_by_their_reason() -> None:
    assert {CommitPermit("a"), CommitPermit("a")} == {CommitPermit("a")}
    assert CommitPermit("a") != CommitPermit("b")
    assert repr(CommitPermit("a")) == "CommitPermit(a)"


def test_a_plan_with_channels_has_an_outlet_for_each_and_reads_no_source() -> None:
    channels = channel_plan("e1", "a", "b", number=4), channel_plan("e2", "a", "b", capacity=2)
    sender = chain_plan("a", sinks=(), channels=channels)
    receiver = chain_plan("b", inputs=channels)
    assert sender.channels == receiver.inputs == channels
    assert sender.outputs == ("e1", "e2")
    assert [outlet.output for outlet in sender.outlets] == ["e1", "e2"]
    assert sender.source is not None
    assert receiver.source is None
    assert [channel.channel for channel in channels] == ["e1[0-0]", "e2[0-0]"]
    assert (channels[0].number, channels[1].capacity) == (4, 2)


def test_a_transcript_tells_events_commands_and_where_the_machine_stands() -> None:
    chain = HandDrivenChain(chain_plan(channels=(channel_plan("e"),)))
    chain.control()
    pieces = rows_batch("a", [1]), rows_batch("a", [2])
    assert describe(Emit(ChannelId("e"), Data(Sequence(3), pieces, 20))) == (
        "Emit channel=e Data #3 2 rows of 2 pieces"
    )
    assert chain.log.text().splitlines() == [
        "Control run generation=1  [running]",
        "    Emit channel=e[0-0] Reset generation=1",
        "    ReadSource #1",
    ]
