"""A cluster that is this process: its runners, what they have to remember, and its client."""

import threading
from collections.abc import Iterator

import pytest

from arkflow_ray.cluster import cluster_jobs, job_runner
from arkflow_ray.cluster.cluster_jobs import ClusterJobs
from tests.unit.cluster.runners_here import World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A cluster in this process. Its jobs are cancelled at the end."""
    world = World()
    monkeypatch.setattr(cluster_jobs, "make_actor", world.make)
    monkeypatch.setattr(cluster_jobs, "find_actor", lambda name, _: world.actors.get(name))
    monkeypatch.setattr(cluster_jobs, "actor_names", lambda _: sorted(world.actors))
    monkeypatch.setattr(cluster_jobs, "LOOK_S", 0.01)
    monkeypatch.setattr(job_runner, "launch", world.launch)
    monkeypatch.setattr(job_runner, "recall", world.kept.get)
    monkeypatch.setattr(job_runner, "remember", world.kept.__setitem__)
    monkeypatch.setattr(job_runner, "forget", lambda key: world.kept.pop(key, None))
    monkeypatch.setattr(job_runner, "remove_groups", world.cleared.append)
    monkeypatch.setattr(job_runner, "this_place", lambda: "0123456789abcdef")
    yield world
    for running in world.launched:
        running.cancel()
        assert running.wait(20)
    for thread in threading.enumerate():
        if thread.name == "job-runner":
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture
def jobs(world: World) -> ClusterJobs:
    """The client of that cluster."""
    return ClusterJobs("10.0.0.1:6379", "arkflow")
