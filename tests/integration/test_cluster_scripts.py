"""A cluster that is started by hand with clusters/local: a head and a node, with a token."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)

SCRIPTS = Path(__file__).parents[2] / "clusters/local"
ADDRESS = "127.0.0.2"
UP_S = 100.0
JOB_S = 100.0
ROWS = 20
STARTED = "Ray runtime started"
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


@dataclass
class ByHand:
    """The user's home, which has the token, and what was started by hand."""

    home: Path
    port: int
    nodes: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Where the head is."""
        return f"{ADDRESS}:{self.port}"

    def environment(self, **more: str) -> dict[str, str]:
        """That of a user with this home and the installed programs, and nothing else of Ray."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**kept, "PATH": programs, "HOME": str(self.home), **more}

    def start(self, script: str, *arguments: str, **more: str) -> "subprocess.Popen[str]":
        """Start a node; it is up when this returns."""
        node = subprocess.Popen(
            [str(SCRIPTS / script), "--num-cpus", "8", *arguments],
            env=self.environment(NODE_IP=ADDRESS, **more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.nodes.append(node)
        late = threading.Timer(UP_S, node.kill)
        late.start()
        assert node.stdout is not None
        said = []
        for line in node.stdout:
            said.append(line)
            if STARTED in line:
                break
        late.cancel()
        assert node.poll() is None, "".join(said)
        return node

    def run(self, file: Path, address: str, **more: str) -> "subprocess.CompletedProcess[str]":
        """`arkflow-ray run` of a file on the cluster."""
        command = [sys.executable, "-m", "arkflow_ray.cli.main", "run", str(file)]
        return subprocess.run(
            [*command, "--address", address],
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=JOB_S,
        )


def free_port() -> int:
    """A port below those that Ray gives to workers."""
    for port in range(7001, 9999):
        with socket.socket() as probe:
            try:
                probe.bind((ADDRESS, port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


@pytest.fixture(scope="module")
def by_hand() -> Iterator[ByHand]:
    """A head and a node, in the way of clusters/local/README.md."""
    folder = Path(tempfile.mkdtemp(prefix="afh-", dir="/tmp"))  # Ray's sockets need a short path
    found = ByHand(folder, free_port())
    store = ("--object-store-memory", str(100 * 1024 * 1024))
    try:
        temporary = ("--temp-dir", str(folder / "ray"))
        found.start("head.sh", *store, *temporary, PORT=str(found.port))
        found.start("node.sh", *store, HEAD=found.address)
        yield found
    finally:
        for node in reversed(found.nodes):
            node.terminate()
        for node in found.nodes:
            node.communicate(timeout=UP_S)
        shutil.rmtree(folder, ignore_errors=True)


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
    node = by_hand.nodes.pop()
    os.killpg(node.pid, signal.SIGINT)
    node.communicate(timeout=UP_S)
    file.write_text(JOB.replace("strict_spread", "pack"))
    done = by_hand.run(file, "auto", RAY_AUTH_MODE="token", RAY_ADDRESS=by_hand.address)
    assert done.returncode == 0, done.stderr
    nodes = [json.loads(line)["node"] for line in done.stdout.splitlines()]
    assert (len(nodes), len(set(nodes))) == (ROWS, 1)
