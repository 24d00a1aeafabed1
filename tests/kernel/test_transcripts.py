"""Golden transcripts of the machine of a chain: exact events and commands, reviewed as text.

`ARKFLOW_REWRITE=1 pytest tests/kernel/test_transcripts.py` writes them anew; read the diff.
"""

from collections.abc import Callable

import pytest

from arkflow_kernel.ids import Generation, MonotonicMs, SplitId
from arkflow_kernel.ports import NothingYet, SourceEnded, SplitPosition
from arkflow_kernel.protocol import Desired
from arkflow_kernel.testing.hand_driven_chain import HandDrivenChain
from arkflow_kernel.testing.plans import chain_plan


def _chain(
    *, workers: int = 1, commits: bool = False, restored: tuple[SplitPosition, ...] = ()
) -> HandDrivenChain:
    plan = chain_plan(operators=("op",), workers=workers)
    return HandDrivenChain(plan, commits=commits, restored=restored)


def bounded_run() -> str:
    chain = _chain()
    chain.control()
    chain.note("two batches: the second is read while the first is at work")
    chain.read(1, 3)
    chain.read(3, 2, ends=True)
    chain.read(5, SourceEnded())
    chain.done(2, 3)
    chain.done(4, 2)
    chain.wrote(7, 1)
    chain.done(6)
    chain.wrote(8, 2)
    chain.note("a late answer after the end changes nothing")
    chain.wrote(8, 2)
    return chain.log.text()


def slow_sink() -> str:
    chain = _chain()
    chain.control()
    chain.note("the lane holds one item at work and two that wait; one batch is read ahead")
    for token in (1, 3, 5, 7):
        chain.read(token, 1)
    chain.note("the sink takes one write and queues two; the fourth slice waits in the lane")
    for token in (2, 4, 6):
        chain.done(token, 1)
    chain.read(10, 1)
    chain.done(9, 1, 1, more=True)
    chain.note("each confirmation moves everything behind it by one")
    chain.wrote(8, 1)
    chain.wrote(13, 2)
    chain.wrote(14, 3)
    chain.done(9, 1)
    chain.wrote(15, 4)
    return chain.log.text()


def four_workers() -> str:
    chain = _chain(workers=4)
    chain.control()
    for token in (1, 3, 5, 7):
        chain.read(token, 1)
    chain.note("answers come in the order 4, 2, 3, 1; results leave in the order 1, 2, 3, 4")
    for token in (8, 4, 6):
        chain.done(token, 1)
    chain.done(2, 1)
    for token, upto in ((10, 1), (11, 2), (12, 3), (13, 4)):
        chain.wrote(token, upto)
    return chain.log.text()


def stop_with_read_ahead() -> str:
    chain = _chain()
    chain.control()
    for token in (1, 3, 5, 7):
        chain.read(token, 1)
    chain.note("three items are in the lane, a fourth batch is read ahead: it is forgotten")
    chain.control(Desired.STOP)
    chain.control(Desired.RUN)
    for token in (2, 4, 6):
        chain.done(token, 1)
    for token, upto in ((8, 0), (9, 0), (10, 0)):
        chain.wrote(token, upto)
    chain.note("the sink confirms late: a flush asks for the rest")
    chain.wrote(11, 3)
    return chain.log.text()


def cancel_while_writing() -> str:
    chain = _chain()
    chain.control()
    chain.read(1, 2)
    chain.done(2, 2)
    chain.control(Desired.CANCEL)
    chain.note("what was outstanding answers late, or never")
    chain.wrote(4, 1)
    return chain.log.text()


def failure() -> str:
    chain = _chain()
    chain.note("a control message of another attempt does not start the chain")
    chain.control(generation=Generation(2))
    chain.control()
    chain.read(1, 2)
    chain.done(2, 2)
    chain.failed(4, "'sink' failed to write: OSError: No space left on device")
    return chain.log.text()


def source_with_commits() -> str:
    """A restored frontier is committed with the rest though nothing of its split was read (F6)."""
    restored = (SplitPosition(SplitId("b"), {"row": 40}),)
    chain = _chain(commits=True, restored=restored)
    chain.control()
    chain.read(1, 2)
    chain.done(2, 2)
    chain.wrote(4, 1)
    chain.note("one commit is outstanding; the next one covers all that was settled meanwhile")
    chain.read(3, 1)
    chain.done(6, 1)
    chain.wrote(8, 2)
    chain.committed(5)
    chain.note("the chain ends when its source has heard of everything")
    chain.read(7, SourceEnded())
    chain.done(10)
    chain.committed(9)
    return chain.log.text()


def roll_and_pause() -> str:
    chain = _chain()
    chain.control()
    chain.read(1, 1)
    chain.read(3, NothingYet(MonotonicMs(50)))
    chain.done(2, 1)
    chain.wrote(4, 0, roll_at=30)
    chain.tick(30)
    chain.wrote(5, 1)
    chain.tick(20)
    return chain.log.text()


SCENARIOS: list[Callable[[], str]] = [
    bounded_run,
    slow_sink,
    four_workers,
    stop_with_read_ahead,
    cancel_while_writing,
    failure,
    source_with_commits,
    roll_and_pause,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_scenario_reads_as_its_transcript(
    scenario: Callable[[], str], golden: Callable[[str, str], None]
) -> None:
    golden(scenario.__name__, scenario())
