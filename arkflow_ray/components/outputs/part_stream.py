"""The bytes of one unpublished part: a file-like object over a descriptor.

Small writes are gathered, large ones go straight to the file. After `discard` it swallows
everything, so that a format's writer can be closed without touching a full disk again.
"""

import os

import pyarrow as pa

from arkflow_kernel.limits import KIB

_GATHERED_MAX = 64 * KIB


class PartStream:
    """Not seekable, not thread-safe. Owns the descriptor; raises the `OSError` of a failed call."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._discarded = False
        self.position = 0
        self.closed = False

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """Take all of `data`."""
        size = len(data)
        if self._discarded:
            return size
        self.position += size
        if size >= _GATHERED_MAX:
            self.drain()
            self._write_all(memoryview(data))
            return size
        self._gathered.append(bytes(data))
        self._gathered_bytes += size
        if self._gathered_bytes >= _GATHERED_MAX:
            self.drain()
        return size

    def tell(self) -> int:
        """Bytes taken so far."""
        return self.position

    def flush(self) -> None:
        """Nothing: only `sync` promises anything, and gathering must survive a writer's flush."""

    def close(self) -> None:
        """What a format's writer calls at its end; the descriptor stays open for `sync`."""
        self.closed = True

    def sync(self) -> None:
        """Make every byte durable; the descriptor, and its lock, are kept. Costs a disk write."""
        self.drain()
        os.fsync(self._descriptor)

    def discard(self) -> None:
        """From now on take and forget."""
        self._discarded = True
        self._gathered.clear()

    def release(self) -> None:
        """Close the descriptor; harmless when it is closed."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def drain(self) -> None:
        """Hand what is gathered to the file, without waiting for the disk."""
        if self._gathered:
            data = b"".join(self._gathered)
            self._gathered.clear()
            self._gathered_bytes = 0
            self._write_all(memoryview(data))

    def _write_all(self, data: memoryview) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]


__all__ = ["PartStream"]
