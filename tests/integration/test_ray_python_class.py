"""An object of a `python` class on a real Ray, whose batches wait for company, loses its process
(E9, T2): each attempt makes one object, and every row is written once, in order."""

import json
import os
import pathlib
import signal

import pytest

from arkflow_kernel.protocol import OutcomeKind
from tests.integration.published_rows import rows_in
from tests.integration.running_jobs import Start

pytestmark = [pytest.mark.usefixtures("shared_ray"), pytest.mark.timeout(240)]

ROWS = 3_000
BATCH_ROWS = 16

JOB = """
streams:
  - id: judged
    input:
      type: file
      input_type: {{type: json, path: {folder}/in.jsonl}}
      batch_rows: 3
      rows_per_second: 300
    pipeline:
      processors:
        - type: python
          name: judge
          class: Judge
          init: {{log: {folder}/made}}
          max_batch_rows: 16
          max_wait_ms: 700
          concurrency: 2
          script: |
            import os, threading
            import pyarrow as pa

            class Judge:
                def __init__(self, log):
                    self.lock, self.seen, self.log = threading.Lock(), 0, log
                    self.note("made")
                def __call__(self, batch):
                    with self.lock:
                        self.seen += batch.num_rows
                        seen = self.seen
                    rows = batch.append_column("of", pa.array([batch.num_rows] * len(batch)))
                    return rows.append_column("seen", pa.array([seen] * len(batch)))
                def close(self):
                    self.note("closed")
                def note(self, what):
                    with open(self.log, "a") as log:
                        log.write(f"{{what}} {{os.getpid()}}\\n")
    output: {{type: file, path: {folder}/out, format: json}}
    checkpoint: {{object_store_uri: {folder}/store, interval_ms: 400}}
    restart: {{strategy: fixed, initial_ms: 10}}
"""


def test_a_killed_process_makes_a_new_object_and_no_row_is_lost_or_repeated(
    start: Start, tmp_path: pathlib.Path
) -> None:
    lines = (json.dumps({"n": n}) + "\n" for n in range(ROWS))
    (tmp_path / "in.jsonl").write_text("".join(lines))
    running = start(JOB.format(folder=tmp_path))
    killed = running.until_restorable()["judge-0"]
    os.kill(killed, signal.SIGKILL)
    successor = running.until_at_work(1)["judge-0"]
    running.ended(OutcomeKind.FINISHED)
    made = (tmp_path / "made").read_text().splitlines()
    assert made == [f"made {killed}", f"made {successor}", f"closed {successor}"]
    rows = rows_in(tmp_path / "out")
    assert [row["n"] for row in rows] == list(range(ROWS))
    assert max(row["of"] for row in rows) == BATCH_ROWS, "reads of 3 rows were joined"
    # One of the two has seen half of them at least, if an object counts from batch to batch.
    assert max(row["seen"] for row in rows) >= ROWS // 2
