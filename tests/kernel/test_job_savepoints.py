"""Savepoints of a job: every name that was asked for is made once, or told why not (X4)."""

from collections.abc import Callable

import pytest

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import CheckpointError, StoreError
from arkflow_kernel.ids import ChainId, CheckpointId
from arkflow_kernel.plan import CheckpointPlan, Mode
from arkflow_kernel.protocol import AppendRecord, Desired, OutcomeKind, SaveSavepoint
from arkflow_kernel.snapshot import RoundAnswer
from arkflow_kernel.testing.hand_driven_chain import sink_token
from arkflow_kernel.testing.hand_driven_job import HandDrivenJob, snapshot_of
from arkflow_kernel.testing.plans import chain_plan, job_plan

URL = "memory://copy"


def _job() -> HandDrivenJob:
    chains = (chain_plan(name, mode=Mode.CHECKPOINT) for name in ("a", "b"))
    graph = job_plan(*chains, checkpoint=CheckpointPlan("memory://x", 1_000))
    job = HandDrivenJob(graph=graph)
    job.run()
    return job


def _answer(job: HandDrivenJob, *, drained: bool = False, stopped: bool = False) -> None:
    """Both chains answer the open round, each with a token of it."""
    number = job.heard[ChainId("a")].round_id
    for name in "ab":
        answer = RoundAnswer(number, snapshot_of(name, sink_token(number)))
        job.report(name, answer=answer, drained=drained, stopped=stopped)


def _publish(job: HandDrivenJob, *names: str) -> None:
    for name in names:
        job.report(name, published=job.heard[ChainId(name)].completed_upto)


def _drain(job: HandDrivenJob, *, stopped: bool = False) -> None:
    for name in "ab":
        job.report(name, drained=True, stopped=stopped)


def _end(job: HandDrivenJob, kind: OutcomeKind = OutcomeKind.STOPPED) -> None:
    for name in "ab":
        job.ended(name, kind)


def _lose(job: HandDrivenJob) -> None:
    """An attempt fails, and the next one runs."""
    last = int(job.heard[ChainId("a")].round_id)
    job.ended("a", OutcomeKind.FAILED)
    job.ended("b", OutcomeKind.CANCELLED)
    job.logged = job.logged[-1:]
    job.claimed(job.generation + 1, last=last)
    job.answer_all()


def _told(job: HandDrivenJob) -> dict[str, object]:
    status = job.machine.status().checkpoints
    assert status is not None
    return dict(status.savepoints)


def _round(job: HandDrivenJob) -> tuple[int, RoundKind]:
    control = job.heard[ChainId("a")]
    return int(control.round_id), control.round_kind


def test_a_savepoint_has_a_round_at_once_and_is_told_when_its_copy_is_written() -> None:
    """The copy follows when every token of the record is published, and lists none."""
    job = _job()
    job.savepoint("before")
    assert _round(job) == (1, RoundKind.SAVEPOINT)
    _answer(job)
    (append,) = job.logged
    assert isinstance(append, AppendRecord)
    assert append.record.savepoint == "before"
    job.appended()
    _publish(job, "a")
    assert not job.logged
    assert _told(job) == {}
    _publish(job, "b")
    (save,) = job.logged
    assert isinstance(save, SaveSavepoint)
    lanes = [lane for chain in save.record.chains for lane in chain.lanes]
    assert [lane.tokens for lane in lanes] == [(), ()]
    assert {lane.published_upto for lane in lanes} == {sink_token(1).epoch}
    job.saved(URL)
    assert _told(job) == {"before": URL}


@pytest.mark.parametrize("stage", ["open", "appending", "published", "saving", "made"])
def test_a_savepoint_that_is_asked_for_again_is_made_once(stage: str) -> None:
    job = _job()
    job.savepoint("before")
    stages: dict[str, Callable[[], None]] = {
        "open": lambda: None,
        "appending": lambda: _answer(job),
        "published": job.appended,
        "saving": lambda: _publish(job, "a", "b"),
        "made": lambda: job.saved(URL),
    }
    for name, step in stages.items():
        step()
        if name == stage:
            job.savepoint("before")
    assert _told(job) == {"before": URL}
    job.report("a")
    assert _round(job)[0] == 1


def test_two_savepoints_are_made_one_after_the_other() -> None:
    job = _job()
    job.savepoint("one")
    job.savepoint("two")
    for name in ("one", "two"):
        assert _round(job)[1] is RoundKind.SAVEPOINT
        _answer(job)
        job.appended()
        if name == "one":
            assert _round(job)[0] == 2, "the next round does not wait for the copy"
    _publish(job, "a", "b")
    job.saved("memory://1")
    job.saved("memory://2")
    assert _told(job) == {"one": "memory://1", "two": "memory://2"}


def test_a_savepoint_whose_round_fails_is_told_and_may_be_asked_for_again() -> None:
    job = _job()
    job.savepoint("before")
    job.report("a", answer=RoundAnswer(CheckpointId(1), None, StoreError("full")))
    assert isinstance(_told(job)["before"], CheckpointError)
    job.savepoint("before")
    assert _round(job) == (2, RoundKind.SAVEPOINT)


def test_a_copy_that_cannot_be_written_is_told() -> None:
    job = _job()
    job.savepoint("before")
    _answer(job)
    job.appended()
    _publish(job, "a", "b")
    error = StoreError("full")
    job.log_failed(error)
    assert _told(job) == {"before": error}


@pytest.mark.parametrize("stage", ["open", "appending", "completed", "saving"])
def test_a_savepoint_that_an_attempt_did_not_bring_to_its_end_is_made_by_the_next(
    stage: str,
) -> None:
    job = _job()
    job.savepoint("before")
    stages: dict[str, Callable[[], None]] = {
        "open": lambda: None,
        "appending": lambda: _answer(job),
        "completed": job.appended,
        "saving": lambda: _publish(job, "a", "b"),
    }
    for name, step in stages.items():
        step()
        if name == stage:
            break
    _lose(job)
    assert _round(job) == (2, RoundKind.SAVEPOINT)
    _answer(job)
    job.appended()
    _publish(job, "a", "b")
    job.saved(URL)
    assert _told(job) == {"before": URL}


@pytest.mark.parametrize(
    ("what", "kind"), [("stop", RoundKind.SAVEPOINT), ("drain", RoundKind.FINAL)]
)
def test_a_stop_with_a_savepoint_makes_it_of_its_last_round(what: str, kind: RoundKind) -> None:
    job, stopped = _job(), what == "stop"
    job.ask(what, "last")
    _drain(job, stopped=stopped)
    assert _round(job) == (1, kind)
    _answer(job, drained=True, stopped=stopped)
    job.appended()
    assert job.heard[ChainId("a")].desired is Desired.END
    _end(job, OutcomeKind.STOPPED if stopped else OutcomeKind.FINISHED)
    assert job.end is None, "the copy is still to be written"
    job.saved(URL)
    asked = job.logged[-1]
    assert isinstance(asked, AppendRecord)
    last = RoundKind.PERIODIC if stopped else RoundKind.FINAL
    assert (asked.record.kind, asked.record.savepoint, asked.record.tokens) == (last, None, 0)
    job.appended()
    assert job.end is not None
    assert _told(job) == {"last": URL}


def test_the_job_does_not_end_while_a_copy_is_being_written() -> None:
    job = _job()
    job.ask("stop", "last")
    _drain(job, stopped=True)
    _answer(job, drained=True, stopped=True)
    job.appended()
    _publish(job, "a", "b")
    assert isinstance(job.logged[0], SaveSavepoint)
    _end(job)
    assert job.end is None
    job.saved(URL)
    job.appended()
    assert job.end is not None
    assert _told(job) == {"last": URL}


def test_a_wanted_savepoint_survives_a_closing_round_that_fails() -> None:
    """The data end while it is wanted: the closing round is for it, in every try."""
    job = _job()
    job.tick(1_000)
    job.savepoint("last")
    job.report("b", drained=True)
    for number in (1, 2, 3):
        assert _round(job)[0] == number
        refused = RoundAnswer(CheckpointId(number), None, StoreError("unreachable"))
        job.report("a", drained=True, answer=refused)
        job.tick(1_000)
    assert _round(job) == (4, RoundKind.FINAL)
    _answer(job, drained=True)
    (append,) = job.logged
    assert isinstance(append, AppendRecord)
    assert append.record.savepoint == "last"


@pytest.mark.parametrize("stage", ["wanted", "open", "closing"])
def test_what_is_not_made_when_the_job_ends_is_told(stage: str) -> None:
    job = _job()
    if stage == "wanted":
        job.tick(1_000)
    if stage == "closing":
        job.ask("stop", "before")
    else:
        job.savepoint("before")
    job.ask("cancel")
    _end(job, OutcomeKind.CANCELLED)
    assert job.end is not None
    told = _told(job)["before"]
    assert isinstance(told, CheckpointError)
    assert "the job ended first" in told.message
