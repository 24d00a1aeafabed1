"""The client of a cluster's jobs: submit, list, ask, forget, and what it says when it cannot."""

from pathlib import Path
from typing import Any

import pytest

from arkflow_kernel.errors import ActorLostError
from arkflow_ray.cluster import cluster_jobs
from arkflow_ray.cluster.cluster_jobs import ClusterJobs, NotStartedError
from arkflow_ray.cluster.job_runner import JobRunner
from arkflow_ray.config.issues import LoadError
from arkflow_ray.door.messages import (
    BadRequestError,
    NotReachableError,
    Request,
    WaitedTooLongError,
)
from arkflow_ray.runtime.detached_actors import SilentActorError
from tests.unit.cluster.runners_here import (
    ENDLESS,
    FINITE,
    HeldActor,
    World,
    await_phase,
    submission,
)

STOP = Request("stop")


def test_a_submitted_job_is_listed_asked_and_stopped(
    world: World, jobs: ClusterJobs, tmp_path: Path
) -> None:
    told = jobs.submit(submission(tmp_path, ENDLESS), {"pip": ["x"]})
    assert (told["job"], told["phase"]) == ("shop", "running")
    assert world.runtime_envs == [{"pip": ["x"]}]
    (listed,), silent = jobs.list()
    assert (listed["token"], silent) == (told["token"], [])
    assert jobs.ask("shop", Request("status"), None)["state"] == "running"
    assert jobs.ask("shop", STOP, 20)["outcome"] == "stopped"


def test_a_job_that_runs_is_not_submitted_again(
    world: World, jobs: ClusterJobs, tmp_path: Path
) -> None:
    first = jobs.submit(submission(tmp_path, ENDLESS))
    with pytest.raises(BadRequestError) as refused:
        jobs.submit(submission(tmp_path, ENDLESS))
    assert refused.value.message == (
        f"job 'shop' runs since {first['started_at']} on 10.0.0.1:6379; "
        "`arkflow-ray stop shop` there stops it"
    )


def test_two_that_submit_at_the_same_time_do_not_both_get_it(
    world: World, jobs: ClusterJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.submit(submission(tmp_path, ENDLESS))
    monkeypatch.setattr(cluster_jobs, "find_actor", lambda name, _: None)  # not there yet
    with pytest.raises(BadRequestError, match="was submitted at the same time"):
        jobs.submit(submission(tmp_path, ENDLESS))


def test_whoever_makes_room_does_not_end_the_runner_that_came_meanwhile(
    world: World, jobs: ClusterJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two find that a job is over, and the other one has submitted it again before we end it."""
    jobs.submit(submission(tmp_path, FINITE))
    await_phase(world.actors["shop"].runner)
    ours = world.actors["shop"]
    release = JobRunner.release

    def slow_release(runner: JobRunner) -> bool:
        monkeypatch.setattr(JobRunner, "release", release)
        over = release(runner)
        jobs.submit(submission(tmp_path, ENDLESS))
        return over

    monkeypatch.setattr(JobRunner, "release", slow_release)
    with pytest.raises(BadRequestError, match="was submitted at the same time"):
        jobs.submit(submission(tmp_path, FINITE))
    assert world.actors["shop"] is not ours
    assert jobs.about("shop")["phase"] == "running"


def test_a_runner_that_is_late_with_an_answer_is_waited_for(
    world: World, jobs: ClusterJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about, asked = HeldActor.call, []

    def late(actor: HeldActor, method: str, *args: Any, **more: Any) -> Any:
        asked.append(method)
        if len(asked) == 1:
            raise SilentActorError("it said nothing for 10 s", gone=False)
        return about(actor, method, *args, **more)

    monkeypatch.setattr(HeldActor, "call", late)
    assert jobs.submit(submission(tmp_path, ENDLESS))["phase"] == "running"


def test_a_job_that_is_over_stays_until_it_is_submitted_again_or_forgotten(
    world: World, jobs: ClusterJobs, tmp_path: Path
) -> None:
    first = jobs.submit(submission(tmp_path, FINITE))
    await_phase(world.actors["shop"].runner)
    second = jobs.submit(submission(tmp_path, FINITE))
    assert first["token"] != second["token"]
    await_phase(world.actors["shop"].runner)
    assert list(world.kept) == [second["token"]], "nothing is kept of the first one"
    jobs.forget("shop")
    assert (world.actors, world.kept) == ({}, {})


def test_a_job_that_runs_is_not_forgotten(world: World, jobs: ClusterJobs, tmp_path: Path) -> None:
    jobs.submit(submission(tmp_path, ENDLESS))
    with pytest.raises(BadRequestError, match="job 'shop' is not over"):
        jobs.forget("shop")
    assert "shop" in world.actors


def test_mistakes_that_only_the_cluster_sees_are_raised_and_no_runner_stays(
    world: World, jobs: ClusterJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARKFLOW_SECRET_ROW", raising=False)
    given = submission(tmp_path, ENDLESS.replace('{"a": 1}', "${secret:ROW}"))
    with pytest.raises(LoadError, match=r"shop\.yaml:3:.*ARKFLOW_SECRET_ROW"):
        jobs.submit(given)
    assert world.actors == {}


def test_an_error_of_the_start_is_raised_with_its_kind(
    world: World, jobs: ClusterJobs, tmp_path: Path
) -> None:
    given = submission(tmp_path, ENDLESS)
    world.kept[given.token] = {"began": True}
    with pytest.raises(NotStartedError) as failed:
        jobs.submit(given)
    assert failed.value.kind == ActorLostError.__name__


def test_a_job_that_is_not_there_is_told_with_those_that_are(
    world: World, jobs: ClusterJobs, tmp_path: Path
) -> None:
    with pytest.raises(NotReachableError, match=r"no job 'shop' on 10\.0\.0\.1:6379; there: none"):
        jobs.ask("shop", STOP, 10)
    jobs.submit(submission(tmp_path, FINITE))
    with pytest.raises(NotReachableError, match=r"there is no job 'other' on .*; there: shop"):
        jobs.logs("other")


def test_a_runner_that_is_gone_for_good_is_not_waited_for(
    world: World, jobs: ClusterJobs, tmp_path: Path
) -> None:
    jobs.submit(submission(tmp_path, FINITE))
    world.actors["shop"].silent = True
    with pytest.raises(NotReachableError, match="does not answer: it is away"):
        jobs.about("shop")
    assert jobs.list() == ([], [{"job": "shop", "error": "job 'shop': it is away"}])


def test_a_runner_that_is_made_again_is_waited_for(
    world: World, jobs: ClusterJobs, tmp_path: Path
) -> None:
    jobs.submit(submission(tmp_path, ENDLESS))
    world.actors["shop"].silent = False
    said: list[str] = []

    def hear(text: str) -> None:
        said.append(text)
        world.actors["shop"].silent = None

    assert jobs.ask("shop", Request("status"), None, hear)["state"] == "running"
    assert said == ["the runner of job 'shop' does not answer; it may be restarting"]


def test_the_callers_time_bounds_the_wait_for_it(
    world: World, jobs: ClusterJobs, tmp_path: Path
) -> None:
    jobs.submit(submission(tmp_path, ENDLESS))
    world.actors["shop"].silent = False
    with pytest.raises(WaitedTooLongError):
        jobs.ask("shop", STOP, 0.05)
