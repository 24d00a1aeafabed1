"""The key columns of a batch and their type ledger, with errors that name operator and field."""

from collections.abc import Sequence as Seq

import pyarrow as pa

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import OperatorId
from arkflow_kernel.state.arrow_numpy import AnyArray
from arkflow_kernel.state.key_types import KeyTypeError, key_type, widened

Ledger = tuple[pa.DataType, ...]
"""The types of the key fields so far (S10), as `key_type` gives them; null for one not known."""


def key_columns(batch: pa.RecordBatch, fields: Seq[str], operator: OperatorId) -> list[AnyArray]:
    """The key columns of a batch. Raises `ProcessingError` for one that is none."""
    columns = []
    for field in fields:
        if field not in batch.schema.names:
            cause = (
                f"key field '{field}' is missing from the batch, whose columns are "
                f"{', '.join(batch.schema.names)}; set `key_field` to one of them"
            )
            raise state_error(operator, cause)
        columns.append(batch.column(field))
    for field, column in zip(fields, columns, strict=True):
        try:
            key_type(column.type)
        except KeyTypeError as error:
            raise state_error(operator, f"key field '{field}': {error}") from error
    return columns


def widened_ledger(
    fields: Seq[str], ledger: Ledger, found: Seq[pa.DataType], operator: OperatorId
) -> Ledger:
    """The ledger after columns of these types. Raises `ProcessingError` that names both (S10)."""
    types = []
    for field, known, kind in zip(fields, ledger, found, strict=True):
        try:
            types.append(known if known == kind else widened(known, kind))
        except KeyTypeError as error:
            raise state_error(operator, f"key field '{field}': {error}") from error
    return tuple(types)


def state_error(operator: OperatorId, cause: str) -> ProcessingError:
    """An item that its operator's state cannot take."""
    return ProcessingError(operator, cause, error_class="StateError")


__all__ = ["Ledger", "key_columns", "state_error", "widened_ledger"]
