"""Where the rows of `stdout` sinks end: the stdout of the program that started the job (P9)."""

import os
import sys
import threading
from typing import Any, BinaryIO, Final

from arkflow_kernel.errors import ArkflowError, SinkError
from arkflow_ray.observability.screen import Screen

_STDOUT: Final = "stdout:"
"""Stands in every message about the way of rows to us, near or far."""

STDOUT_CLOSED: Final = f"{_STDOUT} nobody reads it any more"


class StdoutRows:
    """A `LineOutput` over the `sys.stdout` of its making (a pipe, a notebook's cell).

    `closed` is true as soon as a reader such as `head` has gone away; then every `put` raises
    `SinkError`, and the interpreter's own last flush has nothing left to fail on. Thread-safe.
    """

    def __init__(self, screen: Screen | None = None) -> None:
        self.closed = False
        self._stream: Any = sys.stdout
        self._screen = screen
        self._lock = threading.Lock()

    def put(self, lines: bytes) -> None:
        """Write and flush. Raises `SinkError` if nobody reads or stdout cannot be written."""
        if self.closed:
            raise SinkError(STDOUT_CLOSED)
        if self._stream is None:
            raise SinkError(f"{_STDOUT} this program was started without one (`>&-`)")
        with self._lock:
            try:
                if self._screen is None:
                    _write(self._stream, lines)
                else:
                    with self._screen.writing_rows(lines):
                        _write(self._stream, lines)
            except BrokenPipeError:
                self.closed = True
                _discard(self._stream)
                raise SinkError(STDOUT_CLOSED) from None
            except OSError as error:
                _discard(self._stream)
                raise SinkError(f"stdout: cannot be written: {error.strerror}") from None

    def caused(self, error: ArkflowError | None) -> bool:
        """Whether a job's error is only that its rows had nowhere to go."""
        return isinstance(error, SinkError) and _STDOUT in error.message


def _write(stream: Any, lines: bytes) -> None:
    raw: BinaryIO | None = getattr(stream, "buffer", None)
    if raw is None:
        # A notebook's stdout takes text only.
        stream.write(lines.decode("utf-8", "replace"))
        stream.flush()
        return
    raw.write(lines)
    raw.flush()


def _discard(stream: Any) -> None:
    """Let what Python still holds for stdout go nowhere, at exit too."""
    try:
        target = stream.fileno()
    except (OSError, ValueError, AttributeError):
        return  # not a file of the operating system: it holds nothing back
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, target)
    os.close(sink)


__all__ = ["STDOUT_CLOSED", "StdoutRows"]
