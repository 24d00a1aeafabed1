"""The runner of a submitted job: its life, its successor, what it answers (P8, P9, D5)."""

from dataclasses import replace
from pathlib import Path

import pytest

from arkflow_kernel.snapshot import NEWEST, RestoreChoice, RestoreKind
from arkflow_ray.cluster.job_runner import RUNNING, JobRunner
from arkflow_ray.door.messages import Request, request_line
from tests.unit.cluster.runners_here import ENDLESS, FINITE, World, await_phase, submission

KEYED = """\
jobs:
  - id: shop
    version: 1
    checkpoint: {{object_store_uri: {store}, interval_ms: 100}}
    operators:
      - {{id: read, kind: source}}
      - id: counted
        kind: map
        parallelism: 2
        stateful: true
        key_field: a
        config: {{type: sql, query: "SELECT a FROM flow", state_output_field: place}}
      - {{id: gone, kind: sink}}
    edges:
      - {{id: by-a, from: read, to: counted, partitioned: true}}
      - {{id: out, from: counted, to: gone}}
    sources:
      - operator_id: read
        input_type: generate
        config: {{context: '{{"a": 1}}', interval: 5ms, batch_size: 1}}
        codec: json
        time: {{mode: processing_time}}
    sinks:
      - {{operator_id: gone, output_type: drop}}
"""

STOP = request_line(Request("stop"))
CANCEL = request_line(Request("cancel"))
SCRATCH = RestoreChoice(RestoreKind.SCRATCH)


def kept(folder: Path) -> str:
    """An endless job with checkpoints."""
    return ENDLESS + f"    checkpoint: {{object_store_uri: {folder}/store, interval_ms: 100}}\n"


def answered(runner: JobRunner, key: str, line: bytes) -> dict[str, object]:
    """What an errand ends with."""
    while "progress" in (stand := runner.ask(key, line)):
        pass
    return stand


def test_a_job_runs_to_its_end_and_its_log_has_its_rows_and_its_result(
    world: World, tmp_path: Path
) -> None:
    runner = JobRunner(submission(tmp_path, FINITE).values())
    told = await_phase(runner)
    assert (told["end"]["outcome"], told["end"]["error"]) == ("finished", None)
    assert told["status"]["outcome"] == "finished"
    page = runner.logs(0)
    assert '{"a":1}' in page["lines"]
    assert any(line.startswith("shop: finished after") for line in page["lines"])
    assert page["over"] is True
    assert runner.logs(0, tail=1)["lines"] == page["lines"][-1:]


def test_an_errand_is_begun_once_and_looked_at_until_it_is_done(
    world: World, tmp_path: Path
) -> None:
    runner = JobRunner(submission(tmp_path, ENDLESS).values())
    await_phase(runner, RUNNING)
    assert answered(runner, "one", STOP)["result"] == {
        "job": "shop",
        "outcome": "stopped",
        "checkpoint": None,
    }
    assert answered(runner, "one", STOP)["result"], "the same errand is not begun again"
    assert answered(runner, "two", STOP)["error"] == {
        "type": "BadRequestError",
        "message": "job 'shop' is over",
    }


def test_a_job_is_cancelled(world: World, tmp_path: Path) -> None:
    runner = JobRunner(submission(tmp_path, ENDLESS).values())
    await_phase(runner, RUNNING)
    assert answered(runner, "one", CANCEL)["result"] == {
        "job": "shop",
        "outcome": "cancelled",
        "checkpoint": None,
    }


def test_a_bad_request_is_refused_and_the_job_goes_on(world: World, tmp_path: Path) -> None:
    runner = JobRunner(submission(tmp_path, ENDLESS).values())
    await_phase(runner, RUNNING)
    assert "one line with a JSON object" in str(runner.ask("one", b"no json")["error"])
    assert runner.about()["phase"] == RUNNING
    assert runner.release() is False


def test_a_job_that_is_over_is_not_run_again_by_a_successor_of_its_runner(
    world: World, tmp_path: Path
) -> None:
    values = submission(tmp_path, FINITE).values()
    await_phase(JobRunner(values))
    successor = JobRunner(values)
    told = await_phase(successor)
    assert told["end"]["outcome"] == "finished"
    assert len(world.launched) == 1
    assert "is over: finished" in str(successor.ask("one", STOP)["error"])
    assert successor.release() is True
    assert world.kept == {}


def test_a_successor_goes_on_from_the_newest_record_whatever_the_user_chose(
    world: World, tmp_path: Path
) -> None:
    given = replace(submission(tmp_path, kept(tmp_path)), choice=SCRATCH)
    world.kept[given.token] = {"began": True, "lives": 2}
    runner = JobRunner(given.values())
    await_phase(runner, RUNNING)
    assert world.choices == [NEWEST]
    assert world.cleared == [f"{given.token}-0", f"{given.token}-1"], "their seats are given back"
    assert world.runs == [f"{given.token}-2"]
    assert any("the runner was lost" in line for line in runner.logs(0)["lines"])


def test_a_successor_runs_the_parallelism_that_was_last_at_work(
    world: World, tmp_path: Path
) -> None:
    given = submission(tmp_path, KEYED.format(store=tmp_path / "store"))
    first = JobRunner(given.values())
    await_phase(first, RUNNING)
    while first.about()["status"]["state"] != "running":
        pass
    rescale = request_line(Request("rescale", parallelism={"counted": 3}))
    assert "result" in answered(first, "one", rescale)
    while world.kept[given.token].get("parallelism", {}).get("counted") != 3:
        assert first.about()["phase"] == RUNNING
    world.launched[0].cancel()
    await_phase(first)
    del world.kept[given.token]["end"]  # as if it was lost, not cancelled
    successor = JobRunner(given.values())
    await_phase(successor, RUNNING)
    (running,) = world.launched[1].jobs.values()
    names = [str(chain.chain) for chain in running.graph.chains]
    assert names == ["read-0", "counted-0", "counted-1", "counted-2", "gone-0"]


def test_what_the_user_chose_counts_until_the_job_has_run_once(
    world: World, tmp_path: Path
) -> None:
    given = replace(submission(tmp_path, kept(tmp_path)), choice=SCRATCH)
    runner = JobRunner(given.values())
    await_phase(runner, RUNNING)
    while not world.kept.get(given.token, {}).get("began"):
        pass
    assert world.choices == [SCRATCH]


def test_a_stop_that_was_asked_of_a_lost_runner_is_carried_out_by_its_successor(
    world: World, tmp_path: Path
) -> None:
    given = submission(tmp_path, kept(tmp_path))
    wish = {"wish": "stop", "drain": False, "savepoint": None}
    world.kept[given.token] = {"began": True, **wish}
    assert await_phase(JobRunner(given.values()))["end"]["outcome"] == "stopped"


def test_a_stop_that_was_refused_is_no_wish(world: World, tmp_path: Path) -> None:
    given = submission(tmp_path, ENDLESS)
    runner = JobRunner(given.values())
    await_phase(runner, RUNNING)
    with_savepoint = request_line(Request("stop", savepoint="sp"))
    assert "makes no checkpoints" in str(runner.ask("one", with_savepoint)["error"])
    assert "wish" not in world.kept[given.token]


def test_a_job_that_was_cancelled_is_not_started_again(world: World, tmp_path: Path) -> None:
    given = submission(tmp_path, kept(tmp_path))
    world.kept[given.token] = {"began": True, "wish": "cancel"}
    assert await_phase(JobRunner(given.values()))["end"]["outcome"] == "cancelled"
    assert world.launched == []


def test_a_job_without_checkpoints_fails_with_its_runner(world: World, tmp_path: Path) -> None:
    given = submission(tmp_path, ENDLESS)
    world.kept[given.token] = {"began": True}
    end = await_phase(JobRunner(given.values()))["end"]
    assert end["error"]["type"] == "ActorLostError"
    assert "has no `checkpoint:` block to go on from; submit it again" in end["error"]["message"]
    assert world.launched == []


def test_a_secret_that_the_cluster_lacks_is_told_with_its_place_in_the_submitted_file(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARKFLOW_SECRET_ROW", raising=False)
    given = submission(tmp_path, ENDLESS.replace('{"a": 1}', "${secret:ROW}"))
    end = await_phase(JobRunner(given.values()))["end"]
    (issue,) = end["issues"]
    assert (issue["file"], issue["line"]) == (str(tmp_path / "shop.yaml"), 3)
    assert "'ARKFLOW_SECRET_ROW' is not set" in issue["message"]


def test_what_another_release_has_submitted_is_refused(world: World, tmp_path: Path) -> None:
    values = submission(tmp_path, FINITE).values() | {"format": 0}
    end = await_phase(JobRunner(values))["end"]
    assert "another release of arkflow-ray" in end["error"]["message"]
