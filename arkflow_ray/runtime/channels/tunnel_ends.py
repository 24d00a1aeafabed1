"""The two ends of a tunnelled connection, each at one local socket, in the tunnel's thread (H6).

The end of the chain that dialled makes all calls. `put` brings a piece to the other end; `take`, of
which one is always under way, is answered with the bytes that go back.
"""

import logging
import socket
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final, Protocol, TypeVar

from arkflow_kernel.errors import ChannelError
from arkflow_kernel.limits import MIB
from arkflow_ray.runtime.channels.io_thread import IoThread

PIECE_BYTES_MAX: Final = MIB
"""Bytes of one call."""

PUTS_MAX: Final = 4
"""Unanswered `put` calls of one connection."""

T = TypeVar("T")
Done = Callable[[T | ChannelError], None]
"""Takes the answer of a call, or why there is none. In any thread; returns at once."""

_log = logging.getLogger("arkflow_ray.tunnel")


class TunnelCalls(Protocol):
    """Calls of `Tunnel.put` and `Tunnel.take` at one other chain. They return at once."""

    def put(self, connection: str, number: int, data: bytes, done: Done[str | None], /) -> None:
        """Have a piece put; `done` gets the refusal, None if there was none."""

    def take(self, connection: str, number: int, done: Done[bytes], /) -> None:
        """Ask for the next bytes that go back; none are the end."""


class Surroundings(Protocol):
    """What an end needs of its tunnel."""

    @property
    def thread(self) -> IoThread:
        """Where it is served."""

    def order(self, order: Callable[[], None], /) -> bool:
        """Have something done in the thread; False if it has ended. From any thread."""

    def remove(self, connection: str, /) -> None:
        """The end was closed."""


class _End:
    """One local socket, in the thread alone."""

    def __init__(self, tunnel: Surroundings, connection: str, sock: socket.socket) -> None:
        self.connection = connection
        self.sock = sock
        self._tunnel = tunnel
        self._unwritten = memoryview(b"")
        self._watched = (False, False)
        self._closed = False

    def _watch(self, handler: Callable[[int], None], *, reading: bool) -> None:
        """Be called for what this end can do now, and for nothing else."""
        wanted = (reading, bool(self._unwritten))
        if self._closed or wanted == self._watched:
            return
        self._watched = wanted
        if any(wanted):
            self._tunnel.thread.watch(self.sock, handler, reading=wanted[0], writing=wanted[1])
        else:
            self._tunnel.thread.unwatch(self.sock)

    def _read(self) -> bytes | None:
        """What there is; None if nothing yet, nothing at the end."""
        try:
            return self.sock.recv(PIECE_BYTES_MAX)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _write(self) -> None:
        """As much as the socket takes. `OSError` if the exchange has closed its end."""
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[self.sock.send(self._unwritten) :]
        except BlockingIOError:
            return

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._tunnel.thread.unwatch(self.sock)
            self.sock.close()
            self._tunnel.remove(self.connection)


class DialledEnd(_End):
    """The end of the chain that dialled: it makes the calls."""

    def __init__(
        self, tunnel: Surroundings, connection: str, sock: socket.socket, calls: TunnelCalls
    ) -> None:
        super().__init__(tunnel, connection, sock)
        self._calls = calls
        self._puts = 0
        self._unanswered = 0
        self._takes = 0
        self._taking = False
        self._opened = False
        self._at_end = False

    def open(self) -> None:
        """Have the other side connect to its listener; nothing is sent before it has."""
        self._send(b"")

    def cut(self, reason: str) -> None:
        """Close the socket; the calls that are under way are of no more interest."""
        if not self._at_end and not self._closed:
            _log.warning("a tunnelled connection broke: %s", reason)
        self._close()

    def _ready(self, _: int) -> None:
        if self._closed:
            return
        try:
            self._write()
        except OSError:
            self._unwritten = memoryview(b"")  # the next read tells that nobody is there
        else:
            self._ask()
        self._pump()

    def _pump(self) -> None:
        """Send what there is while calls are free."""
        while self._free and (data := self._read()) is not None:
            self._at_end = not data
            self._send(data)
        self._watch(self._ready, reading=self._free)

    @property
    def _free(self) -> bool:
        return self._opened and not self._at_end and self._unanswered < PUTS_MAX

    def _send(self, data: bytes) -> None:
        number = self._puts
        self._puts += 1
        self._unanswered += 1
        done = partial(self._later, self._sent)
        self._calls.put(self.connection, number, data, done)

    def _sent(self, answer: str | ChannelError | None) -> None:
        self._unanswered -= 1
        if answer is not None:
            self.cut(str(answer))
        elif not self._opened:
            self._opened = True
            self._ask()
            self._pump()
        elif not self._at_end:
            self._pump()
        elif self._unanswered == 0:
            self._close()

    def _ask(self) -> None:
        """One `take` at a time, and only when what came before is written."""
        if self._unwritten or self._taking:
            return
        self._takes += 1
        self._taking = True
        self._calls.take(self.connection, self._takes, partial(self._later, self._taken))

    def _taken(self, answer: bytes | ChannelError) -> None:
        self._taking = False
        if isinstance(answer, ChannelError):
            self.cut(str(answer))
        elif not answer:
            self._close()
        elif not self._at_end:
            self._unwritten = memoryview(answer)
            self._ready(0)

    def _later(self, take: Callable[[T], None], answer: T) -> None:
        """In the thread, if this end is still there."""

        def run() -> None:
            if not self._closed:
                take(answer)

        self._tunnel.order(run)


class AcceptedEnd(_End):
    """The other end: it answers the calls."""

    def __init__(self, tunnel: Surroundings, connection: str, sock: socket.socket) -> None:
        super().__init__(tunnel, connection, sock)
        self._next = 1
        self._early: dict[int, tuple[bytes, Future[str | None]]] = {}
        self._writing: Future[str | None] | None = None
        self._takes = 0
        self._taker: Future[bytes] | None = None

    def put(self, number: int, data: bytes, answer: "Future[str | None]") -> None:
        """A piece; it may come before those in front of it (P3)."""
        newest = self._next + PUTS_MAX - 1
        if not self._next <= number <= newest or number in self._early:
            reason = f"piece {number} instead of {self._next} to {newest}"
            give(answer, reason)
            self.cut(reason)
            return
        self._early[number] = (data, answer)
        self._pump()

    def take(self, number: int, answer: "Future[bytes]") -> None:
        """Somebody waits for bytes."""
        if self._taker is not None or number != self._takes + 1:
            give(answer, b"")
            self.cut(f"take {number} after take {self._takes}")
            return
        self._takes = number
        self._taker = answer
        self._pump()

    def cut(self, reason: str) -> None:
        """Close the socket; refuse what waits."""
        self._close()
        waiting = [answer for _, answer in self._early.values()]
        if self._writing is not None:
            waiting.append(self._writing)
        self._early.clear()
        self._writing = None
        for answer in waiting:
            give(answer, reason)
        if self._taker is not None:
            taker, self._taker = self._taker, None
            give(taker, b"")

    def _pump(self, _: int = 0) -> None:
        if self._closed:
            return
        try:
            ended = self._write_pieces()
        except OSError as error:
            # Whoever ends in order has heard all before, and is sent nothing more (H9).
            self.cut(f"the chain closed the connection: {error.strerror}")
            return
        if self._taker is not None and (data := self._read()) is not None:
            taker, self._taker = self._taker, None
            give(taker, data)
            ended = ended or not data
        if ended:
            self.cut("the connection has ended")
            return
        self._watch(self._pump, reading=self._taker is not None)

    def _write_pieces(self) -> bool:
        """Write pieces in their order, and answer those that are written. True at the end."""
        while True:
            self._write()
            if self._unwritten:
                return False
            if self._writing is not None:
                done, self._writing = self._writing, None
                give(done, None)
            piece = self._early.pop(self._next, None)
            if piece is None:
                return False
            self._next += 1
            data, answer = piece
            if not data:
                give(answer, None)
                return True
            self._unwritten, self._writing = memoryview(data), answer


def give(answer: "Future[T]", value: T) -> None:
    """Answer, unless nobody waits any more."""
    if answer.set_running_or_notify_cancel():
        answer.set_result(value)


__all__ = [
    "PIECE_BYTES_MAX",
    "PUTS_MAX",
    "AcceptedEnd",
    "DialledEnd",
    "Done",
    "TunnelCalls",
    "give",
]
