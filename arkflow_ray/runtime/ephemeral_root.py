"""The folder for the checkpoints of a run that were given no place: it ends with the run (F0).

A driver that is killed leaves it behind. So each folder holds a lock file that its driver has
locked while it lives, and whoever makes a folder takes those away that nobody holds any more.
"""

import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from arkflow_kernel.errors import StoreError

PREFIX: Final = "arkflow-ray-checkpoints-"
LOCK_NAME: Final = "in-use"


class EphemeralRoot:
    """A new folder below this node's folder for temporary files. `close` takes it away."""

    def __init__(self) -> None:
        parent = Path(tempfile.gettempdir())
        _clear_left_behind(parent)
        try:
            path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            lock = _locked(path)
        except OSError as error:
            raise StoreError(
                f"no folder for checkpoints can be made in {parent}: {error.strerror}; TMPDIR "
                "names another place, and `checkpoint.object_store_uri` one that lasts"
            ) from error
        self.path = path
        self._end = weakref.finalize(self, _remove, path, lock)

    @property
    def url(self) -> str:
        """Where it is, as a checkpoint root."""
        return f"file://{self.path}"

    def close(self) -> None:
        """Take the folder away with all that is in it. May be called again."""
        self._end()


def _locked(path: Path) -> int:
    """The descriptor of the folder's lock. It is locked before it has its name there."""
    new = path / f".{LOCK_NAME}"
    descriptor = os.open(new, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    new.rename(path / LOCK_NAME)
    return descriptor


def _clear_left_behind(parent: Path) -> None:
    for lock in _locks(parent):
        with suppress(OSError):  # another user's, or somebody else clears it away now
            descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(descriptor)


def _locks(parent: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from parent.glob(f"{PREFIX}*/{LOCK_NAME}")


def _remove(path: Path, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


__all__ = ["EphemeralRoot"]
