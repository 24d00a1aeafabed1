"""`cancel` at a door: the job ends now, and the answer says how it ended (D5)."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from arkflow_kernel.errors import SourceError
from arkflow_kernel.ids import CheckpointId
from arkflow_kernel.protocol import JobOutcome, OutcomeKind
from arkflow_ray.door.client import ask, find_door
from arkflow_ray.door.messages import BadRequestError, RefusedError, Request

if TYPE_CHECKING:
    from tests.unit.door.conftest import OpenDoors, ScriptedJob

CANCEL = Request("cancel")


@pytest.mark.parametrize("kind", [OutcomeKind.CANCELLED, OutcomeKind.FINISHED])
def test_the_caller_waits_until_the_job_is_over_and_hears_how_it_ended(
    folder: Path, make_job: "type[ScriptedJob]", opened: "OpenDoors", kind: OutcomeKind
) -> None:
    job = make_job()
    job.checkpoints(last=CheckpointId(7))
    opened(job)
    told = ask(find_door("shop", [folder]), CANCEL, 20, lambda _: job.end(JobOutcome(kind)))
    assert told == {"job": "shop", "outcome": kind.value, "checkpoint": 7}
    assert job.handle.calls == [("cancel",)]
    assert job.cancel_asked


def test_the_error_of_a_job_that_failed_meanwhile_is_told(
    folder: Path, make_job: "type[ScriptedJob]", opened: "OpenDoors"
) -> None:
    job = make_job()
    opened(job)
    failed = JobOutcome(OutcomeKind.FAILED, SourceError("no disk"))
    with pytest.raises(RefusedError, match="no disk") as refused:
        ask(find_door("shop", [folder]), CANCEL, 20, lambda _: job.end(failed))
    assert refused.value.kind == SourceError.__name__


def test_a_job_that_is_over_is_not_cancelled(
    folder: Path, make_job: "type[ScriptedJob]", opened: "OpenDoors"
) -> None:
    job = make_job()
    job.end(JobOutcome(OutcomeKind.FINISHED))
    opened(job)
    with pytest.raises(BadRequestError, match="job 'shop' is over"):
        ask(find_door("shop", [folder]), CANCEL, 20)
    assert job.handle.calls == []
