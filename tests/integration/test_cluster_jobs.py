"""Jobs that are submitted to a cluster with a token, watched and stopped from other processes.

Each command is a process of its own, so whoever submits is gone when the next one asks.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.numbered_rows import expected, write_input, written
from tests.integration.own_cluster import OwnCluster, own_cluster

ROWS, KEYS = 4_000, 20

NUMBERED: Final = """\
jobs:
  - id: numbered
    version: 1
    checkpoint: {object_store_uri: checkpoints, interval_ms: 500}
    operators:
      - {id: rows, kind: source}
      - id: placed
        kind: map
        parallelism: 2
        stateful: true
        key_field: k
        config: {type: sql, query: "SELECT n, k, place FROM flow", state_output_field: place}
      - {id: kept, kind: sink}
    edges:
      - {id: by-key, from: rows, to: placed, partitioned: true}
      - {id: to-file, from: placed, to: kept}
    sources:
      - operator_id: rows
        input_type: file
        config: {input_type: {type: json, path: in.jsonl}, rows_per_second: 200}
        time: {mode: processing_time}
    sinks:
      - {operator_id: kept, output_type: file, config: {path: out, format: json}}
"""

STREAM: Final = """\
  - id: endless
    input: {type: generate, context: '{"row": 1}', interval: 20ms, batch_size: 10}
    pipeline: {processors: [{type: json_to_arrow}, {type: arrow_to_json}]}
    output: {type: stdout}
"""

ENDLESS: Final = "streams:\n" + STREAM
TWO: Final = ENDLESS + STREAM.replace("endless", "other")
WITH_SECRET: Final = ENDLESS.replace('{"row": 1}', "${secret:ROW}").replace("endless", "hidden")


@pytest.fixture(scope="module")
def cluster() -> Iterator[OwnCluster]:
    with own_cluster() as found:
        yield found


def waited(cluster: OwnCluster, job: str, wanted: Callable[[dict[str, Any]], bool]) -> Any:
    """What the list of jobs says of one as soon as it is as wanted; the time-out bounds it."""
    while True:
        told = {each["job"]: each for each in cluster.told("jobs")["jobs"]}
        if job in told and wanted(told[job]):
            return told[job]
        assert job not in told or told[job]["phase"] != "over", told[job]["end"]
        time.sleep(0.2)


def saved(told: dict[str, Any]) -> bool:
    """Whether the job runs and has a checkpoint."""
    status = told["status"]
    return bool(status and status["state"] == "running" and status["checkpoints"]["last"])


@pytest.mark.timeout(300)
def test_a_job_goes_on_without_its_submitter_and_after_the_loss_of_its_runner(
    cluster: OwnCluster, tmp_path: Path
) -> None:
    (tmp_path / "numbered.yaml").write_text(NUMBERED)
    write_input(tmp_path, ROWS, KEYS)
    submitted = cluster.told("submit", "numbered.yaml", where=tmp_path)
    assert [each["job"] for each in submitted["jobs"]] == ["numbered"]

    before = waited(cluster, "numbered", saved)
    os.kill(before["pid"], signal.SIGKILL)
    again = cluster.call("submit", "numbered.yaml", where=tmp_path)
    assert again.returncode == 2
    assert f"on {cluster.address}; `arkflow-ray stop numbered` there stops it" in again.stderr

    finished = waited(cluster, "numbered", lambda told: told["phase"] == "over")
    assert finished["pid"] != before["pid"]
    assert finished["token"] == before["token"]
    assert finished["status"]["checkpoints"]["restored"] is not None
    assert finished["end"]["outcome"] == "finished", finished["end"]
    assert sorted(written(tmp_path)) == expected(ROWS, KEYS)
    assert "the runner was lost, and is here again" in cluster.call("logs", "numbered").stdout


def test_a_job_is_watched_and_stopped_by_programs_that_did_not_submit_it(
    cluster: OwnCluster, tmp_path: Path
) -> None:
    (tmp_path / "two.yaml").write_text(TWO)
    submitted = cluster.told("submit", "two.yaml", where=tmp_path)
    assert [each["job"] for each in submitted["jobs"]] == ["endless", "other"]
    assert cluster.told("cancel", "other")["outcome"] == "cancelled"
    waited(cluster, "endless", lambda told: bool((told["status"] or {}).get("rows_read")))

    status = cluster.told("status", "endless")
    assert status["state"] == "running"
    assert '{"row":1}' in cluster.call("logs", "endless", "--tail", "20").stdout.splitlines()
    stopped = cluster.told("stop", "endless")
    assert stopped["outcome"] == "stopped"
    assert "endless: stopped after" in cluster.call("logs", "endless", "--follow").stdout
    assert cluster.call("jobs", "--forget", "endless").returncode == 0
    gone = cluster.call("status", "endless")
    assert gone.returncode == 3
    assert f"there is no job 'endless' on {cluster.address}" in gone.stderr


def test_whoever_has_no_token_is_answered_nothing_and_told_what_to_do(cluster: OwnCluster) -> None:
    refused = cluster.call("jobs", token=False)
    assert refused.returncode == 3
    assert refused.stdout == ""
    assert f"cannot reach Ray at '{cluster.address}': it asks for a token" in refused.stderr
    assert "RAY_AUTH_MODE=token" in refused.stderr


def test_what_only_the_cluster_sees_is_told_with_its_place(
    cluster: OwnCluster, tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text(ENDLESS.replace("stdout", "sdtout"))
    bad = cluster.call("submit", "bad.yaml", where=tmp_path)
    assert bad.returncode == 2
    assert "bad.yaml:5:" in bad.stderr
    assert "nothing was submitted" in bad.stderr

    (tmp_path / "hidden.yaml").write_text(WITH_SECRET)
    hidden = cluster.call("submit", "hidden.yaml", where=tmp_path)
    assert hidden.returncode == 2
    assert "hidden.yaml:3:" in hidden.stderr
    assert "environment variable 'ARKFLOW_SECRET_ROW' is not set" in hidden.stderr
    names = [each["job"] for each in cluster.told("jobs")["jobs"]]
    assert "hidden" not in names
