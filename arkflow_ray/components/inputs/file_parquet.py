"""Parquet files as batches, types as they are; the position is a row group, a row in it, and a
mark of the file's footer.

A row group is streamed, not loaded: memory is bounded by pages and a batch. To continue inside a
row group, its rows before the position are read again and thrown away.
"""

import os
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.errors import SourceError
from arkflow_kernel.limits import MIB
from arkflow_kernel.ports import JsonValue, Position, SourceBatch
from arkflow_ray.components.inputs.file_marks import tail_mark
from arkflow_ray.components.inputs.file_parts import FILE_END_KEY, FilePart
from arkflow_ray.components.inputs.file_store import FileStore

READ_BYTES: Final = MIB
"""What is read of a column at a time."""

_TRAILER_BYTES: Final = 8
"""Length of the footer and magic bytes, behind the footer."""


class ParquetFiles:
    """Opens Parquet files."""

    def __init__(
        self, operator: str, batch_rows: int, columns: frozenset[str] | None = None
    ) -> None:
        self.operator = operator
        self.batch_rows = batch_rows
        self.columns = columns

    def __call__(self, store: FileStore, part: FilePart, position: Position) -> "ParquetSplit":
        """See `OpenSplit`."""
        file = store.open(part.name)
        try:
            return ParquetSplit(self, file, part, position)
        except BaseException:
            file.close()
            raise


class ParquetSplit:
    """One file, or the row groups that begin in a range of it.

    `_group` and `_row` are where the next batch begins, `_groups` is the group behind the last.
    """

    def __init__(
        self, files: ParquetFiles, file: BinaryIO, part: FilePart, position: Position
    ) -> None:
        self._files = files
        self._file = file
        self._part, self._split = part, part.split
        self._parquet = self._opened()
        self._schema, self._columns = self._kept()
        self._first, self._groups = self._own_groups()
        footer = self._parquet.metadata.serialized_size + _TRAILER_BYTES
        self._mark: str = self._guarded(lambda: tail_mark(file, footer))
        self._group, self._row = self._restored(position)
        self._before = sum(self._rows_in(group) for group in range(self._group))
        self._batches: Iterator[pa.RecordBatch] | None = None

    def read(self) -> SourceBatch:
        """See `SplitReader.read`."""
        while self._group < self._groups and self._row >= self._rows_in(self._group):
            self._next_group()
        if self._group == self._groups:
            return self._made([], 0)
        if self._batches is None:
            self._batches = self._rows_from(self._row)
        batch = self._guarded(lambda: next(self._batches, None))
        if batch is None:
            raise self._failure("a row group ends before its row count", None)
        first = self._before + self._row
        self._row += batch.num_rows
        if self._row >= self._rows_in(self._group):
            self._next_group()
        return self._made([batch], first)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _opened(self) -> Any:
        return self._guarded(
            lambda: pq.ParquetFile(self._file, buffer_size=READ_BYTES, pre_buffer=False)
        )

    def _kept(self) -> tuple[pa.Schema, list[str] | None]:
        """The columns to read: those that somebody looks at, all if there is none of them."""
        schema: pa.Schema = self._parquet.schema_arrow
        wanted = self._files.columns
        fields = [field for field in schema if wanted is None or field.name in wanted]
        dotted = any("." in field.name for field in fields)  # read as the path of a nested one
        if not fields or len(fields) == len(schema) or dotted:
            return schema, None
        kept = pa.schema(fields).with_metadata(schema.metadata)
        return kept, kept.names

    def _own_groups(self) -> tuple[int, int]:
        """The first row group of the part, and the one behind its last; each is in one part."""
        whole: int = self._parquet.metadata.num_row_groups
        start, stop = self._part.start, self._part.stop
        if stop is None:
            return 0, whole
        begins = accumulate((self._begin_of(group) for group in range(whole)), max)
        places = list(begins)
        return bisect_left(places, start), bisect_left(places, stop)

    def _begin_of(self, group: int) -> int:
        """The offset of a row group's first page."""
        column = self._parquet.metadata.row_group(group).column(0)
        first: int = column.data_page_offset
        return min(first, column.dictionary_page_offset) if column.has_dictionary_page else first

    def _next_group(self) -> None:
        self._before += self._rows_in(self._group)
        self._group, self._row, self._batches = self._group + 1, 0, None

    def _rows_from(self, row: int) -> Iterator[pa.RecordBatch]:
        batches = self._parquet.iter_batches(
            self._files.batch_rows,
            row_groups=[self._group],
            columns=self._columns,
            use_threads=False,
        )
        for batch in batches:
            if row < batch.num_rows:
                yield batch.slice(row)
            row = max(0, row - batch.num_rows)

    def _rows_in(self, group: int) -> int:
        count: int = self._parquet.metadata.row_group(group).num_rows
        return count

    def _made(self, batches: list[pa.RecordBatch], first: int) -> SourceBatch:
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=self._schema)
        return SourceBatch(
            self._split,
            batch,
            self._position(),
            Origin(self._part.name, offset=first),
            split_ended=self._group == self._groups,
        )

    def _position(self) -> Position:
        place: dict[str, JsonValue] = {
            "row_group": self._group,
            "row": self._row,
            "footer": self._mark,
        }
        if self._part.stop is not None and self._group == self._groups:
            place[FILE_END_KEY] = self._file.seek(0, os.SEEK_END) <= self._part.stop
        return place

    def _restored(self, position: Position) -> tuple[int, int]:
        group, row = position.get("row_group", self._first), position.get("row", 0)
        if not isinstance(group, int) or not isinstance(row, int) or group < 0 or row < 0:
            raise self._failure(f"its position is not one of a Parquet file: {position}", None)
        fits = group < self._groups and row <= self._rows_in(group)
        if not fits and (group, row) not in ((self._groups, 0), (self._first, 0)):
            raise self._failure(
                f"its position is row {row} of row group {group}, and it has {self._groups} row "
                "groups now; bring the file back as it was",
                None,
            )
        if position.get("footer", self._mark) != self._mark:
            raise self._failure(
                "it is not the file any more that its position is of; bring it back as it was, or "
                "start the job without its positions",
                None,
            )
        return group, row

    def _guarded(self, work: Any) -> Any:
        try:
            return work()
        except (OSError, pa.ArrowException) as error:
            raise self._failure(str(error), error) from error

    def _failure(self, why: str, error: Exception | None) -> SourceError:
        kind = f"{type(error).__name__}: " if error else ""
        return SourceError(
            f"input '{self._files.operator}': cannot read '{self._split}' as Parquet: {kind}{why}"
        )


__all__ = ["ParquetFiles", "ParquetSplit"]
