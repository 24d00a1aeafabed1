"""Joining a Ray that does not let us in: what the error says. No Ray runs here."""

import pytest
import ray
from ray.exceptions import AuthenticationError

from arkflow_kernel.errors import ClusterError
from arkflow_ray.runtime.ray_session import join_session, open_session

ADDRESS = "10.0.0.1:6379"
NO_TOKEN = RuntimeError(
    "Failed to connect to GCS. Last connection error: Traceback …\n"
    "ray.exceptions.AuthenticationError: RPC error: InvalidAuthToken: Authentication token is "
    "missing or incorrect"
)


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        (NO_TOKEN, "it asks for a token, which Ray does not send to an address that is given; R"),
        (RuntimeError("timed out"), "Failed to connect to Ray cluster; is it running, and does"),
    ],
)
def test_the_reason_why_a_ray_is_not_joined_is_told(
    monkeypatch: pytest.MonkeyPatch, cause: Exception, told: str
) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)

    def refuse(**_: object) -> None:
        raise ConnectionError("Failed to connect to Ray cluster") from cause

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(ClusterError) as caught:
        open_session(ADDRESS, lambda _: None)
    assert caught.value.message.startswith(f"cannot reach Ray at '{ADDRESS}': {told}")


def test_a_token_that_is_refused_and_one_that_is_missing_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    refused = ConnectionError("Failed to connect to Ray cluster")
    refused.__cause__ = NO_TOKEN
    told = {refused: "it refuses our token", AuthenticationError("no token"): "there is no token"}
    for error, text in told.items():

        def refuse(error: Exception = error, **_: object) -> None:
            raise error

        monkeypatch.setattr(ray, "init", refuse)
        with pytest.raises(ClusterError, match=text) as caught:
            join_session(ADDRESS, None, lambda _: None)
        assert "RAY_AUTH_TOKEN or ~/.ray/auth_token" in caught.value.message


def test_the_code_of_a_job_goes_with_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, object]] = []
    monkeypatch.setattr(ray, "init", lambda **options: given.append(options))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    join_session(ADDRESS, {"working_dir": "."}, lambda _: None).close()
    assert given[0]["runtime_env"] == {"working_dir": "."}
