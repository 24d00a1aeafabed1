"""A local file of rows that do not fit in memory (S5): Arrow IPC streams, one after the other.

It is no part of a snapshot and has no name once it is open: it goes with its last reader. It is
read by position, not mapped, so that only what is looked at takes memory.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from arkflow_kernel.errors import ResourceError


class SpillPaths:
    """Where the next file goes. `folder` is asked for it; `prefix` is unique among all there."""

    def __init__(self, folder: Callable[[], Path], prefix: str, ending: str) -> None:
        self._folder = folder
        self._prefix = prefix
        self._ending = ending
        self._files = 0

    def next(self) -> Path:
        """A new file."""
        self._files += 1
        return self._folder() / f"{self._prefix}-{self._files}.{self._ending}"


class StreamFile:
    """Parts of any schema, by number: tables, or batches. Any thread may read.

    Raises `ResourceError` that names `operator` if the disk refuses; `what` says in it which rows
    of the operator these are.
    """

    def __init__(
        self, path: Path, parts: Iterable[pa.Table | pa.RecordBatch], operator: str, what: str
    ) -> None:
        self._places: list[tuple[int, int]] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with pa.OSFile(str(path), "wb") as file:
                for part in parts:
                    self._write(file, part)
                self.size = file.tell()
            self._file: Any = pa.OSFile(str(path), "rb")
            path.unlink()
        except OSError as error:
            raise ResourceError(
                f"operator '{operator}': {what} do not fit its `memory_bytes` and cannot be "
                f"spilled to {path.parent}: {error}; free space there or raise it"
            ) from error

    def _write(self, file: Any, part: pa.Table | pa.RecordBatch) -> None:
        start = file.tell()
        with ipc.new_stream(file, part.schema) as writer:
            writer.write(part)
        self._places.append((file.tell() - start, start))

    def opened(self, number: int) -> ipc.RecordBatchStreamReader:
        """One of its parts, in memory of its own."""
        return ipc.open_stream(self._file.read_at(*self._places[number]))


class RowsFile:
    """Batches of rows of windows, of any schema, in a `StreamFile`."""

    def __init__(self, path: Path, batches: Iterable[pa.RecordBatch], operator: str) -> None:
        self._file = StreamFile(path, batches, operator, "the rows of its windows")

    def read(self, number: int) -> pa.RecordBatch:
        """One of its batches, in memory of its own."""
        return self._file.opened(number).read_next_batch()


__all__ = ["RowsFile", "SpillPaths", "StreamFile"]
