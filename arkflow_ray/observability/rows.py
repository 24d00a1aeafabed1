"""Where the rows of `stdout` sinks end: the stdout of the program that started the job (P9)."""

import os
import select
import stat
import sys
import threading
from typing import Any, BinaryIO, Final, Protocol

from arkflow_kernel.errors import ArkflowError, OutputClosedError, SinkError
from arkflow_ray.observability.screen import Screen

_STDOUT: Final = "stdout:"
"""Stands in every message about the way of rows to us, near or far."""

READER_CHECK_MS: Final = 100
"""How often a wait for a slow reader looks whether it shall go on."""

STDOUT_CLOSED: Final = f"{_STDOUT} nobody reads it any more"


class Rows(Protocol):
    """A `LineOutput` for the rows of `stdout` sinks, as whoever watches the jobs knows it."""

    @property
    def closed(self) -> bool:
        """Whether nobody will take a row any more."""
        ...

    def put(self, lines: bytes) -> None:
        """Take lines. Raises `OutputClosedError`."""
        ...

    def give_up(self) -> None:
        """Let no `put` wait any more."""
        ...

    def caused(self, error: ArkflowError | None) -> bool:
        """Whether a job's error is only that its rows had nowhere to go."""
        ...


class StdoutRows:
    """A `LineOutput` over the `sys.stdout` of its making (a pipe, a notebook's cell).

    `closed` is true as soon as a reader such as `head` has gone away; then every `put` raises
    `OutputClosedError`, and the interpreter's own last flush has nothing left to fail on.
    Thread-safe. A reader that is there and does not read is waited for, until `give_up`.
    """

    def __init__(self, screen: Screen | None = None) -> None:
        self.closed = False
        self.given_up = False
        self._stream: Any = sys.stdout
        self._pipe = _pipe(self._stream)
        self._screen = screen
        self._lock = threading.Lock()

    def put(self, lines: bytes) -> None:
        """Write and flush. Raises `OutputClosedError` if nobody reads or it cannot be written."""
        if self.closed:
            raise OutputClosedError(STDOUT_CLOSED)
        if self._stream is None:
            raise OutputClosedError(f"{_STDOUT} this program was started without one (`>&-`)")
        with self._lock:
            try:
                if self._screen is None:
                    self._write(lines)
                else:
                    with self._screen.writing_rows(lines):
                        self._write(lines)
            except BrokenPipeError:
                self.closed = True
                _discard(self._stream)
                raise OutputClosedError(STDOUT_CLOSED) from None
            except OSError as error:
                _discard(self._stream)
                raise OutputClosedError(f"stdout: cannot be written: {error.strerror}") from None

    def give_up(self) -> None:
        """From now on a `put` that would wait for a reader raises `OutputClosedError`."""
        self.given_up = True

    def caused(self, error: ArkflowError | None) -> bool:
        """Whether a job's error is only that its rows had nowhere to go."""
        return isinstance(error, SinkError) and _STDOUT in error.message

    def _write(self, lines: bytes) -> None:
        if self._pipe is not None:
            self._write_to_pipe(self._pipe, lines)
            return
        raw: BinaryIO | None = getattr(self._stream, "buffer", None)
        if raw is None:
            # A notebook's stdout takes text only.
            self._stream.write(lines.decode("utf-8", "replace"))
            self._stream.flush()
            return
        raw.write(lines)
        raw.flush()

    def _write_to_pipe(self, pipe: int, lines: bytes) -> None:
        """In pieces for which a pipe that is ready has room, so that no write blocks."""
        # What the program that embeds us has printed before comes first.
        self._stream.flush()
        ready = select.poll()
        ready.register(pipe, select.POLLOUT)
        rest = memoryview(lines)
        while rest:
            while not ready.poll(READER_CHECK_MS):
                if self.given_up:
                    raise OutputClosedError(
                        f"{_STDOUT} its reader does not read, and the run is cancelled"
                    )
            rest = rest[os.write(pipe, rest[: select.PIPE_BUF]) :]


def _pipe(stream: Any) -> int | None:
    """The descriptor of a stream that is a pipe; None for a file, a terminal, a notebook."""
    try:
        descriptor: int = stream.fileno()
        return descriptor if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else None
    except (OSError, ValueError, AttributeError):
        return None


def _discard(stream: Any) -> None:
    """Let what Python still holds for stdout go nowhere, at exit too."""
    try:
        target = stream.fileno()
    except (OSError, ValueError, AttributeError):
        return  # not a file of the operating system: it holds nothing back
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, target)
    os.close(sink)


__all__ = ["STDOUT_CLOSED", "Rows", "StdoutRows"]
