"""One Ray for all tests of this folder that run in this process; it is never shut down by a job."""

import pathlib
from collections.abc import Iterator

import pytest

from arkflow_kernel.snapshot import RestoreChoice
from arkflow_ray.config.project import check_file
from arkflow_ray.runtime import ray_session
from arkflow_ray.runtime.launch import RunSettings, launch
from arkflow_ray.runtime.running import RunningJobs
from tests.conformance.acceptance import CASES
from tests.integration.running_jobs import Printed, Running, Start


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


@pytest.fixture
def start(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start the one job of a YAML text. Closed at the end."""
    # The Ray of these tests is as small as their machine, and one chain asks for a whole CPU of it.
    monkeypatch.setattr(ray_session, "CPUS_PER_CHAIN_CLUSTER", ray_session.CPUS_PER_CHAIN_LOCAL)
    started: list[RunningJobs] = []

    def begin(
        text: str, printed: Printed | None = None, choice: RestoreChoice | None = None
    ) -> Running:
        path = tmp_path / "pipeline.yaml"
        path.write_text(text)
        project = check_file(path)
        assert project.ok, "\n".join(str(issue) for issue in project.issues)
        (job,) = project.jobs
        settings = RunSettings(choice=choice or RestoreChoice())
        jobs = launch([job], settings, printed or Printed(), lambda _: None)
        started.append(jobs)
        return Running(jobs)

    yield begin
    for jobs in started:
        jobs.close()


@pytest.fixture
def out(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Where an acceptance case writes."""
    monkeypatch.setenv("OUT_DIR", str(tmp_path / "out"))
    return tmp_path / "out"


@pytest.fixture
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an acceptance case, whose files are found."""
    name: str = request.param
    monkeypatch.setenv("CASE_DIR", str(CASES / name))
    return name
