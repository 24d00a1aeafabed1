"""What a chain takes off its inputs, and what ends it there (T1, D5, E1, E5, E6, F5, H9)."""

from typing import Any

import pytest

from arkflow_kernel.envelope import Data, EndOfStream, Envelope, Reset, Watermark
from arkflow_kernel.errors import ArkflowError, ChannelError, ProtocolError
from arkflow_kernel.ids import ChannelId, EventTimeMs, Generation, MonotonicMs, OutputId, Sequence
from arkflow_kernel.limits import STALL_TIMEOUT_MS
from arkflow_kernel.ports import SourceEnded
from arkflow_kernel.protocol import CreditGranted, Deliver, Desired, OutcomeKind
from arkflow_kernel.task import Phase
from arkflow_kernel.testing.components import rows_batch
from arkflow_kernel.testing.hand_driven_chain import G1, HandDrivenChain
from arkflow_kernel.testing.plans import chain_plan, channel_plan

LEFT, RIGHT = ChannelId("left[0-0]"), ChannelId("right[0-0]")
OUT = ("o1[0-0]", "o2[0-0]")


def _chain(*, workers: int = 1, channels: int = 0, capacity: int = 8) -> HandDrivenChain:
    """It reads the channels `left` and `right`, and writes to a sink and so many channels."""
    inputs = [channel_plan("left"), channel_plan("right")]
    out = [channel_plan(f"o{n + 1}", capacity=capacity) for n in range(channels)]
    plan = chain_plan(operators=("op",), workers=workers, inputs=inputs, channels=out)
    return HandDrivenChain(plan)


def _running(**options: Any) -> HandDrivenChain:
    chain = _chain(**options)
    chain.control()
    for channel in (LEFT, RIGHT):
        _deliver(chain, Reset(G1), channel)
    return chain


def _deliver(chain: HandDrivenChain, envelope: Envelope, channel: ChannelId = LEFT) -> None:
    chain.take(Deliver(chain.clock.moment(), channel, envelope))


def _data(sequence: int) -> Data:
    return Data(Sequence(sequence), (rows_batch("a", [1]),), 10)


def _granted(chain: HandDrivenChain, output: str, taken: int, settled: int) -> None:
    at, numbers = chain.clock.moment(), (Sequence(taken), Sequence(settled))
    chain.take(CreditGranted(at, ChannelId(output), *numbers))


def _grants(chain: HandDrivenChain) -> list[tuple[str, int, int]]:
    told: list[tuple[str, int, int]]
    told = [(g.channel, int(g.taken_upto), int(g.settled_upto)) for g in chain.granted]
    chain.granted.clear()
    return told


def _failure(chain: HandDrivenChain) -> ArkflowError:
    assert chain.end is not None
    assert chain.end.outcome.kind is OutcomeKind.FAILED
    assert chain.end.outcome.error is not None
    return chain.end.outcome.error


def test_nothing_is_taken_before_the_chain_runs_and_from_an_ended_input() -> None:
    chain = _chain()
    assert not chain.task.takes(LEFT)
    chain.control()
    assert chain.task.takes(LEFT)
    _deliver(chain, Reset(G1))
    _deliver(chain, EndOfStream())
    assert not chain.task.takes(LEFT)
    assert chain.task.takes(RIGHT)


def test_a_channel_that_is_not_the_chains_own_is_a_fault_of_the_driver() -> None:
    chain, unknown = _chain(channels=1), ChannelId("unknown[0-0]")
    with pytest.raises(ProtocolError, match=r"channel unknown\[0-0\] does not enter it"):
        chain.task.takes(unknown)
    with pytest.raises(ProtocolError, match="does not enter it"):
        _deliver(chain, Reset(G1), unknown)
    with pytest.raises(ProtocolError, match="does not leave it"):
        _granted(chain, LEFT, 0, 0)


def test_a_full_lane_takes_nothing_and_the_driver_may_not_deliver() -> None:
    chain = _running()
    for number in (1, 2, 3):
        assert chain.task.takes(LEFT)
        _deliver(chain, _data(number))
    assert not chain.task.takes(LEFT)
    assert not chain.task.takes(RIGHT)
    with pytest.raises(ProtocolError, match="takes nothing now") as failure:
        _deliver(chain, _data(1), RIGHT)
    assert failure.value.story[-1].startswith("Deliver")
    chain.done(1, 1)
    assert chain.task.takes(RIGHT)


@pytest.mark.parametrize("ending", [EndOfStream(), EndOfStream(stopped=True)])
def test_a_chain_whose_inputs_have_ended_takes_nothing(ending: EndOfStream) -> None:
    chain = _running()
    _deliver(chain, _data(1))
    for channel in (LEFT, RIGHT):
        _deliver(chain, ending, channel)
    assert not any(chain.task.takes(channel) for channel in (LEFT, RIGHT))
    with pytest.raises(ProtocolError):
        _deliver(chain, _data(2))


def test_credit_comes_when_the_results_have_left_and_not_when_the_operators_are_done() -> None:
    chain = _running()
    _deliver(chain, _data(1))
    assert _grants(chain) == []
    chain.done(1, 1, 1, 1, 1, more=True)
    assert _grants(chain) == [], "one batch is written, two are queued, one has no room"
    chain.wrote(2, 1)
    assert _grants(chain) == [], "another slice is to come"
    chain.done(1)
    assert _grants(chain) == [(LEFT, 1, 0)]


def test_several_workers_answer_in_any_order_and_credit_keeps_that_of_the_channel() -> None:
    chain = _running(workers=3)
    for number in (1, 2, 3):
        _deliver(chain, _data(number))
    chain.done(3, 1)
    chain.done(2, 1)
    assert _grants(chain) == []
    chain.done(1, 1)
    assert _grants(chain) == [(LEFT, 3, 0)]


def test_a_batch_that_went_to_two_channels_and_a_sink_is_settled_when_all_three_are() -> None:
    chain = _running(channels=2)
    _deliver(chain, _data(1))
    chain.done(1, 1, more=True)
    chain.done(1, 1, more=True, output=OUT[0])
    chain.done(1, 1, output=OUT[1])
    assert _grants(chain) == [(LEFT, 1, 0)]
    _granted(chain, OUT[0], 1, 1)
    chain.wrote(2, 1)
    assert _grants(chain) == []
    _granted(chain, OUT[1], 1, 0)
    assert _grants(chain) == [], "taken is not settled"
    _granted(chain, OUT[1], 1, 1)
    assert _grants(chain) == [(LEFT, 1, 1)]


def test_a_batch_that_led_to_nothing_is_settled_behind_those_before_it() -> None:
    chain = _running()
    _deliver(chain, _data(1))
    _deliver(chain, _data(1), RIGHT)
    chain.done(1, 1)
    chain.done(2)
    assert _grants(chain) == [(LEFT, 1, 0), (RIGHT, 1, 0)]
    chain.wrote(3, 1)
    assert _grants(chain) == [(LEFT, 1, 1), (RIGHT, 1, 1)]


def test_watermarks_take_no_place_in_the_lane() -> None:
    chain = _running()
    _deliver(chain, Watermark(EventTimeMs(5)))
    assert chain.task.statistics().batches_in == 0
    assert chain.task.takes(LEFT)


@pytest.mark.parametrize(
    "envelope", [_data(1), EndOfStream(), Reset(Generation(2)), Watermark(EventTimeMs(1))]
)
def test_the_first_envelope_is_the_reset_of_this_attempt_or_the_attempt_ends(
    envelope: Envelope,
) -> None:
    chain = _chain()
    chain.control()
    _deliver(chain, envelope)
    assert isinstance(_failure(chain), ChannelError)
    assert LEFT in str(_failure(chain))


def test_a_gap_in_an_input_ends_the_attempt() -> None:
    chain = _running()
    _deliver(chain, _data(2))
    assert "batch 2 after batch 0" in str(_failure(chain))


def test_a_broken_channel_ends_the_attempt_with_its_error_and_nothing_is_granted() -> None:
    chain = _running()
    _deliver(chain, _data(1))
    error = ChannelError("gone")
    chain.broken(error)
    assert _failure(chain) is error
    chain.done(1, 1)
    assert _grants(chain) == []
    assert not chain.task.takes(LEFT)


@pytest.mark.parametrize(("taken", "settled"), [(2, 0), (1, 2), (0, 1)])
def test_a_grant_that_cannot_be_true_ends_the_attempt(taken: int, settled: int) -> None:
    chain = _running(channels=1)
    _deliver(chain, _data(1))
    chain.done(1, 1, output=OUT[0])
    _granted(chain, OUT[0], taken, settled)
    assert isinstance(_failure(chain), ChannelError)
    assert "the receiver claims" in str(_failure(chain))


def test_a_stop_reaches_a_chain_with_inputs_by_their_end_only() -> None:
    chain = _running()
    chain.control(Desired.STOP)
    assert chain.task.phase is Phase.RUNNING
    assert chain.task.takes(LEFT)
    _deliver(chain, EndOfStream())
    _deliver(chain, EndOfStream(stopped=True), RIGHT)
    assert chain.end is not None
    assert chain.end.outcome.kind is OutcomeKind.STOPPED
    assert chain.task.statistics().batches_in == 0, "operators were not finished"


def test_operators_are_finished_once_when_all_inputs_ended_by_themselves() -> None:
    chain = _running(channels=1)
    _deliver(chain, EndOfStream())
    assert not chain.task.takes(LEFT)
    assert chain.task.takes(RIGHT), "it goes on with the other input"
    _deliver(chain, EndOfStream(), RIGHT)
    assert chain.task.phase is Phase.FINISHING
    chain.done(1, 1, output=OUT[0])
    kinds = [type(envelope) for _, envelope in chain.emitted]
    assert kinds == [Reset, Data, EndOfStream]
    assert chain.end is None, "its last batch is not settled"
    _granted(chain, OUT[0], 1, 1)
    assert chain.end is not None
    assert chain.end.outcome.kind is OutcomeKind.FINISHED


def test_the_end_of_the_data_waits_for_room_in_the_lane() -> None:
    chain = _running()
    for number in (1, 2):
        _deliver(chain, _data(number))
    _deliver(chain, EndOfStream())
    _deliver(chain, _data(1), RIGHT)
    assert not chain.task.takes(RIGHT), "the end of the input waits behind its data"
    chain.done(1)
    _deliver(chain, EndOfStream(), RIGHT)
    assert chain.task.phase is Phase.FINISHING


def test_an_open_envelope_leaves_at_its_deadline_and_at_the_end_of_the_data() -> None:
    for waits in (True, False):
        out = channel_plan("o1")
        chain = HandDrivenChain(chain_plan(operators=("op",), channels=(out,)))
        chain.control()
        for token in (1, 3):
            chain.read(token, 1)
        chain.done(2, 1, output=OUT[0])
        chain.done(4, 1, output=OUT[0])
        assert len(chain.emitted) == 2, "reset and the first batch"
        if waits:
            assert chain.task.next_deadline_ms() == 10
            chain.tick(10)
        else:
            chain.read(5, SourceEnded())
            chain.done(6)
            assert isinstance(chain.emitted.pop()[1], EndOfStream)
        assert len(chain.emitted) == 3


def test_a_chain_says_what_it_waits_for() -> None:
    chain = _running(channels=1, capacity=1)
    for number in (1, 2, 3):
        _deliver(chain, _data(number))
    chain.done(1, 1, output=OUT[0])
    chain.done(2, 1, output=OUT[0])
    chain.tick(10)
    assert chain.task.waits(MonotonicMs(STALL_TIMEOUT_MS - 1)) == ()
    waits = chain.task.waits(MonotonicMs(STALL_TIMEOUT_MS))
    assert [wait.on for wait in waits] == ["channel o1[0-0]", "the operators"]
    (channel,) = chain.task.statistics().channels
    assert (channel.sent, channel.taken, channel.waiting_bytes) == (1, 0, 10)
    assert dict(chain.task.statistics().rows_to) == {OutputId("sink"): 0, OutputId(OUT[0]): 2}
