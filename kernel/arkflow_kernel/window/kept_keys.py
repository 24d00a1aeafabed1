"""The key columns of kept rows, and their type ledger (S10)."""

from collections.abc import Sequence as Seq

import pyarrow as pa

from arkflow_kernel.bad_rows import VALUE_COLUMN
from arkflow_kernel.key_encoding import KeyColumnError
from arkflow_kernel.key_groups import key_column
from arkflow_kernel.state.arrow_numpy import AnyArray
from arkflow_kernel.state.key_types import key_type, widened

KeyTypes = tuple[pa.DataType, ...]


def columns_of(batch: pa.RecordBatch, fields: Seq[str]) -> list[AnyArray]:
    """The key columns of a batch. Raises `KeyColumnError` for a field that is missing."""
    return [_column(batch, name) for name in fields]


def ledger(fields: Seq[str], known: KeyTypes, batch: pa.RecordBatch) -> KeyTypes:
    """The types of the key columns after a batch. Raises `KeyTypeError`, and as `columns_of`."""
    found = [key_type(column.type) for column in columns_of(batch, fields)]
    return tuple(widened(mine, other) for mine, other in zip(known, found, strict=True))


def _column(batch: pa.RecordBatch, name: str) -> AnyArray:
    names = batch.schema.names
    if name in names:
        return key_column(batch, name)
    advice = "set `key_field` to one of them"
    if names == [VALUE_COLUMN]:
        advice = "the window sees messages as they were read: set a `codec` on the input"
    raise KeyColumnError(
        f"key field '{name}' is missing from the batch, whose columns are "
        f"{', '.join(names)}; {advice}"
    )


__all__ = ["KeyTypes", "columns_of", "ledger"]
