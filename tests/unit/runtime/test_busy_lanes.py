"""How long a chain's lanes worked, for autoscaling and `status` (K6, R4)."""

import queue
from collections.abc import Callable

import pytest

from arkflow_kernel.ids import ChainId, OutputId, RequestToken
from arkflow_kernel.protocol import FlushSink, ReadSource, Request
from arkflow_ray.runtime import chain_threads
from arkflow_ray.runtime.chain_threads import ChainThreads
from arkflow_ray.runtime.lane_thread import LaneThread

WAIT_S = 10.0


class Work:
    """Work that begins and ends when the test lets it; time passes only when it says so."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.begun: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self.go: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.over: queue.SimpleQueue[None] = queue.SimpleQueue()

    def clock(self) -> float:
        """The time."""
        return self.now_s

    def __call__(self, request: Request) -> None:
        self.begun.put(request)
        self.go.get(timeout=WAIT_S)
        self.over.put(None)

    def passes(self, seconds: float) -> None:
        """Wait until a request is at work, let time pass, and let it end."""
        self.begun.get(timeout=WAIT_S)
        self.now_s += seconds
        self.go.put(None)


def test_a_lane_counts_the_time_of_its_work_and_not_that_between() -> None:
    work = Work()
    lane = LaneThread("lane", work, work.clock)
    assert lane.busy_s == 0
    lane.put(ReadSource(RequestToken(1)))
    work.begun.get(timeout=WAIT_S)
    work.now_s += 2
    assert lane.busy_s == 2, "also while it is at work"
    work.go.put(None)
    lane.put(ReadSource(RequestToken(2)))
    work.passes(3)
    lane.close()
    assert lane.join(WAIT_S)
    work.now_s += 50
    assert lane.busy_s == 5


def test_a_chain_is_as_busy_as_its_busiest_sink_and_reading_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work, clocks = Work(), list[Work]()

    def lane(name: str, perform: Callable[[Request], None]) -> LaneThread:
        clocks.append(Work())
        return LaneThread(name, perform, clocks[-1].clock)

    monkeypatch.setattr(chain_threads, "LaneThread", lane)
    threads = ChainThreads(ChainId("a-0"), 1, work)
    assert threads.busy_ms == 0
    for request, seconds in (
        (ReadSource(RequestToken(1)), 9.0),
        (FlushSink(RequestToken(2), OutputId("x")), 1.0),
        (FlushSink(RequestToken(3), OutputId("y")), 4.0),
    ):
        threads.order(request)
        work.begun.get(timeout=WAIT_S)
        clocks[-1].now_s += seconds  # each lane has a time of its own here
        work.go.put(None)
        work.over.get(timeout=WAIT_S)  # or the next one could take what lets this one go
    assert threads.close(WAIT_S)
    assert threads.busy_ms == 4000
