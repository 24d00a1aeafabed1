"""Lets the inline driver enforce operators' time-outs: see `arkflow_kernel.inline.Caller`."""

import threading
from collections.abc import Callable

from arkflow_kernel.protocol import ChainEvent

CHECK_S = 0.1


class ThreadCaller:
    """Calls work in a thread of its own each and waits, looking for an overdue operator meanwhile.

    A thread that hangs in user code is given up. All are daemons, so the process can end.
    """

    def __call__(
        self, work: Callable[[], ChainEvent], overdue: Callable[[], ChainEvent | None]
    ) -> ChainEvent:
        call = _Call(work)
        threading.Thread(target=call.run, name="inline-lane", daemon=True).start()
        while not call.done.wait(CHECK_S):
            late = overdue()
            if late is not None:
                return late
        return call.result()


class _Call:
    """One call and what came of it."""

    def __init__(self, work: Callable[[], ChainEvent]) -> None:
        self.done = threading.Event()
        self._work = work
        self._event: ChainEvent | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._event = self._work()
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self._error = error
        self.done.set()

    def result(self) -> ChainEvent:
        """The event; raises what the work raised."""
        if self._error is not None:
            raise self._error
        assert self._event is not None
        return self._event


__all__ = ["ThreadCaller"]
