"""Takes connections in: accepts, shakes hands, refuses (H1, H2). Lives in the I/O thread alone.

Who has not proved anything yet has one of a bounded number of places, for `HANDSHAKE_TIMEOUT_S`:
one for each source that is still missing, since all may come at once and a connection may be there
before its hello, and `UNAUTHENTICATED_MAX` more. When all are taken, the oldest that has not even
said a proved hello makes room, so clients that say nothing do not keep the job's own chains out.
Once every source is connected, nobody else is expected and the listeners are closed.
"""

import os
import socket
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from arkflow_kernel.ids import ChainId, Generation, JobId
from arkflow_ray.runtime.channels.addresses import prepare
from arkflow_ray.runtime.channels.counters import Counters
from arkflow_ray.runtime.channels.handshake import (
    HANDSHAKE_TIMEOUT_S,
    UNAUTHENTICATED_MAX,
    HandshakeError,
    Listener,
    Refusal,
)
from arkflow_ray.runtime.channels.io_thread import IoThread

_PAUSE_S: Final = 0.1
"""How long nobody is accepted after the system refused to (no file descriptors, say)."""


@dataclass(slots=True)
class _Guest:
    """A connection that is not authenticated."""

    sock: socket.socket
    handshake: Listener
    deadline: float
    greeted: bool = False


class Reception:
    """The listening sockets of an exchange and those who knock.

    `admit(source, sock)` is called for each source that proved itself.
    """

    def __init__(
        self,
        thread: IoThread,
        counters: Counters,
        secret: bytes,
        identity: tuple[JobId, Generation, ChainId],
        sources: Collection[ChainId],
        admit: Callable[[ChainId, socket.socket], None],
    ) -> None:
        self._thread = thread
        self._counters = counters
        self._secret = secret
        self._identity = identity
        self._sources = frozenset(sources)
        self._missing = set(sources)
        self._admit = admit
        self._listeners: list[socket.socket] = []
        self._paths: list[str] = []
        self._guests: dict[int, _Guest] = {}
        self._paused_until: float | None = None

    def add(self, listener: socket.socket, path: str | None = None) -> None:
        """Listen on a socket too; `path` is the file to unlink at the end."""
        self._listeners.append(listener)
        if path is not None:
            self._paths.append(path)
        self._thread.watch(listener, partial(self._accept, listener))

    def next_deadline(self) -> float | None:
        """When `tick` is due."""
        # Guests are in the order in which they came.
        times = [guest.deadline for guest in list(self._guests.values())[:1]]
        if self._paused_until is not None:
            times.append(self._paused_until)
        return min(times, default=None)

    def tick(self, now: float) -> None:
        """Close those whose time is over; accept again."""
        late = [guest for guest in self._guests.values() if guest.deadline <= now]
        for guest in late:
            self._refuse(guest, Refusal.TIMEOUT)
        if self._paused_until is not None and self._paused_until <= now:
            self._resume()

    def close(self) -> None:
        """Close everything that is not admitted, and unlink the socket's file."""
        for guest in list(self._guests.values()):
            self._dismiss(guest)
        self._stop_listening()

    def _accept(self, listener: socket.socket, _: int) -> None:
        for _ in range(UNAUTHENTICATED_MAX):
            places = UNAUTHENTICATED_MAX + len(self._missing)
            if len(self._guests) >= places and not self._make_room():
                self._pause()
                return
            try:
                sock, _address = listener.accept()
            except BlockingIOError:
                return
            except OSError:
                self._pause()
                return
            sock.setblocking(False)
            prepare(sock)
            handshake = Listener(self._secret, *self._identity, self._sources)
            guest = _Guest(sock, handshake, time.monotonic() + HANDSHAKE_TIMEOUT_S)
            self._guests[sock.fileno()] = guest
            self._thread.watch(sock, partial(self._read, guest))
            self._read(guest, 0)
            if not self._listeners:
                return

    def _make_room(self) -> bool:
        for guest in self._guests.values():
            if not guest.greeted:
                self._refuse(guest, Refusal.CROWDED_OUT)
                return True
        return False

    def _pause(self) -> None:
        """A listener that stays readable would keep the thread busy."""
        self._paused_until = time.monotonic() + _PAUSE_S
        for listener in self._listeners:
            self._thread.unwatch(listener)

    def _resume(self) -> None:
        self._paused_until = None
        for listener in self._listeners:
            self._thread.watch(listener, partial(self._accept, listener))

    def _read(self, guest: _Guest, _: int) -> None:
        if guest.sock.fileno() < 0:
            return  # crowded out by another socket's handler of this pass
        handshake = guest.handshake
        try:
            while handshake.peer is None:
                received = guest.sock.recv(handshake.wanted)
                if not received:
                    raise HandshakeError(Refusal.CLOSED)
                answer = handshake.feed(received)
                if answer:
                    guest.greeted = True
                    # Nothing was sent before on this socket, so its buffer takes all of it.
                    guest.sock.send(answer)
            self._welcome(guest, handshake.peer)
        except BlockingIOError:
            return
        except HandshakeError as error:
            self._refuse(guest, error.refusal)
        except OSError:
            self._refuse(guest, Refusal.CLOSED)

    def _welcome(self, guest: _Guest, source: ChainId) -> None:
        if source not in self._missing:
            raise HandshakeError(Refusal.DUPLICATE)
        self._missing.discard(source)
        del self._guests[guest.sock.fileno()]
        self._thread.unwatch(guest.sock)
        if not self._missing:
            self.close()
        self._admit(source, guest.sock)

    def _refuse(self, guest: _Guest, refusal: Refusal) -> None:
        self._counters.refused[refusal] += 1
        self._dismiss(guest)

    def _dismiss(self, guest: _Guest) -> None:
        del self._guests[guest.sock.fileno()]
        self._thread.unwatch(guest.sock)
        guest.sock.close()

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            self._thread.unwatch(listener)
            listener.close()
        self._listeners.clear()
        self._paused_until = None
        for path in self._paths:
            try:
                os.unlink(path)
            except FileNotFoundError:  # somebody has removed the job's folder
                continue
            # The last one to go takes the folder along: whoever is killed later leaves none.
            with suppress(OSError):
                os.rmdir(os.path.dirname(path))
        self._paths.clear()


__all__ = ["Reception"]
