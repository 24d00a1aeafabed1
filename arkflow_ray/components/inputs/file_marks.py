"""Marks of a file in its positions, so that another file of the same name is never continued (T8).

Neither the time of a change nor the inode says it: a file that was only appended to, or brought
back from a copy, goes on; one with other contents does not.
"""

import os
from hashlib import blake2b
from typing import BinaryIO, Final

from arkflow_kernel.limits import KIB, MIB

HEAD_BYTES: Final = KIB
"""How much of a file's beginning its mark covers, if that much was read."""

TAIL_BYTES_MAX: Final = MIB
"""How much of a file's end its mark covers at most."""

_DIGEST_BYTES: Final = 8


class FileHead:
    """The beginning of an open file. The mark of a position covers nothing behind it: what follows
    may be appended yet.
    """

    def __init__(self, file: BinaryIO) -> None:
        """Reads the beginning, and leaves the file there. Raises OSError."""
        file.seek(0)
        self._bytes = _read(file, HEAD_BYTES)
        file.seek(0)
        self._known = (0, _mark(b""))

    def mark(self, offset: int) -> str:
        """The mark of a position at this byte: `<bytes>:<digest>`."""
        size = min(offset, len(self._bytes))
        if size != self._known[0]:
            self._known = (size, _mark(self._bytes[:size]))
        return self._known[1]

    def has(self, mark: str) -> bool:
        """Whether the file begins as the one did that the mark is of."""
        size = mark.partition(":")[0]
        return size.isdecimal() and _mark(self._bytes[: int(size)]) == mark


def tail_mark(file: BinaryIO, size: int) -> str:
    """The mark of a file that never changes: its length, and its last `size` bytes."""
    length = file.seek(0, os.SEEK_END)
    wanted = min(size, length, TAIL_BYTES_MAX)
    file.seek(length - wanted)
    return f"{length}:{_digest(_read(file, wanted))}"


def _read(file: BinaryIO, size: int) -> bytes:
    """`size` bytes, fewer at the end: one call of an unbuffered file may give less."""
    parts, left = [], size
    while left and (part := file.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _mark(head: bytes) -> str:
    return f"{len(head)}:{_digest(head)}"


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


__all__ = ["HEAD_BYTES", "TAIL_BYTES_MAX", "FileHead", "tail_mark"]
