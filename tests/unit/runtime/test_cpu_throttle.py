"""The throttle of a chain's lanes: what waits, what is booked, and what is told (R2)."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from arkflow_kernel.cpu_meter import CPU_BURST_NS
from arkflow_kernel.ids import ChainId, CheckpointId, OutputId, RequestToken, Sequence
from arkflow_kernel.limits import STALL_TIMEOUT_MS
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.protocol import (
    FlushSink,
    NextSlice,
    ReadSource,
    Request,
    RunItem,
    SealItem,
    Submit,
    Write,
)
from arkflow_ray.runtime.cpu_throttle import CpuThrottle, cpu_throttle, throttled

MS = 1_000_000
DEADLINE_S = 30.0


class Clocks:
    """Wall clock and CPU clock that a test moves; whoever waits, waits for the test."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.cpu_ns = 0

    def throttle(self, millicores: int) -> CpuThrottle:
        return CpuThrottle(millicores, lambda: self.now_ns, lambda: self.cpu_ns)


TOKEN = RequestToken(1)
OUT = OutputId("out")
ROW = pa.record_batch({"n": [1]})
READ = ReadSource(TOKEN)
FLUSH = FlushSink(TOKEN, OUT)
SEAL = Submit(SealItem(TOKEN, CheckpointId(1)))
WORK: list[Request] = [
    READ,
    Submit(RunItem(TOKEN, ROW)),
    NextSlice(TOKEN),
    Write(TOKEN, OUT, Sequence(1), ROW),
]
"""What brings more work."""


def used(clocks: Clocks, throttle: CpuThrottle, cpu_ns: int) -> None:
    """Work that brings nothing new and costs so much."""
    with throttle.work(FLUSH):
        clocks.cpu_ns += cpu_ns


def test_what_the_process_uses_between_requests_is_not_booked() -> None:
    clocks = Clocks()
    throttle = clocks.throttle(1)
    clocks.cpu_ns = 10 * CPU_BURST_NS
    used(clocks, throttle, CPU_BURST_NS)
    with throttle.work(READ):
        pass
    assert throttle.waited_ms == 0


def test_lanes_that_overlap_are_booked_once() -> None:
    clocks = Clocks()
    throttle = clocks.throttle(1)
    with throttle.work(FLUSH):
        with throttle.work(FLUSH):
            clocks.cpu_ns += CPU_BURST_NS // 2
        clocks.cpu_ns += CPU_BURST_NS // 2
    with throttle.work(READ):
        pass
    assert throttle.waited_ms == 0


@contextmanager
def lane(throttle: CpuThrottle, request: Request = READ) -> Iterator[threading.Event]:
    """Another lane that has a request; the event tells that it has begun."""
    begun = threading.Event()

    def work() -> None:
        with throttle.work(request):
            begun.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield begun
    throttle.close()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def until_one_waits(clocks: Clocks, throttle: CpuThrottle) -> None:
    """A wait shows as soon as the clock has moved on."""
    give_up_s = time.monotonic() + DEADLINE_S
    while throttle.this_wait_ms == 0:
        assert time.monotonic() < give_up_s
        clocks.now_ns += MS
        threading.Event().wait(0.001)


@pytest.mark.parametrize("request_", WORK, ids=lambda each: type(each).__name__)
def test_a_lane_over_its_share_waits_and_the_wait_is_counted_and_told(request_: Request) -> None:
    """R2, E5."""
    clocks = Clocks()
    throttle = clocks.throttle(1)
    used(clocks, throttle, CPU_BURST_NS + 1_000_000 * MS)
    with lane(throttle, request_) as begun:
        until_one_waits(clocks, throttle)
        assert throttled(throttle) == ()
        clocks.now_ns += STALL_TIMEOUT_MS * MS
        (wait,) = throttled(throttle)
        assert (wait.on, wait.waited_ms) == ("its share of the CPU", throttle.this_wait_ms)
        assert "`cpu_millicores: 1`" in wait.detail
        assert not begun.is_set()
        told = throttle.waited_ms
    assert begun.is_set(), "a chain that ends waits for nothing"
    assert throttle.waited_ms >= told >= STALL_TIMEOUT_MS
    assert throttle.this_wait_ms == 0


def test_a_lane_goes_on_when_its_debt_is_paid() -> None:
    """R2: nothing starves."""
    throttle = CpuThrottle(1_000, cpu_ns=iter([0, CPU_BURST_NS + MS, 0, 0]).__next__)
    with throttle.work(FLUSH):
        pass
    with lane(throttle) as begun:
        assert begun.wait(DEADLINE_S)


@pytest.mark.parametrize("request_", [FLUSH, SEAL], ids=["flush", "seal"])
def test_what_a_checkpoint_needs_does_not_wait(request_: Request) -> None:
    clocks = Clocks()
    throttle = clocks.throttle(1)
    used(clocks, throttle, 1_000 * CPU_BURST_NS)
    with throttle.work(request_):
        pass
    assert throttle.waited_ms == 0


def test_only_a_chain_with_cpu_millicores_is_throttled() -> None:
    plan = ChainPlan(ChainId("a-0"), None, (), (), ())
    assert cpu_throttle(plan) is None
    assert throttled(None) == ()
    plan = ChainPlan(ChainId("a-0"), None, (), (), (), resources={"cpu_millicores": 250})
    throttle = cpu_throttle(plan)
    assert throttle is not None
    assert throttle.millicores == 250
