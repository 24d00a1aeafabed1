"""One table in parts in a local file, for what does not fit in memory (S5)."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_kernel.window.stream_file import StreamFile

_SECTION_ROWS = 1 << 14
"""Rows that are read at once, at least, unless there are fewer or their types change."""


class SpillFile:
    """The rows of some tables, one after the other; their types may differ.

    `bounds` are where each table begins, and the end; `size` are the file's bytes. Any thread may
    read. Raises `ResourceError` that names `operator` if the disk refuses.
    """

    def __init__(self, path: Path, tables: Iterable[pa.Table], operator: str) -> None:
        bounds = [0]
        self._section_bounds = [0]
        self._file = StreamFile(path, self._sections(tables, bounds), operator, "its windows")
        self.size = self._file.size
        self.bounds: npt.NDArray[np.int64] = np.array(bounds, np.int64)

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return int(self.bounds[-1])

    def _sections(self, tables: Iterable[pa.Table], bounds: list[int]) -> Iterator[pa.Table]:
        for section in _sections(tables, bounds):
            self._section_bounds.append(self._section_bounds[-1] + section.num_rows)
            yield section

    def read(self, start: int, end: int) -> Iterator[pa.Table]:
        """The rows `start` <= row < `end`, in one or more tables, in memory of their own."""
        for number, (first, stop) in enumerate(pairwise(self._section_bounds)):
            low, high = max(start, first), min(end, stop)
            if low < high:
                table = self._file.opened(number).read_all()
                yield table.slice(low - first, high - low)


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
