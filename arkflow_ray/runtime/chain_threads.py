"""The threads of one chain: one for reading, one per sink, and workers for its operators (P5).

Requests of one lane are worked off in order; `LaneSchedule` says which items may overlap (T1c,
T2). Everything here but the work itself is called on the chain's loop.
"""

import time
from collections.abc import Callable

from arkflow_kernel.chain_work import LaneKey, LaneName, lane_of
from arkflow_kernel.ids import ChainId, RequestToken
from arkflow_kernel.lane_schedule import LaneSchedule
from arkflow_kernel.protocol import (
    ChainEvent,
    ItemDone,
    NextSlice,
    Request,
    RequestFailed,
    Submit,
)
from arkflow_ray.runtime.lane_thread import LaneThread


class ChainThreads:
    """Makes a thread when there is work for it first; `perform` does one request's work."""

    def __init__(self, chain: ChainId, workers: int, perform: Callable[[Request], None]) -> None:
        self._chain = chain
        self._perform = perform
        self._most_workers = workers
        self._schedule = LaneSchedule(workers)
        self._workers: list[LaneThread] = []
        self._idle: list[LaneThread] = []
        self._worker_of: dict[RequestToken, LaneThread] = {}
        self._lanes: dict[LaneKey, LaneThread] = {}

    @property
    def busy(self) -> bool:
        """Whether an operator is at work."""
        return bool(self._worker_of)

    @property
    def busy_ms(self) -> int:
        """How long the busiest of the lanes worked: the operators (mean of all workers), or a sink.

        Reading does not count: a read waits for data, too.
        """
        operators_s = sum(worker.busy_s for worker in self._workers) / self._most_workers
        sinks = (lane for key, lane in self._lanes.items() if key.name is LaneName.WRITE)
        return int(1000 * max(operators_s, *(lane.busy_s for lane in sinks), 0.0))

    def order(self, request: Request) -> None:
        """Have a request worked off; an item only after `start_items`."""
        if isinstance(request, Submit | NextSlice):
            self._schedule.put(request)
        else:
            self._lane(lane_of(request)).put(request)

    def start_items(self) -> None:
        """Hand items to idle workers, as the schedule allows."""
        while (request := self._schedule.next()) is not None:
            worker = self._idle.pop() if self._idle else self._new_worker()
            self._worker_of[request.token] = worker
            worker.put(request)

    def answered(self, event: ChainEvent) -> None:
        """An event was taken off the mailbox: perhaps a worker's answer."""
        if isinstance(event, ItemDone | RequestFailed) and event.token in self._worker_of:
            self._idle.append(self._worker_of.pop(event.token))
            self._schedule.answered(event.token, more=isinstance(event, ItemDone) and event.more)

    def close(self, timeout_s: float) -> bool:
        """End all threads once their work has returned; blocks. False: one is left behind."""
        threads = [*self._workers, *self._lanes.values()]
        for thread in threads:
            thread.close()
        give_up_s = time.monotonic() + timeout_s
        joined = [thread.join(max(0.0, give_up_s - time.monotonic())) for thread in threads]
        return all(joined)

    def _new_worker(self) -> LaneThread:
        worker = LaneThread(f"{self._chain}-lane-{len(self._workers)}", self._perform)
        self._workers.append(worker)
        return worker

    def _lane(self, key: LaneKey) -> LaneThread:
        lane = self._lanes.get(key)
        if lane is None:
            lane = LaneThread(f"{self._chain}-{key.name.value}", self._perform)
            self._lanes[key] = lane
        return lane


__all__ = ["ChainThreads"]
