"""The terminal, with one owner: rows on stdout, log lines and a live region on stderr.

The live region is a few lines at the bottom that are drawn, erased and drawn again. Invariant: a
row or a log line is never written while the region stands on the screen, and the region is never
drawn behind a row that has not ended, so rows come out byte for byte. Nothing here is called from
a signal handler: the lock would be in the way.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

REDRAW_S: Final = 0.1
"""Between rows the region is drawn at most this often: rows may come thousands a second."""

_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class Screen:
    """Writes to `stderr`; `live` says whether a region may be drawn there at all.

    `shared`: rows go to the same terminal.
    """

    def __init__(self, stderr: TextIO, *, live: bool, shared: bool) -> None:
        self.live = live
        self._stderr = stderr
        self._shared = live and shared
        self._lock = threading.Lock()
        self._region: list[str] = []
        self._shown = 0
        self._drawn_at_s = 0.0
        self._row_is_open = False

    def draw(self, lines: list[str]) -> None:
        """Replace the live region. Each line fits the terminal's width."""
        if not self.live:
            return
        with self._lock:
            self._region = lines
            self._erase()
            self._draw()

    def clear(self) -> None:
        """Take the live region away for good and give the cursor back."""
        if not self.live:
            return
        with self._lock:
            self._region = []
            self._erase()
            self._write(_SHOW_CURSOR)

    def print(self, text: str) -> None:
        """Write whole lines to stderr, above the live region."""
        with self._lock:
            self._erase()
            if self._row_is_open:
                self._row_is_open = False
                text = "\n" + text
            self._write(text)
            self._draw()

    @contextmanager
    def writing_rows(self, rows: bytes) -> Iterator[None]:
        """While the caller writes these rows to stdout, nothing else is on the screen."""
        if not self._shared:
            yield
            return
        with self._lock:
            self._erase()
            yield
            self._row_is_open = not rows.endswith(b"\n")
            if time.monotonic() - self._drawn_at_s >= REDRAW_S:
                self._draw()

    def _erase(self) -> None:
        if self._shown:
            self._write(f"\r\x1b[{self._shown}A\x1b[J")
            self._shown = 0

    def _draw(self) -> None:
        if not self._region or self._row_is_open:
            return
        self._write(_HIDE_CURSOR + "".join(f"{line}\n" for line in self._region))
        self._shown = len(self._region)
        self._drawn_at_s = time.monotonic()

    def _write(self, text: str) -> None:
        try:
            self._stderr.write(text)
            self._stderr.flush()
        except (BrokenPipeError, ValueError):
            # Nobody reads stderr any more (closed by a pipe or by the program that embeds us).
            # The job is worth more than what it would have said.
            self.live = False


__all__ = ["REDRAW_S", "Screen"]
