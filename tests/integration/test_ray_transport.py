"""`transport: ray` between two raylets of this host: chains of different nodes reach each other by
calls of their actors, and a job counts as over sockets (H6, H9, D2)."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster_process import ClusterProcess
from tests.integration.numbered_rows import FILES, expected, write_input
from tests.integration.published_rows import rows_in

DEADLINE_S = 150.0
ROWS, KEYS = 3_000, 61

# One node has both `tpu` and 8 CPUs: beside the two of `where` there is room for one other chain at
# most, so each of them has a neighbour on the other node.
JOB = (
    """
jobs:
  - id: called
    version: 1
    transport: ray
    operators:
      - {{id: rows, kind: source}}
      - id: numbered
        kind: map
        chain: false
        parallelism: 2
        stateful: true
        key_field: k
        config: {{type: sql, query: "SELECT n, k, place FROM flow", state_output_field: place}}
      - id: where
        kind: map
        parallelism: 2
        resources: {{num_cpus: 3.5, custom: {{tpu: 1}}}}
        config:
          type: python
          function: where
          script: |
            import os, threading
            import pyarrow as pa
            def where(batch):
                names = [each.name.partition("-")[0] for each in threading.enumerate()]
                told = {{"pid": os.getpid(), "tunnels": names.count("tunnel")}}
                for name, value in told.items():
                    batch = batch.append_column(name, pa.array([value] * batch.num_rows))
                return batch
      - {{id: kept, kind: sink, chain: false}}
    edges:
      - {{id: by-key, from: rows, to: numbered, partitioned: true}}
      - {{id: onward, from: numbered, to: where}}
      - {{id: to-file, from: where, to: kept}}
    restart: {{strategy: fixed, initial_ms: 10}}
    checkpoint: {{object_store_uri: "{folder}/store", interval_ms: 500}}
"""
    + FILES
)


@pytest.fixture
def address() -> Iterator[str]:
    """Of a cluster of two nodes."""
    with ClusterProcess("two_nodes", DEADLINE_S) as cluster:
        yield cluster.first


@pytest.fixture
def program(address: str, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """`arkflow-ray run` of the job on the cluster."""
    write_input(tmp_path, ROWS, KEYS)
    path = tmp_path / "pipeline.yaml"
    path.write_text(JOB.format(folder=tmp_path, rate=300))
    command = [sys.executable, "-m", "arkflow_ray.cli.main", "run", str(path)]
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(
            [*command, "--address", address], stdout=said, stderr=said, start_new_session=True
        )
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def until(condition: Callable[[], bool], said: Path) -> None:
    """Return when it holds; fail after the deadline with what the program said."""
    give_up_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up_s, said.read_text()[-4_000:]
        time.sleep(0.1)


@pytest.mark.timeout(400)
def test_a_keyed_job_over_actor_calls_survives_a_killed_process_and_writes_each_row_once(
    program: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    out, said = tmp_path / "out", tmp_path / "said"

    def rows() -> list[dict[str, Any]]:
        return list(rows_in(out)) if out.exists() else []

    until(lambda: program.poll() is not None or len({row["pid"] for row in rows()}) == 2, said)
    assert program.poll() is None, said.read_text()[-4_000:]
    os.kill(rows()[-1]["pid"], signal.SIGKILL)
    assert program.wait(DEADLINE_S) == 0, said.read_text()[-4_000:]
    found = rows()
    placed = sorted((row["n"], row["k"], row["place"]) for row in found)
    assert placed == expected(ROWS, KEYS), "each row once, and each place right"
    assert len({row["pid"] for row in found}) > 2, "a process was replaced"
    assert {row["tunnels"] for row in found} == {1}, "every chain with a neighbour elsewhere"
