"""Rows made JSON text, exactly as ArkFlow writes it: by arrow-json, the library that it uses.

One object per row, columns in schema order, no spaces. Null fields are left out at every level;
nulls inside lists stay. Bytes are hex text, times ISO text, NaN and infinities `null`, integers
exact. Not a codec and not a file format: callers add files, compression and payload columns.

The text is what `arrow_json::LineDelimitedWriter` makes, byte for byte; nothing is formatted here.
"""

import io
from typing import Any

import pyarrow as pa

from arkflow_kernel.errors import ComponentError
from arkflow_ray.components.rust_export import safe_for_rust


def encode_lines(batch: pa.RecordBatch) -> bytes:
    """All rows as JSON lines, each ended by `\\n`; `b""` for a batch without rows.

    ComponentError for a column that JSON cannot hold (a map whose keys are not text).
    """
    import arro3.io  # here, and below, so that `validate` does not wait for it

    out = io.BytesIO()
    # Metadata says nothing about rows, and bytes that are not UTF-8 in it stop the export.
    plain = safe_for_rust(batch).replace_schema_metadata(None)
    try:
        arro3.io.write_ndjson(plain, out)
    except Exception as error:  # the library raises bare Exceptions
        raise ComponentError(
            f"rows cannot be written as JSON: {error}; columns: {_columns(batch.schema)}. "
            "Convert the column before, or leave it out with `fields_to_include`"
        ) from error
    return out.getvalue()


def encode_rows(batch: pa.RecordBatch) -> pa.BinaryArray:
    """One JSON object per row, without line breaks.

    ComponentError as for `encode_lines`, and for more than 2 GiB of text.
    """
    if batch.num_rows == 0:
        return pa.array([], pa.binary())
    lines = encode_lines(batch)
    if len(lines) > _BYTES_MAX:
        raise ComponentError(
            f"{batch.num_rows} rows make {len(lines)} bytes of JSON, above 2 GiB; "
            "use smaller batches"
        )
    # JSON text has no raw line break inside, so the breaks are exactly the ends of the rows.
    text = pa.StringArray.from_buffers(
        1,
        pa.py_buffer(_OFFSET_ZERO + (len(lines) - 1).to_bytes(4, "little")),
        pa.py_buffer(lines),
    )
    import pyarrow.compute as pc

    parts: Any = pc.split_pattern(text, "\n")
    rows: pa.BinaryArray = parts.values.view(pa.binary())
    return rows


_OFFSET_ZERO = bytes(4)
_BYTES_MAX = 2**31 - 1


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


__all__ = ["encode_lines", "encode_rows"]
