"""Files read by several processes on a real Ray: every row once, windows whole (K5, W1)."""

import json
import os
import pathlib
import signal
from collections import Counter

import pytest

from arkflow_kernel.protocol import OutcomeKind
from tests.integration.published_rows import rows_in
from tests.integration.running_jobs import Running, Start

pytestmark = [pytest.mark.usefixtures("shared_ray"), pytest.mark.timeout(300)]

ROWS, KEYS, WINDOW_MS, SUBTASKS = 45_000, 7, 1_000, 3

JOB = """
jobs:
  - id: shared
    version: 1
    operators:
      - {{id: rows, kind: source, parallelism: {subtasks}}}
      {behind}
      - {{id: kept, kind: sink}}
    edges:
      - {{id: by-key, from: rows, to: behind, partitioned: true}}
      - {{id: to-file, from: behind, to: kept}}
    state: {{backend: embedded_kv}}
    checkpoint: {{object_store_uri: {folder}/store, interval_ms: 500}}
    restart: {restart}
    sources:
      - operator_id: rows
        input_type: file
        config:
          input_type: {{type: json, path: "{folder}/{files}"}}
          split_bytes: 1MiB
          rows_per_second: 2500
        time: {time}
    sinks:
      - {{operator_id: kept, output_type: file, config: {{path: {folder}/out, format: json}}}}
"""

COUNT = """- id: behind
        kind: map
        stateful: true
        key_field: k
        config: {type: sql, query: "SELECT n, k, place FROM flow", state_output_field: place}
      """
COUNT = COUNT.rstrip()

TUMBLING = f"""- id: behind
        kind: window
        parallelism: 2
        stateful: true
        key_field: k
        config:
          {{kind: tumbling, size_ms: {WINDOW_MS}, timestamp_field: at, value_fields: [n],
            key_field: k}}"""

EVENT_TIME = """
          mode: event_time
          timestamp_field: at
          watermark: {out_of_orderness_ms: 50}
          late_event_policy: drop"""


def job(folder: pathlib.Path, behind: str, time: str, **keys: object) -> str:
    """A job over two files of five ranges, the one with a last line that has no end."""
    if not (folder / "in").exists():
        (folder / "in").mkdir()
        lines = [json.dumps(row(n)) for n in range(ROWS)]
        large = lines[: ROWS * 9 // 10]
        (folder / "in" / "a.jsonl").write_text("\n".join(large), encoding="utf-8")
        rest = "".join(f"{line}\r\n\n" for line in lines[len(large) :])
        (folder / "in" / "b.jsonl").write_text(rest, encoding="utf-8")
        assert (folder / "in" / "a.jsonl").stat().st_size > 3 * 2**20
    settings = {"subtasks": SUBTASKS, "files": "in/*.jsonl", "restart": "{initial_ms: 100}"} | keys
    return JOB.format(folder=folder, behind=behind, time=time, **settings)


def row(n: int) -> dict[str, object]:
    return {"n": n, "k": n % KEYS, "at": 7 * n - n % 11, "pad": "x" * 50}


def assert_each_row_once(folder: pathlib.Path) -> None:
    rows = [(row["n"], row["k"]) for row in rows_in(folder / "out")]
    repeated = [row for row, count in Counter(rows).items() if count > 1]
    assert repeated == []
    assert sorted(rows) == [(n, n % KEYS) for n in range(ROWS)]
    places: dict[int, list[int]] = {}
    for found in rows_in(folder / "out"):
        places.setdefault(found["k"], []).append(found["place"])
    for key, found_places in places.items():
        assert sorted(found_places) == list(range(1, len(range(key, ROWS, KEYS)) + 1))


def assert_windows(folder: pathlib.Path) -> None:
    expected: Counter[tuple[int, int]] = Counter()
    for n in range(ROWS):
        at = 7 * n - n % 11
        expected[at // WINDOW_MS * WINDOW_MS, n % KEYS] += 1
    found = [
        (row["window_start"], int(row["key"]), row["count"]) for row in rows_in(folder / "out")
    ]
    assert len(found) == len({(start, key) for start, key, _ in found}), "a window is told twice"
    assert {(start, key): count for start, key, count in found} == dict(expected)


def killed(running: Running, chain: str) -> None:
    """Kill -9 a process once the job has checkpoints, and wait until it is at work again."""
    os.kill(running.until_restorable()[chain], signal.SIGKILL)
    running.until(lambda: running.status.restarts == 1)


def test_a_killed_subtask_of_a_source_costs_and_repeats_no_row(
    start: Start, tmp_path: pathlib.Path
) -> None:
    running = start(job(tmp_path, COUNT, "{mode: processing_time}"))
    killed(running, "rows-1")
    running.ended(OutcomeKind.FINISHED)
    assert_each_row_once(tmp_path)


def test_windows_over_a_shared_source_are_whole_though_a_subtask_is_killed(
    start: Start, tmp_path: pathlib.Path
) -> None:
    running = start(job(tmp_path, TUMBLING, EVENT_TIME))
    killed(running, "rows-2")
    running.ended(OutcomeKind.FINISHED)
    assert_windows(tmp_path)


def test_splits_that_cannot_be_listed_are_the_jobs_failure_in_a_sentence(
    start: Start, tmp_path: pathlib.Path
) -> None:
    text = job(
        tmp_path, COUNT, "{mode: processing_time}", files="none/*.jsonl", restart="{strategy: none}"
    )
    ended = start(text).ended(OutcomeKind.FAILED)
    assert ended.outcome is not None
    told = str(ended.outcome.error)
    assert f"input 'rows': no file at '{tmp_path}/none/*.jsonl'" in told
