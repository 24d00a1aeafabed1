"""What fails while a job gets another plan: before its record nothing changes, behind it the new
plan follows (K2).
"""

import pytest

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import (
    ConfigError,
    CorruptObjectError,
    FencedError,
    ResourceError,
    RestoreError,
    SourceError,
    StoreError,
)
from arkflow_kernel.ids import ChainId, CheckpointId
from arkflow_kernel.protocol import (
    Desired,
    JobState,
    OutcomeKind,
)
from arkflow_kernel.snapshot import RoundAnswer
from arkflow_kernel.testing.hand_driven_job import HandDrivenJob, snapshot_of
from tests.kernel.rescaled_jobs import (
    all_end,
    claim_of,
    fails,
    heard,
    kind_of,
    names,
    parallelism_of,
    plan_of,
    recorded,
    replanned,
    restored,
    round_open,
    running,
    state_of,
    status_of,
)

# --- what fails before the record: nothing has changed ------------------------------------------


def _goes_on(job: HandDrivenJob, why: str) -> None:
    """The plan at work goes on as it was, and what was prepared may go."""
    status = status_of(job)
    assert (state_of(job), status.phase) == (JobState.RUNNING, "failed")
    assert why in (status.error or "")
    assert job.released == ["w-2", "w-3"]
    assert heard(job)[0] is Desired.RUN
    assert parallelism_of(job) == 2


def test_processes_that_cannot_be_had_leave_the_job_as_it_is() -> None:
    job = running()
    job.rescale(plan_of(4))
    job.prepared(ResourceError("2 CPUs are missing"))
    _goes_on(job, "2 CPUs are missing")
    job.tick(1_000)
    assert kind_of(job) is RoundKind.PERIODIC, "checkpoints go on"


def test_a_chain_that_declines_the_round_fails_the_rescale_and_sources_hear_of_it() -> None:
    job = round_open()
    job.report("w-1", answer=RoundAnswer(CheckpointId(1), None, StoreError("full")))
    _goes_on(job, "full")
    assert heard(job) == (Desired.RUN, 1, 1, 0), "they read on"


def test_a_round_that_is_not_answered_in_time_fails_the_rescale() -> None:
    job = round_open()
    job.answers(1, "w-0")
    job.tick(500)
    _goes_on(job, "no answer within 0.5 s from chains 'w-1'")


def test_a_record_that_is_not_written_fails_the_rescale() -> None:
    job = round_open()
    job.answers(1, "w-0", "w-1")
    job.log_failed(StoreError("unreachable"))
    _goes_on(job, "unreachable")
    assert heard(job) == (Desired.RUN, 1, 1, 0)


@pytest.mark.parametrize("phase", ["prepare", "round", "append"])
def test_a_chain_that_fails_before_the_record_is_there_restarts_the_old_plan(phase: str) -> None:
    job = running()
    job.rescale(plan_of(4))
    if phase != "prepare":
        job.prepared()
    if phase == "append":
        job.answers(1, "w-0", "w-1")
        job.logged.clear()  # what it answers counts for nothing
    job.ended("w-0", OutcomeKind.FAILED)
    assert (state_of(job), status_of(job).phase) == (JobState.RESTARTING, "failed")
    job.ended("w-1", OutcomeKind.CANCELLED)
    assert claim_of(job).graph is None, "the log has this plan"
    job.claimed(2, restored(), last=1)
    job.answer_all()
    assert (state_of(job), parallelism_of(job)) == (JobState.RUNNING, 2)
    if phase == "prepare":
        assert not job.released, "they are released once they are there"
        job.prepared()
    assert job.released == ["w-2", "w-3"]
    assert set(job.hosts.values()) == {None}


def test_a_later_claim_of_another_run_ends_the_job() -> None:
    job = round_open()
    job.answers(1, "w-0", "w-1")
    job.log_failed(FencedError("a later claim"))
    all_end(job, OutcomeKind.CANCELLED)
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.FAILED
    assert status_of(job).phase == "failed"


def test_data_that_end_before_the_round_opens_leave_nothing_to_rescale() -> None:
    job = running()
    job.tick(1_000)
    job.rescale(plan_of(1))
    for name in ("w-0", "w-1"):
        job.report(name, drained=True)
    job.answers(1, "w-0", "w-1", drained=True)
    job.appended()
    assert (state_of(job), status_of(job).phase) == (JobState.RUNNING, "failed")
    assert status_of(job).error == "the data have ended"
    assert (heard(job)[1], kind_of(job)) == (2, RoundKind.FINAL)


def test_data_that_have_ended_at_the_cut_are_published_by_the_new_plan() -> None:
    """Its round was open already: the record is whole, and every chain of it is finished."""
    job = round_open(2, 1)
    for name in ("w-0", "w-1"):
        job.report(name, drained=True, answer=RoundAnswer(CheckpointId(1), snapshot_of(name)))
    job.appended()
    all_end(job, OutcomeKind.FINISHED)
    assert claim_of(job).graph == plan_of(1)


# --- what fails behind the record: the new plan follows ------------------------------------------


def test_a_chain_that_fails_behind_the_record_is_followed_by_the_new_plan() -> None:
    job = recorded()
    job.ended("w-0", OutcomeKind.STOPPED)
    job.ended("w-1", OutcomeKind.FAILED)
    assert claim_of(job).graph == plan_of(4)
    job.log_failed(StoreError("unreachable"))
    assert claim_of(job).graph == plan_of(4), "the log may not have taken it"
    job.claimed(2, restored(), last=1)
    assert job.hosts[ChainId("w-2")] == "w-1", "processes are where they were"
    job.answer_all()
    assert (state_of(job), status_of(job).phase) == (JobState.RUNNING, "done")


def test_a_new_plan_that_fails_once_is_tried_again_where_its_chains_are() -> None:
    job = recorded()
    all_end(job)
    job.claimed(2, restored(), last=1)
    job.ready("w-0")
    job.ended("w-1", OutcomeKind.FAILED)
    for name in ("w-0", "w-2", "w-3"):
        job.ended(name, OutcomeKind.CANCELLED)
    assert claim_of(job).graph is None, "the log has it"
    job.claimed(3, restored(), last=1)
    assert set(job.hosts.values()) == {None}
    assert status_of(job).phase == "deploy"
    job.answer_all()
    assert status_of(job).phase == "done"


def test_a_new_plan_that_fails_twice_before_its_first_checkpoint_is_taken_back() -> None:
    job = replanned()
    fails(job)
    assert parallelism_of(job) == 4
    job.claimed(3, restored(), last=1)
    fails(job, SourceError("too many connections"))
    assert claim_of(job).graph == plan_of(2)
    assert parallelism_of(job) == 2
    status = status_of(job)
    assert (status.phase, status.error) == ("taken back", "too many connections")
    job.claimed(4, restored(), last=1)
    assert job.hosts == {"w-0": None, "w-1": "w-2"}
    assert job.released == ["w-1", "w-3"]
    job.answer_all()
    assert state_of(job) is JobState.RUNNING
    told = [each.cause for each in job.machine.status().transitions]
    assert any("the plan before the rescale is taken back" in cause for cause in told)


def test_a_new_plan_that_completed_a_checkpoint_stays_whatever_fails() -> None:
    job = replanned()
    fails(job)
    job.claimed(3, restored(), last=1)
    job.answer_all()
    job.tick(1_000)
    job.answers(2, *names(4))
    job.appended()
    for generation in (4, 5, 6):
        fails(job)
        job.claimed(generation, restored(2), last=2)
        job.answer_all()
    assert (parallelism_of(job), status_of(job).phase) == (4, "done")


def test_a_claim_that_refuses_the_new_plan_is_followed_by_one_with_the_old_plan() -> None:
    job = recorded()
    all_end(job)
    job.log_failed(RestoreError("it does not fit"))
    assert claim_of(job).graph == plan_of(2)
    assert (status_of(job).phase, status_of(job).error) == ("taken back", "it does not fit")
    job.claimed(2, restored(), last=1)
    assert set(job.hosts.values()) == {None}, "nobody has moved"
    assert not job.released or job.released == ["w-2", "w-3"]
    job.answer_all()
    assert (state_of(job), parallelism_of(job)) == (JobState.RUNNING, 2)


def test_a_new_plan_that_cannot_be_built_is_taken_back_at_once() -> None:
    job = recorded()
    all_end(job)
    job.claimed(2, restored(), last=1)
    fails(job, ConfigError([]))
    assert claim_of(job).graph == plan_of(2)


def test_a_store_that_a_claim_does_not_reach_is_no_fault_of_the_new_plan() -> None:
    job = recorded()
    all_end(job)
    for _ in range(4):
        assert claim_of(job).graph == plan_of(4)
        job.log_failed(StoreError("unreachable"))
    assert status_of(job).phase == "claim"


def test_a_record_that_the_new_plan_cannot_read_is_named_to_the_next_claim() -> None:
    job = recorded()
    all_end(job)
    job.claimed(2, restored(), last=1)
    fails(job, CorruptObjectError("run 1 is broken"))
    assert claim_of(job).unusable == {1: "run 1 is broken"}
    job.log_failed(RestoreError("nothing else can be restored"))
    assert claim_of(job).graph == plan_of(2)
    assert claim_of(job).unusable == {1: "run 1 is broken"}
    job.log_failed(RestoreError("nothing else can be restored"))
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.FAILED


def test_a_later_claim_of_another_run_takes_nothing_back() -> None:
    job = recorded()
    all_end(job)
    job.log_failed(FencedError("a later claim"))
    assert job.end is not None
    assert status_of(job).phase == "failed"


def test_a_later_claim_of_another_run_is_no_second_failure_of_the_new_plan() -> None:
    job = replanned()
    fails(job)
    job.claimed(3, restored(), last=1)
    job.answer_all()
    job.tick(1_000)
    job.answers(2, *names(4))
    job.log_failed(FencedError("a later claim"))
    all_end(job, OutcomeKind.CANCELLED)
    assert job.end is not None
    assert (status_of(job).phase, parallelism_of(job)) == ("done", 4)


def test_a_plan_that_is_taken_back_releases_those_that_are_still_prepared_when_they_are_there() -> (
    None
):
    job = replanned(2, 4)
    job.rescale(plan_of(5))
    fails(job)
    job.claimed(3, restored(), last=1)
    fails(job)
    job.claimed(4, restored(), last=1)
    assert (status_of(job).phase, parallelism_of(job)) == ("taken back", 2)
    assert job.released == ["w-1", "w-3"]
    job.prepared()
    assert job.released == ["w-1", "w-3", "w-4"]
