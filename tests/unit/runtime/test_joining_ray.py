"""Joining a Ray that does not let us in: what the error says. No Ray runs here."""

import pytest
import ray

from arkflow_kernel.errors import ClusterError
from arkflow_ray.runtime.ray_session import open_session

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
    def refuse(**_: object) -> None:
        raise ConnectionError("Failed to connect to Ray cluster") from cause

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(ClusterError) as caught:
        open_session(ADDRESS, lambda _: None)
    assert caught.value.message.startswith(f"cannot reach Ray at '{ADDRESS}': {told}")
