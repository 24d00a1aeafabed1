"""Where parts are built and how they become visible, on the local file system.

The invariant: a name that a reader may see (no leading `.` or `_`) appears in one step, holds a
whole part that is durable, and never replaces another. `part_store.py` does it for object stores.
"""

import os
from pathlib import Path
from typing import Protocol

from arkflow_kernel.errors import SinkError
from arkflow_ray.components.outputs.file_errors import CREATE_FOLDER, os_failure
from arkflow_ray.components.outputs.hidden_files import (
    HiddenOwner,
    clear_dead,
    create_hidden,
    discard_file,
    give_name,
    make_folders,
    sync_folder,
)
from arkflow_ray.components.outputs.part_stream import PartStream


class PartPlace(Protocol):
    """Where parts are written. One unfinished part at a time; raises `SinkError` only."""

    def begin(self) -> PartStream:
        """Start a part that no reader sees."""
        ...

    def finish(self, stream: PartStream) -> str:
        """The part is whole; where it is now. The stream is released."""
        ...

    def discard(self) -> None:
        """Remove the unfinished part, if there is one. Never raises."""
        ...

    def failure(self, doing: str, error: OSError) -> SinkError:
        """The error that a failed write to the part's stream is told with."""
        ...


class PartFolder(PartPlace, Protocol):
    """A target of parts: `finish` makes them durable and visible, and gives their name."""

    def open(self) -> None:
        """Create the folder, prove that writing works, find the next free number."""
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


def part_stem(generation: int, checkpoint: int, lane: int) -> str:
    """How the names of parts begin that one sink lane publishes with one checkpoint (X3, X5).

    A sink that delivers at least once has generation 1 and checkpoint 0. Each number has 10 digits.
    """
    return f"part-{generation:010d}-{checkpoint:010d}-{lane:010d}"


def part_name(stem: str, number: int, extension: str) -> str:
    """Name of a published part (X3): the number has 10 digits, so that names sort."""
    return f"{stem}-{number:010d}{extension}"


class LocalFolder:
    """A folder of this machine, or one that is mounted.

    A part is written as a hidden file, synced, linked to the first free name, and the folder is
    synced. So two writers, of one job or of two, never overwrite each other. `owner` marks the
    hidden files; what dead writers left behind that it has to clear is removed at opening (F4).
    """

    def __init__(
        self,
        operator: str,
        path: str,
        stem: str,
        extension: str,
        owner: HiddenOwner | None = None,
    ) -> None:
        self._operator, self._path = operator, path
        self._stem, self._extension, self._owner = stem, extension, owner
        self._number = 1
        self._hidden: Path | None = None
        self._stream: PartStream | None = None

    def open(self) -> None:
        """See `PartFolder`."""
        try:
            make_folders(Path(self._path))
        except OSError as error:
            raise self.failure(CREATE_FOLDER, error) from error
        clear_dead(Path(self._path), self._owner)
        self.begin()
        self.discard()
        try:
            self._number = next_number(os.listdir(self._path), self._stem)
        except OSError as error:
            raise self.failure("list parts", error) from error

    def begin(self) -> PartStream:
        """See `PartPlace`."""
        try:
            self._hidden, descriptor = create_hidden(Path(self._path), self._stem, self._owner)
        except OSError as error:
            raise self.failure("create a part", error) from error
        self._stream = PartStream(descriptor)
        return self._stream

    def finish(self, stream: PartStream) -> str:
        """See `PartPlace`. Costs one sync of the file and one of the folder."""
        hidden = self._hidden
        if hidden is None:
            raise SinkError(f"output '{self._operator}': there is no part to publish")
        try:
            stream.sync()
            name = self._claim(hidden)
            stream.release()
            sync_folder(Path(self._path))
        except OSError as error:
            raise self.failure("publish a part", error) from error
        self._hidden = self._stream = None
        return name

    def discard(self) -> None:
        """See `PartPlace`. Only the file that this object created is ever removed."""
        discard_file(self._stream, self._hidden)
        self._hidden = self._stream = None

    def failure(self, doing: str, error: OSError) -> SinkError:
        """See `PartPlace`."""
        return os_failure(self._operator, self._path, doing, error)

    def _claim(self, hidden: Path) -> str:
        """Give the finished file the first free name."""
        while True:
            name = part_name(self._stem, self._number, self._extension)
            self._number += 1
            if give_name(hidden, Path(self._path, name)):
                return name


__all__ = ["LocalFolder", "PartFolder", "PartPlace", "next_number", "part_name", "part_stem"]
