"""A stop or a cancel while a job gets another plan (K2, D5)."""

from collections.abc import Callable

import pytest

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.ids import CheckpointId
from arkflow_kernel.protocol import (
    Desired,
    JobState,
    OutcomeKind,
)
from arkflow_kernel.snapshot import RoundAnswer
from arkflow_kernel.testing.hand_driven_chain import sink_token
from arkflow_kernel.testing.hand_driven_job import snapshot_of
from tests.kernel.rescaled_jobs import (
    all_end,
    heard,
    kind_of,
    plan_of,
    record_of,
    recorded,
    restored,
    round_open,
    running,
    state_of,
    status_of,
)

# --- stop and cancel -------------------------------------------------------------------------


def test_a_stop_before_the_record_fails_the_rescale_and_stops_in_order() -> None:
    job = round_open()
    job.ask("stop")
    assert (state_of(job), status_of(job).phase) == (JobState.STOPPING, "failed")
    assert job.released == ["w-2", "w-3"]
    assert heard(job) == (Desired.STOP, 1, 0, 0)
    for name in ("w-0", "w-1"):
        answer = RoundAnswer(CheckpointId(1), snapshot_of(name))
        job.report(name, answer=answer, drained=True, stopped=True)
    job.appended()
    assert heard(job) == (Desired.STOP, 2, 0, 1), "it was a round as any other; the last follows"
    assert kind_of(job) is RoundKind.PERIODIC
    job.answers(2, "w-0", "w-1", drained=True, stopped=True)
    job.appended()
    assert heard(job)[0] is Desired.END
    all_end(job)
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.STOPPED


@pytest.mark.parametrize("what", ["stop", "drain"])
def test_a_stop_while_the_record_is_on_its_way_is_a_stop_of_the_old_plan(what: str) -> None:
    """What a drain makes of the rows behind the cut has a round of its own before anybody ends."""
    job = round_open()
    job.answers(1, "w-0", "w-1")
    job.ask(what)
    job.appended()
    wanted = Desired.STOP if what == "stop" else Desired.DRAIN
    assert heard(job) == (wanted, 1, 0, 1)
    for name in ("w-0", "w-1"):
        job.report(name, drained=True, stopped=what == "stop")
    assert heard(job)[:2] == (wanted, 2)
    assert kind_of(job) is (RoundKind.PERIODIC if what == "stop" else RoundKind.FINAL)


def test_a_stop_while_processes_are_prepared_releases_them_when_they_are_there() -> None:
    job = running()
    job.rescale(plan_of(4))
    job.ask("stop")
    assert not job.released
    job.prepared()
    assert job.released == ["w-2", "w-3"]
    assert state_of(job) is JobState.STOPPING


def test_a_stop_behind_the_record_ends_the_job_there() -> None:
    job = round_open()
    for name in ("w-0", "w-1"):
        token = sink_token(1, sink="sink")
        job.report(name, answer=RoundAnswer(CheckpointId(1), snapshot_of(name, token)))
    job.appended()
    job.ask("stop")
    assert (state_of(job), heard(job)[0]) == (JobState.STOPPING, Desired.END)
    all_end(job)
    assert (record_of(job).checkpoint, record_of(job).tokens) == (2, 0)
    job.appended()
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.STOPPED
    assert status_of(job).phase == "failed"


def test_a_stop_before_the_new_plan_is_deployed_ends_the_job() -> None:
    job = recorded()
    all_end(job)
    job.ask("stop")
    job.claimed(2, restored(), last=1)
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.STOPPED


@pytest.mark.parametrize("when", ["end", "claim", "deploy"])
@pytest.mark.parametrize("what", ["drain", "savepoint"])
def test_a_drain_or_a_last_savepoint_behind_the_record_is_done_by_the_new_plan(
    what: str, when: str
) -> None:
    job = recorded()
    ask, name = ("drain", None) if what == "drain" else ("stop", "last")
    for phase in ("end", "claim", "deploy"):
        assert status_of(job).phase == phase
        if phase == when:
            before = state_of(job)
            job.ask(ask, name)
            assert state_of(job) is before, "it is the new plan that is stopped"
        if phase == "end":
            all_end(job)
        elif phase == "claim":
            job.claimed(2, restored(), last=1)
    job.answer_all()
    wanted = Desired.DRAIN if what == "drain" else Desired.STOP
    assert (state_of(job), heard(job, "w-3")[0]) == (JobState.STOPPING, wanted)
    assert status_of(job).phase == "done"


@pytest.mark.parametrize("steps", range(7))
def test_a_cancel_ends_the_job_in_every_phase(steps: int) -> None:
    job = running()
    way: tuple[Callable[[], None], ...] = (
        lambda: job.rescale(plan_of(4)),
        job.prepared,
        lambda: job.answers(1, "w-0", "w-1"),
        job.appended,
        lambda: all_end(job),
        lambda: job.claimed(2, restored(), last=1),
    )
    for step in way[:steps]:
        step()
    job.ask("cancel")
    if job.end is None:
        all_end(job, OutcomeKind.CANCELLED)
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.CANCELLED
    if steps:
        assert status_of(job).phase == "failed"


def test_a_cancel_while_a_savepoint_is_written_ends_the_job() -> None:
    job = running()
    job.savepoint("now")
    job.answers(1, "w-0", "w-1")
    job.appended()
    job.rescale(plan_of(1))
    job.answers(2, "w-0", "w-1")
    job.appended()
    all_end(job)
    job.ask("cancel")
    assert job.end is not None
    assert job.end.outcome.kind is OutcomeKind.CANCELLED


def test_a_wish_that_comes_after_a_stop_does_not_disturb_what_is_under_way() -> None:
    job = recorded()
    job.ask("drain")
    job.rescale(plan_of(1))
    all_end(job)
    job.claimed(2, restored(), last=1)
    job.answer_all()
    assert (state_of(job), status_of(job).phase) == (JobState.STOPPING, "done")
    assert heard(job, "w-3")[0] is Desired.DRAIN
