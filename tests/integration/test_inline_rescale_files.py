"""Jobs over files that get another parallelism while they run, without Ray: real operators, a real
store, real files (K2, K3, X1)."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from arkflow_kernel.inline import InlineJob
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.protocol import ChainReport, JobState, JobStatus, OutcomeKind, RecordAppended
from tests.integration.published_rows import rows_in
from tests.integration.stored_jobs import Point, graph_of, run

pytestmark = pytest.mark.timeout(300)

ROWS, KEYS, BATCH = 1_500, 40, 10
STEPS: Final = (2, 4, 2)
SIZE_MS = 100

JOB: Final = """
jobs:
  - id: shop
    version: 1
    {checkpoint}
    sources:
      - operator_id: rows
        input_type: file
        config:
          input_type: {{type: json, path: {folder}/in.jsonl}}
          batch_rows: {batch}
          rows_per_second: {rate}
        time: {time}
    sinks:
      - {{operator_id: kept, output_type: file, config: {{path: {folder}/out, format: json}}}}
    operators:
      - {{id: rows, kind: source}}
      - {{id: work, parallelism: {parallelism}, {work}}}
      - {{id: kept, kind: sink}}
    edges:
      - {{id: keys, from: rows, to: work, partitioned: true}}
      - {{id: results, from: work, to: kept, type: rebalance}}
"""
STORE: Final = 'checkpoint: {{object_store_uri: "file://{folder}/store", interval_ms: 60}}'
WALL: Final = "{mode: processing_time}"
EVENT: Final = (
    "{mode: event_time, timestamp_field: ts, watermark: {out_of_orderness_ms: 0}, "
    "late_event_policy: drop}"
)
COUNT: Final = (
    "kind: map, stateful: true, key_field: k, config: {type: python, function: same, "
    'script: "def same(batch): return batch", state_output_field: places}'
)
PLAIN: Final = (
    "kind: map, key_field: k, config: {type: python, function: same, "
    'script: "def same(batch): return batch"}'
)
WINDOW: Final = (
    "kind: window, stateful: true, key_field: k, config: {kind: tumbling, "
    f"size_ms: {SIZE_MS}, timestamp_field: ts, key_field: k, value_fields: [n]}}"
)
AGGREGATE: Final = (
    "kind: aggregate, config: {key_field: k, emit_interval_ms: 40, aggregates: "
    "[{function: count, as: rows}, {function: sum, field: n, as: total}, "
    "{function: count_distinct, field: n, as: different}]}"
)
TOP: Final = "kind: top_n, config: {key_field: k, by: n, n: 3}"
FIRST: Final = "kind: deduplicate, config: {key_field: k}"


class Shop:
    """A folder with a job's input; its plans."""

    def __init__(self, folder: Path, work: str, *, time: str = WALL, store: bool = True) -> None:
        self.folder = folder
        rows = (json.dumps({"n": n, "k": n % KEYS, "ts": 10 * n}) + "\n" for n in range(ROWS))
        (folder / "in.jsonl").write_text("".join(rows))
        self._fields = {
            "checkpoint": STORE.format(folder=folder) if store else "",
            "folder": folder,
            "batch": BATCH,
            "rate": 1_500 if store else 400,
            "time": time,
            "work": work,
        }

    def plan(self, parallelism: int) -> ExecutionGraph:
        """With so many subtasks."""
        path = self.folder / "job.yaml"
        path.write_text(JOB.format(parallelism=parallelism, **self._fields))
        return graph_of(path)

    def run(self, events: type, after: int) -> JobStatus:
        """Run with 1, 2, 4 and 2 subtasks, each for so many such events and a while more."""
        told: dict[int, tuple[str, str | None]] = {}
        ran = run(self.plan(1), dies=rescales(self.plan, events, after, told))
        assert ran.outcome is not None
        assert ran.outcome.kind is OutcomeKind.FINISHED, ran.story
        assert list(told.values()) == [("done", None)] * len(STEPS), (told, ran.story)
        return ran.status


def rescales(
    plan: Callable[[int], ExecutionGraph],
    events: type,
    after: int,
    told: dict[int, tuple[str, str | None]],
) -> Point:
    """Ask for another of the `STEPS` after so many such events; `told` says what became of it."""
    steps, seen = list(STEPS), 0

    def asks(job: InlineJob, event: object) -> bool:
        nonlocal seen
        status = job.status()
        if status.rescale is not None:
            told[status.rescale.number] = (status.rescale.phase, status.rescale.error)
        seen += isinstance(event, events)
        heard = len(told) + len(steps) == len(STEPS)  # of what was asked for before
        if heard and steps and seen >= after and status.state is JobState.RUNNING:
            seen = 0
            job.rescale(plan(steps.pop(0)))
        return False

    return asks


def test_a_count_by_key_is_published_once_a_row_with_its_right_place(tmp_path: Path) -> None:
    shop = Shop(tmp_path, COUNT)
    shop.run(RecordAppended, 2)
    rows = sorted(rows_in(tmp_path / "out"), key=lambda row: int(row["n"]))
    assert [row["n"] for row in rows] == list(range(ROWS))
    assert [row["places"] for row in rows] == [n // KEYS + 1 for n in range(ROWS)]


def test_a_window_is_published_once_with_all_of_its_rows(tmp_path: Path) -> None:
    shop = Shop(tmp_path, WINDOW, time=EVENT)
    shop.run(RecordAppended, 2)
    rows = rows_in(tmp_path / "out")
    expected = Counter((10 * n // SIZE_MS * SIZE_MS, n % KEYS) for n in range(ROWS))
    start = next(name for name in rows[0] if "start" in name)
    assert Counter((row[start], int(row["key"])) for row in rows) == dict.fromkeys(expected, 1)
    counts = {(row[start], int(row["key"])): row["count"] for row in rows}
    assert counts == expected


def test_the_last_aggregates_of_each_key_are_of_all_rows(tmp_path: Path) -> None:
    Shop(tmp_path, AGGREGATE).run(RecordAppended, 2)
    last = {row["k"]: row for row in sorted(rows_in(tmp_path / "out"), key=lambda r: r["rows"])}
    assert set(last) == set(range(KEYS))
    for key, row in last.items():
        numbers = range(int(key), ROWS, KEYS)
        assert (row["rows"], row["different"]) == (len(numbers), len(numbers))
        assert row["total"] == sum(numbers)


def test_the_last_list_of_each_key_has_its_greatest_rows(tmp_path: Path) -> None:
    Shop(tmp_path, TOP).run(RecordAppended, 2)
    lists: dict[object, dict[object, int]] = {}
    for row in rows_in(tmp_path / "out"):
        places = lists.setdefault(row["k"], {})
        places[row["rank"]] = max(int(row["n"]), places.get(row["rank"], -1))
    for key in range(KEYS):
        greatest = list(range(key, ROWS, KEYS))[:-4:-1]
        assert lists[key] == dict(enumerate(greatest, 1))


def test_one_row_of_each_key_passes_once_and_it_is_the_first(tmp_path: Path) -> None:
    Shop(tmp_path, FIRST).run(RecordAppended, 2)
    assert sorted(row["n"] for row in rows_in(tmp_path / "out")) == list(range(KEYS))


def test_a_job_in_ack_mode_loses_no_row(tmp_path: Path) -> None:
    shop = Shop(tmp_path, PLAIN, store=False)
    status = shop.run(ChainReport, 1)
    assert status.checkpoints is None
    assert {row["n"] for row in rows_in(tmp_path / "out")} == set(range(ROWS))
