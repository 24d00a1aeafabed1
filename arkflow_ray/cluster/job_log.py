"""What a job without a terminal says: log lines and the rows of its `stdout` sinks (P9).

Kept in memory, bounded: the oldest lines go first. Lines are numbered from 1, so that a reader
sees what it has missed.
"""

import threading
from collections import deque
from itertools import islice
from typing import Final

from arkflow_kernel.errors import ArkflowError
from arkflow_kernel.limits import MIB

BYTES_MAX: Final = 8 * MIB
LINES_MAX: Final = 100_000
PAGE_LINES_MAX: Final = 5_000
PAGE_BYTES_MAX: Final = MIB


class JobLog:
    """The lines of one job. Thread-safe."""

    def __init__(self, bytes_max: int = BYTES_MAX, lines_max: int = LINES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lines_max = lines_max
        self._lines: deque[str] = deque()
        self._bytes = 0
        self._last = 0
        self._lock = threading.Lock()

    def write(self, text: str) -> None:
        """Add the lines of a text."""
        with self._lock:
            for line in text.splitlines():
                self._lines.append(line)
                self._bytes += len(line)
                self._last += 1
            while self._lines and (
                len(self._lines) > self._lines_max or self._bytes > self._bytes_max
            ):
                self._bytes -= len(self._lines.popleft())

    def after(self, number: int) -> tuple[int, list[str]]:
        """The number of the first line that is told, and a page of lines behind `number`.

        The first number is higher than `number + 1` if lines in between are gone.
        """
        with self._lock:
            oldest = self._last - len(self._lines) + 1
            first = max(number + 1, oldest)
            page: list[str] = []
            size = 0
            start = first - oldest
            for line in islice(self._lines, start, start + PAGE_LINES_MAX):
                size += len(line)
                if page and size > PAGE_BYTES_MAX:
                    break
                page.append(line)
            return first, page

    @property
    def last(self) -> int:
        """The number of the newest line; 0 if there is none."""
        return self._last

    def tail(self, lines: int) -> int:
        """The number behind which the last `lines` lines begin."""
        with self._lock:
            return max(0, self._last - lines)


class LoggedRows:
    """The rows of `stdout` sinks as lines of the log. Never full, never closed."""

    closed: Final = False

    def __init__(self, log: JobLog) -> None:
        self._log = log

    def put(self, lines: bytes) -> None:
        """See `LineOutput.put`."""
        self._log.write(lines.decode("utf-8", "replace"))

    def give_up(self) -> None:
        """Nothing waits here."""

    def caused(self, error: ArkflowError | None) -> bool:
        """Whether a job's error is only that its rows had nowhere to go: never."""
        del error
        return False


__all__ = ["JobLog", "LoggedRows"]
