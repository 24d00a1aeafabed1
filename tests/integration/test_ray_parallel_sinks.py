"""Sinks with several subtasks on a real Ray: processes die, another run has another number of them,
and every row is published once, or at least once (X1, X3, X5, P9).
"""

import json
import os
import pathlib
import signal
from collections import Counter

import pytest

from arkflow_kernel.ids import ChainId
from arkflow_kernel.protocol import JobState, OutcomeKind
from arkflow_kernel.snapshot import RestoreChoice
from tests.integration.numbered_rows import expected, write_input, written
from tests.integration.running_jobs import Printed, Running, Start

pytestmark = [pytest.mark.usefixtures("shared_ray"), pytest.mark.timeout(300)]

ROWS, KEYS = 6_000, 7

JOB = """
jobs:
  - id: spread
    version: 1
    operators:
      - {{id: rows, kind: source}}
      - id: numbered
        kind: map
        parallelism: 2
        stateful: true
        key_field: k
        config: {{type: sql, query: "SELECT n, k, place FROM flow", state_output_field: place}}
      - {{id: kept, kind: sink, parallelism: {sinks}}}
    edges:
      - {{id: by-key, from: rows, to: numbered, partitioned: true}}
      - {{id: to-sinks, from: numbered, to: kept, type: rebalance}}
    state: {{backend: embedded_kv, durability: durable}}
    checkpoint: {{object_store_uri: {folder}/store, interval_ms: 500}}
    sources:
      - operator_id: rows
        input_type: file
        config:
          input_type: {{type: json, path: {folder}/in.jsonl}}
          batch_rows: 20
          rows_per_second: {rate}
        time: {{mode: processing_time}}
    sinks:
      - {{operator_id: kept, output_type: {output}}}
"""


@pytest.fixture(autouse=True)
def rows(tmp_path: pathlib.Path) -> None:
    """The input."""
    write_input(tmp_path, ROWS, KEYS)


EXPECTED = expected(ROWS, KEYS)


def to_files(folder: pathlib.Path, sinks: int, rate: int = 300, more: str = "") -> str:
    output = f"file, config: {{path: {folder}/out, format: json{more}}}"
    return JOB.format(folder=folder, sinks=sinks, rate=rate, output=output)


def lanes_in(folder: pathlib.Path) -> set[int]:
    """The lanes that readers see parts of."""
    return {int(path.name.split("-")[3]) for path in (folder / "out").glob("part-*")}


def kill(running: Running, chain: str) -> int:
    """Kill a chain's process once its attempt has completed two checkpoints; how many restarts
    there had been.
    """
    before, name = running.completed, ChainId(chain)

    def at_work() -> bool:
        status = running.status
        return status.state is JobState.RUNNING and name in status.usage

    running.until(lambda: at_work() and running.completed > before + 1)
    restarts = running.status.restarts
    os.kill(running.status.usage[name].pid, signal.SIGKILL)
    return restarts


def kill_one_after_the_other(running: Running, *chains: str) -> None:
    """Each in an attempt of its own."""
    restarts = -1
    for chain in chains:
        until_restarted(running, restarts)
        restarts = kill(running, chain)


def until_restarted(running: Running, restarts: int) -> None:
    """Until the failure is known."""
    running.until(lambda: running.status.restarts > restarts)


def test_runs_with_four_two_and_three_sinks_publish_every_row_once(
    start: Start, tmp_path: pathlib.Path
) -> None:
    """X5: each run but the last is cancelled while one of its sinks is gone: no last checkpoint."""
    for sinks in (4, 2):
        running = start(to_files(tmp_path, sinks), choice=RestoreChoice(must_exist=sinks != 4))
        kill_one_after_the_other(running, f"kept-{sinks - 1}", "kept-0")
        running.jobs.cancel()
        running.ended(OutcomeKind.CANCELLED)
    rows = written(tmp_path)
    assert 0 < len(rows) < ROWS
    assert len(set(rows)) == len(rows)
    assert lanes_in(tmp_path) == {0, 1, 2, 3}
    last = start(to_files(tmp_path, 3), choice=RestoreChoice(must_exist=True))
    last.ended(OutcomeKind.FINISHED)
    assert [row for row, count in Counter(written(tmp_path)).items() if count > 1] == []
    assert sorted(written(tmp_path)) == EXPECTED


def test_sinks_that_deliver_at_least_once_lose_nothing(
    start: Start, tmp_path: pathlib.Path
) -> None:
    """F4: each subtask clears what it left behind, and numbers its own parts."""
    running = start(to_files(tmp_path, 3, rate=600, more=", exactly_once: false"))
    kill(running, "kept-2")
    running.ended(OutcomeKind.FINISHED)
    assert set(written(tmp_path)) == set(EXPECTED)
    assert lanes_in(tmp_path) == {0, 1, 2}
    assert [name for name in os.listdir(tmp_path / "out") if name.startswith(".")] == []


def test_rows_of_parallel_stdout_sinks_are_printed_line_by_line(
    start: Start, tmp_path: pathlib.Path
) -> None:
    """P9."""
    printed = Printed()
    text = JOB.format(folder=tmp_path, sinks=3, rate=100_000, output="stdout")
    start(text, printed).ended(OutcomeKind.FINISHED)
    found = [json.loads(line) for line in printed.lines]
    assert sorted((row["n"], row["k"], row["place"]) for row in found) == EXPECTED
