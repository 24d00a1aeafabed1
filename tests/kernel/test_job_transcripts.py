"""Golden transcripts of the machine of a job, over one attempt and over several (B4, D7, T3, X4).

`ARKFLOW_REWRITE=1 pytest tests/kernel/test_job_transcripts.py` writes them anew; read the diff.
"""

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import FencedError, SourceError, StoreError
from arkflow_kernel.ids import ChainId, CheckpointId, RequestToken
from arkflow_kernel.plan import CheckpointPlan, ExecutionGraph, Mode
from arkflow_kernel.protocol import ChainReady, OutcomeKind
from arkflow_kernel.snapshot import RestoredJob, RoundAnswer
from arkflow_kernel.testing.hand_driven_chain import sink_token
from arkflow_kernel.testing.hand_driven_job import G1, HandDrivenJob, snapshot_of
from arkflow_kernel.testing.plans import chain_plan, channel_plan, job_plan, stage_plans

FOLDER = Path(__file__).parent / "transcripts"


def _job(*chains: str) -> HandDrivenJob:
    return HandDrivenJob(*chains, teardown_ms=10_000)


def job_run_and_stop() -> str:
    job = _job("left", "right")
    job.begin()
    job.log.note("channels open when all are ready, sources start when all are connected")
    job.ready("right")
    job.report("right")
    job.ready("left")
    job.connected("left")
    job.report("left")
    job.connected("right")
    job.report("left")
    job.ask("stop")
    job.ask("stop")
    job.ended("left", OutcomeKind.STOPPED)
    job.ended("right", OutcomeKind.STOPPED)
    job.log.note("nothing follows the end")
    job.ask("cancel")
    return job.log.text()


def job_one_chain_fails() -> str:
    job = _job("left", "right")
    job.begin()
    job.ready("left")
    job.ready("right")
    job.log.note("the first deployment is not repeated: whoever started the job reads the error")
    error = SourceError("'source' failed to read: OSError: gone")
    job.ended("left", OutcomeKind.FAILED, error)
    job.ended("right", OutcomeKind.CANCELLED)
    job.log.note("its process goes away afterwards: that is no second end")
    job.lost("right")
    return job.log.text()


def job_kill_after_teardown_timeout() -> str:
    job = _job("left", "right")
    job.begin()
    job.ready("left")
    job.log.note("cancelled while one chain is still being deployed")
    job.ask("cancel")
    job.ready("right")
    job.ended("left", OutcomeKind.CANCELLED)
    job.tick(9_999)
    job.tick(1)
    job.lost("right")
    return job.log.text()


def job_stop_while_deploying() -> str:
    job = _job("only")
    job.begin()
    job.ask("stop")
    job.ready("only")
    job.connected("only")
    job.ended("only", OutcomeKind.STOPPED)
    return job.log.text()


def job_lost_chain_and_restart() -> str:
    channel = channel_plan("edge", "left", "right")
    left = chain_plan("left", sinks=(), channels=(channel,))
    graph = job_plan(left, chain_plan("right", inputs=(channel,)))
    job = HandDrivenJob(graph=graph, teardown_ms=10_000)
    job.run()
    job.report("left", 40)
    job.report("right")
    job.log.note("the process of 'right' dies; its peer sees the connection break")
    job.broken("left")
    job.tick(5)
    job.lost("right")
    job.log.note("words of the first attempt change nothing in the second")
    job.take(ChainReady(job.clock.moment(), RequestToken(1), ChainId("left")))
    job.report("left", 99, generation=G1)
    job.answer_all()
    job.log.note("the second failure in a row waits a second")
    job.lost("right")
    job.ended("left", OutcomeKind.CANCELLED, row=60)
    job.tick(999)
    job.tick(1)
    job.answer_all()
    job.ended("left", row=80)
    job.ended("right")
    job.log.note("why the job was where it was")
    for transition in job.all_transitions():
        job.log.note(f"{transition.number} {transition.after.value}: {transition.cause}")
    return job.log.text()


def job_silent_chain() -> str:
    job = _job("left", "right")
    job.run()
    job.tick(9_000)
    job.report("left", 7)
    job.tick(1_000)
    job.log.note("it was not heard of for ten seconds: it hangs")
    job.lost("right")
    job.ended("left", OutcomeKind.CANCELLED, row=9)
    job.answer_all()
    return job.log.text()


def _logged() -> HandDrivenJob:
    """Two chains in checkpoint mode, a round each second."""
    chains = (chain_plan(name, mode=Mode.CHECKPOINT) for name in ("left", "right"))
    policy = CheckpointPlan("memory://x", 1_000, timeout_ms=5_000)
    return HandDrivenJob(graph=job_plan(*chains, checkpoint=policy), teardown_ms=10_000)


def job_rounds_and_a_later_claim() -> str:
    job = _logged()
    job.run()
    job.tick(1_000)
    job.answers(1, "left")
    job.log.note("the right one answers too: the set is complete, the record goes to the log")
    job.answers(1, "right")
    job.appended()
    job.log.note("a round that the store does not take: the next one follows")
    job.tick(1_000)
    job.report("left", answer=RoundAnswer(CheckpointId(2), None, StoreError("full")))
    job.answers(2, "right")
    job.tick(1_000)
    job.answers(3, "left", "right")
    job.log.note("another coordinator has claimed the job: this one writes nothing more")
    job.log_failed(FencedError("generation 2 has the log"))
    job.ended("left", OutcomeKind.CANCELLED)
    job.ended("right", OutcomeKind.CANCELLED)
    return job.log.text()


def job_savepoint_restart_and_end_of_data() -> str:
    job = _logged()
    job.begin()
    chains = (snapshot_of("left", sink_token(7, 2)), snapshot_of("right", finished=True))
    job.claimed(3, RestoredJob(CheckpointId(7), RoundKind.PERIODIC, "checkpoint 7", chains), 8)
    job.answer_all()
    job.savepoint("before")
    job.log.note("the attempt fails while the savepoint's round is open")
    job.lost("left")
    job.ended("right", OutcomeKind.CANCELLED)
    job.claimed(4, RestoredJob(CheckpointId(7), RoundKind.PERIODIC, "checkpoint 7", chains), 8)
    job.log.note("the next attempt makes it")
    job.answer_all()
    job.answers(9, "left", "right")
    job.appended()
    job.log.note("its copy follows when all tokens of its record are published")
    job.report("left", published=9)
    job.report("right", published=9, drained=True)
    job.saved()
    job.log.note("the data have ended")
    job.report("left", published=9, drained=True)
    for name in ("left", "right"):
        answer = RoundAnswer(CheckpointId(10), snapshot_of(name, sink_token(10, 4), finished=True))
        job.report(name, answer=answer, drained=True)
    job.appended()
    job.ended("left")
    job.ended("right")
    job.log.note("every token is published: the last record says so")
    job.appended()
    return job.log.text()


def _stage(parallelism: int) -> ExecutionGraph:
    chains = stage_plans("w", parallelism, mode=Mode.CHECKPOINT)
    return job_plan(*chains, checkpoint=CheckpointPlan("memory://x"))


def job_rescale_and_back() -> str:
    job = HandDrivenJob(graph=_stage(1))
    job.run()
    job.log.note("a process is needed for a second subtask; the attempt at work goes on")
    job.rescale(_stage(2))
    job.report("w-0")
    job.prepared()
    job.log.note("the round does not wait for its interval; its record is the point of no return")
    job.answers(1, "w-0")
    job.appended()
    job.ended("w-0", OutcomeKind.STOPPED)
    job.log.note("all of the plan before has ended: the log hears of the new one")
    restored = RestoredJob(CheckpointId(1), RoundKind.RESCALE, "checkpoint 1", ())
    job.claimed(2, restored, 1)
    job.answer_all()
    job.log.note("one subtask again: nobody is needed, and a process may go")
    job.rescale(_stage(1))
    job.answers(2, "w-0", "w-1")
    job.appended()
    job.ended("w-0", OutcomeKind.STOPPED)
    job.ended("w-1", OutcomeKind.STOPPED)
    job.claimed(3, replace(restored, checkpoint=CheckpointId(2), source="checkpoint 2"), 2)
    job.answer_all()
    return job.log.text()


def job_rescale_fails_and_is_taken_back() -> str:
    job = HandDrivenJob(graph=_stage(1))
    job.run()
    job.log.note("a chain cannot answer the round: sources read on, the process may go")
    job.rescale(_stage(2))
    job.prepared()
    job.report("w-0", answer=RoundAnswer(CheckpointId(1), None, StoreError("full")))
    job.log.note("once more; the new plan fails twice before its first checkpoint")
    job.rescale(_stage(2))
    job.prepared()
    job.answers(2, "w-0")
    job.appended()
    job.ended("w-0", OutcomeKind.STOPPED)
    restored = RestoredJob(CheckpointId(2), RoundKind.RESCALE, "checkpoint 2", ())
    for generation in (2, 3):
        job.claimed(generation, restored, 2)
        job.ended("w-1", OutcomeKind.FAILED, SourceError("no connection is left"))
        job.ended("w-0", OutcomeKind.CANCELLED)
    job.log.note("the plan before is taken back")
    job.claimed(4, restored, 2)
    job.answer_all()
    return job.log.text()


SCENARIOS: list[Callable[[], str]] = [
    job_run_and_stop,
    job_one_chain_fails,
    job_kill_after_teardown_timeout,
    job_stop_while_deploying,
    job_lost_chain_and_restart,
    job_silent_chain,
    job_rounds_and_a_later_claim,
    job_savepoint_restart_and_end_of_data,
    job_rescale_and_back,
    job_rescale_fails_and_is_taken_back,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_scenario_reads_as_its_transcript(
    scenario: Callable[[], str], golden: Callable[[str, str], None]
) -> None:
    golden(scenario.__name__, scenario())


def test_every_transcript_has_its_scenario() -> None:
    scenarios: set[str] = set()
    for path in Path(__file__).parent.glob("test_*transcripts.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "SCENARIOS":
                assert isinstance(node.value, ast.List)
                scenarios |= {ast.unparse(name) for name in node.value.elts}
    assert {path.stem for path in FOLDER.glob("*.txt")} == scenarios
