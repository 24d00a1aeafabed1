"""The lease of a chain's process: without a word of its coordinator it ends itself (D6).

Ray ends what a dead actor owned, but may take minutes on a busy machine. Until then such a process
would go on writing beside the attempt that follows. So it counts the time in which nobody called
it, and ends at `LEASE_MS`; on the coordinator's own node it also looks whether that process lives.

Only time in which this process ran itself counts: a look that comes late, because the process was
stopped or starved, counts for two. Such a process has been given up and killed (D2).
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from arkflow_kernel.limits import LEASE_MS
from arkflow_ray.runtime.os_process import OsProcess

LOOK_MS: Final = 250
"""Between two looks."""

LOOK_COUNTS_MS_MAX: Final = 2 * LOOK_MS
"""More a look never counts."""

LEASE_EXIT_CODE: Final = 83
"""How a process ends that lost its coordinator."""


class Lease:
    """Begins with the first `heard`. Thread-safe; a process has one."""

    def __init__(self, now_ms: Callable[[], int], lease_ms: int = LEASE_MS) -> None:
        self._now_ms = now_ms
        self._lease_ms = lease_ms
        self._silent_ms = 0
        self._looked_ms: int | None = None

    def heard(self) -> None:
        """The coordinator has called."""
        self._silent_ms = 0
        if self._looked_ms is None:
            self._looked_ms = self._now_ms()

    def over(self) -> bool:
        """Look: whether nothing was heard for too long. To be called every `LOOK_MS`."""
        if self._looked_ms is None:
            return False
        now_ms = self._now_ms()
        self._silent_ms += min(now_ms - self._looked_ms, LOOK_COUNTS_MS_MAX)
        self._looked_ms = now_ms
        return self._silent_ms >= self._lease_ms


class LeaseWatch:
    """Ends this process when its lease is over or its coordinator is gone; one thread.

    `end` is called once, with the reason; by default the process ends there and then, because a
    lane may hang, and nothing that it does from now on is wanted.
    """

    def __init__(self, lease: Lease, end: Callable[[str], None] | None = None) -> None:
        self._lease = lease
        self._end = end or leave_now
        self._coordinator: OsProcess | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def coordinator_is(self, process: OsProcess | None) -> None:
        """Who the coordinator is, if it is on this node."""
        self._coordinator = process

    def close(self) -> None:
        """Watch no more."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_MS / 1000):
            coordinator = self._coordinator
            if coordinator is not None and not coordinator.is_alive():
                self._end("its coordinator's process is gone")
                return
            if self._lease.over():
                self._end(f"it heard nothing of its coordinator for {LEASE_MS / 1000:.0f} s")
                return


def monotonic_ms() -> int:
    """The system's monotonic clock in ms."""
    return time.monotonic_ns() // 1_000_000


def leave_now(reason: str) -> None:
    """End this process without closing anything."""
    sys.stderr.write(f"arkflow-ray: this chain's process ends: {reason}\n")
    sys.stderr.flush()
    os._exit(LEASE_EXIT_CODE)


__all__ = ["LEASE_EXIT_CODE", "LOOK_MS", "Lease", "LeaseWatch", "leave_now", "monotonic_ms"]
