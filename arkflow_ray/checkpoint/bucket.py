"""What every store that is no local disk does for us: the calls, each one request or a few.

An implementation raises its client's own errors; `troubles.py` judges them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Listing:
    """What is directly below a folder: bytes by file name, and names of folders."""

    files: dict[str, int] = field(default_factory=dict)
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a stored file, and how many the whole of it has."""

    data: bytes
    total: int


class Bucket(Protocol):
    """The keys of one store; `/` parts them. Thread-safe. Calls end within the store's time-out.

    A key is written whole or not at all, and shows its new bytes at once.
    """

    def create(self, key: str, parts: Sequence[memoryview], writer: str) -> bool:
        """Write a key if it is not there. False: it is there, and by another writer, where the
        store can tell: a client or a proxy may send a request twice, and `writer` is new in each
        create, but the same when that is tried again.
        """
        ...

    def get(self, key: str, first: int = 0, length: int | None = None) -> Part | None:
        """Bytes from `first` on, as many as there are up to `length`; None if there is no key."""
        ...

    def size(self, key: str) -> int | None:
        """How many bytes a key has; None if it is not there."""
        ...

    def list(self, folder: str) -> Listing:
        """What is directly below a folder; nothing if there is none."""
        ...

    def copy(self, source: str, target: str) -> None:
        """Copy a key inside the store, over what was there."""
        ...

    def delete(self, key: str) -> None:
        """Delete a key; one that is not there is deleted."""
        ...

    def close(self) -> None:
        """Release what is this bucket's alone. Called once."""
        ...


__all__ = ["Bucket", "Listing", "Part"]
