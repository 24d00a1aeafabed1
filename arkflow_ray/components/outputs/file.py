"""Output `file`: rows in part files below a folder, each part published whole or not at all.

The invariant of ack mode: a write is confirmed only when all its rows are in published, durable
parts; every row is in exactly one of them, in order. A part that is open when the process dies
was never confirmed, so its rows come again. Formats and folders are modules of their own.
"""

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from arkflow_kernel.bad_rows import VALUE_COLUMN
from arkflow_kernel.errors import ComponentError, SinkError
from arkflow_kernel.ids import MonotonicMs, Sequence
from arkflow_kernel.limits import SLICE_BYTES_MAX
from arkflow_kernel.ports import SinkWriter, WriteReceipt
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.outputs.file_config import FileOutputConfig
from arkflow_ray.components.outputs.part_folders import LocalFolder, PartFolder
from arkflow_ray.components.outputs.part_formats import (
    PartFormat,
    is_raw,
    open_format,
    refused_column,
)
from arkflow_ray.components.outputs.part_stream import PartStream
from arkflow_ray.components.outputs.payloads import (
    as_text,
    is_payload,
    payloads,
    pieces,
    without_views,
)
from arkflow_ray.components.paths import shown


class _OpenPart:
    """The part that rows go to now. Always holds a row."""

    def __init__(
        self, stream: PartStream, schema: pa.Schema, format_: PartFormat, roll_at_ms: MonotonicMs
    ) -> None:
        self.stream, self.schema, self.format = stream, schema, format_
        self.roll_at_ms = roll_at_ms
        self.rows = 0


class FileSink:
    """The writer of one sink lane. After an error it takes nothing more: what it lost of earlier,
    unconfirmed writes must never be passed over by a later confirmation.
    """

    def __init__(self, config: FileOutputConfig, operator: str, folder: PartFolder) -> None:
        self._config, self._operator, self._folder = config, operator, folder
        self._roll = config.roll
        self._part: _OpenPart | None = None
        self._schema: pa.Schema | None = None
        self._written = Sequence(0)
        self._confirmed = Sequence(0)
        self._broken = False

    def open(self) -> None:
        """Create the folder, prove that it can be written, look at which parts it holds."""
        self._folder.open()

    def write(self, sequence: Sequence, batch: pa.RecordBatch, now_ms: MonotonicMs) -> WriteReceipt:
        """Add the batch to the open part; publish parts that reach a limit on the way."""
        with self._all_or_broken():
            self._publish_due(now_ms)
            for piece in pieces(without_views(batch), SLICE_BYTES_MAX):
                self._add(self._rows_of(piece), now_ms)
        self._written = sequence
        return self._receipt()

    def roll(self, now_ms: MonotonicMs) -> WriteReceipt:
        """Publish the open part if its interval is over."""
        with self._all_or_broken():
            self._publish_due(now_ms)
        return self._receipt()

    def flush(self, now_ms: MonotonicMs) -> WriteReceipt:  # noqa: ARG002
        """Publish the open part."""
        with self._all_or_broken():
            self._publish()
        return self._receipt()

    def close(self) -> None:
        """Remove the open part; its writes were not confirmed."""
        self._abandon()

    def _receipt(self) -> WriteReceipt:
        if self._part is None:
            self._confirmed = self._written
            return WriteReceipt(self._confirmed)
        return WriteReceipt(self._confirmed, self._part.roll_at_ms)

    def _rows_of(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        """In formats of text, payloads are text; as lines of their own, they are without nulls."""
        if self._config.format not in ("json", "csv"):
            return piece
        if self._config.format == "json" and is_raw(piece.schema):
            return pa.record_batch([payloads(piece.column(0))], [VALUE_COLUMN])
        index = piece.schema.get_field_index(VALUE_COLUMN)
        if index < 0 or not is_payload(piece.schema.field(index).type):
            return piece
        return piece.set_column(index, VALUE_COLUMN, as_text(piece.column(index)))

    def _add(self, rows: pa.RecordBatch, now_ms: MonotonicMs) -> None:
        if rows.num_rows == 0:
            return
        if self._part is not None and not self._part.schema.equals(rows.schema):
            self._publish()
        self._schema = rows.schema
        self._need_columns(rows.schema)
        while rows.num_rows > 0:
            part = self._part or self._begin(rows.schema, now_ms)
            free = rows.num_rows if self._roll.rows is None else self._roll.rows - part.rows
            taken = rows.slice(0, free)
            part.format.write(taken)
            part.rows += taken.num_rows
            rows = rows.slice(taken.num_rows)
            if part.rows == self._roll.rows or part.stream.position >= self._roll.bytes_max:
                self._publish()

    def _need_columns(self, schema: pa.Schema) -> None:
        """Only JSON has a text, `{}`, for a row without columns; the others would lose it."""
        if not schema.names and self._config.format != "json":
            raise SinkError(
                f"output '{self._operator}': rows without columns cannot be written as "
                f"`{self._config.format}`; select a column before this output, or use `json`"
            )

    def _begin(self, schema: pa.Schema, now_ms: MonotonicMs) -> _OpenPart:
        stream = self._folder.begin()
        roll_at_ms = MonotonicMs(now_ms + self._roll.interval_ms)
        self._part = _OpenPart(
            stream, schema, open_format(stream, schema, self._config), roll_at_ms
        )
        return self._part

    def _publish_due(self, now_ms: MonotonicMs) -> None:
        if self._part is not None and now_ms >= self._part.roll_at_ms:
            self._publish()

    def _publish(self) -> None:
        part = self._part
        if part is None:
            return
        part.format.finish()
        self._folder.publish(part.stream)
        self._part = None
        self._confirmed = self._written

    @contextlib.contextmanager
    def _all_or_broken(self) -> Iterator[None]:
        """Any failure inside removes the open part, ends this writer, and is a `SinkError`."""
        if self._broken:
            raise SinkError(f"output '{self._operator}': it failed before and was not restarted")
        try:
            yield
        except BaseException as error:
            self._broken = True
            self._abandon()
            if isinstance(error, pa.ArrowException | NotImplementedError):
                raise self._refusal(error) from error
            if isinstance(error, ComponentError):
                raise SinkError(f"output '{self._operator}': {error}") from error
            if isinstance(error, OSError):
                raise self._folder.failure("write a part", error) from error
            raise

    def _abandon(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            part.stream.discard()
            # A library may object to closing a file that it could not write; it is gone anyway.
            with contextlib.suppress(pa.ArrowException, OSError):
                part.format.abandon()
        self._folder.discard()

    def _refusal(self, error: Exception) -> SinkError:
        column = None if self._schema is None else refused_column(self._schema, self._config)
        what = f"column {column}" if column else "a batch"
        return SinkError(
            f"output '{self._operator}': format `{self._config.format}` cannot hold {what} "
            f"(folder '{shown(self._config.path)}'): {error}; flatten, cast or leave out the "
            "column before this output, or use format `json`"
        )


def build(config: FileOutputConfig, context: BuildContext) -> SinkWriter:
    """The registry's factory. Raises `ConfigError` if no client for the URL is installed."""
    return FileSink(config, context.operator, _folder(config, context))


def _folder(config: FileOutputConfig, context: BuildContext) -> PartFolder:
    local = config.local_folder
    if local is not None:
        return LocalFolder(context.operator, local, context.part_prefix, config.extension)
    path = config.path
    from arkflow_ray.components.outputs.part_store import RemoteFolder, check_protocol

    check_protocol(path)
    return RemoteFolder(context.operator, path, context.part_prefix, config.extension)


__all__ = ["FileSink", "build"]
