"""Golden transcripts of two chains with a channel between them (E1, E3, E6, E8, D5).

`ARKFLOW_REWRITE=1 pytest tests/kernel/test_channel_transcripts.py` writes them anew; read the diff.
"""

from collections.abc import Callable

import pytest

from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ports import SourceEnded
from arkflow_kernel.protocol import Desired
from arkflow_kernel.testing.hand_driven_chain import HandDrivenChain
from arkflow_kernel.testing.plans import chain_plan, channel_plan
from arkflow_kernel.testing.transcript import Transcript
from arkflow_kernel.testing.virtual_clock import VirtualClock

OUT = "edge[0-0]"


def _pair(*, capacity: int = 1_024) -> tuple[HandDrivenChain, HandDrivenChain]:
    """`left` reads and sends to `right`, which writes; both have heard that they may run."""
    channel = channel_plan("edge", "left", "right", capacity=capacity)
    log, clock = Transcript(), VirtualClock()
    left = HandDrivenChain(
        chain_plan("left", operators=("op",), sinks=(), channels=(channel,)), log=log, clock=clock
    )
    right = HandDrivenChain(
        chain_plan("right", operators=("op",), inputs=(channel,)), log=log, clock=clock
    )
    left.control()
    right.control()
    right.deliver(left)
    return left, right


def channel_from_start_to_finish() -> str:
    left, right = _pair()
    left.note("an idle channel sends at once; results that left the lane give credit")
    left.read(1, 3)
    left.done(2, 3, output=OUT)
    right.deliver(left)
    right.done(1, 3)
    left.credit(right)
    left.note("settled behind the channel is settled in the source")
    right.wrote(2, 1)
    left.credit(right)
    left.note("the data end: operators are finished on both sides, once")
    left.read(3, SourceEnded())
    left.done(4, 1, output=OUT)
    right.deliver(left)
    right.deliver(left)
    right.done(3, 1)
    right.done(4)
    right.wrote(5, 2)
    left.credit(right)
    return left.log.text()


def channel_without_credit() -> str:
    left, right = _pair(capacity=1)
    left.note("one envelope may be out, so the next pieces wait for company")
    for token in (1, 3, 5, 7):
        left.read(token, 2)
    left.done(2, 2, output=OUT)
    left.done(4, 2, output=OUT)
    left.done(6, 2, output=OUT)
    left.note("they waited long enough for company, and go on waiting for credit, as one envelope")
    left.tick(10)
    right.deliver(left)
    right.note("the receiver's lane took it: its results have not left, so no credit yet")
    right.done(1, 6, more=True)
    right.done(1)
    left.note("credit comes back and what waited leaves")
    left.credit(right)
    right.deliver(left)
    return left.log.text()


def channel_stop() -> str:
    left, right = _pair()
    left.read(1, 2)
    left.note("the source is told to stop; chains behind hear of it by the end of their input")
    right.control(Desired.STOP)
    left.control(Desired.STOP)
    left.done(2, 2, output=OUT)
    left.read(3, 1)
    right.deliver(left)
    right.deliver(left)
    right.done(1, 2)
    right.wrote(2, 1)
    left.credit(right)
    return left.log.text()


def channel_broken() -> str:
    left, _ = _pair()
    left.read(1, 2)
    left.done(2, 2, output=OUT)
    left.note("the receiver's process is gone")
    left.broken(ChannelError("channel edge[0-0]: the peer closed the connection"))
    left.note("what arrives late changes nothing")
    left.read(3, 1)
    return left.log.text()


SCENARIOS: list[Callable[[], str]] = [
    channel_from_start_to_finish,
    channel_without_credit,
    channel_stop,
    channel_broken,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_scenario_reads_as_its_transcript(
    scenario: Callable[[], str], golden: Callable[[str, str], None]
) -> None:
    golden(scenario.__name__, scenario())
