"""Durable files of a local file system: written aside, synchronised, then given their name at once.

Raises `OSError`. Calls of a local file system have no time-out: a network file system that is
mounted hard waits for its server.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from arkflow_ray.checkpoint.spool import Spool

WRITE_BYTES: Final = 8 << 20
"""Bytes per system call: a signal is answered in between."""


class UncertainLinkError(OSError):
    """A file may have its name now, or may lose it when the power fails."""


def write_aside(spool: Spool, parts: Iterable[memoryview]) -> Path:
    """A new file of these bytes in the spool folder, durable but for its name."""
    path = spool.temporary()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        for part in parts:
            rest = part.cast("B")
            while rest:
                rest = rest[os.write(descriptor, rest[:WRITE_BYTES]) :]
        os.fsync(descriptor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    return path


def link_new(source: Path, target: Path) -> bool:
    """Give a file a second name if nothing has it, durably (M1). False: something has it.

    `UncertainLinkError` if it cannot be told. The folder is made if it is not there.
    """
    before = os.stat(source).st_nlink
    try:
        try:
            os.link(source, target)
        except FileNotFoundError:
            make_folder(target.parent)
            os.link(source, target)
    except OSError as error:
        # A network file system may have done it all the same: an answer was lost, and the second
        # request found the first one's name.
        if not _was_linked(source, before, error):
            if isinstance(error, FileExistsError):
                return False
            raise
    try:
        sync_folder(target.parent)
    except OSError as error:
        raise UncertainLinkError(error.errno, error.strerror) from error
    return True


def _was_linked(source: Path, before: int, error: OSError) -> bool:
    try:
        return os.stat(source).st_nlink > before
    except OSError:
        raise UncertainLinkError(error.errno, error.strerror) from error


def copy_whole(spool: Spool, source: Path, target: Path) -> None:
    """Copy a file over whatever has the target's name; readers see the old or the new one whole."""
    make_folder(target.parent)
    with open(source, "rb") as stream:
        aside = write_aside(spool, iter(lambda: memoryview(stream.read(WRITE_BYTES)), b""))
    try:
        os.replace(aside, target)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def read_into(descriptor: int, view: memoryview, offset: int) -> int:
    """Fill `view` from a file; how many bytes there were."""
    done = 0
    while done < view.nbytes:
        got = os.preadv(descriptor, [view[done:]], offset + done)
        if not got:
            break
        done += got
    return done


def make_folder(path: Path) -> None:
    """Make a folder and those above it, durably. One that is there stays."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make a file's bytes durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


__all__ = [
    "UncertainLinkError",
    "copy_whole",
    "link_new",
    "make_folder",
    "read_into",
    "sync_file",
    "sync_folder",
    "write_aside",
]
