"""`json_to_arrow`: the JSON objects in a column of payloads, made columns.

All other columns are dropped. Types are inferred over each batch alone, as ArkFlow does, and
nothing is kept between batches: so the result does not depend on which worker of a chain took
which batch. Null payloads give no rows. A payload with one bad object is bad as a whole.
"""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ports import OperatorResult
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.codecs.json import bad_texts_batch
from arkflow_ray.components.codecs.json_block import JsonDecoder
from arkflow_ray.components.codecs.json_texts import Payloads

if TYPE_CHECKING:
    from arkflow_ray.components.processors.json_config import JsonToArrowConfig


class JsonToArrow:
    """Stateless: several threads may call `process` at once."""

    def __init__(self, operator: str, value_field: str, fields: frozenset[str] | None) -> None:
        self._operator = operator
        self._value_field = value_field
        self._fields = fields

    def open(self) -> None:
        """Nothing to start."""

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:
        """The objects as rows. ProcessingError if the batch has no such column of payloads."""
        payloads = self._payloads(batch)
        if len(payloads) == 0:
            return OperatorResult(())
        texts = Payloads(payloads)
        decoded = JsonDecoder().decode_all(texts)
        bad = None
        if decoded.bad:
            bad = bad_texts_batch(texts, decoded.bad, self._operator, origin)
        rows = self._included(decoded.batch)
        return OperatorResult((rows,) if rows.num_rows else (), bad)

    def finish(self) -> OperatorResult:
        """Nothing is held."""
        return OperatorResult(())

    def close(self) -> None:
        """Nothing to release."""

    def _payloads(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        names = batch.schema.names
        if self._value_field not in names:
            known = ", ".join(names) or "none"
            raise ProcessingError(
                self._operator,
                f"no column '{self._value_field}' (columns: {known}); set `value_field` to the "
                "column that holds the JSON",
            )
        # A name that stands twice means its first column, as in ArkFlow.
        column: Any = batch.column(names.index(self._value_field))
        if not pa.types.is_null(column.type) and not _holds_text(column.type):
            raise ProcessingError(
                self._operator,
                f"column '{self._value_field}' is {column.type}; JSON must be binary or text",
            )
        payloads: pa.BinaryArray = column.cast(pa.binary()).drop_null()
        return payloads

    def _included(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._fields is None:
            return batch
        names = batch.schema.names
        return batch.select([i for i, name in enumerate(names) if name in self._fields])


def _holds_text(kind: pa.DataType) -> bool:
    types = pa.types
    return (
        types.is_binary(kind)
        or types.is_string(kind)
        or types.is_large_binary(kind)
        or types.is_large_string(kind)
        or types.is_binary_view(kind)
        or types.is_string_view(kind)
    )


def build(config: "JsonToArrowConfig", context: BuildContext) -> JsonToArrow:
    """Make the operator; nothing can fail here."""
    return JsonToArrow(context.operator, config.value_field, config.fields_to_include)


__all__ = ["JsonToArrow", "build"]
