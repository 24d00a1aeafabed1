"""A job of 64 subtasks on four raylets of this host, with a CPU for each: it is placed, deployed,
reads, saves its state and stops (H8, K1, P6).

The time that this takes is printed; the one to come to work has a limit, so it wants a machine that
does nothing else: `ARKFLOW_MANY_SUBTASKS=1 pytest tests/integration/test_many_subtasks.py`.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli_shop import Program, Shop, await_status, opened
from tests.integration.cluster_process import ClusterProcess

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(480),
    pytest.mark.skipif(
        os.environ.get("ARKFLOW_MANY_SUBTASKS") != "1",
        reason="wants a machine of its own: ARKFLOW_MANY_SUBTASKS=1",
    ),
]

READING, COUNTING, WRITING = 16, 32, 16
SUBTASKS = READING + COUNTING + WRITING
DEPLOYED_S = 120.0
CLUSTER_ENDS_S = 100.0
ROWS_PER_FILE, KEYS = 20_000, 1_024

JOB = f"""
jobs:
  - id: shop
    version: 1
    operators:
      - {{id: read, kind: source, parallelism: {READING}}}
      - id: counted
        kind: map
        parallelism: {COUNTING}
        stateful: true
        key_field: k
        config: {{type: sql, query: "SELECT k, place FROM flow", state_output_field: place}}
      - {{id: written, kind: sink, parallelism: {WRITING}}}
    edges:
      - {{id: by-key, from: read, to: counted, partitioned: true}}
      - {{id: spread, from: counted, to: written, type: rebalance}}
    state: {{backend: embedded_kv, durability: durable}}
    checkpoint: {{object_store_uri: FOLDER/store, interval_ms: 2000}}
    sources:
      - operator_id: read
        input_type: file
        config:
          input_type: {{type: json, path: FOLDER/in}}
          batch_rows: 50
          rows_per_second: 1600
        time: {{mode: processing_time}}
    sinks:
      - {{operator_id: written, output_type: drop}}
"""


@pytest.fixture
def address() -> Iterator[str]:
    """Of a cluster of four nodes."""
    with ClusterProcess("four_nodes", CLUSTER_ENDS_S) as cluster:
        yield cluster.first


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """The job, with a file for each of its readers."""
    (tmp_path / "in").mkdir()
    for number in range(READING):
        rows = (json.dumps({"k": n % KEYS}) + "\n" for n in range(ROWS_PER_FILE))
        (tmp_path / "in" / f"{number:02d}.jsonl").write_text("".join(rows))
    with opened(JOB.replace("FOLDER", str(tmp_path))) as found:
        yield found


def _subtasks(status: dict[str, Any]) -> dict[str, list[int]]:
    """The rows that each subtask of each operator has had."""
    return {each["operator"]: each["rows_in"] for each in status["operators"]}


def _all_at_work(status: dict[str, Any]) -> bool:
    rows = _subtasks(status)
    return all(rows["read"]) and all(rows["counted"]) and status["checkpoints"]["last"] is not None


def _until(shop: Shop, run: Program, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The status that is wanted; an error with what the run said if it ends before."""
    try:
        return await_status(shop, wanted)
    except AssertionError as error:
        raise AssertionError(run.said()) from error


def test_64_subtasks_on_four_nodes_come_to_work_in_time_save_their_state_and_stop(
    shop: Shop, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    began_s = time.monotonic()
    run = shop.run("--address", address, ray=True)
    running = _until(shop, run, lambda status: status["state"] == "running")
    deployed_s = time.monotonic() - began_s
    assert running["chains"] == SUBTASKS
    assert deployed_s < DEPLOYED_S, "the goal of this test, on two cores"
    at_work = _until(shop, run, _all_at_work)
    worked_s = time.monotonic() - began_s
    rows = _subtasks(at_work)
    assert [len(rows[name]) for name in ("read", "counted", "written")] == [16, 32, 16]
    stopped = shop.call("stop", "shop")
    assert stopped.returncode == 0, stopped.stderr
    said = run.said()
    assert run.process.returncode == 0, said
    stopped_s = time.monotonic() - began_s
    with capsys.disabled():
        print(
            f"\n{SUBTASKS} subtasks on four nodes: run after {deployed_s:.0f} s, all have rows "
            f"and a checkpoint after {worked_s:.0f} s, stopped after {stopped_s:.0f} s"
        )
