"""The way of `stdout` rows to the driver (P9): one batch outstanding, confirmed when printed.

`LineBuffer` stands in the chain's process: its sink's thread puts lines and waits; the driver
takes them by actor calls and confirms with its next call. The channel to the driver replaces the
calls, not this contract. Each generation has a buffer of its own and numbers its lines anew;
lines that were handed over are printed, whatever becomes of their generation.
"""

import threading
from dataclasses import dataclass

from arkflow_kernel.errors import OutputClosedError
from arkflow_kernel.ids import FIRST_GENERATION, Generation

TAKE_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines to print, and their number in their generation; `number` 0: nothing now."""

    generation: Generation
    number: int
    data: bytes
    closed: bool = False


class LineBuffer:
    """A `LineOutput` of one place: `put` returns when its lines were confirmed."""

    def __init__(self, generation: Generation = FIRST_GENERATION) -> None:
        self.generation = generation
        self._changed = threading.Condition()
        self._lines: bytes | None = None
        self._number = 0
        self._closed = False
        self._retired = False

    @property
    def closed(self) -> bool:
        """Whether nothing is printed any more."""
        return self._closed

    def put(self, lines: bytes) -> None:
        """Hand lines over and wait until they are printed. `OutputClosedError` after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines is None or self._closed)
            self._number += 1
            mine, self._lines = self._number, lines
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._number != mine or not self._lines or self._closed)
            if self._closed:
                raise OutputClosedError("stdout: the program that prints the rows has gone away")

    def take(self, printed_upto: int, timeout_s: float = TAKE_TIMEOUT_S) -> Lines:
        """Confirm what was printed, then wait for lines. Asking again yields the same lines."""
        with self._changed:
            if self._lines is not None and printed_upto >= self._number:
                self._lines = None
                self._changed.notify_all()
            self._changed.wait_for(self._has_news, timeout_s)
            if self._lines is None or self._closed:
                return Lines(self.generation, 0, b"", self._closed)
            return Lines(self.generation, self._number, self._lines)

    def close(self) -> None:
        """Nothing is printed any more: every `put` fails."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def retire(self) -> None:
        """Another generation's buffer takes its place: whoever waits for lines returns."""
        with self._changed:
            self._retired = True
            self._changed.notify_all()

    def _has_news(self) -> bool:
        return self._lines is not None or self._closed or self._retired


__all__ = ["LineBuffer", "Lines"]
