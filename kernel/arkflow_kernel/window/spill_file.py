"""A local file of one table in parts, for what does not fit in memory (S5).

The file has no name once it is open: it goes with its last reader. It is read by position, not
mapped, so that only what is looked at takes memory.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import ipc

from arkflow_kernel.errors import ResourceError

_SECTION_ROWS = 1 << 14
"""Rows that are read at once, at least, unless there are fewer or their types change."""


@dataclass(frozen=True, slots=True)
class _Section:
    """Rows `first` <= row < `end` of a file, and where they lie, as an IPC stream."""

    first: int
    end: int
    offset: int
    size: int


class SpillFile:
    """The rows of some tables, one after the other; their types may differ.

    `bounds` are where each table begins, and the end. Any thread may read. Raises `ResourceError`
    that names `operator` if the disk refuses.
    """

    def __init__(self, path: Path, tables: Iterable[pa.Table], operator: str) -> None:
        self._sections: list[_Section] = []
        bounds = [0]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with pa.OSFile(str(path), "wb") as file:
                for section in _sections(tables, bounds):
                    self._write(file, section)
                self.size = file.tell()
            self._file: Any = pa.OSFile(str(path), "rb")
            path.unlink()
        except OSError as error:
            raise ResourceError(
                f"operator '{operator}': its windows do not fit its `memory_bytes` and cannot be "
                f"spilled to {path.parent}: {error}; free space there or raise it"
            ) from error
        self.bounds: npt.NDArray[np.int64] = np.array(bounds, np.int64)

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return int(self.bounds[-1])

    def _write(self, file: Any, table: pa.Table) -> None:
        first = self._sections[-1].end if self._sections else 0
        offset = file.tell()
        with ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
        size = file.tell() - offset
        self._sections.append(_Section(first, first + table.num_rows, offset, size))

    def read(self, start: int, end: int) -> Iterator[pa.Table]:
        """The rows `start` <= row < `end`, in one or more tables, in memory of their own."""
        for section in self._sections:
            low, high = max(start, section.first), min(end, section.end)
            if low < high:
                data = self._file.read_at(section.size, section.offset)
                table = ipc.open_stream(data).read_all()
                yield table.slice(low - section.first, high - low)


def _sections(tables: Iterable[pa.Table], bounds: list[int]) -> Iterator[pa.Table]:
    """Neighbours of one schema as one table, of some size; `bounds` grows with each table."""
    waiting: list[pa.Table] = []
    rows = 0
    for table in tables:
        bounds.append(bounds[-1] + table.num_rows)
        if not table.num_rows:
            continue
        if waiting and not table.schema.equals(waiting[0].schema):
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, rows = [], 0
        waiting.append(table)
        rows += table.num_rows
        if rows >= _SECTION_ROWS:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, rows = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


__all__ = ["SpillFile"]
