"""`arrow_to_json`: each row as one JSON object, in a column beside the row's own.

The incoming columns stay. The text is that of `codecs/json_encode.py`.
"""

from typing import TYPE_CHECKING

import pyarrow as pa

from arkflow_kernel.bad_rows import VALUE_COLUMN, Origin
from arkflow_kernel.errors import ComponentError, ProcessingError
from arkflow_kernel.ports import OperatorResult
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.codecs.json_encode import encode_rows
from arkflow_ray.components.processors.first_row import first_row_text

if TYPE_CHECKING:
    from arkflow_ray.components.processors.json_config import ArrowToJsonConfig


class ArrowToJson:
    """Adds the column last, as Binary; a column that already has its name is replaced.

    `fields` limits what goes into the JSON; names that a batch lacks are left out, as the columns
    of a stream may change. None: every incoming column.
    """

    def __init__(self, operator: str, fields: frozenset[str] | None, value_field: str) -> None:
        self._operator = operator
        self._fields = fields
        self._value_field = value_field

    def open(self) -> None:
        """Nothing to start."""

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:  # noqa: ARG002
        """The batch with the JSON column. ProcessingError for a type that JSON cannot hold."""
        if batch.num_rows == 0:
            return OperatorResult(())
        try:
            values = encode_rows(self._written(batch))
        except ComponentError as error:
            raise ProcessingError(
                self._operator,
                error.message,
                error_class=type(error).__name__,
                row=first_row_text(batch),
            ) from error
        return OperatorResult((self._with_values(batch, values),))

    def finish(self) -> OperatorResult:
        """Nothing is held."""
        return OperatorResult(())

    def close(self) -> None:
        """Nothing to release."""

    def _written(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._fields is None:
            return batch
        names = batch.schema.names
        return batch.select([i for i, name in enumerate(names) if name in self._fields])

    def _with_values(self, batch: pa.RecordBatch, values: pa.BinaryArray) -> pa.RecordBatch:
        names = batch.schema.names
        if self._value_field in names:
            batch = batch.select([i for i, name in enumerate(names) if name != self._value_field])
        return batch.append_column(pa.field(self._value_field, pa.binary()), values)


def build(config: "ArrowToJsonConfig", context: BuildContext) -> ArrowToJson:
    """Make the operator; nothing can fail here."""
    included = config.fields_to_include
    fields = None if included is None else frozenset(included)
    return ArrowToJson(context.operator, fields, config.value_field or VALUE_COLUMN)


__all__ = ["ArrowToJson", "build"]
