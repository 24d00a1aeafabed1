"""Batches become parts: what every file sink does, wherever its parts lie and when they appear.

A part holds at least one row and one schema. It ends at whichever limit of `roll` comes first,
when the schema changes, and when the sink says so.
"""

import contextlib
from collections.abc import Callable, Iterator

import pyarrow as pa

from arkflow_kernel.bad_rows import VALUE_COLUMN
from arkflow_kernel.errors import ComponentError, SinkError
from arkflow_kernel.ids import MonotonicMs
from arkflow_kernel.limits import SLICE_BYTES_MAX
from arkflow_ray.components.outputs.file_config import FileOutputConfig
from arkflow_ray.components.outputs.part_folders import PartPlace
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

Finished = Callable[[str, int], None]
"""Told of each part: where it is, as its `PartPlace` says, and its rows."""


class _OpenPart:
    """The part that rows go to now. Always holds a row."""

    def __init__(
        self, stream: PartStream, schema: pa.Schema, format_: PartFormat, roll_at_ms: MonotonicMs
    ) -> None:
        self.stream, self.schema, self.format = stream, schema, format_
        self.roll_at_ms = roll_at_ms
        self.rows = 0


class PartWriter:
    """Writes the parts of one sink lane, one at a time, in order.

    After an error it takes nothing more: what it lost of earlier rows must never be passed over.
    Raises `SinkError`.
    """

    def __init__(
        self, config: FileOutputConfig, operator: str, place: PartPlace, finished: Finished
    ) -> None:
        self._config, self._operator, self._place = config, operator, place
        self._finished = finished
        self._roll = config.roll
        self._part: _OpenPart | None = None
        self._schema: pa.Schema | None = None
        self._broken = False

    @property
    def roll_at_ms(self) -> MonotonicMs | None:
        """When the open part is due; None: no part is open, every row is in a finished one."""
        return None if self._part is None else self._part.roll_at_ms

    def add(self, batch: pa.RecordBatch, now_ms: MonotonicMs) -> None:
        """Add the batch to the open part; finish parts that reach a limit on the way."""
        with self._all_or_broken():
            self._finish_due(now_ms)
            for piece in pieces(without_views(batch), SLICE_BYTES_MAX):
                self._add(self._rows_of(piece), now_ms)

    def roll(self, now_ms: MonotonicMs) -> None:
        """Finish the open part if its interval is over."""
        with self._all_or_broken():
            self._finish_due(now_ms)

    def finish(self) -> None:
        """Finish the open part, if there is one."""
        with self._all_or_broken():
            self._finish()

    def abandon(self) -> None:
        """Remove the open part. Never raises."""
        part, self._part = self._part, None
        if part is not None:
            part.stream.discard()
            # A library may object to closing a file that it could not write; it is gone anyway.
            with contextlib.suppress(pa.ArrowException, OSError):
                part.format.abandon()
        self._place.discard()

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
            self._finish()
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
                self._finish()

    def _need_columns(self, schema: pa.Schema) -> None:
        """Only JSON has a text, `{}`, for a row without columns; the others would lose it."""
        if not schema.names and self._config.format != "json":
            raise SinkError(
                f"output '{self._operator}': rows without columns cannot be written as "
                f"`{self._config.format}`; select a column before this output, or use `json`"
            )

    def _begin(self, schema: pa.Schema, now_ms: MonotonicMs) -> _OpenPart:
        stream = self._place.begin()
        roll_at_ms = MonotonicMs(now_ms + self._roll.interval_ms)
        self._part = _OpenPart(
            stream, schema, open_format(stream, schema, self._config), roll_at_ms
        )
        return self._part

    def _finish_due(self, now_ms: MonotonicMs) -> None:
        if self._part is not None and now_ms >= self._part.roll_at_ms:
            self._finish()

    def _finish(self) -> None:
        part = self._part
        if part is None:
            return
        part.format.finish()
        where = self._place.finish(part.stream)
        self._part = None
        self._finished(where, part.rows)

    @contextlib.contextmanager
    def _all_or_broken(self) -> Iterator[None]:
        """Any failure inside removes the open part, ends this writer, and is a `SinkError`."""
        if self._broken:
            raise SinkError(f"output '{self._operator}': it failed before and was not restarted")
        try:
            yield
        except BaseException as error:
            self._broken = True
            self.abandon()
            if isinstance(error, pa.ArrowException | NotImplementedError):
                raise self._refusal(error) from error
            if isinstance(error, ComponentError):
                raise SinkError(f"output '{self._operator}': {error}") from error
            if isinstance(error, OSError):
                raise self._place.failure("write a part", error) from error
            raise

    def _refusal(self, error: Exception) -> SinkError:
        column = None if self._schema is None else refused_column(self._schema, self._config)
        what = f"column {column}" if column else "a batch"
        return SinkError(
            f"output '{self._operator}': format `{self._config.format}` cannot hold {what} "
            f"(folder '{shown(self._config.path)}'): {error}; flatten, cast or leave out the "
            "column before this output, or use format `json`"
        )


__all__ = ["Finished", "PartWriter"]
