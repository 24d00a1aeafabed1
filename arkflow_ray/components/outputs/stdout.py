"""Output `stdout`: prints rows where the program that started the job prints (P9).

What is printed: with a codec, its payload of each row; else the bytes of `__value__` if the
batch has that column; else each row as a JSON object. Confirmed once the lines are printed.
"""

from typing import Annotated, Any

import pyarrow as pa
from pydantic import Field

from arkflow_kernel.bad_rows import VALUE_COLUMN
from arkflow_kernel.errors import ComponentError, SinkError
from arkflow_kernel.ids import MonotonicMs, Sequence
from arkflow_kernel.ports import LineOutput, SinkWriter, WriteReceipt
from arkflow_ray.components.api import BuildContext, Codec, ComponentConfig
from arkflow_ray.components.codecs.json_encode import encode_lines, encode_rows
from arkflow_ray.components.outputs.payloads import (
    is_payload,
    joined,
    payloads,
    pieces,
    without_views,
)


class StdoutConfig(ComponentConfig):
    """How rows are printed."""

    append_newline: Annotated[
        bool, Field(description="End each row with a newline; else rows follow one another.")
    ] = True


class StdoutWriter:
    """Encodes a piece of about 1 MiB at a time and hands it over; memory is bounded by that."""

    def __init__(self, config: StdoutConfig, context: BuildContext) -> None:
        self._newline = config.append_newline
        self._operator = context.operator
        self._codec: Codec | None = context.codec
        self._lines: LineOutput | None = context.lines
        self._last = Sequence(0)

    def open(self) -> None:
        """Raises `SinkError` if this process was given no way to a stdout."""
        self._output()

    def write(self, sequence: Sequence, batch: pa.RecordBatch, now_ms: MonotonicMs) -> WriteReceipt:  # noqa: ARG002
        """Print the batch; returns when it is printed."""
        output = self._output()
        for piece in pieces(without_views(batch)):
            try:
                printed = self._encode(piece)
            except ComponentError as error:
                raise SinkError(f"output '{self._operator}': {error}") from error
            if len(printed) > 0:
                output.put(bytes(printed))
        self._last = sequence
        return WriteReceipt(sequence)

    def roll(self, now_ms: MonotonicMs) -> WriteReceipt:  # noqa: ARG002
        """Never asked for; everything is confirmed."""
        return WriteReceipt(self._last)

    def flush(self, now_ms: MonotonicMs) -> WriteReceipt:  # noqa: ARG002
        """Everything is confirmed."""
        return WriteReceipt(self._last)

    def close(self) -> None:
        """The way to stdout belongs to the driver; nothing to release."""

    def _output(self) -> LineOutput:
        if self._lines is None:
            raise SinkError(
                f"output '{self._operator}': stdout is not connected in this process; "
                "use a `file` output, or run the job attached"
            )
        return self._lines

    def _encode(self, piece: pa.RecordBatch) -> pa.Buffer | bytes:
        if self._codec is not None:
            return joined(self._codec.encode(piece), newline=self._newline)
        index = piece.schema.get_field_index(VALUE_COLUMN)
        if index >= 0:
            return joined(self._payload(piece.column(index)), newline=self._newline)
        if self._newline:
            return encode_lines(piece)
        return joined(encode_rows(piece), newline=False)

    def _payload(self, values: "pa.Array[Any]") -> pa.BinaryArray:
        if not is_payload(values.type):
            raise SinkError(
                f"output '{self._operator}': column `{VALUE_COLUMN}` has type {values.type}, "
                "but stdout prints bytes or text; cast or rename the column, or set a codec"
            )
        return payloads(values)


def build(config: StdoutConfig, context: BuildContext) -> SinkWriter:
    """The registry's factory."""
    return StdoutWriter(config, context)


__all__ = ["StdoutConfig", "StdoutWriter", "build"]
