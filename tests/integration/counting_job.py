"""A job that numbers rows within their keys, on a cluster whose nodes are taken away: its file, and
what must hold when it is stopped."""

from pathlib import Path
from typing import Any, Final

from tests.integration.numbered_rows import FILES, expected, write_input, written
from tests.integration.watched_job import WatchedJob

ROWS: Final = 60_000
"""More than a test reads: it stops its job in order when it has seen enough."""

KEYS: Final = 11

JOB: Final = (
    """
jobs:
  - id: counted
    version: 1
    resources: {{num_cpus: 0.1, custom: {{hand: 0.1}}}}
    placement: {{strategy: spread}}
    operators:
      - {{id: rows, kind: source}}
      - {{id: numbered, kind: map, parallelism: 2, stateful: true, key_field: k,
         config: {{type: sql, query: "SELECT n, k, place FROM flow", state_output_field: place}}}}
      - {{id: kept, kind: sink, parallelism: 2}}
    edges:
      - {{id: by-key, from: rows, to: numbered, partitioned: true}}
      - {{id: to-file, from: numbered, to: kept}}
    checkpoint: {{object_store_uri: "file://{folder}/store", interval_ms: 1000}}
    restart: {{strategy: fixed, initial_ms: 10}}
"""
    + FILES
)


def counting_file(folder: Path) -> Path:
    """The file of the job, with its input."""
    write_input(folder, ROWS, KEYS)
    file = folder / "job.yaml"
    file.write_text(JOB.format(folder=folder, rate=200))
    return file


def assert_stops_with_every_row_once(job: WatchedJob, folder: Path) -> dict[str, Any]:
    """The last word of the job, which has published all that it has read, once."""
    read = job.now["rows"]["numbered-0"] + job.now["rows"]["numbered-1"]
    end = job.stopped()
    assert end["outcome"] == "stopped", job.story()
    rows = sorted(written(folder))
    assert rows == expected(len(rows), KEYS)
    assert 0 < read <= len(rows) < ROWS
    return end


__all__ = ["assert_stops_with_every_row_once", "counting_file"]
