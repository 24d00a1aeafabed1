"""A range of a file of lines as a file of its own, which ends where its last line does (K5).

A line belongs to the range in which its first byte is. So each line of a file is in exactly one of
its ranges, whatever their size: a range of which every byte is in a line that began before it has
no line at all.
"""

import os
from typing import Protocol


class RawFile(Protocol):
    """What a reader of lines needs of a file; `BinaryIO` does not tell of `readinto`."""

    def readinto(self, view: memoryview, /) -> int | None:
        """The next bytes; 0 at the end."""
        ...

    def read(self, size: int, /) -> bytes:
        """The same, of an unbuffered file perhaps fewer than `size`."""
        ...

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a place."""
        ...

    def tell(self) -> int:
        """The place."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class LineRange:
    """A file that ends behind the last line that begins before `stop`. Offsets are the file's.

    Who reads from the beginning of a range has to pass over the line that began before it.
    """

    def __init__(self, file: RawFile, stop: int) -> None:
        self._file = file
        self._stop = stop
        self._end: int | None = None

    def begin(self, offset: int) -> None:
        """Go on at the first byte of a line; there is none in it behind `stop`."""
        if offset >= self._stop:
            self._end = offset
        self._file.seek(offset)

    def readinto(self, view: memoryview, /) -> int:
        """The next bytes, 0 at the end."""
        at = self._file.tell()
        if self._end is not None:
            view = view[: max(0, self._end - at)]
        got = self._file.readinto(view) or 0 if len(view) else 0
        if self._end is None and got and at + got >= self._stop:
            low = max(0, self._stop - 1 - at)
            place = bytes(view[low:got]).find(b"\n")
            if place >= 0:
                got = low + place + 1
                self._end = self._file.seek(at + got)
        return got

    def read(self, size: int, /) -> bytes:
        """Bytes of the file, also beyond the range."""
        return self._file.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """As of a file, with the end of the range once that is known."""
        if whence == os.SEEK_END and self._end is not None:
            return self._file.seek(self._end)
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Where it is."""
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


__all__ = ["LineRange", "RawFile"]
