"""The listening socket of one job: bound, named, and taken away again.

All processes of the user bind under one lock, a `flock` on the folder. So a socket that refuses a
connection while the lock is held belongs to a process that is dead, and its name is free.
"""

import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from arkflow_ray.door.folder import DoorName, door_stem, parse_name

BACKLOG: Final = 16
_CREDENTIALS: Final = struct.Struct("3i")
_TIME: Final = struct.Struct("ll")


class DoorListener:
    """A socket that listens for one job. `close` takes its file away."""

    def __init__(self, path: Path, listening: socket.socket) -> None:
        self.path = path
        self.socket = listening
        self._inode = path.lstat().st_ino

    def close(self) -> None:
        """Stop listening; remove the file if it is still this socket's."""
        with suppress(FileNotFoundError):
            if self.path.lstat().st_ino == self._inode:
                self.path.unlink()
        self.socket.close()


def listen(folder: Path, job: str) -> DoorListener:
    """Bind the job's name in this folder, with this process's number if the name is in use.

    Raises `OSError` if the folder cannot be used.
    """
    with _locked(folder):
        remove_dead(folder)
        stem = door_stem(job)
        name = DoorName(stem)
        if (folder / name.file).exists():
            name = DoorName(stem, os.getpid())
        path = folder / name.file  # in use by this very process, perhaps: then `bind` refuses
        listening = socket.socket(socket.AF_UNIX)
        try:
            listening.bind(str(path))
            path.chmod(0o600)
            listening.listen(BACKLOG)
            listening.setblocking(False)
        except OSError:
            listening.close()
            raise
        return DoorListener(path, listening)


def remove_dead(folder: Path) -> None:
    """Remove the sockets of processes that are gone. Only while the folder is locked."""
    for path in list(folder.iterdir()):
        if parse_name(path.name) is not None and is_dead(path):
            path.unlink(missing_ok=True)


def is_dead(path: Path) -> bool:
    """Whether nobody listens at this socket, or it is none."""
    with socket.socket(socket.AF_UNIX) as knocking:
        knocking.setblocking(False)
        try:
            knocking.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False  # its queue is full, or it went away just now
    return False


def connect(knocking: socket.socket, path: Path, wait_s: float) -> None:
    """Connect a blocking socket; `TimeoutError` if the other side lets nobody in for so long."""
    whole_s, rest_s = divmod(wait_s, 1)
    knocking.setsockopt(
        socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.pack(int(whole_s), int(rest_s * 1_000_000))
    )
    try:
        knocking.connect(str(path))
    except BlockingIOError as error:
        raise TimeoutError(f"its queue was full for {wait_s:.0f} s") from error


def peer(connection: socket.socket) -> tuple[int, int]:
    """Process number and user of the other side."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; every holder lets it go after some file operations."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


__all__ = ["BACKLOG", "DoorListener", "connect", "is_dead", "listen", "peer", "remove_dead"]
