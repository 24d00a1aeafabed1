"""What a user reads when a job's coordinator never answers."""

from ray.exceptions import ActorDiedError, GetTimeoutError

from arkflow_kernel.errors import ActorLostError, ResourceError
from arkflow_kernel.ids import JobId
from arkflow_ray.runtime.coordinator_process import (
    ANSWER_TIMEOUT_S,
    START_TIMEOUT_S,
    coordinator_lost,
    not_started,
)


def test_a_coordinator_that_dies_while_it_starts_is_not_told_as_a_time_out() -> None:
    error = not_started(JobId("orders"), ActorDiedError())
    assert isinstance(error, ActorLostError)
    assert error.message.startswith("the coordinator of job 'orders' died while it started: ")
    assert " within " not in error.message


def test_a_coordinator_that_is_waited_for_too_long_is_a_lack_of_resources() -> None:
    error = not_started(JobId("orders"), GetTimeoutError("Get timed out: some object(s) not ready"))
    assert isinstance(error, ResourceError)
    assert f"did not start within {START_TIMEOUT_S:.0f} s; `ray status`" in error.message


def test_a_coordinator_that_hangs_is_not_told_as_dead() -> None:
    hangs = coordinator_lost(JobId("orders"), GetTimeoutError("Get timed out"))
    asked = f"the coordinator of job 'orders' did not answer for {ANSWER_TIMEOUT_S:.0f} s"
    assert hangs.message == asked
    died = coordinator_lost(JobId("orders"), ActorDiedError())
    assert died.message.startswith("the coordinator of job 'orders' died: ")
