"""A job on a cluster that loses nodes: a raylet is killed, a node stands still and comes back, the
GCS is away (P1, P7, D2, D4, D6, D7, X1). Nodes are raylets of this host.

What must hold each time: every row is in the exactly-once sink once, numbered within its key.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.integration.cluster_process import ClusterProcess
from tests.integration.counting_job import assert_stops_with_every_row_once, counting_file
from tests.integration.processes import family, parent_of
from tests.integration.running_jobs import alive
from tests.integration.watched_job import DEADLINE_S, WatchedJob, until

pytestmark = pytest.mark.timeout(600)

AWAY_S: Final = 30.0


class Nodes(ClusterProcess):
    """The cluster: its address, its GCS, the raylets of its workers."""

    def __init__(self) -> None:
        super().__init__("node_cluster", DEADLINE_S)
        self._hear(self.first)

    def mend(self) -> None:
        """Start what is missing of its workers."""
        self._hear(self.ask())

    def _hear(self, line: str) -> None:
        told = json.loads(line)
        self.address: str = told["address"]
        self.gcs: int = told["gcs"]
        self.raylets: list[int] = told["raylets"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    """The cluster of all tests here."""
    with Nodes() as found:
        yield found


@pytest.fixture
def nodes(cluster: Nodes) -> Nodes:
    """The cluster, with all its workers."""
    cluster.mend()
    return cluster


@pytest.fixture
def job(nodes: Nodes, tmp_path: Path) -> Iterator[WatchedJob]:
    """A job on it that counts rows by key, at work and with a checkpoint."""
    found = WatchedJob(counting_file(tmp_path), nodes.address)
    try:
        found.until_saved(beyond=1)
        yield found
    finally:
        found.close()


def victim(nodes: Nodes, job: WatchedJob) -> int:
    """The raylet of a worker that hosts a chain, and not the coordinator."""
    hosts = {parent_of(pid) for pid in job.now["chains"].values()}
    hosts.discard(parent_of(job.now["coordinator"]))
    found = [raylet for raylet in nodes.raylets if raylet in hosts]
    assert found, (job.now, nodes.raylets)
    return found[0]


def signal_all(pids: list[int], number: signal.Signals) -> None:
    """Signal processes, of which some may be gone."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def test_a_job_goes_on_elsewhere_when_a_node_is_killed(
    nodes: Nodes, job: WatchedJob, tmp_path: Path
) -> None:
    node = victim(nodes, job)
    lost = set(family(node)).intersection(job.now["chains"].values())
    assert lost
    os.kill(node, signal.SIGKILL)
    job.until(lambda now: now["restarts"] > 0)
    job.until_saved(beyond=job.now["checkpoint"] + 1)
    assert lost.isdisjoint(job.now["chains"].values())
    until(lambda: not any(map(alive, lost)), "processes of the lost node are still there")
    assert_stops_with_every_row_once(job, tmp_path)


def test_a_node_that_stands_still_and_comes_back_publishes_nothing_more(
    nodes: Nodes, job: WatchedJob, tmp_path: Path
) -> None:
    """D6, D7: its chains are given up, and end when they go on."""
    stopped = family(victim(nodes, job))
    lost = set(stopped).intersection(job.now["chains"].values())
    assert lost
    signal_all(stopped, signal.SIGSTOP)
    try:
        job.until(lambda now: now["restarts"] > 0)
        job.until_saved(beyond=job.now["checkpoint"] + 1)
        assert lost.isdisjoint(job.now["chains"].values())
    finally:
        signal_all(stopped, signal.SIGCONT)
    until(lambda: not any(map(alive, lost)), "chains that were given up are still there")
    job.until_saved(beyond=job.now["checkpoint"] + 1)
    assert_stops_with_every_row_once(job, tmp_path)


def test_data_and_checkpoints_go_on_while_the_gcs_is_away(
    nodes: Nodes, job: WatchedJob, tmp_path: Path
) -> None:
    """P7."""
    before, chains = job.now["checkpoint"], job.now["chains"]
    os.kill(nodes.gcs, signal.SIGSTOP)
    try:
        over_s = time.monotonic() + AWAY_S
        while time.monotonic() < over_s:
            saved = job.now["checkpoint"]
            job.until_saved(beyond=saved)
    finally:
        os.kill(nodes.gcs, signal.SIGCONT)
    assert job.now["checkpoint"] > before + 3
    job.until_saved(beyond=job.now["checkpoint"] + 3)
    assert job.now["restarts"] == 0
    assert job.now["chains"] == chains
    assert_stops_with_every_row_once(job, tmp_path)
