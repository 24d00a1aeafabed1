"""Files shared by subtasks whose number changes from run to run, with real checkpoints (K5, M6)."""

import json
from collections import Counter
from pathlib import Path

import pytest

from arkflow_kernel.protocol import OutcomeKind
from tests.integration.published_rows import rows_in
from tests.integration.stored_jobs import graph_of, run, when_recorded

ROWS, KEYS = 40_000, 7

JOB = """
jobs:
  - id: shared
    version: 1
    operators:
      - {{id: rows, kind: source, parallelism: {subtasks}}}
      - id: counted
        kind: map
        parallelism: 2
        stateful: true
        key_field: k
        config: {{type: sql, query: "SELECT n, k, place FROM flow", state_output_field: place}}
      - {{id: kept, kind: sink}}
    edges:
      - {{id: by-key, from: rows, to: counted, partitioned: true}}
      - {{id: to-file, from: counted, to: kept}}
    state: {{backend: embedded_kv}}
    checkpoint: {{object_store_uri: {folder}/store, interval_ms: 100}}
    sources:
      - operator_id: rows
        input_type: file
        config:
          input_type: {{type: json, path: "{folder}/in"}}
          split_bytes: 1MiB
          batch_rows: 500
        time: {{mode: processing_time}}
    sinks:
      - {{operator_id: kept, output_type: file, config: {{path: {folder}/out, format: json}}}}
"""


@pytest.mark.parametrize("runs", [(3, 2, 1), (1, 5, 3)])
def test_each_row_is_published_once_whatever_the_subtasks_of_each_run(
    tmp_path: Path, runs: tuple[int, ...]
) -> None:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"n": n, "k": n % KEYS, "pad": "x" * 60}) for n in range(ROWS)]
    cut = ROWS * 4 // 5
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines[:cut]), encoding="utf-8")
    (tmp_path / "in" / "b.jsonl").write_text("\r\n".join(lines[cut:]), encoding="utf-8")
    pipeline = tmp_path / "pipeline.yaml"
    for number, subtasks in enumerate(runs, start=1):
        pipeline.write_text(JOB.format(folder=tmp_path, subtasks=subtasks), encoding="utf-8")
        last = number == len(runs)
        ran = run(graph_of(pipeline), dies=None if last else when_recorded(2 * number))
        assert (ran.outcome is not None) == last, ran.story
        assert (ran.restored is not None) == (number > 1), ran.story
    assert ran.outcome is not None
    assert ran.outcome.kind is OutcomeKind.FINISHED, ran.story
    rows = rows_in(tmp_path / "out")
    repeated = [n for n, times in Counter(row["n"] for row in rows).items() if times > 1]
    assert repeated == []
    assert len(rows) == ROWS
    for key in range(KEYS):
        places = sorted(row["place"] for row in rows if row["k"] == key)
        assert places == list(range(1, len(range(key, ROWS, KEYS)) + 1))
