"""A job of one operator that gets another parallelism, driven by hand up to a point (K2)."""

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import ArkflowError
from arkflow_kernel.ids import ChainId, CheckpointId
from arkflow_kernel.plan import CheckpointPlan, ExecutionGraph, Mode, RestartPlan
from arkflow_kernel.protocol import (
    AppendRecord,
    ClaimGeneration,
    Desired,
    JobState,
    OutcomeKind,
    RescaleStatus,
)
from arkflow_kernel.snapshot import CheckpointRecord, RestoredJob
from arkflow_kernel.testing.hand_driven_job import HandDrivenJob
from arkflow_kernel.testing.plans import job_plan, stage_plans

POLICY = CheckpointPlan("memory://x", 1_000, tolerable_failures=2, timeout_ms=500)


def plan_of(parallelism: int, *, policy: CheckpointPlan = POLICY) -> ExecutionGraph:
    """A job of one operator with so many subtasks."""
    chains = stage_plans("w", parallelism, mode=Mode.CHECKPOINT)
    return job_plan(*chains, checkpoint=policy, restart=RestartPlan("fixed", initial_ms=0))


def names(parallelism: int) -> list[str]:
    """The chains of such a plan."""
    return [f"w-{i}" for i in range(parallelism)]


def running(parallelism: int = 2, *, policy: CheckpointPlan = POLICY) -> HandDrivenJob:
    """A job that runs."""
    job = HandDrivenJob(graph=plan_of(parallelism, policy=policy))
    job.run()
    return job


def status_of(job: HandDrivenJob) -> RescaleStatus:
    """How the last rescale is."""
    status = job.machine.status().rescale
    assert status is not None
    return status


def state_of(job: HandDrivenJob) -> JobState:
    """The state of the job."""
    return job.machine.status().state


def parallelism_of(job: HandDrivenJob) -> int:
    """How many subtasks are at work."""
    return next(iter(job.machine.status().parallelism.values()))


def heard(job: HandDrivenJob, name: str = "w-0") -> tuple[Desired, int, int, int]:
    """What a chain heard last: wanted, round, failed, completed."""
    heard = job.heard[ChainId(name)]
    numbers = heard.round_id, heard.failed_upto, heard.completed_upto
    return (heard.desired, *(int(number) for number in numbers))  # type: ignore[return-value]


def kind_of(job: HandDrivenJob) -> RoundKind:
    """Of the round that chains heard of last."""
    return job.heard[ChainId("w-0")].round_kind


def record_of(job: HandDrivenJob) -> CheckpointRecord:
    """The record that is to be appended."""
    asked = job.logged[0]
    assert isinstance(asked, AppendRecord)
    return asked.record


def claim_of(job: HandDrivenJob) -> ClaimGeneration:
    """The claim that is to be made."""
    (asked,) = job.logged
    assert isinstance(asked, ClaimGeneration)
    return asked


def round_open(before: int = 2, after: int = 4) -> HandDrivenJob:
    """The round of the rescale is open; the additional processes are there."""
    job = running(before)
    job.rescale(plan_of(after))
    if after > before:
        job.prepared()
    assert (state_of(job), status_of(job).phase) == (JobState.RESCALING, "round")
    assert kind_of(job) is RoundKind.RESCALE
    return job


def recorded(before: int = 2, after: int = 4) -> HandDrivenJob:
    """The record of its round is in the log: the point of no return is passed."""
    job = round_open(before, after)
    job.answers(1, *names(before))
    job.appended()
    assert (state_of(job), status_of(job).phase) == (JobState.RESCALING, "end")
    return job


def all_end(job: HandDrivenJob, kind: OutcomeKind = OutcomeKind.STOPPED) -> None:
    """Every chain of the attempt ends."""
    for name in sorted(job.deployed):
        job.ended(name, kind)


def restored(number: int = 1) -> RestoredJob:
    """What a claim restores."""
    name = f"checkpoint {number}"
    return RestoredJob(CheckpointId(number), RoundKind.RESCALE, name, ())


def replanned(before: int = 2, after: int = 4) -> HandDrivenJob:
    """The new plan runs."""
    job = recorded(before, after)
    all_end(job)
    job.claimed(2, restored(), last=1)
    job.answer_all()
    assert (state_of(job), status_of(job).phase) == (JobState.RUNNING, "done")
    return job


def fails(job: HandDrivenJob, error: ArkflowError | None = None) -> None:
    """A chain of the attempt fails, the others follow."""
    first, *others = sorted(job.deployed)
    job.ended(first, OutcomeKind.FAILED, error)
    for name in others:
        job.ended(name, OutcomeKind.CANCELLED)


__all__ = [
    "POLICY",
    "all_end",
    "claim_of",
    "fails",
    "heard",
    "kind_of",
    "names",
    "parallelism_of",
    "plan_of",
    "record_of",
    "recorded",
    "replanned",
    "restored",
    "round_open",
    "running",
    "state_of",
    "status_of",
]
