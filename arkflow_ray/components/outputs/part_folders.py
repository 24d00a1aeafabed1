"""Where parts are built and how they become visible, on the local file system.

The invariant: a name that a reader may see (no leading `.` or `_`) appears in one step, holds a
whole part that is durable, and never replaces another. `part_store.py` does it for object stores.
"""

import contextlib
import errno
import os
import secrets
from pathlib import Path
from typing import Protocol

from arkflow_kernel.errors import SinkError
from arkflow_ray.components.outputs.file_errors import CREATE_FOLDER, os_failure
from arkflow_ray.components.outputs.part_stream import PartStream

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL)


class PartFolder(Protocol):
    """A target of parts. One unpublished part at a time; raises `SinkError` only."""

    def open(self) -> None:
        """Create the folder, prove that writing works, find the next free number."""
        ...

    def begin(self) -> PartStream:
        """Start a part that no reader sees."""
        ...

    def publish(self, stream: PartStream) -> str:
        """Make the part durable and visible; returns its name. The stream is released."""
        ...

    def discard(self) -> None:
        """Remove the unpublished part, if there is one. Never raises."""
        ...

    def failure(self, doing: str, error: OSError) -> SinkError:
        """The error that a failed write to the part's stream is told with."""
        ...


def next_number(names: list[str], stem: str) -> int:
    """One above the highest number of the parts `<stem>-<n>.<ext>` among `names`, from 1."""
    taken = [
        int(digits)
        for name in names
        if name.startswith(f"{stem}-")
        and (digits := name[len(stem) + 1 :].partition(".")[0]).isdigit()
    ]
    return max(taken, default=0) + 1


def part_name(stem: str, number: int, extension: str) -> str:
    """Name of a published part (X3): the number has 10 digits, so that names sort."""
    return f"{stem}-{number:010d}{extension}"


class LocalFolder:
    """A folder of this machine, or one that is mounted.

    A part is written as `.<stem>-<pid>-<nonce>.tmp`, synced, linked to the first free name, and
    the folder is synced. So two writers, of one job or of two, never overwrite each other.
    """

    def __init__(self, operator: str, path: str, stem: str, extension: str) -> None:
        self._operator, self._path = operator, path
        self._stem, self._extension = stem, extension
        self._number = 1
        self._hidden: Path | None = None
        self._stream: PartStream | None = None

    def open(self) -> None:
        """See `PartFolder`."""
        try:
            _make_folders(Path(self._path))
        except OSError as error:
            raise self.failure(CREATE_FOLDER, error) from error
        self.begin()
        self.discard()
        try:
            self._number = next_number(os.listdir(self._path), self._stem)
        except OSError as error:
            raise self.failure("list parts", error) from error

    def begin(self) -> PartStream:
        """See `PartFolder`."""
        hidden = Path(self._path, f".{self._stem}-{os.getpid()}-{secrets.token_hex(8)}.tmp")
        try:
            descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise self.failure("create a part", error) from error
        self._hidden, self._stream = hidden, PartStream(descriptor)
        return self._stream

    def publish(self, stream: PartStream) -> str:
        """See `PartFolder`. Costs one sync of the file and one of the folder."""
        hidden = self._hidden
        if hidden is None:
            raise SinkError(f"output '{self._operator}': there is no part to publish")
        try:
            stream.sync()
            name = self._claim(hidden)
            _sync_folder(Path(self._path))
        except OSError as error:
            raise self.failure("publish a part", error) from error
        self._hidden = self._stream = None
        return name

    def discard(self) -> None:
        """See `PartFolder`. Only the file that this object created is ever removed."""
        discard_file(self._stream, self._hidden)
        self._hidden = self._stream = None

    def failure(self, doing: str, error: OSError) -> SinkError:
        """See `PartFolder`."""
        return os_failure(self._operator, self._path, doing, error)

    def _claim(self, hidden: Path) -> str:
        """Give the finished file the first free name."""
        while True:
            name = part_name(self._stem, self._number, self._extension)
            self._number += 1
            if self._take(hidden, Path(self._path, name)):
                return name

    def _take(self, hidden: Path, final: Path) -> bool:
        """Whether `final` was free and is now the part."""
        try:
            os.link(hidden, final)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return _take_without_links(hidden, final)
        os.unlink(hidden)
        return True


def _take_without_links(hidden: Path, final: Path) -> bool:
    """Rename under a claim, for file systems without hard links.

    The claim is a hidden file that is created exclusively. One that a crash left behind makes
    its number unusable, which costs a gap in the names and nothing else.
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


def _make_folders(path: Path) -> None:
    """Create what is missing of `path`, durably: a new folder is lost unless its parent syncs."""
    missing = []
    at = path.absolute()
    while not at.exists():
        missing.append(at)
        at = at.parent
    path.mkdir(parents=True, exist_ok=True)
    for made in missing:
        _sync_folder(made.parent)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


__all__ = ["LocalFolder", "PartFolder", "discard_file", "next_number", "part_name"]
