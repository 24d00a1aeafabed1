"""The one thread that does an exchange's I/O: a selector, a wake-up, and passes (H8, H8a)."""

import os
import selectors
import socket
import threading
from collections.abc import Callable
from typing import Final, Protocol

Handler = Callable[[int], None]
"""Called with the selector's mask when a socket is ready."""

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE


class Passes(Protocol):
    """What the thread does besides waiting. Everything is called in the thread."""

    def timeout_s(self) -> float:
        """How long the thread may sleep."""

    def work(self) -> bool:
        """What is due after all ready sockets were served. False ends the thread."""

    def failed(self, error: BaseException) -> None:
        """An error that nobody expected ended the thread."""

    def ended(self) -> None:
        """The last thing the thread does: close the sockets."""


class IoThread:
    """Runs passes: wait, serve the sockets that are ready, then `work`."""

    def __init__(self, name: str, passes: Passes) -> None:
        self._passes = passes
        self._selector = selectors.DefaultSelector()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake_fd, READ, None)
        self._waking = False
        self._closed = False
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def started(self) -> bool:
        """Whether `start` was called."""
        return self._thread.ident is not None

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Make the thread run a pass soon. From any thread; several calls cost one wake-up."""
        if self._waking:
            return
        self._waking = True
        # The lock keeps a late caller from writing to a number that another file has by now.
        with self._closing:
            if not self._closed:
                os.eventfd_write(self._wake_fd, 1)

    def watch(
        self, sock: socket.socket, handler: Handler, *, reading: bool = True, writing: bool = False
    ) -> None:
        """Call `handler` when the socket is readable, or writable, as asked for: one or both."""
        events = (READ if reading else 0) | (WRITE if writing else 0)
        if sock.fileno() in self._selector.get_map():
            self._selector.modify(sock, events, handler)
        else:
            self._selector.register(sock, events, handler)

    def unwatch(self, sock: socket.socket) -> None:
        """Forget a socket, if it was known. Before it is closed."""
        if sock.fileno() in self._selector.get_map():
            self._selector.unregister(sock)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread; False if it did not end in time."""
        if self.started:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Free what the thread used. After its end."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._selector.close()
            os.close(self._wake_fd)

    def _run(self) -> None:
        try:
            while self._pass():
                pass
        except BaseException as error:  # noqa: BLE001 - a dead thread would make all wait for ever
            self._passes.failed(error)
        finally:
            self._passes.ended()

    def _pass(self) -> bool:
        for key, mask in self._selector.select(self._passes.timeout_s()):
            if key.data is None:
                os.eventfd_read(self._wake_fd)
            else:
                key.data(mask)
        self._waking = False  # before the posts are taken: a post after this wakes again
        return self._passes.work()


__all__ = ["READ", "WRITE", "Handler", "IoThread", "Passes"]
