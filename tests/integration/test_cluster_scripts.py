"""A cluster that is started by hand with clusters/local: a head and a node, with a token."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.nodes_by_hand import SCRIPTS, UP_S, ByHand, free_port

pytestmark = pytest.mark.timeout(300)

ADDRESS = "127.0.0.2"
ROWS = 20
MESSAGES = ", ".join(["'{\"n\": 1}'"] * ROWS)
JOB = f"""
jobs:
  - id: places
    version: 1
    placement: {{strategy: strict_spread}}
    operators:
      - {{id: in, kind: source, parallelism: 1}}
      - id: where
        kind: map
        parallelism: 2
        config:
          type: python
          function: where
          script: |
            import pyarrow as pa, ray
            def where(batch):
                node = ray.get_runtime_context().get_node_id()
                return pa.record_batch({{"node": [node] * batch.num_rows}})
      - {{id: out, kind: sink, parallelism: 1}}
    edges:
      - {{id: a, from: in, to: where, type: rebalance}}
      - {{id: b, from: where, to: out}}
    sources:
      - operator_id: in
        input_type: memory
        config: {{messages: [{MESSAGES}]}}
        codec: json
        time: {{mode: processing_time}}
    sinks:
      - {{operator_id: out, output_type: stdout}}
"""


@pytest.fixture(scope="module")
def by_hand() -> Iterator[ByHand]:
    """A head and a node, in the way of clusters/local/README.md."""
    found = ByHand(ADDRESS, free_port(ADDRESS))
    try:
        found.head(by_default=True)
        found.node(ADDRESS)
        yield found
    finally:
        found.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A job whose two subtasks must be on two nodes, and whose rows tell where they were."""
    path = tmp_path / "places.yaml"
    path.write_text(JOB)
    return path


def test_a_job_runs_on_both_nodes_with_the_token(by_hand: ByHand, file: Path) -> None:
    done = by_hand.run(file, by_hand.address, RAY_AUTH_MODE="token")
    assert done.returncode == 0, done.stderr
    nodes = [json.loads(line)["node"] for line in done.stdout.splitlines()]
    assert (len(nodes), len(set(nodes))) == (ROWS, 2)


def test_the_token_is_made_for_the_user_alone(by_hand: ByHand) -> None:
    token = by_hand.home / ".ray/auth_token"
    assert token.stat().st_mode & 0o077 == 0
    assert len(token.read_text()) >= 32


def test_without_the_token_nothing_runs(by_hand: ByHand, file: Path) -> None:
    """M8: exit code 3, and what to do."""
    done = by_hand.run(file, by_hand.address)
    assert done.returncode == 3
    assert "it asks for a token" in done.stderr
    assert done.stdout == ""


def test_a_node_without_a_token_does_not_start(by_hand: ByHand, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(SCRIPTS / "node.sh")],
        env=by_hand.environment() | {"HOME": str(tmp_path), "HEAD": by_hand.address},
        capture_output=True,
        text=True,
        timeout=UP_S,
    )
    assert done.returncode == 2
    assert "copy ~/.ray/auth_token of the head" in done.stderr


def test_the_cluster_goes_on_when_a_node_ends(by_hand: ByHand, file: Path) -> None:
    """Ctrl-C ends that node only. The job joins as the program of a RayJob does."""
    _press_ctrl_c(by_hand.nodes.pop())
    file.write_text(JOB.replace("strict_spread", "pack"))
    done = by_hand.run(file, "auto", RAY_AUTH_MODE="token", RAY_ADDRESS=by_hand.address)
    assert done.returncode == 0, done.stderr
    nodes = [json.loads(line)["node"] for line in done.stdout.splitlines()]
    assert (len(nodes), len(set(nodes))) == (ROWS, 1)


def _press_ctrl_c(node: "subprocess.Popen[str]") -> None:
    """And once more after a while, as a user does: `ray start --block` was once seen to go on."""
    for _ in range(2):
        os.killpg(node.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            node.communicate(timeout=UP_S / 2)
            return
    raise AssertionError("the node does not end after Ctrl-C")
