"""A job on two nodes with a network between them, each in a namespace of its own with its own
address: rows go over TCP, and then the network is cut (H1, H2, H9, D2, D6, X1)."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.integration.counting_job import assert_stops_with_every_row_once, counting_file
from tests.integration.nodes_by_hand import ByHand
from tests.integration.running_jobs import alive
from tests.integration.watched_job import WatchedJob, until

pytestmark = pytest.mark.timeout(500)

HEAD_IP: Final = "10.231.77.1"
NODE_IP: Final = "10.231.77.2"
PORT: Final = 6379
HAND: Final = ("--resources", '{"hand": 1}')
HEALTH: Final = (
    "--system-config",
    '{"health_check_period_ms": 1000, "health_check_timeout_ms": 3000, '
    '"health_check_failure_threshold": 4}',
)
"""A node that is not reached is dead after 16 s instead of a minute."""


@dataclass(frozen=True)
class Wire:
    """Two namespaces and the pair of devices that joins them."""

    head: str
    node: str

    def cut(self) -> None:
        """Nothing gets through any more, and nobody is told."""
        _ip("-n", self.head, "link", "set", "wire", "down")

    def mend(self) -> None:
        """The network is there again."""
        _ip("-n", self.head, "link", "set", "wire", "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _within(namespace: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", namespace)


def _laid(wire: Wire) -> None:
    for name in (wire.head, wire.node):
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")
    _ip("-n", wire.head, "link", "add", "wire", "type", "veth", "peer", "wire", "netns", wire.node)
    for name, own, other in ((wire.head, HEAD_IP, NODE_IP), (wire.node, NODE_IP, HEAD_IP)):
        _ip("-n", name, "address", "add", f"{own}/24", "dev", "wire")
        _ip("-n", name, "link", "set", "wire", "up")
        _ip("-n", name, "route", "add", "default", "via", other)  # Ray asks it for its address


@pytest.fixture
def wire() -> Iterator[Wire]:
    """The network; skipped where none can be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and ip (Debian: apt-get install iproute2)")
    mark = secrets.token_hex(3)
    laid = Wire(f"afr-{mark}-1", f"afr-{mark}-2")
    try:
        try:
            _laid(laid)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        yield laid
    finally:
        for name in (laid.head, laid.node):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@pytest.fixture
def by_hand(wire: Wire) -> Iterator[ByHand]:
    """A node in each namespace, in the way of clusters/local/README.md."""
    found = ByHand(HEAD_IP, PORT)
    try:
        found.head(*HAND, *HEALTH, prefix=_within(wire.head))
        found.node(NODE_IP, *HAND, prefix=_within(wire.node))
        yield found
    finally:
        found.close()


@pytest.fixture
def job(by_hand: ByHand, wire: Wire, tmp_path: Path) -> Iterator[WatchedJob]:
    """A job with chains on both nodes, at work and with a checkpoint."""
    environment = by_hand.environment(RAY_AUTH_MODE="token")
    found = WatchedJob(counting_file(tmp_path), by_hand.address, _within(wire.head), environment)
    try:
        found.until_saved(beyond=1)
        yield found
    finally:
        found.close()


def chains_in(namespace: str, job: WatchedJob) -> set[int]:
    """The processes of chains that see this namespace's network."""
    there = os.stat(f"/run/netns/{namespace}").st_ino
    pids = job.now["chains"].values()
    return {pid for pid in pids if os.stat(f"/proc/{pid}/ns/net").st_ino == there}


def test_a_job_goes_on_at_one_end_of_a_network_that_is_cut(
    wire: Wire, job: WatchedJob, tmp_path: Path
) -> None:
    """Nobody is told of the cut: each side finds out by itself, and the far one ends, before the
    network is there again."""
    far = chains_in(wire.node, job)
    assert far, "rows went over the network until now"
    assert chains_in(wire.head, job), "and from here"
    wire.cut()
    job.until(lambda now: now["restarts"] > 0)
    job.until_saved(beyond=job.now["checkpoint"] + 1)
    assert chains_in(wire.node, job) == set()
    until(lambda: not any(map(alive, far)), "chains behind the cut are still there")
    wire.mend()
    job.until_saved(beyond=job.now["checkpoint"] + 1)
    assert_stops_with_every_row_once(job, tmp_path)
