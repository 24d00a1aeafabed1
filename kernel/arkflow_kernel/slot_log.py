"""The slots of a job's log: read, and written exclusively and for certain (M1).

A slot is written once and never again. After an error with unknown outcome the slot is read back,
and the same bytes are tried again, until it is certain what it holds.
"""

import re
from dataclasses import dataclass
from typing import Final

from arkflow_kernel.checkpoint_ports import LogFiles
from arkflow_kernel.errors import StoreError, UnknownOutcomeError
from arkflow_kernel.job_record import Entry, Unreadable, decode

LOG_FOLDER: Final = "log"
_SLOT: Final = re.compile(r"(\d{10,})\.json")


def slot_path(slot: int) -> str:
    """Where a slot lies, below the job's folder."""
    return f"{LOG_FOLDER}/{slot:010}.json"


@dataclass(frozen=True, slots=True)
class Taken:
    """A file holds something else already: its bytes."""

    data: bytes


def write_once(files: LogFiles, path: str, data: bytes) -> Taken | None:
    """Create a file of these bytes; None: it is certain that it is there.

    Raises `StoreError` only while it is certain that the file is not there and never will be, or
    once the files are closed.
    """
    open_outcome = False
    attempt = 0
    while True:
        try:
            if files.create(path, data):
                return None
            open_outcome = True  # what is there may be ours: a try of the call itself got through
            found = files.read(path)
            if found is not None:
                return None if found == data else Taken(found)
        except UnknownOutcomeError:
            open_outcome = True
            if _holds(files, path, data):
                return None
        except StoreError:
            if not open_outcome:
                raise
        attempt += 1
        files.pause(attempt)


def _holds(files: LogFiles, path: str, data: bytes) -> bool:
    try:
        return files.read(path) == data
    except StoreError:
        return False  # not known yet: the next try will tell


class SlotLog:
    """The log of one job. Entries that were read or written are kept: slots never change."""

    def __init__(self, files: LogFiles) -> None:
        self._files = files
        self._known: dict[int, Entry | Unreadable] = {}

    def slots(self) -> list[int]:
        """Numbers of the slots that exist, ascending. Raises `StoreError`."""
        names = (_SLOT.fullmatch(name) for name in self._files.sizes(LOG_FOLDER))
        return sorted(int(match.group(1)) for match in names if match is not None)

    def read(self, slot: int) -> Entry | Unreadable | None:
        """What a slot holds; None if the retention took it meanwhile. Raises `StoreError`."""
        if slot not in self._known:
            data = self._files.read(slot_path(slot))
            if data is None:
                return None
            self._known[slot] = decode(data)
        return self._known[slot]

    def write(self, slot: int, data: bytes) -> Taken | None:
        """Write a slot; see `write_once`."""
        taken = write_once(self._files, slot_path(slot), data)
        if taken is None:
            self._known[slot] = decode(data)
        return taken

    def drop(self, slot: int) -> None:
        """Delete a slot beyond the retention (M5)."""
        self._files.delete(slot_path(slot))
        self._known.pop(slot, None)


__all__ = ["LOG_FOLDER", "SlotLog", "Taken", "slot_path", "write_once"]
