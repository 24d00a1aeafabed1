"""A job in ack mode gets another plan: it settles, then goes on where its sources are (K3)."""

from arkflow_kernel.errors import ResourceError
from arkflow_kernel.ids import ChainId, OperatorId, SplitId
from arkflow_kernel.limits import TRIAL_MS
from arkflow_kernel.plan import ExecutionGraph, RestartPlan
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.protocol import Desired, JobState, OutcomeKind
from arkflow_kernel.testing.hand_driven_job import HandDrivenJob
from arkflow_kernel.testing.plans import job_plan, stage_plans
from tests.kernel.rescaled_jobs import fails, heard, state_of, status_of

W0 = ChainId("w-0")


def _graph(parallelism: int) -> ExecutionGraph:
    restart = RestartPlan("fixed", initial_ms=0)
    return job_plan(*stage_plans("w", parallelism), restart=restart)


def _stopping() -> HandDrivenJob:
    """The chains of the plan at work are told to stop; another process is there."""
    job = HandDrivenJob(graph=_graph(1))
    job.run()
    job.report("w-0", row=4)
    job.rescale(_graph(2))
    assert _heard(job) is Desired.RUN
    job.prepared()
    assert (state_of(job), _phase(job)) == (JobState.RESCALING, "end")
    assert _heard(job) is Desired.STOP
    return job


def _heard(job: HandDrivenJob) -> Desired:
    return heard(job)[0]


def _phase(job: HandDrivenJob) -> str:
    return status_of(job).phase


def _replanned() -> HandDrivenJob:
    job = _stopping()
    job.ended("w-0", OutcomeKind.STOPPED, row=7)
    job.answer_all()
    assert (state_of(job), _phase(job)) == (JobState.RUNNING, "done")
    return job


def test_the_new_plan_begins_where_the_sources_were_settled_and_all_its_subtasks_hear_of_it() -> (
    None
):
    job = _stopping()
    assert not job.logs
    job.ended("w-0", OutcomeKind.STOPPED, row=7)
    assert (state_of(job), _phase(job)) == (JobState.DEPLOYING, "deploy")
    settled = (SplitPosition(SplitId("a"), {"row": 7}),)
    assert job.restored == {"w-0": settled, "w-1": settled}
    assert job.generation == 2
    job.answer_all()
    status = job.machine.status()
    assert (status.state, status.parallelism[OperatorId("w")], status.restarts) == (
        JobState.RUNNING,
        2,
        0,
    )
    assert _heard(job) is Desired.RUN


def test_processes_that_cannot_be_had_leave_the_job_as_it_is() -> None:
    job = HandDrivenJob(graph=_graph(1))
    job.run()
    job.rescale(_graph(2))
    job.prepared(ResourceError("2 CPUs are missing"))
    assert (state_of(job), _phase(job), _heard(job)) == (JobState.RUNNING, "failed", Desired.RUN)
    assert job.released == ["w-1"]


def test_a_chain_that_fails_while_it_stops_is_followed_by_the_new_plan() -> None:
    job = _stopping()
    job.ended("w-0", OutcomeKind.FAILED, row=5)
    assert job.deployed == {"w-0", "w-1"}
    assert job.restored[W0][0].position == {"row": 5}


def test_data_that_end_meanwhile_end_the_job() -> None:
    job = _stopping()
    job.ended("w-0", OutcomeKind.FINISHED, row=9)
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.FINISHED
    assert _phase(job) == "failed"


def test_data_that_end_while_processes_are_prepared_end_the_job() -> None:
    job = HandDrivenJob(graph=_graph(1))
    job.run()
    job.rescale(_graph(2))
    job.ended("w-0", OutcomeKind.FINISHED)
    assert job.end is not None
    assert _phase(job) == "failed"


def test_a_stop_ends_the_job_instead_and_a_drain_is_done_by_the_new_plan() -> None:
    job = _stopping()
    job.ask("stop")
    assert state_of(job) is JobState.STOPPING
    job.ended("w-0", OutcomeKind.STOPPED)
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.STOPPED
    job = _stopping()
    job.ask("drain")
    job.ended("w-0", OutcomeKind.STOPPED)
    job.answer_all()
    assert (state_of(job), _heard(job)) == (JobState.STOPPING, Desired.DRAIN)


def test_a_new_plan_that_fails_twice_before_it_has_run_for_a_while_is_taken_back() -> None:
    job = _replanned()
    fails(job)
    assert len(job.deployed) == 2
    fails(job)
    assert (_phase(job), job.deployed) == ("taken back", {"w-0"})
    job.answer_all()
    assert state_of(job) is JobState.RUNNING


def test_a_new_plan_that_has_run_for_a_while_stays() -> None:
    job = _replanned()
    for _ in range(2):
        for name in sorted(job.deployed):
            job.clock.advance(TRIAL_MS // 2)
            job.report(name)
        fails(job)
        job.answer_all()
    assert (_phase(job), len(job.deployed)) == ("done", 2)


def test_a_plan_on_trial_that_fails_while_it_makes_room_is_followed_by_the_next_one() -> None:
    job = _replanned()
    fails(job)
    job.answer_all()
    job.rescale(_graph(3))
    job.prepared()
    fails(job)
    assert len(job.deployed) == 3
