"""A job gets another plan while it runs: rounds, claims, what fails on the way (K2)."""

from collections.abc import Callable

import pytest

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import (
    ArkflowError,
    ConfigError,
    CorruptObjectError,
    FencedError,
    ResourceError,
    RestoreError,
    SourceError,
    StoreError,
)
from arkflow_kernel.ids import ChainId, CheckpointId
from arkflow_kernel.plan import CheckpointPlan, ExecutionGraph, Mode, RestartPlan
from arkflow_kernel.protocol import (
    AppendRecord,
    ClaimGeneration,
    Desired,
    JobState,
    OutcomeKind,
    RescaleStatus,
    SaveSavepoint,
)
from arkflow_kernel.snapshot import CheckpointRecord, RestoredJob, RoundAnswer
from arkflow_kernel.testing.hand_driven_chain import sink_token
from arkflow_kernel.testing.hand_driven_job import HandDrivenJob, snapshot_of
from arkflow_kernel.testing.plans import job_plan, stage_plans

POLICY = CheckpointPlan("memory://x", 1_000, tolerable_failures=2, timeout_ms=500)


def _graph(parallelism: int, *, policy: CheckpointPlan = POLICY) -> ExecutionGraph:
    chains = stage_plans("w", parallelism, mode=Mode.CHECKPOINT)
    return job_plan(*chains, checkpoint=policy, restart=RestartPlan("fixed", initial_ms=0))


def _names(parallelism: int) -> list[str]:
    return [f"w-{i}" for i in range(parallelism)]


def _running(parallelism: int = 2, *, policy: CheckpointPlan = POLICY) -> HandDrivenJob:
    job = HandDrivenJob(graph=_graph(parallelism, policy=policy))
    job.begin()
    job.claimed(1)
    job.answer_all()
    return job


def _status(job: HandDrivenJob) -> RescaleStatus:
    status = job.machine.status().rescale
    assert status is not None
    return status


def _state(job: HandDrivenJob) -> JobState:
    return job.machine.status().state


def _parallelism(job: HandDrivenJob) -> int:
    return next(iter(job.machine.status().parallelism.values()))


def _heard(job: HandDrivenJob, name: str = "w-0") -> tuple[Desired, int, int, int]:
    """What a chain heard last: wanted, round, failed, completed."""
    heard = job.heard[ChainId(name)]
    numbers = heard.round_id, heard.failed_upto, heard.completed_upto
    return (heard.desired, *(int(number) for number in numbers))  # type: ignore[return-value]


def _kind(job: HandDrivenJob) -> RoundKind:
    return job.heard[ChainId("w-0")].round_kind


def _record(job: HandDrivenJob) -> CheckpointRecord:
    asked = job.logged[0]
    assert isinstance(asked, AppendRecord)
    return asked.record


def _claim(job: HandDrivenJob) -> ClaimGeneration:
    (asked,) = job.logged
    assert isinstance(asked, ClaimGeneration)
    return asked


def _round_open(before: int = 2, after: int = 4) -> HandDrivenJob:
    """The round of the rescale is open; the additional processes are there."""
    job = _running(before)
    job.rescale(_graph(after))
    if after > before:
        job.prepared()
    assert (_state(job), _status(job).phase) == (JobState.RESCALING, "round")
    assert _kind(job) is RoundKind.RESCALE
    return job


def _recorded(before: int = 2, after: int = 4) -> HandDrivenJob:
    """The record of its round is in the log: the point of no return is passed."""
    job = _round_open(before, after)
    job.answers(1, *_names(before))
    job.appended()
    assert (_state(job), _status(job).phase) == (JobState.RESCALING, "end")
    return job


def _all_end(job: HandDrivenJob, kind: OutcomeKind = OutcomeKind.STOPPED) -> None:
    for name in sorted(job.deployed):
        job.ended(name, kind)


def _restored(number: int = 1) -> RestoredJob:
    name = f"checkpoint {number}"
    return RestoredJob(CheckpointId(number), RoundKind.RESCALE, name, ())


def _replanned(before: int = 2, after: int = 4) -> HandDrivenJob:
    """The new plan runs."""
    job = _recorded(before, after)
    _all_end(job)
    job.claimed(2, _restored(), last=1)
    job.answer_all()
    assert (_state(job), _status(job).phase) == (JobState.RUNNING, "done")
    return job


# --- how it goes -----------------------------------------------------------------------------


def test_a_rescale_prepares_processes_makes_a_round_and_deploys_the_new_plan_where_state_is() -> (
    None
):
    job = _running()
    assert _parallelism(job) == 2
    job.tick(10)
    job.rescale(_graph(4))
    (asked,) = job.prepares
    assert [plan.chain for plan in asked.plans] == ["w-2", "w-3"]
    assert (_state(job), _status(job).phase) == (JobState.RESCALING, "prepare")
    assert dict(_status(job).parallelism) == {"w": 4, "sink": 4}
    assert _heard(job) == (Desired.RUN, 0, 0, 0), "the attempt at work is not touched"
    job.tick(20)
    job.prepared()
    assert _heard(job) == (Desired.RUN, 1, 0, 0), "it does not wait for the interval"
    assert _kind(job) is RoundKind.RESCALE
    job.tick(30)
    job.answers(1, "w-0", "w-1")
    assert _record(job).kind is RoundKind.RESCALE
    assert _heard(job)[0] is Desired.RUN, "nobody ends before the record is in the log"
    job.appended()
    assert _heard(job) == (Desired.END, 1, 0, 1)
    assert not job.logged
    job.tick(40)
    job.ended("w-0", OutcomeKind.STOPPED)
    assert not job.logged, "one of the old plan may still write"
    job.ended("w-1", OutcomeKind.STOPPED)
    assert (_state(job), _status(job).phase) == (JobState.DEPLOYING, "claim")
    assert _claim(job).graph == _graph(4)
    assert _parallelism(job) == 4
    job.tick(50)
    job.claimed(2, _restored(), last=1)
    assert job.hosts == {"w-0": None, "w-1": "w-2", "w-2": "w-1", "w-3": None}
    assert not job.released
    job.tick(60)
    job.answer_all()
    status = _status(job)
    assert (_state(job), status.phase, status.error) == (JobState.RUNNING, "done", None)
    phases = status.phases
    assert (phases.prepare_ms, phases.round_ms, phases.end_ms) == (20, 30, 40)
    assert (phases.claim_ms, phases.deploy_ms) == (50, 60)
    assert _heard(job, "w-3") == (Desired.RUN, 0, 0, 0)
    assert job.machine.status().restarts == 0, "a rescale is no failure"


def test_fewer_subtasks_need_nobody_and_processes_that_host_nothing_may_go() -> None:
    job = _recorded(4, 2)
    assert not job.prepares
    _all_end(job)
    job.claimed(2, _restored(), last=1)
    assert job.hosts == {"w-0": None, "w-1": "w-2"}
    assert job.released == ["w-1", "w-3"], "by the names that they had"
    job.answer_all()
    assert set(job.machine.status().chains) <= {"w-0", "w-1"}


def test_what_chains_said_that_the_new_plan_has_no_more_is_told_no_longer() -> None:
    job = _round_open(2, 1)
    for name in ("w-0", "w-1"):
        job.report(name)
    job.answers(1, "w-0", "w-1")
    job.appended()
    _all_end(job)
    job.claimed(2, _restored(), last=1)
    assert set(job.machine.status().chains) == {"w-0"}


def test_its_round_waits_for_one_that_is_open_and_an_ordinary_one_follows_with_the_new_plan() -> (
    None
):
    job = _running()
    job.tick(1_000)
    assert _kind(job) is RoundKind.PERIODIC
    job.rescale(_graph(4))
    job.prepared()
    assert _heard(job)[1] == 1
    job.answers(1, "w-0", "w-1")
    job.appended()
    assert (_heard(job), _kind(job)) == ((Desired.RUN, 2, 0, 1), RoundKind.RESCALE)
    job.answers(2, "w-0", "w-1")
    job.appended()
    _all_end(job)
    job.claimed(2, _restored(2), last=2)
    job.answer_all()
    job.tick(1_000)
    assert (_heard(job, "w-3")[1], _kind(job)) == (3, RoundKind.PERIODIC)


def test_a_savepoint_that_is_wanted_meanwhile_is_made_by_the_new_plan() -> None:
    job = _round_open()
    job.savepoint("now")
    job.answers(1, "w-0", "w-1")
    job.appended()
    _all_end(job)
    job.claimed(2, _restored(), last=1)
    job.answer_all()
    job.tick(1)
    assert _kind(job) is RoundKind.SAVEPOINT


def test_a_savepoint_whose_copy_is_due_is_written_before_the_claim() -> None:
    job = _running()
    job.savepoint("now")
    job.answers(1, "w-0", "w-1")
    job.appended()
    job.rescale(_graph(1))
    assert _kind(job) is RoundKind.RESCALE
    job.answers(2, "w-0", "w-1")
    job.appended()
    _all_end(job)
    (asked,) = job.logged
    assert isinstance(asked, SaveSavepoint)
    assert _state(job) is JobState.RESCALING
    job.saved()
    assert _claim(job).graph == _graph(1)
    checkpoints = job.machine.status().checkpoints
    assert checkpoints is not None
    assert checkpoints.savepoints == {"now": "memory://copy"}


# --- what fails before the record: nothing has changed ------------------------------------------


def _goes_on(job: HandDrivenJob, why: str) -> None:
    """The plan at work goes on as it was, and what was prepared may go."""
    status = _status(job)
    assert (_state(job), status.phase) == (JobState.RUNNING, "failed")
    assert why in (status.error or "")
    assert job.released == ["w-2", "w-3"]
    assert _heard(job)[0] is Desired.RUN
    assert _parallelism(job) == 2


def test_processes_that_cannot_be_had_leave_the_job_as_it_is() -> None:
    job = _running()
    job.rescale(_graph(4))
    job.prepared(ResourceError("2 CPUs are missing"))
    _goes_on(job, "2 CPUs are missing")
    job.tick(1_000)
    assert _kind(job) is RoundKind.PERIODIC, "checkpoints go on"


def test_a_chain_that_declines_the_round_fails_the_rescale_and_sources_hear_of_it() -> None:
    job = _round_open()
    job.report("w-1", answer=RoundAnswer(CheckpointId(1), None, StoreError("full")))
    _goes_on(job, "full")
    assert _heard(job) == (Desired.RUN, 1, 1, 0), "they read on"


def test_a_round_that_is_not_answered_in_time_fails_the_rescale() -> None:
    job = _round_open()
    job.answers(1, "w-0")
    job.tick(500)
    _goes_on(job, "no answer within 0.5 s from chains 'w-1'")


def test_a_record_that_is_not_written_fails_the_rescale() -> None:
    job = _round_open()
    job.answers(1, "w-0", "w-1")
    job.log_failed(StoreError("unreachable"))
    _goes_on(job, "unreachable")
    assert _heard(job) == (Desired.RUN, 1, 1, 0)


@pytest.mark.parametrize("phase", ["prepare", "round", "append"])
def test_a_chain_that_fails_before_the_record_is_there_restarts_the_old_plan(phase: str) -> None:
    job = _running()
    job.rescale(_graph(4))
    if phase != "prepare":
        job.prepared()
    if phase == "append":
        job.answers(1, "w-0", "w-1")
        job.logged.clear()  # what it answers counts for nothing
    job.ended("w-0", OutcomeKind.FAILED)
    assert (_state(job), _status(job).phase) == (JobState.RESTARTING, "failed")
    job.ended("w-1", OutcomeKind.CANCELLED)
    assert _claim(job).graph is None, "the log has this plan"
    job.claimed(2, _restored(), last=1)
    job.answer_all()
    assert (_state(job), _parallelism(job)) == (JobState.RUNNING, 2)
    if phase == "prepare":
        assert not job.released, "they are released once they are there"
        job.prepared()
    assert job.released == ["w-2", "w-3"]
    assert set(job.hosts.values()) == {None}


def test_a_later_claim_of_another_run_ends_the_job() -> None:
    job = _round_open()
    job.answers(1, "w-0", "w-1")
    job.log_failed(FencedError("a later claim"))
    _all_end(job, OutcomeKind.CANCELLED)
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.FAILED
    assert _status(job).phase == "failed"


def test_data_that_end_before_the_round_opens_leave_nothing_to_rescale() -> None:
    job = _running()
    job.tick(1_000)
    job.rescale(_graph(1))
    for name in ("w-0", "w-1"):
        job.report(name, drained=True)
    job.answers(1, "w-0", "w-1", drained=True)
    job.appended()
    assert (_state(job), _status(job).phase) == (JobState.RUNNING, "failed")
    assert _status(job).error == "the data have ended"
    assert (_heard(job)[1], _kind(job)) == (2, RoundKind.FINAL)


def test_data_that_have_ended_at_the_cut_are_published_by_the_new_plan() -> None:
    """Its round was open already: the record is whole, and every chain of it is finished."""
    job = _round_open(2, 1)
    for name in ("w-0", "w-1"):
        job.report(name, drained=True, answer=RoundAnswer(CheckpointId(1), snapshot_of(name)))
    job.appended()
    _all_end(job, OutcomeKind.FINISHED)
    assert _claim(job).graph == _graph(1)


# --- what fails behind the record: the new plan follows ------------------------------------------


def test_a_chain_that_fails_behind_the_record_is_followed_by_the_new_plan() -> None:
    job = _recorded()
    job.ended("w-0", OutcomeKind.STOPPED)
    job.ended("w-1", OutcomeKind.FAILED)
    assert _claim(job).graph == _graph(4)
    job.log_failed(StoreError("unreachable"))
    assert _claim(job).graph == _graph(4), "the log may not have taken it"
    job.claimed(2, _restored(), last=1)
    assert job.hosts[ChainId("w-2")] == "w-1", "processes are where they were"
    job.answer_all()
    assert (_state(job), _status(job).phase) == (JobState.RUNNING, "done")


def test_a_new_plan_that_fails_once_is_tried_again_where_its_chains_are() -> None:
    job = _recorded()
    _all_end(job)
    job.claimed(2, _restored(), last=1)
    job.ready("w-0")
    job.ended("w-1", OutcomeKind.FAILED)
    for name in ("w-0", "w-2", "w-3"):
        job.ended(name, OutcomeKind.CANCELLED)
    assert _claim(job).graph is None, "the log has it"
    job.claimed(3, _restored(), last=1)
    assert set(job.hosts.values()) == {None}
    assert _status(job).phase == "deploy"
    job.answer_all()
    assert _status(job).phase == "done"


def _fails(job: HandDrivenJob, error: ArkflowError | None = None) -> None:
    """A chain of the attempt fails, the others follow."""
    first, *others = sorted(job.deployed)
    job.ended(first, OutcomeKind.FAILED, error)
    for name in others:
        job.ended(name, OutcomeKind.CANCELLED)


def test_a_new_plan_that_fails_twice_before_its_first_checkpoint_is_taken_back() -> None:
    job = _replanned()
    _fails(job)
    assert _parallelism(job) == 4
    job.claimed(3, _restored(), last=1)
    _fails(job, SourceError("too many connections"))
    assert _claim(job).graph == _graph(2)
    assert _parallelism(job) == 2
    status = _status(job)
    assert (status.phase, status.error) == ("taken back", "too many connections")
    job.claimed(4, _restored(), last=1)
    assert job.hosts == {"w-0": None, "w-1": "w-2"}
    assert job.released == ["w-1", "w-3"]
    job.answer_all()
    assert _state(job) is JobState.RUNNING
    told = [each.cause for each in job.machine.status().transitions]
    assert any("the plan before the rescale is taken back" in cause for cause in told)


def test_a_new_plan_that_completed_a_checkpoint_stays_whatever_fails() -> None:
    job = _replanned()
    _fails(job)
    job.claimed(3, _restored(), last=1)
    job.answer_all()
    job.tick(1_000)
    job.answers(2, *_names(4))
    job.appended()
    for generation in (4, 5, 6):
        _fails(job)
        job.claimed(generation, _restored(2), last=2)
        job.answer_all()
    assert (_parallelism(job), _status(job).phase) == (4, "done")


def test_a_claim_that_refuses_the_new_plan_is_followed_by_one_with_the_old_plan() -> None:
    job = _recorded()
    _all_end(job)
    job.log_failed(RestoreError("it does not fit"))
    assert _claim(job).graph == _graph(2)
    assert (_status(job).phase, _status(job).error) == ("taken back", "it does not fit")
    job.claimed(2, _restored(), last=1)
    assert set(job.hosts.values()) == {None}, "nobody has moved"
    assert not job.released or job.released == ["w-2", "w-3"]
    job.answer_all()
    assert (_state(job), _parallelism(job)) == (JobState.RUNNING, 2)


def test_a_new_plan_that_cannot_be_built_is_taken_back_at_once() -> None:
    job = _recorded()
    _all_end(job)
    job.claimed(2, _restored(), last=1)
    _fails(job, ConfigError([]))
    assert _claim(job).graph == _graph(2)


def test_a_store_that_a_claim_does_not_reach_is_no_fault_of_the_new_plan() -> None:
    job = _recorded()
    _all_end(job)
    for _ in range(4):
        assert _claim(job).graph == _graph(4)
        job.log_failed(StoreError("unreachable"))
    assert _status(job).phase == "claim"


def test_a_record_that_the_new_plan_cannot_read_is_named_to_the_next_claim() -> None:
    job = _recorded()
    _all_end(job)
    job.claimed(2, _restored(), last=1)
    _fails(job, CorruptObjectError("run 1 is broken"))
    assert _claim(job).unusable == {1: "run 1 is broken"}
    job.log_failed(RestoreError("nothing else can be restored"))
    assert _claim(job).graph == _graph(2)
    assert _claim(job).unusable == {1: "run 1 is broken"}
    job.log_failed(RestoreError("nothing else can be restored"))
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.FAILED


def test_a_later_claim_of_another_run_takes_nothing_back() -> None:
    job = _recorded()
    _all_end(job)
    job.log_failed(FencedError("a later claim"))
    assert job.end is not None
    assert _status(job).phase == "failed"


# --- stop and cancel -------------------------------------------------------------------------


def test_a_stop_before_the_record_fails_the_rescale_and_stops_in_order() -> None:
    job = _round_open()
    job.ask("stop")
    assert (_state(job), _status(job).phase) == (JobState.STOPPING, "failed")
    assert job.released == ["w-2", "w-3"]
    assert _heard(job) == (Desired.STOP, 1, 0, 0)
    for name in ("w-0", "w-1"):
        answer = RoundAnswer(CheckpointId(1), snapshot_of(name))
        job.report(name, answer=answer, drained=True, stopped=True)
    job.appended()
    assert _heard(job) == (Desired.STOP, 2, 0, 1), "it was a round as any other; the last follows"
    assert _kind(job) is RoundKind.PERIODIC
    job.answers(2, "w-0", "w-1", drained=True, stopped=True)
    job.appended()
    assert _heard(job)[0] is Desired.END
    _all_end(job)
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.STOPPED


@pytest.mark.parametrize("what", ["stop", "drain"])
def test_a_stop_while_the_record_is_on_its_way_is_a_stop_of_the_old_plan(what: str) -> None:
    """What a drain makes of the rows behind the cut has a round of its own before anybody ends."""
    job = _round_open()
    job.answers(1, "w-0", "w-1")
    job.ask(what)
    job.appended()
    wanted = Desired.STOP if what == "stop" else Desired.DRAIN
    assert _heard(job) == (wanted, 1, 0, 1)
    for name in ("w-0", "w-1"):
        job.report(name, drained=True, stopped=what == "stop")
    assert _heard(job)[:2] == (wanted, 2)
    assert _kind(job) is (RoundKind.PERIODIC if what == "stop" else RoundKind.FINAL)


def test_a_stop_while_processes_are_prepared_releases_them_when_they_are_there() -> None:
    job = _running()
    job.rescale(_graph(4))
    job.ask("stop")
    assert not job.released
    job.prepared()
    assert job.released == ["w-2", "w-3"]
    assert _state(job) is JobState.STOPPING


def test_a_stop_behind_the_record_ends_the_job_there() -> None:
    job = _round_open()
    for name in ("w-0", "w-1"):
        token = sink_token(1, sink="sink")
        job.report(name, answer=RoundAnswer(CheckpointId(1), snapshot_of(name, token)))
    job.appended()
    job.ask("stop")
    assert (_state(job), _heard(job)[0]) == (JobState.STOPPING, Desired.END)
    _all_end(job)
    assert (_record(job).checkpoint, _record(job).tokens) == (2, 0)
    job.appended()
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.STOPPED
    assert _status(job).phase == "failed"


def test_a_stop_before_the_new_plan_is_deployed_ends_the_job() -> None:
    job = _recorded()
    _all_end(job)
    job.ask("stop")
    job.claimed(2, _restored(), last=1)
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.STOPPED


@pytest.mark.parametrize("when", ["end", "claim", "deploy"])
@pytest.mark.parametrize("what", ["drain", "savepoint"])
def test_a_drain_or_a_last_savepoint_behind_the_record_is_done_by_the_new_plan(
    what: str, when: str
) -> None:
    job = _recorded()
    ask, name = ("drain", None) if what == "drain" else ("stop", "last")
    for phase in ("end", "claim", "deploy"):
        assert _status(job).phase == phase
        if phase == when:
            job.ask(ask, name)
        if phase == "end":
            _all_end(job)
        elif phase == "claim":
            job.claimed(2, _restored(), last=1)
    job.answer_all()
    wanted = Desired.DRAIN if what == "drain" else Desired.STOP
    assert (_state(job), _heard(job, "w-3")[0]) == (JobState.STOPPING, wanted)
    assert _status(job).phase == "done"


@pytest.mark.parametrize("steps", range(7))
def test_a_cancel_ends_the_job_in_every_phase(steps: int) -> None:
    job = _running()
    way: tuple[Callable[[], None], ...] = (
        lambda: job.rescale(_graph(4)),
        job.prepared,
        lambda: job.answers(1, "w-0", "w-1"),
        job.appended,
        lambda: _all_end(job),
        lambda: job.claimed(2, _restored(), last=1),
    )
    for step in way[:steps]:
        step()
    job.ask("cancel")
    if job.end is None:
        _all_end(job, OutcomeKind.CANCELLED)
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.CANCELLED
    if steps:
        assert _status(job).phase == "failed"


def test_a_cancel_while_a_savepoint_is_written_ends_the_job() -> None:
    job = _running()
    job.savepoint("now")
    job.answers(1, "w-0", "w-1")
    job.appended()
    job.rescale(_graph(1))
    job.answers(2, "w-0", "w-1")
    job.appended()
    _all_end(job)
    job.ask("cancel")
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.CANCELLED


# --- several of them -------------------------------------------------------------------------


def test_a_rescale_that_is_wanted_before_the_job_runs_begins_when_it_does() -> None:
    job = HandDrivenJob(graph=_graph(2))
    job.rescale(_graph(4))
    job.begin()
    job.claimed(1)
    job.answer_all()
    assert (_state(job), _status(job).phase) == (JobState.RESCALING, "prepare")


def test_a_rescale_that_is_repeated_is_one() -> None:
    job = _round_open()
    job.rescale(_graph(4))
    job.answers(1, "w-0", "w-1")
    job.appended()
    job.rescale(_graph(4))
    _all_end(job)
    job.claimed(2, _restored(), last=1)
    job.answer_all()
    assert (_state(job), _status(job).number) == (JobState.RUNNING, 1)


def test_a_newer_rescale_takes_the_place_of_one_whose_round_has_not_begun() -> None:
    job = _running()
    job.rescale(_graph(4))
    job.rescale(_graph(3))
    job.rescale(_graph(1))
    job.prepared()
    assert job.released == ["w-2", "w-3"]
    status = _status(job)
    assert (status.number, status.phase) == (2, "round")
    assert dict(status.parallelism) == {"w": 1, "sink": 1}
    causes = [each.cause for each in job.all_transitions()]
    assert "the rescale failed: another one was requested" in causes


def test_a_newer_rescale_waits_for_one_whose_round_has_begun() -> None:
    job = _round_open()
    job.rescale(_graph(1))
    job.answers(1, "w-0", "w-1")
    job.appended()
    _all_end(job)
    job.claimed(2, _restored(), last=1)
    job.answer_all()
    assert (_parallelism(job), _status(job).number) == (4, 2)
    assert (_state(job), _status(job).phase) == (JobState.RESCALING, "round")


def test_a_wish_for_the_plan_at_work_takes_back_one_that_waits_and_is_done_at_once() -> None:
    job = _running()
    job.rescale(_graph(2))
    assert (_state(job), _status(job).phase) == (JobState.RUNNING, "done")
    job.rescale(_graph(4))
    job.rescale(_graph(2))
    job.prepared()
    assert (_state(job), _status(job).phase) == (JobState.RUNNING, "done")
    assert (_status(job).number, _parallelism(job)) == (3, 2)
    assert job.released == ["w-2", "w-3"]


def test_a_rescale_of_a_job_that_is_stopped_fails() -> None:
    job = _running()
    job.ask("stop")
    job.rescale(_graph(4))
    assert (_status(job).phase, _status(job).error) == ("failed", "a stop was requested before")
    assert not job.prepares


def test_a_rescale_that_waits_when_the_job_ends_is_told_to_have_failed() -> None:
    job = _round_open()
    job.rescale(_graph(1))
    job.ask("cancel")
    _all_end(job, OutcomeKind.CANCELLED)
    status = _status(job)
    assert (status.number, status.phase) == (2, "failed")
    assert "the job ended first" in (status.error or "")


def test_plans_follow_each_other_and_each_claim_names_its_own() -> None:
    job = _replanned(2, 4)
    for number, parallelism in enumerate((1, 2, 1), start=2):
        job.rescale(_graph(parallelism))
        if job.prepares:
            job.prepared()
        job.answers(number, *sorted(job.deployed))
        job.appended()
        _all_end(job)
        assert _claim(job).graph == _graph(parallelism)
        job.claimed(number + 1, _restored(number), last=number)
        job.answer_all()
        assert (_parallelism(job), _status(job).phase) == (parallelism, "done")
        assert len(job.deployed) == parallelism
