"""One Ray for all tests of this folder that run in this process; it is never shut down by a job."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def shared_ray() -> Iterator[None]:
    """A Ray that "the user" started: every job in this process uses it."""
    import ray

    from arkflow_ray.runtime.ray_session import open_session

    session = open_session(None, lambda _: None)
    assert session.started
    yield
    assert ray.is_initialized(), "a job shut down a Ray that it did not start"
    session.close()
