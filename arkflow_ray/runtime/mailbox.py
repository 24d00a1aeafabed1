"""The mailbox of a machine on an asyncio loop: control first, then events in order (T1).

Any thread may post. Posts between two passes of the loop cost one wake-up together: a thread that
finds the flag set knows that a wake-up is under way.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

E = TypeVar("E")


class Mailbox(Generic[E]):
    """Events for one machine. `attach` binds it to the loop that takes; posts may come before."""

    def __init__(self) -> None:
        self._controls: deque[E] = deque()
        self._events: deque[E] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._waking = False

    def attach(self) -> None:
        """Bind to the running loop."""
        self._loop = asyncio.get_running_loop()

    def detach(self) -> None:
        """Later posts are kept but wake nobody: the machine has ended."""
        self._loop = None

    def post(self, event: E, *, control: bool = False) -> None:
        """Put an event in, from any thread."""
        (self._controls if control else self._events).append(event)
        loop = self._loop
        if loop is None or self._waking:
            return
        self._waking = True
        loop.call_soon_threadsafe(self._wake)

    def take(self) -> E | None:
        """The event to handle now, or None."""
        if self._controls:
            return self._controls.popleft()
        return self._events.popleft() if self._events else None

    async def wait(self, timeout_s: float | None) -> None:
        """Return when something was posted, or after the time-out. One waiter at a time."""
        if self._controls or self._events or self._loop is None:
            return
        # A future of our own: `asyncio.wait_for` costs a task and several passes of the loop.
        waiter = self._waiter = self._loop.create_future()
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, _release, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        """End the wait in progress. On the loop."""
        if self._waiter is not None:
            _release(self._waiter)

    def _wake(self) -> None:
        self._waking = False  # before the queues are drained: a post after this wakes again
        self.wake()


def _release(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


__all__ = ["Mailbox"]
