"""Reports that cannot wait are told by a thread; the chain's loop never waits for the call (P3)."""

import queue
import threading

from arkflow_kernel.ids import ChainId, Generation, MonotonicMs, WallMs
from arkflow_kernel.metrics import ChainStatistics
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import ChainReport
from arkflow_ray.runtime.report_pusher import ReportPusher

DEADLINE_S = 30
CHAIN = ChainId("c-0")
NOW = Moment(MonotonicMs(0), WallMs(0))


def report(number: int) -> ChainReport:
    return ChainReport(NOW, CHAIN, Generation(1), ChainStatistics(CHAIN), number=number)


def test_a_call_that_hangs_keeps_nobody_waiting_and_the_newest_report_follows_it() -> None:
    told: queue.Queue[int] = queue.Queue()
    free = threading.Event()

    def tell(each: ChainReport) -> None:
        told.put(each.number)
        assert free.wait(DEADLINE_S)

    push = ReportPusher(tell)
    push(report(1))
    assert told.get(timeout=DEADLINE_S) == 1
    for number in (2, 3, 4):
        push(report(number))
    free.set()
    assert told.get(timeout=DEADLINE_S) == 4
    push.close()


def test_nothing_is_told_after_the_end() -> None:
    told: queue.Queue[int] = queue.Queue()
    push = ReportPusher(lambda each: told.put(each.number))
    push(report(1))
    assert told.get(timeout=DEADLINE_S) == 1
    push.close()
    push(report(2))
    (thread,) = (each for each in threading.enumerate() if each.name == "report-pusher")
    thread.join(DEADLINE_S)
    assert told.empty()
