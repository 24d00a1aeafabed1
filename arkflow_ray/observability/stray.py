"""What libraries print to stdout while rows go there: log lines, never between the rows (P9).

Ray prints to `sys.stdout` of the driver when a worker dies. Only the command line uses this: in a
program that embeds us, `sys.stdout` is the program's own.
"""

import io
import logging
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_log = logging.getLogger(__name__)

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


class StrayOutput(io.TextIOBase):
    """A text stream whose lines are logged as warnings, without colours and blank lines."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._rest = ""

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Log the lines that are complete now."""
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            _tell(line)
        return len(text)

    def end(self) -> None:
        """Log a last line that was never ended."""
        with self._lock:
            line, self._rest = self._rest, ""
        _tell(line)


def _tell(line: str) -> None:
    plain = _COLOURS.sub("", line).strip()
    if plain:
        _log.warning("%s", plain)


@contextmanager
def stray_prints_logged() -> Iterator[None]:
    """Inside, `sys.stdout` is a `StrayOutput`; who writes rows has taken the real one before."""
    before, stray = sys.stdout, StrayOutput()
    sys.stdout = stray
    try:
        yield
    finally:
        sys.stdout = before
        stray.end()


__all__ = ["StrayOutput", "stray_prints_logged"]
