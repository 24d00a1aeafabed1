"""Golden transcripts of the machines: exact events and commands, reviewed as text.

`ARKFLOW_REWRITE=1 pytest tests/kernel/test_transcripts.py` writes them anew; read the diff.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from arkflow_kernel.coordinator import JobCoordinator
from arkflow_kernel.errors import SinkError, SourceError
from arkflow_kernel.ids import (
    ChainId,
    Generation,
    MonotonicMs,
    OutputId,
    RequestToken,
    Sequence,
    SplitId,
)
from arkflow_kernel.metrics import ChainStatistics
from arkflow_kernel.ports import (
    NothingYet,
    ReadResult,
    SourceBatch,
    SourceEnded,
    SplitPosition,
    WriteReceipt,
)
from arkflow_kernel.protocol import (
    Begin,
    CancelRequested,
    ChainClosed,
    ChainEnded,
    ChainEvent,
    ChainOutcome,
    ChainReady,
    ChainReport,
    Control,
    ControlState,
    CoordinatorEvent,
    Desired,
    ItemDone,
    LaneSlice,
    OutcomeKind,
    RequestFailed,
    SourceCommitted,
    SourceRead,
    StopRequested,
    Tick,
    WriteDone,
)
from arkflow_kernel.task import ChainTask
from arkflow_kernel.testing.components import rows_batch
from arkflow_kernel.testing.plans import chain_plan, job_plan
from arkflow_kernel.testing.transcript import Transcript
from arkflow_kernel.testing.virtual_clock import VirtualClock

FOLDER = Path(__file__).parent / "transcripts"
G1 = Generation(1)


class Chain:
    """A `ChainTask`, driven by hand, that writes its transcript and validates after each event."""

    def __init__(
        self,
        *,
        workers: int = 1,
        commits: bool = False,
        sinks: tuple[str, ...] = ("sink",),
        restored: tuple[SplitPosition, ...] = (),
    ) -> None:
        plan = chain_plan(operators=("op",), sinks=sinks, workers=workers)
        self.task = ChainTask(plan, G1, commits=commits, restored=restored)
        self.log, self.clock, self._row = Transcript(), VirtualClock(), 0

    def note(self, text: str) -> None:
        self.log.note(text)

    def _take(self, event: ChainEvent) -> None:
        commands = self.task.handle(event)
        self.task.validate()
        self.log.took(event, list(commands), self.task.phase.value)

    def control(self, desired: Desired = Desired.RUN, generation: Generation = G1) -> None:
        self._take(Control(self.clock.moment(), ControlState(generation, desired)))

    def read(self, token: int, rows: int | ReadResult, *, ends: bool = False) -> None:
        result = rows if not isinstance(rows, int) else self._batch(rows, ends)
        self._take(SourceRead(self.clock.moment(), RequestToken(token), result))

    def _batch(self, rows: int, ends: bool) -> SourceBatch:
        self._row += rows
        batch = rows_batch("a", range(rows))
        return SourceBatch(SplitId("a"), batch, {"row": self._row}, split_ended=ends)

    def done(self, token: int, *rows: int, more: bool = False, output: str = "sink") -> None:
        outputs = tuple((OutputId(output), rows_batch("a", range(n))) for n in rows)
        slice_ = LaneSlice(outputs)
        self._take(ItemDone(self.clock.moment(), RequestToken(token), slice_, more))

    def wrote(self, token: int, upto: int, roll_at: int | None = None) -> None:
        roll = None if roll_at is None else MonotonicMs(roll_at)
        receipt = WriteReceipt(Sequence(upto), roll)
        self._take(WriteDone(self.clock.moment(), RequestToken(token), receipt))

    def committed(self, token: int) -> None:
        self._take(SourceCommitted(self.clock.moment(), RequestToken(token)))

    def failed(self, token: int, message: str) -> None:
        error = SinkError(message)
        self._take(RequestFailed(self.clock.moment(), RequestToken(token), error))

    def tick(self, by_ms: int) -> None:
        self._take(Tick(self.clock.advance(by_ms)))


def bounded_run() -> str:
    chain = Chain()
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
    chain = Chain()
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
    chain = Chain(workers=4)
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
    chain = Chain()
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
    chain = Chain()
    chain.control()
    chain.read(1, 2)
    chain.done(2, 2)
    chain.control(Desired.CANCEL)
    chain.note("what was outstanding answers late, or never")
    chain.wrote(4, 1)
    return chain.log.text()


def failure() -> str:
    chain = Chain()
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
    chain = Chain(commits=True, restored=restored)
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
    chain = Chain()
    chain.control()
    chain.read(1, 1)
    chain.read(3, NothingYet(MonotonicMs(50)))
    chain.done(2, 1)
    chain.wrote(4, 0, roll_at=30)
    chain.tick(30)
    chain.wrote(5, 1)
    chain.tick(20)
    return chain.log.text()


class Job:
    """A `JobCoordinator`, driven by hand."""

    def __init__(self, *chains: str) -> None:
        graph = job_plan(*(chain_plan(name) for name in chains))
        self.machine = JobCoordinator(graph, G1, teardown_timeout_ms=10_000)
        self.log, self.clock = Transcript(), VirtualClock()

    def _take(self, event: CoordinatorEvent) -> None:
        commands = self.machine.handle(event)
        self.machine.validate()
        self.log.took(event, list(commands), self.machine.status().state.value)

    def begin(self) -> None:
        self._take(Begin(self.clock.moment()))

    def ready(self, token: int, chain: str) -> None:
        self._take(ChainReady(self.clock.moment(), RequestToken(token), ChainId(chain)))

    def report(self, chain: str) -> None:
        statistics = ChainStatistics(ChainId(chain))
        self._take(ChainReport(self.clock.moment(), ChainId(chain), statistics))

    def ended(self, chain: str, kind: OutcomeKind, error: str | None = None) -> None:
        outcome = ChainOutcome(kind, None if error is None else SourceError(error))
        self._take(ChainEnded(self.clock.moment(), ChainId(chain), outcome))

    def closed(self, token: int, chain: str) -> None:
        self._take(ChainClosed(self.clock.moment(), RequestToken(token), ChainId(chain)))

    def stop(self) -> None:
        self._take(StopRequested(self.clock.moment()))

    def cancel(self) -> None:
        self._take(CancelRequested(self.clock.moment()))

    def tick(self, by_ms: int) -> None:
        self._take(Tick(self.clock.advance(by_ms)))


def job_run_and_stop() -> str:
    job = Job("left", "right")
    job.begin()
    job.log.note("sources start last: nobody hears a control state before all are ready")
    job.ready(2, "right")
    job.report("right")
    job.ready(1, "left")
    job.report("left")
    job.stop()
    job.stop()
    job.ended("left", OutcomeKind.STOPPED)
    job.closed(3, "left")
    job.ended("right", OutcomeKind.STOPPED)
    job.closed(4, "right")
    job.log.note("nothing follows the end")
    job.cancel()
    return job.log.text()


def job_one_chain_fails() -> str:
    job = Job("left", "right")
    job.begin()
    job.ready(1, "left")
    job.ready(2, "right")
    job.ended("left", OutcomeKind.FAILED, "'source' failed to read: OSError: gone")
    job.closed(3, "left")
    job.ended("right", OutcomeKind.CANCELLED)
    job.log.note("its process goes away afterwards: that is no second end")
    job.ended("right", OutcomeKind.FAILED, "the process died")
    job.closed(4, "right")
    return job.log.text()


def job_kill_after_teardown_timeout() -> str:
    job = Job("left", "right")
    job.begin()
    job.ready(1, "left")
    job.log.note("cancelled while one chain is still being deployed")
    job.cancel()
    job.ready(2, "right")
    job.ended("left", OutcomeKind.CANCELLED)
    job.tick(9_999)
    job.tick(1)
    job.log.note("the late answer to the first close of 'left' is not the kill's")
    job.closed(3, "left")
    job.closed(4, "left")
    job.closed(5, "right")
    return job.log.text()


def job_stop_while_deploying() -> str:
    job = Job("only")
    job.begin()
    job.stop()
    job.ready(1, "only")
    job.ended("only", OutcomeKind.STOPPED)
    job.log.note("it does not confirm that it is closed: it is killed")
    job.tick(10_000)
    job.closed(3, "only")
    return job.log.text()


SCENARIOS: list[Callable[[], str]] = [
    bounded_run,
    slow_sink,
    four_workers,
    stop_with_read_ahead,
    cancel_while_writing,
    failure,
    source_with_commits,
    roll_and_pause,
    job_run_and_stop,
    job_one_chain_fails,
    job_kill_after_teardown_timeout,
    job_stop_while_deploying,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_scenario_reads_as_its_transcript(scenario: Callable[[], str]) -> None:
    path = FOLDER / f"{scenario.__name__}.txt"
    text = scenario()
    if os.environ.get("ARKFLOW_REWRITE"):
        path.write_text(text)
    assert text == path.read_text()


def test_every_transcript_has_its_scenario() -> None:
    names = {path.stem for path in FOLDER.glob("*.txt")}
    assert names == {scenario.__name__ for scenario in SCENARIOS}
