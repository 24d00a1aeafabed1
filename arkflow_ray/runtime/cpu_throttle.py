"""Holds the lanes of a chain to its `cpu_millicores` (R2).

What is measured is the CPU time of the whole process while any lane is at work: threads of
libraries and of user code count, too. Only what brings more work waits; what a checkpoint needs
does not. Lanes wait in their own threads, so the chain's loop stays answerable.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from arkflow_kernel.cpu_meter import CpuMeter
from arkflow_kernel.limits import STALL_TIMEOUT_MS
from arkflow_kernel.metrics import Wait
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.protocol import NextSlice, ReadSource, Request, SealItem, Submit, Write

_NS_PER_MS: Final = 1_000_000
_NS_PER_S: Final = 1_000_000_000


class CpuThrottle:
    """Of one chain, for all of its lanes. Every method may be called from any thread."""

    def __init__(
        self,
        millicores: int,
        now_ns: Callable[[], int] = time.monotonic_ns,
        cpu_ns: Callable[[], int] = time.process_time_ns,
    ) -> None:
        self.millicores = millicores
        self._now_ns = now_ns
        self._cpu_ns = cpu_ns
        self._meter = CpuMeter(millicores, now_ns())
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._at_work = 0
        self._booked_ns = 0
        self._waiting = 0
        self._waiting_since_ns = 0
        self._waited_ns = 0

    @contextmanager
    def work(self, request: Request) -> Iterator[None]:
        """Around the work of a request: waits before, if it must, and books what it cost."""
        if _brings_work(request):
            self._wait()
        with self._lock:
            if self._at_work == 0:
                self._booked_ns = self._cpu_ns()
            self._at_work += 1
        try:
            yield
        finally:
            with self._lock:
                self._at_work -= 1
                now_ns = self._cpu_ns()
                self._meter.used(self._now_ns(), now_ns - self._booked_ns)
                self._booked_ns = now_ns

    @property
    def waited_ms(self) -> int:
        """How long lanes waited so far; several that wait at the same time count once."""
        with self._lock:
            return (self._waited_ns + self._this_wait_ns()) // _NS_PER_MS

    @property
    def this_wait_ms(self) -> int:
        """How long some lane has been waiting without a break; 0 if none waits."""
        with self._lock:
            return self._this_wait_ns() // _NS_PER_MS

    def close(self) -> None:
        """Nothing waits any more: the chain ends."""
        self._ended.set()

    def _wait(self) -> None:
        wait_ns = self._wait_ns()
        if not wait_ns:
            return
        with self._lock:
            if self._waiting == 0:
                self._waiting_since_ns = self._now_ns()
            self._waiting += 1
        while wait_ns and not self._ended.wait(wait_ns / _NS_PER_S):
            wait_ns = self._wait_ns()
        with self._lock:
            self._waiting -= 1
            if self._waiting == 0:
                self._waited_ns += self._now_ns() - self._waiting_since_ns

    def _wait_ns(self) -> int:
        with self._lock:
            return self._meter.wait_ns(self._now_ns())

    def _this_wait_ns(self) -> int:
        return self._now_ns() - self._waiting_since_ns if self._waiting else 0


def cpu_throttle(plan: ChainPlan) -> CpuThrottle | None:
    """That of a chain that has `cpu_millicores`."""
    millicores = plan.resources.get("cpu_millicores")
    return None if millicores is None else CpuThrottle(int(millicores))


def throttled(throttle: CpuThrottle | None) -> tuple[Wait, ...]:
    """The wait to tell of a lane that is held for long (E5)."""
    waited_ms = 0 if throttle is None else throttle.this_wait_ms
    if throttle is None or waited_ms < STALL_TIMEOUT_MS:
        return ()
    detail = f"its last item took far more than `cpu_millicores: {throttle.millicores}` give"
    return (Wait("its share of the CPU", detail, waited_ms),)


def _brings_work(request: Request) -> bool:
    """Whether it works on rows; the others are for checkpoints and closing."""
    match request:
        case Submit(item=SealItem()):
            return False
        case ReadSource() | Submit() | NextSlice() | Write():
            return True
    return False


__all__ = ["CpuThrottle", "cpu_throttle", "throttled"]
