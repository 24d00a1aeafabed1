"""Rounds and records of a job, and its end (B4-B6, T3, D5, D7)."""

import pytest

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import (
    ArkflowError,
    CheckpointError,
    CorruptObjectError,
    FencedError,
    StoreError,
)
from arkflow_kernel.ids import ChainId, CheckpointId, Generation, MonotonicMs
from arkflow_kernel.job_claims import JobClaims
from arkflow_kernel.limits import CLOSING_RETRY_MS
from arkflow_kernel.plan import CheckpointPlan, Mode
from arkflow_kernel.protocol import (
    AppendRecord,
    CheckpointStatus,
    Desired,
    JobState,
    OutcomeKind,
)
from arkflow_kernel.snapshot import (
    NEWEST,
    CheckpointRecord,
    Claim,
    RoundAnswer,
)
from arkflow_kernel.testing.hand_driven_chain import sink_token
from arkflow_kernel.testing.hand_driven_job import HandDrivenJob, snapshot_of
from arkflow_kernel.testing.plans import chain_plan, job_plan


def _job(*, tolerable: int = 2, root: str | None = "memory://x") -> HandDrivenJob:
    chains = (chain_plan(name, mode=Mode.CHECKPOINT) for name in ("a", "b"))
    policy = CheckpointPlan(root, 100, tolerable_failures=tolerable, timeout_ms=1_000)
    graph = job_plan(*chains, checkpoint=policy)
    return HandDrivenJob(graph=graph)


def _running(*, tolerable: int = 2) -> HandDrivenJob:
    job = _job(tolerable=tolerable)
    job.run()
    return job


def _told(job: HandDrivenJob) -> tuple[Desired, int, int, int]:
    """What both chains heard last: wanted, round, failed, completed."""
    a, b = (job.heard[ChainId(name)] for name in "ab")
    assert a == b
    return a.desired, int(a.round_id), int(a.failed_upto), int(a.completed_upto)


def _kind(job: HandDrivenJob) -> RoundKind:
    return job.heard[ChainId("a")].round_kind


def _record(job: HandDrivenJob) -> CheckpointRecord:
    (asked,) = job.logged
    assert isinstance(asked, AppendRecord)
    return asked.record


def _checkpoints(job: HandDrivenJob) -> CheckpointStatus:
    status = job.machine.status().checkpoints
    assert status is not None
    return status


def _declines(
    job: HandDrivenJob, round_id: int, error: ArkflowError, *, drained: bool = False
) -> None:
    answer = RoundAnswer(CheckpointId(round_id), None, error)
    job.report("a", answer=answer, drained=drained)


# --- one round -------------------------------------------------------------------------------


def test_a_round_completes_when_every_chain_answered_and_the_record_is_in_the_log() -> None:
    job = _running()
    job.tick(99)
    assert _told(job) == (Desired.RUN, 0, 0, 0)
    job.tick(1)
    assert (_told(job), _kind(job)) == ((Desired.RUN, 1, 0, 0), RoundKind.PERIODIC)
    job.tick(30)
    job.answers(1, "a")
    assert not job.logged, "an incomplete set never completes"
    assert _checkpoints(job).missing == ("b",)
    job.answers(1, "a")
    job.answers(1, "b")
    record = _record(job)
    assert [chain.chain for chain in record.chains] == ["a", "b"]
    assert (record.checkpoint, record.generation, record.savepoint) == (1, 1, None)
    assert record.phases.acknowledged_ms == 30
    assert _told(job)[3] == 0, "nothing is completed before the record is in the log"
    assert _checkpoints(job).under_way == 1
    job.appended()
    assert _told(job) == (Desired.RUN, 1, 0, 1)
    assert (_checkpoints(job).last, _checkpoints(job).under_way) == (1, 0)
    job.tick(69)
    assert _told(job)[1] == 1
    job.tick(1)
    assert _told(job)[1] == 2, "an interval after the last one opened"


def test_numbers_go_on_above_the_highest_of_the_log_and_old_answers_count_for_nothing() -> None:
    job = _job()
    job.begin()
    job.claimed(5, last=9)
    job.answer_all()
    job.tick(100)
    assert _told(job) == (Desired.RUN, 10, 0, 0)
    job.answers(9, "a", "b")
    job.answers(11, "a", "b")
    assert not job.logged
    job.answers(10, "b", "a")
    assert _record(job).generation == 5


def test_a_round_that_is_not_answered_in_time_names_the_chains_and_the_next_one_follows() -> None:
    job = _running()
    job.tick(100)
    job.answers(1, "b")
    for _ in range(2):
        job.tick(500)
        for name in "ab":
            job.report(name)
    assert _checkpoints(job).failures == 1
    error = _checkpoints(job).error
    assert error == "checkpoint 1 failed: no answer within 1 s from chains 'a'"
    assert _told(job) == (Desired.RUN, 2, 1, 0), "its interval had passed long ago"
    job.answers(1, "a")
    assert not job.logged
    job.answers(2, "a", "b")
    job.appended()
    assert _checkpoints(job).failures == 0
    assert _checkpoints(job).error is None


def test_a_chain_that_declines_fails_the_round_and_nothing_else() -> None:
    job = _running()
    job.tick(100)
    _declines(job, 1, CheckpointError("cannot"))
    assert _told(job) == (Desired.RUN, 1, 1, 0)
    assert _checkpoints(job).error == "checkpoint 1 failed in chain 'a': cannot"
    assert job.machine.status().state is JobState.RUNNING
    job.tick(100)
    assert _told(job)[1] == 2


# --- failures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("corrupt", [False, True])
def test_more_failures_in_a_row_than_tolerable_end_the_attempt_but_not_those_of_the_store(
    corrupt: bool,
) -> None:
    """A store that cannot be reached does not count (B6); an object that is broken does."""
    job = _running(tolerable=2)
    error = CorruptObjectError("broken") if corrupt else StoreError("unreachable")
    for number in range(1, 10):
        job.tick(100)
        if job.machine.status().state is not JobState.RUNNING:
            break
        job.report("b")
        _declines(job, number, error)
    state = job.machine.status().state
    assert state is (JobState.RESTARTING if corrupt else JobState.RUNNING)
    if corrupt:
        assert number == 4, "the third failure was one too many"
        assert "3 checkpoints in a row failed" in job.machine.status().cause


def test_an_append_that_failed_is_a_failed_round() -> None:
    job = _running()
    job.tick(100)
    job.answers(1, "a", "b")
    job.log_failed(StoreError("not there, and never will be"))
    assert _told(job) == (Desired.RUN, 1, 1, 0)
    assert _checkpoints(job).failures == 0
    assert job.machine.status().state is JobState.RUNNING


def test_a_fenced_coordinator_ends_its_chains_and_the_job_and_is_not_restarted() -> None:
    """D7: nothing new is published, because nothing new is completed."""
    job = _running()
    job.tick(100)
    job.answers(1, "a", "b")
    job.log_failed(FencedError("generation 2 has the log"))
    assert _told(job)[0] is Desired.CANCEL
    assert _told(job)[3] == 0
    job.ended("a", OutcomeKind.CANCELLED)
    job.ended("b", OutcomeKind.CANCELLED)
    assert job.end is not None
    assert isinstance(job.end.outcome.error, FencedError)
    assert not job.logged


# --- the end of a job -------------------------------------------------------------------------


def _drained(job: HandDrivenJob, *, stopped: bool = False) -> None:
    for name in "ab":
        job.report(name, drained=True, stopped=stopped)


def _answered_with_tokens(job: HandDrivenJob, round_id: int, *, stopped: bool = False) -> None:
    for name in "ab":
        answer = RoundAnswer(CheckpointId(round_id), snapshot_of(name, sink_token(round_id)))
        job.report(name, answer=answer, drained=True, stopped=stopped)


def test_after_the_data_ended_a_final_record_and_one_without_tokens_are_appended() -> None:
    """T3: the second one tells the next start that there is nothing left to do."""
    job = _running()
    job.report("a", drained=True)
    assert _told(job)[1] == 0, "one chain is not all"
    job.report("b", drained=True)
    assert (_told(job)[1], _kind(job)) == (1, RoundKind.FINAL)
    _answered_with_tokens(job, 1)
    assert _record(job).kind is RoundKind.FINAL
    assert _told(job)[0] is Desired.RUN
    job.appended()
    assert _told(job) == (Desired.END, 1, 0, 1)
    job.ended("a")
    job.ended("b")
    assert job.end is None
    last = _record(job)
    assert (last.checkpoint, last.kind) == (2, RoundKind.FINAL)
    assert all(not lane.tokens for chain in last.chains for lane in chain.lanes)
    upto = {lane.published_upto for chain in last.chains for lane in chain.lanes}
    assert upto == {sink_token(1).epoch}
    job.appended()
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.FINISHED


def test_a_last_record_that_cannot_be_appended_harms_nothing() -> None:
    job = _running()
    _drained(job)
    _answered_with_tokens(job, 1)
    job.appended()
    job.ended("a")
    job.ended("b")
    job.log_failed(StoreError("gone"))
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.FINISHED


@pytest.mark.parametrize(
    ("what", "root", "wanted", "kind"),
    [
        ("stop", "memory://x", Desired.STOP, RoundKind.PERIODIC),
        ("drain", "memory://x", Desired.DRAIN, RoundKind.FINAL),
        ("stop", None, Desired.DRAIN, RoundKind.FINAL),
    ],
)
def test_a_stop_ends_with_a_round_and_with_a_record_that_lists_no_token_any_more(
    what: str, root: str | None, wanted: Desired, kind: RoundKind
) -> None:
    """D5: where checkpoints end with the run, a stop drains. T3: nothing is published again."""
    job = _job(root=root)
    job.run()
    job.ask(what)
    assert _told(job)[0] is wanted
    stopped = wanted is Desired.STOP
    _drained(job, stopped=stopped)
    assert (_told(job)[1], _kind(job)) == (1, kind)
    _answered_with_tokens(job, 1, stopped=stopped)
    job.appended()
    assert _told(job) == (Desired.END, 1, 0, 1)
    for name in "ab":
        job.ended(name, OutcomeKind.STOPPED if stopped else OutcomeKind.FINISHED)
    assert job.end is None
    (asked,) = job.logged
    assert isinstance(asked, AppendRecord)
    assert (asked.record.checkpoint, asked.record.kind, asked.record.tokens) == (2, kind, 0)
    job.appended()
    assert job.end is not None


def test_a_closing_round_that_failed_is_tried_again_after_a_second() -> None:
    job = _running()
    _drained(job)
    _declines(job, 1, StoreError("unreachable"), drained=True)
    job.tick(CLOSING_RETRY_MS - 1)
    assert _told(job)[:3] == (Desired.RUN, 1, 1)
    assert job.machine.next_deadline_ms() == MonotonicMs(CLOSING_RETRY_MS)
    job.tick(1)
    assert (_told(job)[1], _kind(job)) == (2, RoundKind.FINAL)


def test_the_closing_round_of_the_next_attempt_does_not_wait_for_the_failure_of_this_one() -> None:
    job = _running()
    _drained(job)
    _declines(job, 1, StoreError("unreachable"), drained=True)
    job.ended("a", OutcomeKind.FAILED)
    job.ended("b", OutcomeKind.CANCELLED)
    job.claimed(2, last=1)
    job.answer_all()
    _drained(job)
    assert (_told(job)[1], _kind(job)) == (2, RoundKind.FINAL)


@pytest.mark.parametrize("last", [0, 5])
def test_every_chain_hears_which_checkpoint_the_log_knew_last_also_if_nothing_is_restored(
    last: int,
) -> None:
    """X3: a sink tells the parts of its own job from others by it."""
    plan = chain_plan("a", mode=Mode.CHECKPOINT)
    claims = JobClaims(job_plan(plan, checkpoint=CheckpointPlan("memory://x")), NEWEST)
    claims.claimed(Claim(Generation(2), None, CheckpointId(last)))
    restored = claims.restored_chain(plan)
    assert (restored.snapshot, restored.logged_upto) == (None, last)
