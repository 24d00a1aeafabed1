"""Knocks at the doors of this machine's runs: finds the one of a job, asks, and waits.

A door is only trusted if its process belongs to this user.
"""

import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from arkflow_ray.door.folder import DoorName, door_stem, parse_name, usable_folders
from arkflow_ray.door.listener import connect, peer
from arkflow_ray.door.messages import (
    ANSWER_BYTES_MAX,
    SILENCE_S,
    NotReachableError,
    Request,
    SeveralRunsError,
    WaitedTooLongError,
    parse_message,
    refusal,
    request_line,
)

_CHUNK_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Door:
    """A job's door whose process lives."""

    path: Path
    name: DoorName
    pid: int


def find_doors(folders: Sequence[Path] | None = None) -> list[Door]:
    """All doors of this user whose processes live, by name."""
    found = []
    for folder in usable_folders() if folders is None else folders:
        for path in sorted(folder.iterdir()):
            name = parse_name(path.name)
            pid = None if name is None else _living(path)
            if name is not None and pid is not None:
                found.append(Door(path, name, pid))
    return sorted(found, key=lambda door: (door.name.stem, door.pid))


def find_door(wanted: str, folders: Sequence[Path] | None = None) -> Door:
    """The door of a job, called by its id, or `ID.PID` if it runs more than once.

    Raises `NotReachableError` or `SeveralRunsError`; both name what there is.
    """
    job, dot, pid = wanted.rpartition(".")
    if not (dot and pid.isdecimal()):
        job, pid = wanted, ""
    doors = find_doors(folders)
    matching = [door for door in doors if door.name.stem == door_stem(job)]
    if pid:
        matching = [door for door in matching if door.pid == int(pid)]
    if not matching:
        raise NotReachableError(
            f"no job '{wanted}' runs on this machine as this user; running: {_listed(doors)}"
        )
    if len(matching) > 1:
        choices = " or ".join(f"{job}.{door.pid}" for door in matching)
        raise SeveralRunsError(f"job '{job}' runs {len(matching)} times here; say {choices}")
    return matching[0]


def ask(
    door: Door,
    request: Request,
    timeout_s: float | None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Ask for something and wait until it is done; the result.

    `timeout_s` bounds the wait, None: not. Raises `NotReachableError` if the door falls silent,
    `WaitedTooLongError` when the time is over, and `BadRequestError` or `RefusedError` with what
    the job says.
    """
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX) as connection:
        lines = _Lines(connection, door, deadline_s)
        lines.send(request_line(request))
        while True:
            message = lines.next()
            if "progress" in message:
                on_progress(str(message["progress"]))
            elif isinstance(message.get("error"), dict):
                raise refusal(message["error"])
            elif isinstance(message.get("result"), dict):
                result: dict[str, Any] = message["result"]
                return result


class _Lines:
    """The lines that come from a door, each before the deadlines."""

    def __init__(self, connection: socket.socket, door: Door, deadline_s: float | None) -> None:
        self._connection = connection
        self._door = door
        self._deadline_s = deadline_s
        self._held = bytearray()

    def send(self, line: bytes) -> None:
        try:
            connect(self._connection, self._door.path, self._wait_s())
            if peer(self._connection)[1] != os.getuid():
                raise self._lost("its process belongs to another user")
            self._connection.settimeout(self._wait_s())
            self._connection.sendall(line)
        except TimeoutError:
            self._over()
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from error

    def next(self) -> dict[str, Any]:
        while b"\n" not in self._held:
            if len(self._held) > ANSWER_BYTES_MAX:
                raise self._lost("it says more than a door does")
            self._held += self._received()
        line, _, rest = bytes(self._held).partition(b"\n")
        self._held = bytearray(rest)
        message = parse_message(line)
        if message is None:
            raise self._lost("it does not speak as a door does")
        return message

    def _received(self) -> bytes:
        self._connection.settimeout(self._wait_s())
        try:
            data = self._connection.recv(_CHUNK_BYTES)
        except TimeoutError:
            self._over()
            return b""
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from error
        if not data:
            raise self._lost("its process ended before it answered")
        return data

    def _wait_s(self) -> float:
        """How long the next step may take: 0 is no time-out for a socket, so never that."""
        if self._deadline_s is None:
            return SILENCE_S
        return max(0.001, min(SILENCE_S, self._deadline_s - time.monotonic()))

    def _over(self) -> None:
        """A step took all of its time: the caller's is over, or the door is silent."""
        if self._deadline_s is not None and time.monotonic() >= self._deadline_s - 0.001:
            raise WaitedTooLongError("not done in the time given")
        raise self._lost(f"it said nothing for {SILENCE_S:.0f} s; is the process stopped?")

    def _lost(self, reason: str) -> NotReachableError:
        job, pid = self._door.name.stem, self._door.pid
        return NotReachableError(f"job '{job}' (process {pid}) does not answer: {reason}")


def _living(path: Path) -> int | None:
    """The process behind a socket; None if it is dead or of another user."""
    with socket.socket(socket.AF_UNIX) as knocking:
        try:
            connect(knocking, path, SILENCE_S)
            pid, uid = peer(knocking)
        except OSError:
            return None
    return pid if uid == os.getuid() else None


def _listed(doors: Sequence[Door]) -> str:
    return ", ".join(dict.fromkeys(door.name.stem for door in doors)) or "none"


__all__ = ["Door", "ask", "find_door", "find_doors"]
