"""Resources and placement on real Ray: two raylets of this host are two nodes (P6, K7, R2)."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from arkflow_kernel.errors import MemoryBudgetError
from arkflow_kernel.protocol import OutcomeKind
from tests.integration.cluster_process import ClusterProcess
from tests.integration.running_jobs import Printed, Start

DEADLINE_S = 200.0

JOB = """
jobs:
  - id: places
    version: 1
    operators:
      - {id: in, kind: source, parallelism: 1}
      - id: where
        kind: map
        parallelism: SUBTASKS
        config:
          type: python
          function: where
          script: |
            import pyarrow as pa, ray
            def where(batch):
                node = ray.get_runtime_context().get_node_id()
                return pa.record_batch({"node": [node] * batch.num_rows})
      - {id: out, kind: sink, parallelism: 1}
    edges:
      - {id: a, from: in, to: where, type: rebalance}
      - {id: b, from: where, to: out}
    sources:
      - operator_id: in
        INPUT
        time: {mode: processing_time}
    sinks:
      - {operator_id: out, output_type: stdout}
"""
MESSAGES = ", ".join("'{\"n\": 1}'" for _ in range(40))
FINITE = f"""input_type: memory
        config: {{messages: [{MESSAGES}]}}
        codec: json"""
ENDLESS = """input_type: generate
        config: {context: '{"n": 1}', interval: 10ms}
        codec: json"""


class TwoNodes(ClusterProcess):
    """A cluster with a head, and a node with two `tpu` and the label `zone=b`."""

    def __init__(self) -> None:
        super().__init__("two_nodes", DEADLINE_S)
        self.address = self.first

    def look(self) -> dict[str, Any]:
        """Its placement groups by name, and what each of its nodes has."""
        found: dict[str, Any] = json.loads(self.ask())
        return found


@dataclass
class Nodes:
    """A cluster of two nodes, and the runs of this program on it."""

    cluster: TwoNodes
    folder: Path
    programs: list["subprocess.Popen[str]"] = field(default_factory=list)

    def start(self, text: str) -> "subprocess.Popen[str]":
        """`arkflow-ray run` of these jobs on the cluster."""
        path = self.folder / "pipeline.yaml"
        path.write_text(text)
        command = [sys.executable, "-m", "arkflow_ray.cli.main", "run", str(path)]
        program = subprocess.Popen(
            [*command, "--address", self.cluster.address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.programs.append(program)
        return program

    def nodes_of_rows(self, text: str) -> set[str]:
        """The nodes that the rows of a job that finishes tell."""
        program = self.start(text)
        out, err = program.communicate(timeout=DEADLINE_S)
        assert program.returncode == 0, err
        rows = [json.loads(line)["node"] for line in out.splitlines()]
        assert len(rows) == 40
        return set(rows)

    def with_resource(self, name: str) -> set[str]:
        """The nodes that have a resource."""
        return {node for node, has in self.cluster.look()["nodes"].items() if name in has}


def job(subtasks: int = 1, source: str = FINITE, **keys: str) -> str:
    """The job's text, with keys of the job; `where` are keys of its operator."""
    text = JOB.replace("SUBTASKS", str(subtasks)).replace("INPUT", source)
    own = keys.pop("where", "")
    if own:
        text = text.replace("      - id: where\n", f"      - id: where\n        {own}\n")
    more = "".join(f"    {key}: {value}\n" for key, value in keys.items())
    return text.replace("    version: 1\n", f"    version: 1\n{more}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    """The cluster of all tests here."""
    found = TwoNodes()
    yield found
    found.close()


@pytest.fixture
def nodes(cluster: TwoNodes, tmp_path: Path) -> Iterator[Nodes]:
    """The cluster; what a test left running on it is killed."""
    found = Nodes(cluster, tmp_path)
    yield found
    for program in found.programs:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def until(condition: Callable[[], bool]) -> None:
    """Return when it holds; fail after the deadline."""
    give_up_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up_s, "it does not happen"


@pytest.mark.timeout(500)
def test_an_operator_runs_where_its_custom_resource_is(nodes: Nodes) -> None:
    """K7."""
    text = job(where="resources: {custom: {tpu: 1}}")
    assert nodes.nodes_of_rows(text) == nodes.with_resource("tpu")


@pytest.mark.timeout(500)
def test_labels_choose_the_node(nodes: Nodes) -> None:
    """P6."""
    placement = "{strategy: pack, labels: {zone: b}}"
    assert nodes.nodes_of_rows(job(2, placement=placement)) == nodes.with_resource("tpu")


@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    ("placement", "count"),
    [("{strategy: strict_spread}", 2), ("colocated", 2), ("{strategy: pack}", 1)],
)
def test_the_strategy_says_on_how_many_nodes_two_subtasks_are(
    nodes: Nodes, placement: str, count: int
) -> None:
    """P6: with two nodes, subtasks are spread over both, unless they shall be packed."""
    assert len(nodes.nodes_of_rows(job(2, placement=placement))) == count
    assert nodes.cluster.look()["groups"] == [], "groups go with their job"


@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    ("keys", "lack"),
    [
        (
            {"resources": "{custom: {tpu: 1}}"},
            "it needs 6 tpu, and of the 2 tpu of the cluster 2 are free",
        ),
        (
            {"placement": "{strategy: strict_spread}"},
            "`strict_spread` asks for 4 nodes, one for each of as many parallel subtasks, and the "
            "cluster has 2",
        ),
    ],
)
def test_a_job_that_cannot_be_placed_says_what_is_missing(
    nodes: Nodes, keys: dict[str, str], lack: str
) -> None:
    """P6: which resource, how much, and what the cluster has."""
    program = nodes.start(job(4, **keys))
    _, err = program.communicate(timeout=DEADLINE_S)
    assert program.returncode == 1, err
    assert "job 'places' cannot be placed: " in err
    assert lack in " ".join(err.split())
    assert nodes.cluster.look()["groups"] == []


@pytest.mark.timeout(500)
def test_a_driver_that_is_killed_leaves_no_group(nodes: Nodes) -> None:
    """P6: Ray removes groups whose driver and coordinator are gone."""
    program = nodes.start(job(2, ENDLESS))
    assert program.stdout is not None
    assert program.stdout.readline()
    (group,) = nodes.cluster.look()["groups"]
    assert group.startswith("arkflow-")
    program.kill()
    until(lambda: nodes.cluster.look()["groups"] == [])


BUSY = """
jobs:
  - id: busy
    version: 1
    resources: RESOURCES
    operators:
      - {id: in, kind: source}
      - id: work
        kind: map
        config:
          type: python
          function: work
          script: |
            import time
            held = []
            def work(batch):
                WORK
                return batch
      - {id: out, kind: sink}
    edges: [{id: a, from: in, to: work}, {id: b, from: work, to: out}]
    sources:
      - operator_id: in
        SOURCE
        time: {mode: processing_time}
    sinks: [{operator_id: out, output_type: stdout}]
"""
BURN = "end = time.thread_time() + 0.02\n                while time.thread_time() < end: pass"
HOARD = "held.append(b'x' * (8 << 20))"


def busy(resources: str, work: str, source: str) -> str:
    text = BUSY.replace("RESOURCES", resources).replace("WORK", work)
    return text.replace("SOURCE", source)


@pytest.mark.timeout(200)
@pytest.mark.usefixtures("shared_ray")
def test_a_chain_over_its_share_of_the_cpu_waits_and_loses_no_row(start: Start) -> None:
    """R2: 40 batches of 20 ms at a tenth of a core."""
    printed = Printed()
    running = start(busy("{cpu_millicores: 100}", BURN, FINITE), printed)
    job = running.ended(OutcomeKind.FINISHED)
    assert len(printed.lines) == 40
    (usage,) = job.status().usage.values()
    assert usage.throttled_ms > 0
    running.until(lambda: not running.status.waits)


@pytest.mark.timeout(200)
@pytest.mark.usefixtures("shared_ray")
def test_a_chain_over_its_memory_fails_its_job_with_that_reason(start: Start) -> None:
    """R2: it is not restarted, or its neighbours would starve again."""
    source = ENDLESS.replace("10ms", "20ms")
    job = start(busy("{memory_bytes: 67108864}", HOARD, source)).ended(OutcomeKind.FAILED)
    assert job.outcome is not None
    assert isinstance(job.outcome.error, MemoryBudgetError)
    assert "more than the 64 MiB of `memory_bytes`" in job.outcome.error.message
    assert job.status().restarts == 0
