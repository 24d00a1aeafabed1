"""A thread that works requests off in order: one per lane of a chain (P5, T1).

It calls the chain's work and posts the answer. A thread that hangs in user code cannot be stopped;
it is a daemon, so the process can end.
"""

import queue
import threading
import time
from collections.abc import Callable

from arkflow_kernel.protocol import Request


class LaneThread:
    """Runs `work(request)` for each request, one after the other. `clock` tells seconds."""

    def __init__(
        self,
        name: str,
        work: Callable[[Request], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._work = work
        self._clock = clock
        # Seconds of work that is done, and since when there is some: one value, so never half told.
        self._worked: tuple[float, float | None] = (0.0, None)
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def busy_s(self) -> float:
        """Seconds in which it worked so far, a request under way included (K6, R4)."""
        done_s, since_s = self._worked
        return done_s if since_s is None else done_s + max(0.0, self._clock() - since_s)

    def put(self, request: Request) -> None:
        """Queue a request."""
        self._requests.put(request)

    def close(self) -> None:
        """Take no further request; what is queued before is worked off."""
        self._requests.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread; False if it did not end in time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            done_s, since_s = self._worked[0], self._clock()
            self._worked = (done_s, since_s)
            self._work(request)
            self._worked = (done_s + self._clock() - since_s, None)


__all__ = ["LaneThread"]
