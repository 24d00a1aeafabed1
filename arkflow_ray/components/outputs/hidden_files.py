"""Unfinished files in a local folder: made, given their final name in one step, cleared away.

A file that no reader may see is `.<stem>-<mark>-s<subtask>-<host>-<process>-<nonce>.tmp`, and
whoever writes it holds a lock (flock) on it until it has its name. `mark` stands for one sink of
one job. So what a dead process left behind is told from the file of a living one: it is of the same
sink, of a sink lane that the clearing subtask owns (X5), nobody holds its lock, and it was made on
this machine or is old, for locks of some network file systems do not reach other machines. Where
the file system knows no locks, nothing is cleared away.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arkflow_kernel.plan import ONLY_SUBTASK, Subtask
from arkflow_ray.components.outputs.part_stream import PartStream

NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL)
"""How a file system says that it has no hard links, or not this one."""

FOREIGN_AGE_S: Final = 7 * 24 * 3600
"""Files of other machines are cleared away when unchanged for so long."""

_MARK_CHARS: Final = 16
_HIDDEN: Final = re.compile(
    r"\..*-(?P<mark>[0-9a-f]{16})(?:-s(?P<lane>\d+))?-(?P<host>\w+)-\d+-[0-9a-f]{16}\.tmp"
)
"""Files of releases without parallel sinks name no subtask: it was the only one."""


@dataclass(frozen=True, slots=True)
class HiddenOwner:
    """Whose hidden files these are.

    `mark` stands for one sink of one job, in all of its attempts and runs; `subtask` is the one of
    its parallel writers that makes them, and clears away those of the sink lanes that it owns.
    """

    mark: str
    subtask: Subtask = ONLY_SUBTASK


def owner_of(job: str | None, operator: str, subtask: Subtask = ONLY_SUBTASK) -> HiddenOwner | None:
    """What marks the hidden files of one writer; None if the job is not known."""
    if job is None:
        return None
    mark = hashlib.sha256(f"{job}\0{operator}".encode()).hexdigest()[:_MARK_CHARS]
    return HiddenOwner(mark, subtask)


def create_hidden(folder: Path, stem: str, owner: HiddenOwner | None) -> tuple[Path, int]:
    """A new, empty, locked file that readers skip, and its descriptor. Raises `OSError`."""
    mark = "" if owner is None else f"-{owner.mark}-s{owner.subtask.index}-{_host()}"
    while True:
        path = folder / f".{stem}{mark}-{os.getpid()}-{secrets.token_hex(8)}.tmp"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # A writer that just starts found the file before it was locked, and clears it away.
            os.close(descriptor)
            continue
        except OSError:
            return path, descriptor
        if os.fstat(descriptor).st_nlink > 0:
            return path, descriptor
        os.close(descriptor)


def clear_dead(folder: Path, owner: HiddenOwner | None) -> int:
    """Remove what dead writers whose sink lanes are this owner's left behind; how many files.

    A failure is not told: what stays takes space and is never read as a part.
    """
    if owner is None:
        return 0
    cleared = 0
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            found = _HIDDEN.fullmatch(name)
            if found is None or found["mark"] != owner.mark:
                continue
            if owner.subtask.owns(int(found["lane"] or 0)):
                cleared += _clear_if_dead(folder / name, ours=found["host"] == _host())
    return cleared


def _host() -> str:
    """This machine's name, as it can stand in a file's."""
    return "".join(c if c.isalnum() else "_" for c in socket.gethostname())[:64] or "host"


def _clear_if_dead(path: Path, *, ours: bool) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if not ours and time.time() - os.fstat(descriptor).st_mtime < FOREIGN_AGE_S:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def give_name(hidden: Path, final: Path) -> bool:
    """Whether `final` was free and is now the file; never replaces. Raises `OSError`."""
    try:
        os.link(hidden, final)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return _give_without_links(hidden, final)
    os.unlink(hidden)
    return True


def _give_without_links(hidden: Path, final: Path) -> bool:
    """Rename under a claim, for file systems without hard links.

    The claim is a hidden file that is created exclusively. One that a crash left behind makes
    its name unusable, which costs a gap in the numbers of parts and nothing else.
    """
    claim = final.with_name(f".{final.name}.claim")
    try:
        os.close(os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    try:
        if final.exists():
            return False
        os.rename(hidden, final)
        return True
    finally:
        os.unlink(claim)


def discard_file(stream: PartStream | None, path: Path | None) -> None:
    """Close and remove an unpublished file.

    A failure here is not told: it would hide the failure that led here, and a hidden file that
    stays behind takes space but is never read as a part.
    """
    if stream is not None:
        stream.discard()
    with contextlib.suppress(OSError):
        if stream is not None:
            stream.release()
        if path is not None:
            path.unlink()


def make_folders(path: Path) -> None:
    """Create what is missing of `path`, durably: a new folder is lost unless its parent syncs."""
    missing = []
    at = path.absolute()
    while not at.exists():
        missing.append(at)
        at = at.parent
    path.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_folder(made.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


__all__ = [
    "FOREIGN_AGE_S",
    "NO_LINKS",
    "HiddenOwner",
    "clear_dead",
    "create_hidden",
    "discard_file",
    "give_name",
    "make_folders",
    "owner_of",
    "sync_folder",
]
