"""A job gets another plan while it runs, once or several times (K2)."""

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.protocol import (
    Desired,
    JobState,
    OutcomeKind,
    SaveSavepoint,
)
from arkflow_kernel.testing.hand_driven_job import HandDrivenJob
from tests.kernel.rescaled_jobs import (
    all_end,
    claim_of,
    heard,
    kind_of,
    parallelism_of,
    plan_of,
    record_of,
    recorded,
    replanned,
    restored,
    round_open,
    running,
    state_of,
    status_of,
)

# --- how it goes -----------------------------------------------------------------------------


def test_a_rescale_prepares_processes_makes_a_round_and_deploys_the_new_plan_where_state_is() -> (
    None
):
    job = running()
    assert parallelism_of(job) == 2
    job.tick(10)
    job.rescale(plan_of(4))
    (asked,) = job.prepares
    assert [plan.chain for plan in asked.plans] == ["w-2", "w-3"]
    assert (state_of(job), status_of(job).phase) == (JobState.RESCALING, "prepare")
    assert dict(status_of(job).parallelism) == {"w": 4, "sink": 4}
    assert heard(job) == (Desired.RUN, 0, 0, 0), "the attempt at work is not touched"
    job.tick(20)
    job.prepared()
    assert heard(job) == (Desired.RUN, 1, 0, 0), "it does not wait for the interval"
    assert kind_of(job) is RoundKind.RESCALE
    job.tick(30)
    job.answers(1, "w-0", "w-1")
    assert record_of(job).kind is RoundKind.RESCALE
    assert heard(job)[0] is Desired.RUN, "nobody ends before the record is in the log"
    job.appended()
    assert heard(job) == (Desired.END, 1, 0, 1)
    assert not job.logged
    job.tick(40)
    job.ended("w-0", OutcomeKind.STOPPED)
    assert not job.logged, "one of the old plan may still write"
    job.ended("w-1", OutcomeKind.STOPPED)
    assert (state_of(job), status_of(job).phase) == (JobState.DEPLOYING, "claim")
    assert claim_of(job).graph == plan_of(4)
    assert parallelism_of(job) == 4
    job.tick(50)
    job.claimed(2, restored(), last=1)
    assert job.hosts == {"w-0": None, "w-1": "w-2", "w-2": "w-1", "w-3": None}
    assert not job.released
    job.tick(60)
    job.answer_all()
    status = status_of(job)
    assert (state_of(job), status.phase, status.error) == (JobState.RUNNING, "done", None)
    phases = status.phases
    assert (phases.prepare_ms, phases.round_ms, phases.end_ms) == (20, 30, 40)
    assert (phases.claim_ms, phases.deploy_ms) == (50, 60)
    assert heard(job, "w-3") == (Desired.RUN, 0, 0, 0)
    assert job.machine.status().restarts == 0, "a rescale is no failure"


def test_fewer_subtasks_need_nobody_and_processes_that_host_nothing_may_go() -> None:
    job = recorded(4, 2)
    assert not job.prepares
    all_end(job)
    job.claimed(2, restored(), last=1)
    assert job.hosts == {"w-0": None, "w-1": "w-2"}
    assert job.released == ["w-1", "w-3"], "by the names that they had"
    job.answer_all()
    assert set(job.machine.status().chains) <= {"w-0", "w-1"}


def test_what_chains_said_that_the_new_plan_has_no_more_is_told_no_longer() -> None:
    job = round_open(2, 1)
    for name in ("w-0", "w-1"):
        job.report(name)
    job.answers(1, "w-0", "w-1")
    job.appended()
    all_end(job)
    job.claimed(2, restored(), last=1)
    assert set(job.machine.status().chains) == {"w-0"}


def test_its_round_waits_for_one_that_is_open_and_an_ordinary_one_follows_with_the_new_plan() -> (
    None
):
    job = running()
    job.tick(1_000)
    assert kind_of(job) is RoundKind.PERIODIC
    job.rescale(plan_of(4))
    job.prepared()
    assert heard(job)[1] == 1
    job.answers(1, "w-0", "w-1")
    job.appended()
    assert (heard(job), kind_of(job)) == ((Desired.RUN, 2, 0, 1), RoundKind.RESCALE)
    job.answers(2, "w-0", "w-1")
    job.appended()
    all_end(job)
    job.claimed(2, restored(2), last=2)
    job.answer_all()
    job.tick(1_000)
    assert (heard(job, "w-3")[1], kind_of(job)) == (3, RoundKind.PERIODIC)


def test_a_savepoint_that_is_wanted_meanwhile_is_made_by_the_new_plan() -> None:
    job = round_open()
    job.savepoint("now")
    job.answers(1, "w-0", "w-1")
    job.appended()
    all_end(job)
    job.claimed(2, restored(), last=1)
    job.answer_all()
    job.tick(1)
    assert kind_of(job) is RoundKind.SAVEPOINT


def test_a_savepoint_whose_copy_is_due_is_written_before_the_claim() -> None:
    job = running()
    job.savepoint("now")
    job.answers(1, "w-0", "w-1")
    job.appended()
    job.rescale(plan_of(1))
    assert kind_of(job) is RoundKind.RESCALE
    job.answers(2, "w-0", "w-1")
    job.appended()
    all_end(job)
    (asked,) = job.logged
    assert isinstance(asked, SaveSavepoint)
    assert state_of(job) is JobState.RESCALING
    job.saved()
    assert claim_of(job).graph == plan_of(1)
    checkpoints = job.machine.status().checkpoints
    assert checkpoints is not None
    assert checkpoints.savepoints == {"now": "memory://copy"}


# --- several of them -------------------------------------------------------------------------


def test_a_rescale_that_is_wanted_before_the_job_runs_begins_when_it_does() -> None:
    job = HandDrivenJob(graph=plan_of(2))
    job.rescale(plan_of(4))
    job.run()
    assert (state_of(job), status_of(job).phase) == (JobState.RESCALING, "prepare")


def test_a_rescale_that_is_repeated_is_one() -> None:
    job = round_open()
    job.rescale(plan_of(4))
    job.answers(1, "w-0", "w-1")
    job.appended()
    job.rescale(plan_of(4))
    all_end(job)
    job.claimed(2, restored(), last=1)
    job.answer_all()
    assert (state_of(job), status_of(job).number) == (JobState.RUNNING, 1)


def test_a_newer_rescale_takes_the_place_of_one_whose_round_has_not_begun() -> None:
    job = running()
    job.rescale(plan_of(4))
    job.rescale(plan_of(3))
    job.rescale(plan_of(1))
    job.prepared()
    assert job.released == ["w-2", "w-3"]
    status = status_of(job)
    assert (status.number, status.phase) == (2, "round")
    assert dict(status.parallelism) == {"w": 1, "sink": 1}
    causes = [each.cause for each in job.all_transitions()]
    assert "the rescale failed: another one was requested" in causes


def test_a_newer_rescale_waits_for_one_whose_round_has_begun() -> None:
    job = round_open()
    job.rescale(plan_of(1))
    job.answers(1, "w-0", "w-1")
    job.appended()
    all_end(job)
    job.claimed(2, restored(), last=1)
    job.answer_all()
    assert (parallelism_of(job), status_of(job).number) == (4, 2)
    assert (state_of(job), status_of(job).phase) == (JobState.RESCALING, "round")


def test_a_wish_for_the_plan_at_work_takes_back_one_that_waits_and_is_done_at_once() -> None:
    job = running()
    job.rescale(plan_of(2))
    assert (state_of(job), status_of(job).phase) == (JobState.RUNNING, "done")
    job.rescale(plan_of(4))
    job.rescale(plan_of(2))
    job.prepared()
    assert (state_of(job), status_of(job).phase) == (JobState.RUNNING, "done")
    assert (status_of(job).number, parallelism_of(job)) == (3, 2)
    assert job.released == ["w-2", "w-3"]


def test_a_rescale_of_a_job_that_is_stopped_fails() -> None:
    job = running()
    job.ask("stop")
    job.rescale(plan_of(4))
    assert (status_of(job).phase, status_of(job).error) == ("failed", "a stop was requested before")
    assert not job.prepares


def test_a_rescale_that_waits_when_the_job_ends_is_told_to_have_failed() -> None:
    job = round_open()
    job.rescale(plan_of(1))
    job.ask("cancel")
    all_end(job, OutcomeKind.CANCELLED)
    status = status_of(job)
    assert (status.number, status.phase) == (2, "failed")
    assert "the job ended first" in (status.error or "")


def test_plans_follow_each_other_and_each_claim_names_its_own() -> None:
    job = replanned(2, 4)
    for number, parallelism in enumerate((1, 2, 1), start=2):
        job.rescale(plan_of(parallelism))
        if job.prepares:
            job.prepared()
        job.answers(number, *sorted(job.deployed))
        job.appended()
        all_end(job)
        assert claim_of(job).graph == plan_of(parallelism)
        job.claimed(number + 1, restored(number), last=number)
        job.answer_all()
        assert (parallelism_of(job), status_of(job).phase) == (parallelism, "done")
        assert len(job.deployed) == parallelism
