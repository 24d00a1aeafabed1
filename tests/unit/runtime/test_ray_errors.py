"""What of an error of Ray a user reads."""

from ray.exceptions import ActorUnavailableError, RayTaskError

from arkflow_ray.runtime.ray_errors import first_line


def test_a_call_that_raised_is_told_by_what_it_raised() -> None:
    raised = RayTaskError("CoordinatorActor.run()", "a traceback", ValueError("no\nsecond line"))  # type: ignore[no-untyped-call]
    assert first_line(raised) == "ValueError: no"


def test_an_error_without_a_cause_is_told_by_its_first_line() -> None:
    assert first_line(OSError()) == "OSError"
    assert first_line(ConnectionError("refused\nand more")) == "refused"
    assert "gone" in first_line(ActorUnavailableError("gone", None))
