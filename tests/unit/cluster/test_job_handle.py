"""A job of a cluster in a program's hands: what `Pipeline.submit` gives."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import arkflow_ray
from arkflow_kernel.errors import ConfigError
from arkflow_ray import JobHandle, LoadError
from arkflow_ray.cluster import job_handle, submitting
from arkflow_ray.cluster.cluster_jobs import ClusterJobs
from arkflow_ray.door.messages import NotReachableError, WaitedTooLongError
from tests.unit.cluster.runners_here import ENDLESS, FINITE, World


@pytest.fixture(autouse=True)
def connected(world: World, jobs: ClusterJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever connects gets the cluster of this process."""

    @contextmanager
    def connection(*_: object, **__: object) -> Iterator[ClusterJobs]:
        yield jobs

    monkeypatch.setattr(submitting, "Connection", connection)
    monkeypatch.setattr(job_handle, "Connection", connection)


def submitted(folder: Path, text: str) -> JobHandle:
    path = folder / "shop.yaml"
    path.write_text(text)
    return arkflow_ray.load(path).submit(address="10.0.0.1:6379")


def test_a_job_is_submitted_watched_and_stopped(tmp_path: Path) -> None:
    job = submitted(tmp_path, ENDLESS)
    assert repr(job) == "JobHandle('shop', '10.0.0.1:6379')"
    assert job.status()["state"] == "running"
    with pytest.raises(WaitedTooLongError, match=r"not over after 0\.01 s"):
        job.wait(0.01)
    assert job.stop()["outcome"] == "stopped"
    assert job.wait()["outcome"] == "stopped"
    job.forget()
    with pytest.raises(NotReachableError):
        job.status()


def test_it_is_waited_for_and_its_log_is_read(tmp_path: Path) -> None:
    job = submitted(tmp_path, FINITE)
    result = job.wait()
    assert (result["job"], result["outcome"], result["rows_read"]) == ("shop", "finished", 2)
    assert '{"a":2}' in job.logs()


def test_any_job_is_found_by_its_id(tmp_path: Path) -> None:
    submitted(tmp_path, ENDLESS)
    assert arkflow_ray.find_job("shop", address="10.0.0.1:6379").cancel()["outcome"] == "cancelled"


def test_mistakes_and_several_jobs_are_refused_before_anything_is_submitted(
    tmp_path: Path, world: World
) -> None:
    with pytest.raises(LoadError):
        submitted(tmp_path, ENDLESS.replace("drop", "dorp"))
    second = ENDLESS.removeprefix("streams:\n").replace("shop", "other")
    with pytest.raises(ConfigError, match="say with `only` which job to submit: shop, other"):
        submitted(tmp_path, ENDLESS + second)
    assert world.actors == {}
