"""The order in which a driver works off requests to a lane (T1c, T2)."""

from collections import deque

from arkflow_kernel.ids import RequestToken
from arkflow_kernel.protocol import FinishItem, NextSlice, Submit


class LaneSchedule:
    """The order in which a driver works off requests to a lane (T1c).

    One worker: the next item starts after the last slice of the one before. Several: items start
    in order and overlap (T2), but `Finish` starts when no item is at work any more: an operator
    is finished once, after its last batch. `put` takes `Submit` and `NextSlice`; `next` gives what
    may start now; the driver tells with `answered` whether an item has more slices.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._submits: deque[Submit] = deque()
        self._slices: deque[NextSlice] = deque()
        self._running = 0
        self._partial: set[RequestToken] = set()

    def put(self, request: Submit | NextSlice) -> None:
        """A request of the machine."""
        if isinstance(request, NextSlice):
            self._slices.append(request)
        else:
            self._submits.append(request)

    def next(self) -> Submit | NextSlice | None:
        """The request to start now, or None. Call until None, after `put` and `answered`."""
        if self._running >= self._workers:
            return None
        request: Submit | NextSlice | None = None
        if self._slices:
            request = self._slices.popleft()
        elif self._submits and self._may_start(self._submits[0]):
            request = self._submits.popleft()
        if request is not None:
            self._running += 1
        return request

    def _may_start(self, submit: Submit) -> bool:
        if isinstance(submit.item, FinishItem):
            return self._running == 0 and not self._partial
        return self._workers > 1 or not self._partial

    def answered(self, token: RequestToken, *, more: bool) -> None:
        """A request that `next` gave was worked off."""
        self._running -= 1
        if more:
            self._partial.add(token)
        else:
            self._partial.discard(token)


__all__ = ["LaneSchedule"]
