"""The first row of a batch as short text, for error messages. Never raises, never a whole batch."""

import pyarrow as pa

from arkflow_kernel.errors import ArkflowError
from arkflow_ray.components.codecs.json_encode import encode_lines

FIRST_ROW_CHARS = 300
"""Longest text of a row in a message."""

_COLUMNS_MAX = 64


def first_row_text(batch: pa.RecordBatch) -> str:
    """The first row as a JSON object of at most `FIRST_ROW_CHARS` characters; "" without rows."""
    if batch.num_rows == 0:
        return ""
    row = batch.slice(0, 1).select(list(range(min(batch.num_columns, _COLUMNS_MAX))))
    try:
        text = encode_lines(row).decode(errors="replace").rstrip("\n")
    except ArkflowError:
        text = f"columns {', '.join(batch.schema.names[:_COLUMNS_MAX])}"
    return text if len(text) <= FIRST_ROW_CHARS else text[: FIRST_ROW_CHARS - 1] + "…"


__all__ = ["FIRST_ROW_CHARS", "first_row_text"]
