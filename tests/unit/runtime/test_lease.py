"""The lease of a chain's process: silence ends it, time in which it did not run does not (D6)."""

import queue
import subprocess

import pytest

from arkflow_kernel.limits import LEASE_MS
from arkflow_ray.runtime.lease import LOOK_COUNTS_MS_MAX, LOOK_MS, Lease, LeaseWatch
from arkflow_ray.runtime.os_process import OsProcess, started_ticks

DEADLINE_S = 30


class Time:
    """A monotonic clock that a test turns."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def looks_until_over(lease: Lease, time: Time) -> int:
    """How many looks, each in time, until the lease is over."""
    for look in range(1, 1_000):
        time.now_ms += LOOK_MS
        if lease.over():
            return look
    raise AssertionError("it never ends")


def test_a_lease_ends_after_ten_seconds_without_a_call() -> None:
    time = Time()
    lease = Lease(time)
    lease.heard()
    assert looks_until_over(lease, time) == LEASE_MS / LOOK_MS


def test_a_lease_that_nobody_began_never_ends() -> None:
    time = Time()
    lease = Lease(time)
    for _ in range(100):
        time.now_ms += LEASE_MS
        assert not lease.over()


def test_every_call_renews_the_lease() -> None:
    time = Time()
    lease = Lease(time)
    for _ in range(200):
        lease.heard()
        time.now_ms += LOOK_MS
        assert not lease.over()
    assert looks_until_over(lease, time) == LEASE_MS / LOOK_MS - 1


def test_time_in_which_the_process_was_stopped_does_not_count() -> None:
    time = Time()
    lease = Lease(time)
    lease.heard()
    time.now_ms += 100 * LEASE_MS
    assert not lease.over()
    left = (LEASE_MS - LOOK_COUNTS_MS_MAX) / LOOK_MS
    assert looks_until_over(lease, time) == left


def test_a_process_ends_when_its_lease_is_over() -> None:
    ended: queue.Queue[str] = queue.Queue()
    lease = Lease(lambda: 0, lease_ms=0)
    lease.heard()
    watch = LeaseWatch(lease, ended.put)
    assert ended.get(timeout=DEADLINE_S) == "it heard nothing of its coordinator for 10 s"
    watch.close()


def test_a_process_ends_when_its_coordinators_process_is_gone() -> None:
    coordinator = subprocess.Popen(["sleep", "1000"])
    ended: queue.Queue[str] = queue.Queue()
    watch = LeaseWatch(Lease(lambda: 0), ended.put)
    watch.coordinator_is(OsProcess(coordinator.pid, started_ticks(coordinator.pid)))
    with pytest.raises(queue.Empty):
        ended.get(timeout=3 * LOOK_MS / 1000)
    coordinator.kill()
    assert ended.get(timeout=DEADLINE_S) == "its coordinator's process is gone"
    coordinator.wait()
    watch.close()
