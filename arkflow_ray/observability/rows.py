"""Where the rows of `stdout` sinks end: the stdout of the program that started the job (P9)."""

import os
import sys
import threading
from typing import BinaryIO, Final

from arkflow_kernel.errors import ArkflowError, SinkError
from arkflow_ray.observability.screen import Screen

_STDOUT: Final = "stdout:"
"""Stands in every message about the way of rows to us, near or far."""

STDOUT_CLOSED: Final = f"{_STDOUT} nobody reads it any more"


class StdoutRows:
    """A `LineOutput` over `sys.stdout`, whatever that is (a pipe, a notebook's cell). Thread-safe.

    `closed` is true as soon as a reader such as `head` has gone away; then every `put` raises
    `SinkError`, and the interpreter's own last flush has nothing left to fail on.
    """

    def __init__(self, screen: Screen | None = None) -> None:
        self.closed = False
        self._screen = screen
        self._lock = threading.Lock()

    def put(self, lines: bytes) -> None:
        """Write and flush. Raises `SinkError` if nobody reads or stdout cannot be written."""
        if self.closed:
            raise SinkError(STDOUT_CLOSED)
        if sys.stdout is None:
            raise SinkError(f"{_STDOUT} this program was started without one (`>&-`)")
        with self._lock:
            try:
                if self._screen is None:
                    _write(lines)
                else:
                    with self._screen.writing_rows(lines):
                        _write(lines)
            except BrokenPipeError:
                self.closed = True
                _discard_stdout()
                raise SinkError(STDOUT_CLOSED) from None
            except OSError as error:
                _discard_stdout()
                raise SinkError(f"stdout: cannot be written: {error.strerror}") from None

    def caused(self, error: ArkflowError | None) -> bool:
        """Whether a job's error is only that its rows had nowhere to go."""
        return isinstance(error, SinkError) and _STDOUT in error.message


def _write(lines: bytes) -> None:
    stream = sys.stdout
    raw: BinaryIO | None = getattr(stream, "buffer", None)
    if raw is None:
        # A notebook's stdout takes text only.
        stream.write(lines.decode("utf-8", "replace"))
        stream.flush()
        return
    raw.write(lines)
    raw.flush()


def _discard_stdout() -> None:
    """Let what Python still holds for stdout go nowhere, at exit too."""
    try:
        target = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return  # not a file of the operating system: it holds nothing back
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, target)
    os.close(sink)


__all__ = ["STDOUT_CLOSED", "StdoutRows"]
