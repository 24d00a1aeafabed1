"""Jobs that are rescaled while they run, on a real Ray: every row once, every count right (K2, K3,
K4, P1, P6, P8)."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
from collections import Counter

import pytest

from arkflow_kernel.protocol import JobState, OutcomeKind
from arkflow_ray.runtime import ray_session
from tests.integration.numbered_rows import FILES, expected, write_input, written
from tests.integration.running_jobs import DEADLINE_S, Printed, Running, Start, alive, causes
from tests.servers.s3_server import S3Root, s3_proxy, s3_root, s3_server

__all__ = ["s3_proxy", "s3_root", "s3_server"]

pytestmark = [pytest.mark.usefixtures("shared_ray"), pytest.mark.timeout(300)]

ROWS, KEYS = 40_000, 61
"""More rows than are read before a test stops its job, however busy the machine is."""

COUNTED = (
    """
jobs:
  - id: counted
    version: 1
    operators:
      - {{id: rows, kind: source}}
      - id: numbered
        kind: map
        chain: false
        parallelism: {subtasks}
        stateful: true
        key_field: k
        config: {{type: sql, query: "SELECT n, k, place FROM flow", state_output_field: place}}
      - {{id: kept, kind: sink, chain: false}}
    edges:
      - {{id: by-key, from: rows, to: numbered, partitioned: true}}
      - {{id: to-file, from: numbered, to: kept}}
    restart: {{strategy: fixed, initial_ms: 10}}
    checkpoint: {{object_store_uri: "{root}", interval_ms: 500}}
"""
    + FILES
)

DOUBLED = """
jobs:
  - id: doubled
    version: 1
    operators:
      - {{id: rows, kind: source}}
      - id: twice
        kind: map
        chain: false
        config: {{type: sql, query: "SELECT n, n * 2 AS twice FROM flow"}}
      - {{id: shown, kind: sink, chain: false}}
    edges:
      - {{id: spread, from: rows, to: twice, type: rebalance}}
      - {{id: to-stdout, from: twice, to: shown}}
    sources:
      - operator_id: rows
        input_type: file
        config:
          input_type: {{type: json, path: {folder}/in.jsonl}}
          batch_rows: 20
          rows_per_second: 300
        time: {{mode: processing_time}}
    sinks:
      - {{operator_id: shown, output_type: stdout}}
"""


def counted(
    folder: pathlib.Path, subtasks: int = 1, rate: int = 200, root: str | None = None
) -> str:
    """A job that numbers the rows of each key, from file to file, exactly once; with its input."""
    write_input(folder, ROWS, KEYS)
    root = root or f"{folder}/store"
    return COUNTED.format(folder=folder, subtasks=subtasks, rate=rate, root=root)


def assert_exactly_once(running: Running, folder: pathlib.Path) -> None:
    """Once the job has made checkpoints of its last plan, and was stopped."""
    running.until(lambda: running.status.state is JobState.RUNNING)
    running.until_saved()
    running.jobs.stop()
    running.ended(OutcomeKind.STOPPED)
    rows = written(folder)
    repeated = [row for row, count in Counter(rows).items() if count > 1]
    assert repeated == []
    assert 0 < len(rows) < ROWS
    assert sorted(rows) == expected(len(rows), KEYS), "those that were read, without a gap"


def processes(running: Running) -> list[int]:
    """All processes for chains that the coordinator last told of, also those that host none."""
    view = running.handle._coordinator._view
    assert view is not None
    return [identity.process.pid for identity in view.chains if identity.process.is_alive()]


def test_a_job_that_is_rescaled_up_and_down_under_load_loses_and_repeats_no_row(
    start: Start, tmp_path: pathlib.Path
) -> None:
    running = start(counted(tmp_path))
    for subtasks in (2, 4, 2, 1):
        first = running.until_at_work()
        end = running.rescaled({"numbered": subtasks})
        assert end.error is None, causes(running.status)
        assert running.status.parallelism["numbered"] == subtasks  # type: ignore[index]
        then = running.until_at_work()
        assert set(then) == {"rows-0", "kept-0", *(f"numbered-{n}" for n in range(subtasks))}
        assert then["rows-0"] == first["rows-0"]
        assert len(set(then.values()) & set(first.values())) == min(len(first), len(then))
    running.until(lambda: sum(map(alive, processes(running))) == len(running.job.graph.chains))
    assert_exactly_once(running, tmp_path)
    assert running.status.restarts == 0, causes(running.status)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("who", ["a chain", "the coordinator"])
def test_a_process_that_is_killed_at_any_moment_of_a_rescale_costs_and_repeats_no_row(
    seed: int, who: str, start: Start, tmp_path: pathlib.Path
) -> None:
    dice = random.Random(f"{who} {seed}")
    running = start(counted(tmp_path, subtasks=2))
    running.until_restorable()
    running.job.rescale({"numbered": dice.choice([1, 3, 4])})
    running.jobs.wait(dice.uniform(0.0, 2.5))
    if who == "a chain":
        os.kill(dice.choice(processes(running)), signal.SIGKILL)
    else:
        os.kill(running.coordinator_pid, signal.SIGKILL)
    assert_exactly_once(running, tmp_path)


def test_a_rescale_that_cannot_be_placed_changes_nothing(
    start: Start, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P6: three chains have room, and not one more."""
    share = 0.3 * (os.cpu_count() or 1)
    monkeypatch.setattr(ray_session, "CPUS_PER_CHAIN_CLUSTER", share)
    running = start(counted(tmp_path, rate=100))
    before = running.until_at_work()
    end = running.rescaled({"numbered": 4})
    assert end.error is not None
    assert "cannot be placed: it needs " in end.error
    assert " CPU" in end.error
    assert running.until_at_work() == before
    assert sorted(processes(running)) == sorted(before.values())
    assert running.status.parallelism["numbered"] == 1  # type: ignore[index]
    assert_exactly_once(running, tmp_path)


def test_a_successor_of_a_lost_coordinator_runs_the_plan_that_was_at_work(
    start: Start, tmp_path: pathlib.Path
) -> None:
    """P8."""
    running = start(counted(tmp_path))
    running.until_restorable()
    assert running.rescaled({"numbered": 3}).error is None
    os.kill(running.coordinator_pid, signal.SIGKILL)
    running.until(lambda: running.status.restarts == 1)
    assert set(running.until_at_work(1)) >= {"numbered-0", "numbered-1", "numbered-2"}
    end = running.rescaled({"numbered": 2})
    assert end.error is None, causes(running.status)
    assert_exactly_once(running, tmp_path)


def test_a_job_in_ack_mode_is_rescaled_between_two_rows(
    start: Start, tmp_path: pathlib.Path
) -> None:
    """K3, P9: what was read is settled before, and printers follow."""
    write_input(tmp_path, ROWS, KEYS)
    printed = Printed()
    running = start(DOUBLED.format(folder=tmp_path), printed)
    for subtasks in (3, 1):
        running.until_at_work()
        end = running.rescaled({"twice": subtasks})
        assert end.error is None, causes(running.status)
    printed.wait_for(len(printed.lines) + 100)
    running.jobs.stop()
    running.ended(OutcomeKind.STOPPED)
    numbers = sorted(json.loads(line)["n"] for line in printed.lines)
    assert numbers == list(range(len(numbers)))


def test_state_whose_process_stays_is_not_fetched_again(
    s3_root: S3Root, tmp_path: pathlib.Path
) -> None:
    """P1, K2: by the bytes that came out of the store."""
    job = tmp_path / "job.yaml"
    job.write_text(counted(tmp_path, rate=100, root=s3_root.url))
    command = [sys.executable, "-m", "tests.integration.rescale_on_s3", str(job), "numbered"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=2 * DEADLINE_S)
    assert ran.returncode == 0, ran.stderr
    two, one = (json.loads(line) for line in ran.stdout.splitlines())
    (first, fetched, reused), (second, moved, _) = two["numbered-0"], two["numbered-1"]
    assert first != second
    assert fetched == 0
    assert 0 < moved <= reused, "both read the runs of the one that there was; merges read again"
    again, came_back, had = one["numbered-0"]
    assert again == first
    assert 0 < came_back < had, "only what the other subtask wrote since"
