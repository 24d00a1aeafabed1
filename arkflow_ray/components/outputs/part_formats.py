"""How rows become the bytes of one part: JSON lines, CSV, Parquet, Arrow IPC.

A writer holds one schema and a bounded number of rows; it knows neither names nor folders. Each
library is imported when its format is first used.
"""

from abc import ABC, abstractmethod
from typing import Any, Final, Protocol, cast

import pyarrow as pa

from arkflow_kernel.bad_rows import VALUE_COLUMN
from arkflow_kernel.limits import MIB
from arkflow_ray.components.codecs.json_encode import encode_lines
from arkflow_ray.components.outputs.file_config import Compression, FileOutputConfig
from arkflow_ray.components.outputs.part_stream import PartStream
from arkflow_ray.components.outputs.payloads import is_payload, joined, payloads

PARQUET_GROUP_BYTES_MAX: Final = 64 * MIB
PARQUET_GROUP_ROWS_MAX: Final = 1024 * 1024
"""Rows of a Parquet part are held in memory up to these limits, then written as a row group."""

ARROW_BATCH_BYTES_MAX: Final = 8 * MIB
ARROW_BATCH_ROWS_MAX: Final = 64 * 1024
"""The same for the record batches of an Arrow part, so that tiny batches do not cost a header."""


class PartFormat(Protocol):
    """Writes the rows of one part. Raises `OSError` (disk) or `pa.ArrowException` (rows)."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch of the part's schema."""
        ...

    def finish(self) -> None:
        """Hand everything still held, and the footer, to the stream."""
        ...

    def abandon(self) -> None:
        """Let go of what is held and of the library's writer; the stream was discarded."""
        ...


class _JsonLines:
    """One JSON object a line; payloads as they are when they are the only column."""

    def __init__(self, stream: PartStream, schema: pa.Schema, compression: Compression) -> None:
        self._raw = is_raw(schema)
        self._out: Any = stream if compression == "none" else _compressed(stream, compression)

    def write(self, batch: pa.RecordBatch) -> None:
        self._out.write(_lines(batch) if self._raw else encode_lines(batch))

    def finish(self) -> None:
        self._out.close()

    def abandon(self) -> None:
        self._out.close()


class _Csv:
    """Comma-separated with a header line; text quoted. Nested columns are refused."""

    def __init__(self, stream: PartStream, schema: pa.Schema, compression: Compression) -> None:
        from pyarrow import csv

        self._out: Any = (
            _file(stream) if compression == "none" else _compressed(stream, compression)
        )
        self._writer = csv.CSVWriter(self._out, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def finish(self) -> None:
        self._writer.close()
        self._out.close()

    def abandon(self) -> None:
        self.finish()


class _Grouped(ABC):
    """Gathers rows until they are worth a row group (Parquet) or a record batch (Arrow)."""

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        self._rows_max, self._bytes_max = rows_max, bytes_max
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= self._rows_max or self._bytes >= self._bytes_max:
            self._put_held()

    def finish(self) -> None:
        self._put_held()
        self._end()

    def abandon(self) -> None:
        self._held.clear()
        self._end()

    def _put_held(self) -> None:
        if self._held:
            table = pa.Table.from_batches(self._held)
            self._held.clear()
            self._rows = self._bytes = 0
            self._put(table)

    @abstractmethod
    def _put(self, table: pa.Table) -> None: ...

    @abstractmethod
    def _end(self) -> None: ...


class _Parquet(_Grouped):
    def __init__(self, stream: PartStream, schema: pa.Schema, config: FileOutputConfig) -> None:
        import pyarrow.parquet as pq

        bytes_max = min(PARQUET_GROUP_BYTES_MAX, config.roll.bytes_max)
        super().__init__(PARQUET_GROUP_ROWS_MAX, bytes_max)
        self._writer = pq.ParquetWriter(_file(stream), schema, compression=config.codec_name)

    def _put(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=table.num_rows)

    def _end(self) -> None:
        self._writer.close()


class _Arrow(_Grouped):
    """The IPC file format. It cannot replace a dictionary, so dictionaries are decoded."""

    def __init__(self, stream: PartStream, schema: pa.Schema, config: FileOutputConfig) -> None:
        super().__init__(ARROW_BATCH_ROWS_MAX, min(ARROW_BATCH_BYTES_MAX, config.roll.bytes_max))
        name = cast("Any", None if config.codec_name == "none" else config.codec_name)
        options = pa.ipc.IpcWriteOptions(compression=name)
        self._schema = _without_dictionaries(schema)
        self._writer = pa.ipc.new_file(_file(stream), self._schema, options=options)

    def _put(self, table: pa.Table) -> None:
        plain = table.cast(self._schema).combine_chunks()
        self._writer.write_table(plain, max_chunksize=ARROW_BATCH_ROWS_MAX)

    def _end(self) -> None:
        self._writer.close()


def open_format(stream: PartStream, schema: pa.Schema, config: FileOutputConfig) -> PartFormat:
    """The writer of one part. Raises `pa.ArrowException` if the format cannot hold the schema."""
    match config.format:
        case "json":
            return _JsonLines(stream, schema, config.codec_name)
        case "csv":
            return _Csv(stream, schema, config.codec_name)
        case "parquet":
            return _Parquet(stream, schema, config)
        case "arrow":
            return _Arrow(stream, schema, config)


def is_raw(schema: pa.Schema) -> bool:
    """Whether batches of this schema are payloads and nothing else: JSON writes those as lines."""
    return schema.names == [VALUE_COLUMN] and is_payload(schema.field(0).type)


def refused_column(schema: pa.Schema, config: FileOutputConfig) -> str | None:
    """The first column that the format cannot hold on its own, as `name (type)`, or None."""
    for field in schema:
        stream = PartStream(-1)
        stream.discard()
        alone = pa.schema([field])
        try:
            part = open_format(stream, alone, config)
            part.write(pa.RecordBatch.from_arrays([pa.nulls(1, field.type)], schema=alone))
            part.finish()
        except (pa.ArrowException, NotImplementedError):
            return f"`{field.name}` ({field.type})"
    return None


def _lines(batch: pa.RecordBatch) -> pa.Buffer:
    return joined(payloads(batch.column(0)), newline=True)


def _file(stream: PartStream) -> Any:
    return pa.PythonFile(cast("Any", stream), "w")


def _compressed(stream: PartStream, compression: Compression) -> Any:
    return pa.CompressedOutputStream(_file(stream), cast("Any", compression))


def _without_dictionaries(schema: pa.Schema) -> pa.Schema:
    kinds = (f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in schema)
    return pa.schema([f.with_type(kind) for f, kind in zip(schema, kinds, strict=True)])


__all__ = [
    "ARROW_BATCH_BYTES_MAX",
    "ARROW_BATCH_ROWS_MAX",
    "PARQUET_GROUP_BYTES_MAX",
    "PARQUET_GROUP_ROWS_MAX",
    "PartFormat",
    "is_raw",
    "open_format",
    "refused_column",
]
