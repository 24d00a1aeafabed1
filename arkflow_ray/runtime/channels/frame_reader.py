"""Reads frames from a non-blocking socket, cut at any byte (H3, H8).

A small scratch buffer takes headers and small frames; a body gets a buffer of its own, into which
the kernel writes directly: one call fills the rest of a body and the scratch behind it.
"""

import socket
from typing import Final

import pyarrow as pa

from arkflow_kernel.limits import KIB
from arkflow_ray.runtime.channels.frames import HEADER_BYTES, FrameRules, Header

SCRATCH_BYTES: Final = 4 * KIB
"""Bytes of a frame that are in the scratch buffer are copied once more, so it is small."""

_NO_BODY: Final = pa.py_buffer(b"")


class FrameReader:
    """Frames of one direction of one connection."""

    def __init__(self, rules: FrameRules) -> None:
        self._rules = rules
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._start = self._end = 0
        self._header: Header | None = None
        self._body: pa.Buffer = _NO_BODY
        self._rest = memoryview(b"")

    @property
    def within_frame(self) -> bool:
        """Whether a frame has begun that has not ended."""
        return self._header is not None or self._end > self._start

    def receive(self, sock: socket.socket) -> tuple[int, bool]:
        """One call of the kernel: bytes (0 at the end of the stream), whether more may wait.

        Raises `BlockingIOError` if nothing has come. Call `take` until it gives None in between.
        """
        if self._header is not None:
            wanted = len(self._rest) + SCRATCH_BYTES
            count = sock.recvmsg_into((self._rest, self._scratch))[0]
            into_body = min(count, len(self._rest))
            self._rest = self._rest[into_body:]
            self._start, self._end = 0, count - into_body
        else:
            self._make_room()
            wanted = SCRATCH_BYTES - self._end
            count = sock.recv_into(self._scratch[self._end :])
            self._end += count
        return count, count == wanted

    def take(self) -> tuple[Header, pa.Buffer] | None:
        """The next whole frame, or None. `FrameError` for a header that may not be."""
        header = self._header
        if header is None:
            if self._end - self._start < HEADER_BYTES:
                return None
            header = self._rules.parse(self._scratch, self._start)
            self._start += HEADER_BYTES
            if header.length == 0:
                return header, _NO_BODY
            self._begin_body(header)
        if len(self._rest):
            return None
        self._header, body, self._body = None, self._body, _NO_BODY
        return header, body

    def _begin_body(self, header: Header) -> None:
        self._header = header
        self._body = pa.allocate_buffer(header.length)
        rest = memoryview(self._body).cast("B")
        here = min(header.length, self._end - self._start)
        rest[:here] = self._scratch[self._start : self._start + here]
        self._start += here
        self._rest = rest[here:]

    def _make_room(self) -> None:
        """Move the beginning of a header to the front."""
        left = self._end - self._start
        if self._start and left:
            self._scratch[:left] = bytes(self._scratch[self._start : self._end])
        self._start, self._end = 0, left


__all__ = ["SCRATCH_BYTES", "FrameReader"]
