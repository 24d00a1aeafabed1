"""The doors of a run: one thread that listens for all of its jobs.

Everything is non-blocking, so a slow or silent caller keeps nobody waiting. Each caller has one
request, a deadline to send it, a bound for what it may leave unread, and a deadline to take the
answer. Callers of another user are closed without a word.
"""

import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from arkflow_kernel.limits import MIB
from arkflow_ray.door.desk import Answer, Desk, Errand
from arkflow_ray.door.folder import UnsafeFolderError, make_folder
from arkflow_ray.door.listener import DoorListener, listen, peer
from arkflow_ray.door.messages import (
    ALIVE_S,
    REQUEST_BYTES_MAX,
    BadRequestError,
    message_line,
    parse_request,
)
from arkflow_ray.runtime.running import RunningJob

LOOK_S: Final = 0.1
"""Between two looks at what callers wait for."""

REQUEST_S: Final = 5.0
"""A caller has so long to say what it wants."""

TAKE_S: Final = 5.0
"""A caller may take so long for the next piece of its answer's end."""

UNREAD_BYTES_MAX: Final = MIB
"""A caller that waits and leaves so much unread is closed."""

CALLERS_MAX: Final = 32
"""Callers of a run at once; further ones wait in the socket's queue."""

FULL_S: Final = 1.0
"""How long nobody is let in after the system refused a connection."""

CLOSE_S: Final = 1.0
"""How long a door that closes waits for callers to take their answers."""

NO_DOOR: Final = (
    "this run cannot be reached by `arkflow-ray status`, `stop`, `savepoint` and `rescale`"
)

_log = logging.getLogger("arkflow_ray.door")


class _Caller:
    """One connection: what came, what is to go out, and what it waits for."""

    def __init__(self, connection: socket.socket, desk: Desk, now_s: float) -> None:
        self.connection = connection
        self.received = bytearray()
        self.unsent = bytearray()
        self.errand: Errand | None = None
        self.asked = False
        self.answered = False
        self.hears = True
        self.watched = 0
        self.deadline_s: float | None = now_s + REQUEST_S
        self._desk = desk
        self._told: str | None = None
        self._said_s = now_s

    def ask(self, line: bytes) -> None:
        """Take the request; a bad one is answered at once."""
        self.asked = True
        self.deadline_s = None
        try:
            self.errand = self._desk.take(parse_request(line))
        except BadRequestError as error:
            self.answer(Answer(error=(type(error).__name__, error.message)))
        except Exception as error:  # noqa: BLE001 - see `_fault`
            self.answer(_fault(error))

    def look(self, now_s: float) -> None:
        """See how the errand stands, and tell what is new."""
        if self.errand is None:
            return
        try:
            stand = self.errand.look()
        except Exception as error:  # noqa: BLE001 - see `_fault`
            stand = _fault(error)
        if isinstance(stand, Answer):
            self.answer(stand)
        elif stand.text is not None and stand.text != self._told:
            self._told = stand.text
            self._say({"progress": stand.text}, now_s)
        elif now_s - self._said_s >= ALIVE_S:
            self._say({"alive": True}, now_s)

    def answer(self, answer: Answer) -> None:
        """Say the end; the caller is closed when it has taken it."""
        self.errand = None
        self.answered = True
        self.deadline_s = time.monotonic() + TAKE_S
        if answer.error is None:
            self._say({"result": answer.result}, time.monotonic())
        else:
            kind, message = answer.error
            self._say({"error": {"type": kind, "message": message}}, time.monotonic())

    def _say(self, message: dict[str, Any], now_s: float) -> None:
        self.unsent += message_line(message)
        self._said_s = now_s


def _fault(error: Exception) -> Answer:
    """A fault in one answer is told to its caller; it must not end the door for all others."""
    _log.error("a request at the door failed", exc_info=error)
    return Answer(error=(type(error).__name__, f"{error} (a fault of arkflow_ray)"))


class Doors:
    """The doors of one run. `close` must be called; it takes the sockets away."""

    def __init__(self, listeners: Sequence[tuple[DoorListener, RunningJob]]) -> None:
        self._selector = selectors.DefaultSelector()
        self._listeners = [listener for listener, _ in listeners]
        self._callers: dict[socket.socket, _Caller] = {}
        self._accepting = True
        self._full_until_s = 0.0
        self._closing = threading.Event()
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._desks = {listener.socket: Desk(running) for listener, running in listeners}
        for listener in self._listeners:
            self._selector.register(listener.socket, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="doors", daemon=True)
        self._thread.start()

    @property
    def paths(self) -> list[str]:
        """Where the sockets lie."""
        return [str(listener.path) for listener in self._listeners]

    def close(self) -> None:
        """Answer whoever waits, then go; within about a second. May be called again."""
        if not self._closing.is_set():
            self._wake.send(b"x")  # first: the thread that sees `_closing` closes this socket
            self._closing.set()
        self._thread.join()

    # --- the thread ----------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            while not self._closing.is_set():
                self._turn(self._wait_s())
            deadline_s = time.monotonic() + CLOSE_S
            self._turn(0.0)
            while self._waits_for_reader() and time.monotonic() < deadline_s:
                self._turn(LOOK_S)
        finally:
            for listener in self._listeners:
                listener.close()
            for connection in (*self._callers, self._wake, self._woken):
                connection.close()
            self._selector.close()

    def _wait_s(self) -> float | None:
        """Until something is to be looked at; None: until somebody comes."""
        return LOOK_S if self._callers or not self._accepting else None

    def _waits_for_reader(self) -> bool:
        return any(caller.unsent for caller in self._callers.values())

    def _turn(self, wait_s: float | None) -> None:
        for key, events in self._selector.select(wait_s):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            if connection in self._desks:
                self._accept(connection)
            elif connection in self._callers and events & selectors.EVENT_READ:
                self._hear(self._callers[connection])
        now_s = time.monotonic()
        for caller in list(self._callers.values()):
            caller.look(now_s)
            self._send(caller)
            self._judge(caller, now_s)
            self._watch(caller)
        self._accept_while(len(self._callers) < CALLERS_MAX and now_s >= self._full_until_s)

    def _accept_while(self, room: bool) -> None:
        """Listen only while there is room for a caller."""
        if room == self._accepting:
            return
        self._accepting = room
        for listener in self._listeners:
            if room:
                self._selector.register(listener.socket, selectors.EVENT_READ)
            else:
                self._selector.unregister(listener.socket)

    def _accept(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # it went away again
        except OSError as error:  # this process has too many files open: not again at once
            _log.warning("a caller at the door cannot be let in: %s", error)
            self._full_until_s = time.monotonic() + FULL_S
            return
        if peer(connection)[1] != os.getuid():
            connection.close()
            return
        connection.setblocking(False)
        caller = _Caller(connection, self._desks[listening], time.monotonic())
        self._callers[connection] = caller
        self._watch(caller)

    def _hear(self, caller: _Caller) -> None:
        try:
            data = caller.connection.recv(REQUEST_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            self._drop(caller)
            return
        if not data:
            self._deaf(caller)
            return
        if caller.asked:
            return  # one request a caller
        caller.received += data
        line, newline, _ = bytes(caller.received).partition(b"\n")
        if newline:
            caller.ask(line)
        elif len(caller.received) >= REQUEST_BYTES_MAX:
            caller.asked = True
            text = f"a request has at most {REQUEST_BYTES_MAX:,} bytes"
            caller.answer(Answer(error=(BadRequestError.__name__, text)))

    def _deaf(self, caller: _Caller) -> None:
        """It sends nothing more; if it is gone, the next thing that is said to it tells."""
        if not caller.asked:
            self._drop(caller)
        caller.hears = False

    def _send(self, caller: _Caller) -> None:
        if not caller.unsent:
            return
        try:
            sent = caller.connection.send(caller.unsent)
            del caller.unsent[:sent]
            if caller.answered and sent:
                caller.deadline_s = time.monotonic() + TAKE_S
        except BlockingIOError:
            return
        except OSError:
            self._drop(caller)

    def _judge(self, caller: _Caller, now_s: float) -> None:
        """Close a caller that has all it wanted, or is too slow."""
        done = caller.answered and not caller.unsent
        late = caller.deadline_s is not None and now_s > caller.deadline_s
        if done or late or (not caller.answered and len(caller.unsent) > UNREAD_BYTES_MAX):
            self._drop(caller)

    def _watch(self, caller: _Caller) -> None:
        """Wake up for what it says, and while it has something to take."""
        if caller.connection not in self._callers:
            return
        wanted = (selectors.EVENT_READ if caller.hears else 0) | (
            selectors.EVENT_WRITE if caller.unsent else 0
        )
        if wanted == caller.watched:
            return
        if not wanted:
            self._selector.unregister(caller.connection)
        elif caller.watched:
            self._selector.modify(caller.connection, wanted)
        else:
            self._selector.register(caller.connection, wanted)
        caller.watched = wanted

    def _drop(self, caller: _Caller) -> None:
        if self._callers.pop(caller.connection, None) is None:
            return
        if caller.watched:
            self._selector.unregister(caller.connection)
        with suppress(OSError):
            caller.connection.shutdown(socket.SHUT_RDWR)
        caller.connection.close()


def open_doors(jobs: Sequence[RunningJob], note: Callable[[str], None]) -> Doors | None:
    """Open a door for every job; None if there is no safe place, which `note` hears."""
    listeners: list[tuple[DoorListener, RunningJob]] = []
    if not jobs:
        return None
    try:
        folder = make_folder()
        for running in jobs:
            listeners.append((listen(folder, running.job), running))
    except (OSError, UnsafeFolderError) as error:
        for listener, _ in listeners:
            listener.close()
        note(f"{NO_DOOR}: {error}")
        return None
    return Doors(listeners)


__all__ = [
    "CALLERS_MAX",
    "NO_DOOR",
    "REQUEST_S",
    "TAKE_S",
    "UNREAD_BYTES_MAX",
    "Doors",
    "open_doors",
]
