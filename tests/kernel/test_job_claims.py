"""Where the attempts of a job begin: claims, what they restore and refuse (M2, D3, D7, T3)."""

import pytest

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import (
    ArkflowError,
    CheckpointError,
    CorruptObjectError,
    RestoreError,
    SinkError,
    StoreError,
)
from arkflow_kernel.ids import ChainId, CheckpointId
from arkflow_kernel.plan import CheckpointPlan, Mode
from arkflow_kernel.protocol import CheckpointStatus, ClaimGeneration, OutcomeKind
from arkflow_kernel.snapshot import RestoreChoice, RestoredJob, RestoreKind
from arkflow_kernel.testing.hand_driven_chain import sink_token
from arkflow_kernel.testing.hand_driven_job import HandDrivenJob, snapshot_of
from arkflow_kernel.testing.plans import chain_plan, job_plan

SCRATCH = RestoreChoice(RestoreKind.SCRATCH)


def _job(choice: RestoreChoice | None = None) -> HandDrivenJob:
    chains = (chain_plan(name, mode=Mode.CHECKPOINT) for name in ("a", "b"))
    graph = job_plan(*chains, checkpoint=CheckpointPlan("memory://x", 100))
    return HandDrivenJob(graph=graph, choice=choice or RestoreChoice())


def _running() -> HandDrivenJob:
    job = _job()
    job.run()
    return job


def _checkpoints(job: HandDrivenJob) -> CheckpointStatus:
    status = job.machine.status().checkpoints
    assert status is not None
    return status


def _restored(kind: RoundKind, *, tokens: bool = False) -> RestoredJob:
    pending = (sink_token(7),) if tokens else ()
    chains = tuple(snapshot_of(name, *pending, finished=True) for name in "ab")
    return RestoredJob(CheckpointId(7), kind, "checkpoint 7", chains)


def test_the_next_attempt_claims_anew_and_forgets_what_was_under_way() -> None:
    job = _job(SCRATCH)
    job.begin()
    (claim,) = job.logged
    assert isinstance(claim, ClaimGeneration)
    assert claim.choice == SCRATCH
    job.claimed(1)
    job.answer_all()
    job.tick(100)
    job.answers(1, "a", "b")
    late = job.logged.pop()
    job.ended("a", OutcomeKind.FAILED)
    job.ended("b", OutcomeKind.CANCELLED)
    (claim,) = job.logged
    assert isinstance(claim, ClaimGeneration)
    assert claim.choice == RestoreChoice(), "a user's choice holds for the first claim"
    job.logged.append(late)
    job.claimed(2, last=1)
    job.answer_all()
    job.appended()
    assert job.heard[ChainId("a")].completed_upto == 0
    assert _checkpoints(job).last == 0
    job.tick(100)
    assert job.heard[ChainId("a")].round_id == 2


def test_a_record_that_a_chain_could_not_restore_is_named_to_the_next_claim() -> None:
    """M2: the log passes it over, or refuses."""
    job = _job()
    job.begin()
    job.claimed(3, _restored(RoundKind.PERIODIC), last=7)
    job.ended("a", OutcomeKind.FAILED, CorruptObjectError("1-a-4.arrow is gone"))
    job.ready("b")
    job.ended("b", OutcomeKind.CANCELLED)
    (claim,) = job.logged
    assert isinstance(claim, ClaimGeneration)
    assert claim.unusable == {7: "1-a-4.arrow is gone"}
    job.log_failed(RestoreError("`out` would repeat 3 epochs"))
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.FAILED


def test_a_store_that_cannot_be_reached_at_the_start_ends_the_job_with_that_reason() -> None:
    job = _job()
    job.begin()
    job.log_failed(StoreError("no route to the store"))
    assert job.end is not None
    assert "no route to the store" in str(job.end.outcome.error)


@pytest.mark.parametrize("tokens", [False, True])
def test_a_job_whose_last_record_is_final_is_finished_unless_tokens_are_left(tokens: bool) -> None:
    job = _job()
    job.begin()
    job.claimed(4, _restored(RoundKind.FINAL, tokens=tokens), last=7)
    if tokens:
        assert job.end is None
        assert set(job.deploys) == {"a", "b"}
    else:
        assert job.end is not None
        assert job.end.outcome.kind is OutcomeKind.FINISHED
        assert "already finished at checkpoint 7" in job.machine.status().cause
        assert not job.deploys


@pytest.mark.parametrize("what", ["stop", "cancel"])
def test_a_job_that_is_stopped_while_the_log_is_asked_deploys_nothing(what: str) -> None:
    job = _job()
    job.begin()
    asked = list(job.logged)
    job.ask(what)
    if job.end is None:
        job.claimed(1)
    else:
        job.logged = asked
        job.claimed(1)
    assert job.end is not None
    kinds = {"stop": OutcomeKind.STOPPED, "cancel": OutcomeKind.CANCELLED}
    assert job.end.outcome.kind is kinds[what]
    assert not job.deploys


@pytest.mark.parametrize(
    "error", [SinkError("the target is full"), CheckpointError("no")], ids=["sink", "rounds"]
)
def test_a_job_that_failed_goes_on_from_what_the_log_says(error: ArkflowError) -> None:
    """D3: a job that keeps state is restarted like any other, from its last checkpoint."""
    job = _running()
    job.ended("a", OutcomeKind.FAILED, error)
    job.ended("b", OutcomeKind.CANCELLED)
    job.claimed(2, _restored(RoundKind.PERIODIC), last=7)
    assert set(job.deploys) == {"a", "b"}
    assert "continues from checkpoint 7" in job.machine.status().cause
    assert _checkpoints(job).restored == "checkpoint 7"
