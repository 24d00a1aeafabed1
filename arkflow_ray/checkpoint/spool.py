"""A folder of this process for files on their way, and an end to those of dead processes.

Beside each folder lies a lock file that its owner holds by flock(2): the kernel lets it go when
the process dies, however it dies. Numbers of processes would not do: containers and machines that
share the file system have the same ones.
"""

import errno
import fcntl
import os
import secrets
import shutil
import socket
import stat
import threading
import time
from pathlib import Path
from typing import Final

FOREIGN_AGE_S: Final = 7 * 24 * 3600
"""Leftovers of other machines are cleared when unchanged for so long: flock(2) of some network
file systems does not reach other machines.
"""

_LOCK: Final = ".lock"


class Spool:
    """A folder below `base`, made when it is asked for first. Thread-safe.

    `path` is for callers, `temporary` for the store's own files. `private`: `base` lies where every
    user may write, so the folder above it must be ours. Raises `OSError`.
    """

    def __init__(self, base: Path, *, private: bool = False) -> None:
        self._base, self._private = base, private
        self._guard = threading.Lock()
        self._folder: Path | None = None
        self._lock = -1
        self._made = 0
        self._closed = False

    @property
    def path(self) -> Path:
        """The callers' folder. Made again if somebody took it away."""
        return self._made_folder("files")

    def temporary(self) -> Path:
        """A path for one of the store's own files; nothing is there."""
        folder = self._made_folder("own")
        with self._guard:
            self._made += 1
            return folder / str(self._made)

    def close(self) -> None:
        """Remove the folder with what is in it. Nothing can be spooled afterwards."""
        with self._guard:
            self._closed = True
            if self._folder is None:
                return
            _remove(self._folder)
            os.close(self._lock)
            self._folder = None

    def _made_folder(self, name: str) -> Path:
        with self._guard:
            if self._closed:
                raise OSError("the spool folder is closed")
            if self._folder is None:
                if self._private:
                    _make_private(self._base.parent)
                self._base.mkdir(parents=True, exist_ok=True)
                clear_leftovers(self._base)
                self._folder, self._lock = _claim(self._base)
            folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def clear_leftovers(base: Path) -> None:
    """Remove folders whose owner is gone. One that cannot be judged stays."""
    for lock in base.glob(f"*{_LOCK}"):
        try:
            _clear(lock)
        except OSError:
            continue  # another process clears it, or it belongs to another user


def _make_private(folder: Path) -> None:
    """A folder that no other user can change; `PermissionError` if one made it before."""
    folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise PermissionError(
            errno.EPERM, "it belongs to another user, or others may write there", str(folder)
        )


def _clear(lock: Path) -> None:
    folder = lock.with_suffix("")
    if not _is_ours(lock.name) and time.time() - _changed(folder, lock) < FOREIGN_AGE_S:
        return
    descriptor = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(descriptor, lock):
            _remove(folder)
    finally:
        os.close(descriptor)


def _claim(base: Path) -> tuple[Path, int]:
    """A new folder and its lock, which is held before the folder is there."""
    while True:
        folder = base / f"{_host()}-{os.getpid()}-{secrets.token_hex(4)}"
        lock = _lock_of(folder)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, lock):  # nobody took it for a leftover in between
                folder.mkdir(mode=0o700)
                return folder, descriptor
        except BlockingIOError:
            pass  # it is being cleared as a leftover: another name
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _remove(folder: Path) -> None:
    """Folder first: while there is a folder there is a lock that says whose it is."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        _lock_of(folder).unlink(missing_ok=True)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _changed(folder: Path, lock: Path) -> float:
    """When anything of it changed last, in seconds since 1970."""
    found = [lock, *folder.rglob("*")]
    return max((path.stat().st_mtime for path in found), default=0.0)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(folder.name + _LOCK)


def _is_ours(name: str) -> bool:
    return name.startswith(f"{_host()}-")


def _host() -> str:
    """This machine's name, as it can stand in a file's."""
    return "".join(c if c.isalnum() else "_" for c in socket.gethostname())[:64] or "host"


__all__ = ["FOREIGN_AGE_S", "Spool", "clear_leftovers"]
