"""The start-up probe (M1): a store that would let two coordinators write one slot is refused.

It proves what is done later: exclusive create, read, listing, deletion. It cannot prove that two
creates at the same moment are told apart; that is the store's promise.
"""

import secrets
import threading
from typing import Final

from arkflow_kernel.checkpoint_ports import LogFiles
from arkflow_kernel.errors import StoreError, UnknownOutcomeError

FOLDER: Final = "probe"
"""Where the probe writes, below the job's folder. What a killed probe leaves can be deleted."""

NAMES_MAX: Final = 6
"""A probe whose outcome is unknown is begun again so often, under another name."""


def probe(files: LogFiles, place: str) -> None:
    """Return if the store keeps its promises. `StoreError` says which it does not keep."""
    for attempt in range(1, NAMES_MAX + 1):
        try:
            _probe(files, place, f"{FOLDER}/{secrets.token_hex(8)}")
        except UnknownOutcomeError:
            if attempt == NAMES_MAX:
                raise
            files.pause(attempt)
        else:
            return


def _probe(files: LogFiles, place: str, path: str) -> None:
    first, second = b"first", b"second"
    made = files.create(path, first)
    try:
        if not made or files.read(path) != first:
            raise _refused(place, "a new file is not there after it was written")
        if files.create(path, second) or files.read(path) != first:
            raise _refused(
                place,
                "it created a file that was there already, so two runs of one job could "
                "overwrite each other's checkpoints (an S3 store has to honour `If-None-Match: *`)",
            )
        if files.sizes(FOLDER).get(path.rpartition("/")[2]) != len(first):
            raise _refused(place, "a new file is not in the listing of its folder")
    finally:
        files.delete(path)
    if files.read(path) is not None:
        raise _refused(place, "a file is there after it was deleted")


def _refused(place: str, why: str) -> StoreError:
    return StoreError(
        f"checkpoint store {place} is refused: {why}; use another store, or a newer version of it"
    )


class ProbedFiles:
    """See `LogFiles`. Probes the store before the first file is created: readers pay nothing,
    and no writer can forget it.
    """

    def __init__(self, files: LogFiles, place: str) -> None:
        self._files, self._place = files, place
        self._lock = threading.Lock()
        self._trusted = False

    def sizes(self, folder: str) -> dict[str, int]:
        """See `LogFiles`."""
        return self._files.sizes(folder)

    def folders(self, folder: str) -> tuple[str, ...]:
        """See `LogFiles`."""
        return self._files.folders(folder)

    def read(self, path: str) -> bytes | None:
        """See `LogFiles`."""
        return self._files.read(path)

    def create(self, path: str, data: bytes) -> bool:
        """See `LogFiles`."""
        with self._lock:
            if not self._trusted:
                self._prove()
        return self._files.create(path, data)

    def copy(self, source: str, target: str) -> None:
        """See `LogFiles`."""
        self._files.copy(source, target)

    def delete(self, path: str) -> None:
        """See `LogFiles`."""
        self._files.delete(path)

    def pause(self, attempt: int) -> None:
        """See `LogFiles`."""
        self._files.pause(attempt)

    def close(self) -> None:
        """See `LogFiles`."""
        self._files.close()

    def _prove(self) -> None:
        try:
            probe(self._files, self._place)
        except UnknownOutcomeError as error:
            # Of the probe's file; nothing is unknown about the one that was to be created.
            raise StoreError(error.message) from error
        self._trusted = True


__all__ = ["FOLDER", "NAMES_MAX", "ProbedFiles", "probe"]
