"""Golden transcripts of a chain's part in checkpoint rounds (B0-B3, B6, B8, D5, T3, X1, X2).

`ARKFLOW_REWRITE=1 pytest tests/kernel/test_round_transcripts.py` writes them anew; read the diff.
"""

from collections.abc import Callable

import pytest

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.ids import ChainId, SplitId
from arkflow_kernel.plan import Mode
from arkflow_kernel.ports import SourceEnded, SplitPosition
from arkflow_kernel.protocol import Desired
from arkflow_kernel.snapshot import ChainSnapshot
from arkflow_kernel.testing.hand_driven_chain import HandDrivenChain, sink_token
from arkflow_kernel.testing.plans import chain_plan, channel_plan
from arkflow_kernel.testing.transcript import Transcript
from arkflow_kernel.testing.virtual_clock import VirtualClock

FINAL, RESCALE = RoundKind.FINAL, RoundKind.RESCALE


def _chain(*, commits: bool = False, snapshot: ChainSnapshot | None = None) -> HandDrivenChain:
    """A source, an operator, an exactly-once sink."""
    plan = chain_plan(operators=("op",), mode=Mode.CHECKPOINT, exactly_once=("sink",))
    return HandDrivenChain(plan, commits=commits, snapshot=snapshot)


def round_with_two_inputs() -> str:
    """Two sources feed one sink that delivers at least once."""
    log, clock, mode = Transcript(), VirtualClock(), Mode.CHECKPOINT
    left, right = (channel_plan(name, name, "sink-0") for name in ("left", "right"))
    senders = [
        HandDrivenChain(
            chain_plan(c.source, sinks=(), channels=(c,), mode=mode), log=log, clock=clock
        )
        for c in (left, right)
    ]
    plan = chain_plan("sink-0", inputs=(left, right), mode=mode)
    sink = HandDrivenChain(plan, log=log, clock=clock)
    for chain in (*senders, sink):
        chain.control()
    for sender in senders:
        sink.deliver(sender)
    log.note("the left one reads, then both hear of the round: the left batch is in the cut")
    senders[0].read(1, 3)
    for sender in senders:
        sender.control(round_id=1)
    senders[0].done(2, 3, output="left[0-0]")
    senders[0].done(4)
    sink.deliver(senders[0])
    log.note("its barrier came: nothing more is taken off the left input")
    sink.deliver(senders[0])
    assert not sink.task.takes(left.channel)
    assert sink.task.takes(right.channel)
    log.note("the right one's barrier is the last: the sink chain seals")
    senders[1].done(2)
    sink.deliver(senders[1])
    assert sink.task.takes(left.channel)
    sink.done(1, 3)
    log.note("barriers and seals go behind the rows before them")
    sink.done(2)
    sink.wrote(3, 0)
    sink.wrote(4, 1)
    sink.uploaded(5)
    for sender, token in zip(senders, (5, 3), strict=True):
        sender.uploaded(token)
    log.note("the record is in the log; a repeated word changes nothing")
    for chain in (*senders, sink):
        chain.control(round_id=1, completed=1)
        chain.control(round_id=1, completed=1)
    return log.text()


def round_upload_fails() -> str:
    chain = _chain(commits=True)
    chain.control()
    chain.read(1, 2)
    chain.control(round_id=1)
    chain.done(2, 2)
    chain.done(4)
    chain.note("the seal passes behind the write; reading goes on meanwhile")
    chain.read(3, 1)
    chain.sealed(5)
    chain.sealed(8)
    chain.upload_failed(9)
    chain.control(round_id=2, failed=1)
    chain.done(6, 1)
    chain.done(10)
    chain.sealed(11)
    chain.sealed(12)
    chain.note("the next upload makes durable what both rounds sealed")
    chain.uploaded(13, sink_token(1), sink_token(2))
    chain.note("both are published, in order, and the source hears of the second cut")
    chain.control(round_id=2, failed=1, completed=2)
    chain.published(15)
    chain.committed(14)
    return chain.log.text()


def round_overtaken_by_the_next() -> str:
    chain = _chain()
    chain.control()
    chain.note("two rounds are sealed while the first one's upload is slow")
    chain.control(round_id=1)
    chain.done(2)
    chain.sealed(3)
    chain.control(round_id=2, failed=1)
    chain.done(5)
    chain.sealed(6)
    chain.control(round_id=3, failed=2)
    chain.done(7)
    chain.sealed(8)
    chain.note("the first one's answer counts for nothing; the second one is not uploaded at all")
    chain.uploaded(4)
    chain.uploaded(9)
    return chain.log.text()


def round_at_the_end_of_data() -> str:
    chain = _chain(commits=True)
    chain.control()
    chain.read(1, 2, ends=True)
    chain.read(3, SourceEnded())
    chain.done(2, 2)
    chain.sealed(5)
    chain.done(4)
    chain.note("drained: every chain is, so the final round is opened")
    chain.control(round_id=1, kind=FINAL)
    chain.done(6)
    chain.sealed(7)
    chain.uploaded(8, sink_token(1))
    chain.note("completed: it publishes, its source hears of the cut, and it ends")
    chain.control(Desired.END, round_id=1, kind=FINAL, completed=1)
    chain.publish_failed(10, "the target is full")
    chain.committed(9)
    chain.tick(999)
    chain.tick(1)
    chain.published(11)
    return chain.log.text()


def round_after_a_stop() -> str:
    chain = _chain()
    chain.control()
    chain.read(1, 2)
    chain.read(3, 2)
    chain.control(Desired.STOP)
    chain.note("the read that was under way is forgotten: the next run reads it again")
    chain.read(5, 2)
    chain.done(2, 2)
    chain.done(4, 2)
    chain.sealed(6)
    chain.sealed(7)
    chain.control(Desired.STOP, round_id=1)
    chain.done(8)
    chain.sealed(9)
    chain.uploaded(10, sink_token(1))
    chain.control(Desired.END, round_id=1, completed=1)
    chain.published(11)
    return chain.log.text()


def round_after_a_drain() -> str:
    chain = _chain()
    chain.control()
    chain.read(1, 2)
    chain.control(Desired.DRAIN)
    chain.note("the data count as ended when the read is answered: operators are finished")
    chain.done(2, 2)
    chain.read(3, 2)
    chain.sealed(4)
    chain.done(5, 1)
    chain.sealed(6)
    chain.control(Desired.DRAIN, round_id=1, kind=FINAL)
    chain.done(7)
    chain.sealed(8)
    chain.uploaded(9, sink_token(1))
    chain.control(Desired.END, round_id=1, kind=FINAL, completed=1)
    chain.published(10)
    return chain.log.text()


def round_of_a_finished_chain() -> str:
    """Restored as finished (B8): no read, no finish, barriers only."""
    at = SplitPosition(SplitId("a"), {"row": 9}, ended=True)
    chain = ChainId("chain-0")
    channel = channel_plan()
    plan = chain_plan(sinks=(), channels=(channel,), mode=Mode.CHECKPOINT)
    restored = ChainSnapshot(chain, (), (at,), finished=True)
    driven = HandDrivenChain(plan, snapshot=restored)
    driven.control()
    driven.control(round_id=4)
    driven.done(1)
    driven.uploaded(2)
    driven.note("a user's stop changes nothing")
    driven.control(Desired.STOP, round_id=4, completed=4)
    driven.control(Desired.END, round_id=5, completed=4, failed=5)
    return driven.log.text()


def round_of_a_rescale() -> str:
    chain = _chain(commits=True)
    chain.control()
    chain.read(1, 2)
    chain.control(round_id=1, kind=RESCALE)
    chain.note("behind the cut nothing is read or submitted: what was read waits")
    chain.read(3, 1)
    chain.done(2, 2)
    chain.done(4)
    chain.sealed(5)
    chain.sealed(6)
    chain.uploaded(7, sink_token(1))
    chain.note("the round has failed: it goes on")
    chain.control(round_id=1, kind=RESCALE, failed=1)
    chain.note("once more, and the record is there: it publishes, commits, and reads no more")
    chain.done(8, 1)
    chain.control(round_id=2, kind=RESCALE, failed=1)
    chain.done(11)
    chain.sealed(10)
    chain.sealed(12)
    chain.uploaded(13, sink_token(2))
    chain.control(Desired.END, round_id=2, kind=RESCALE, failed=1, completed=2)
    chain.read(9, 5)
    chain.published(15)
    chain.committed(14)
    return chain.log.text()


SCENARIOS: list[Callable[[], str]] = [
    round_with_two_inputs,
    round_upload_fails,
    round_overtaken_by_the_next,
    round_at_the_end_of_data,
    round_after_a_stop,
    round_after_a_drain,
    round_of_a_finished_chain,
    round_of_a_rescale,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_scenario_reads_as_its_transcript(
    scenario: Callable[[], str], golden: Callable[[str, str], None]
) -> None:
    golden(scenario.__name__, scenario())
