"""Payload columns made bytes, and batches cut into bounded pieces, for outputs that write lines.

Not an encoder: rows become JSON in `codecs/json_encode.py`. Nothing here runs Python per row.
"""

from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa

from arkflow_kernel.limits import MIB, SLICE_ROWS_MAX

PIECE_BYTES_MAX = MIB
"""Arrow bytes of one piece: what is encoded, and held as text, at a time."""


def pieces(batch: pa.RecordBatch, bytes_max: int = PIECE_BYTES_MAX) -> Iterator[pa.RecordBatch]:
    """The batch in order, in slices of at most `bytes_max` Arrow bytes and `SLICE_ROWS_MAX` rows.

    A single row above `bytes_max` is a piece of its own. A batch without rows has no piece.
    """
    rows = batch.num_rows
    if rows == 0:
        return
    if rows == 1 or (rows <= SLICE_ROWS_MAX and batch.nbytes <= bytes_max):
        yield batch
        return
    half = rows // 2
    yield from pieces(batch.slice(0, half), bytes_max)
    yield from pieces(batch.slice(half), bytes_max)


def without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with plain text and bytes in place of views, which few readers and writers know.

    Older pyarrow cannot even tell the size of a view. The batch itself if it has none.
    """
    plain: dict[pa.DataType, pa.DataType] = {
        pa.string_view(): pa.string(),
        pa.binary_view(): pa.binary(),
    }
    if not any(field.type in plain for field in batch.schema):
        return batch
    fields = [field.with_type(plain.get(field.type, field.type)) for field in batch.schema]
    return batch.cast(pa.schema(fields))


def is_payload(kind: pa.DataType) -> bool:
    """Whether a column of this type holds bytes or text (or only nulls) to write as they are."""
    if pa.types.is_dictionary(kind):
        return is_payload(kind.value_type)
    tests = (
        pa.types.is_null,
        pa.types.is_binary,
        pa.types.is_string,
        pa.types.is_large_binary,
        pa.types.is_large_string,
        pa.types.is_fixed_size_binary,
    )
    return any(test(kind) for test in tests)


def payloads(values: "pa.Array[Any]") -> pa.BinaryArray:
    """The payloads of a piece without its nulls.

    `values` is a column for which `is_payload` holds and that fits 2 GiB (`pieces` sees to that).
    """
    return cast("pa.BinaryArray", _plain(values).drop_null())


def as_text(values: "pa.Array[Any]") -> pa.StringArray:
    """The payloads of a piece as text, nulls kept: a byte that is not UTF-8 as `\\xff`.

    For formats of text. Rows are looked at one by one only in a piece that holds such bytes.
    """
    plain = _plain(values)
    try:
        return cast("pa.StringArray", plain.cast(pa.string()))
    except pa.ArrowInvalid:
        rows = plain.to_pylist()
        told = [row and row.decode("utf-8", "backslashreplace") for row in rows]
        return pa.array(told, pa.string())


def _plain(values: "pa.Array[Any]") -> Any:
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values.cast(pa.binary())


def joined(values: pa.BinaryArray, *, newline: bool) -> pa.Buffer:
    """All payloads in one buffer, each followed by a newline if `newline`. Nulls are skipped.

    Line breaks inside a payload stay as they are.
    """
    import pyarrow.compute as pc

    plain: Any = values.drop_null()
    if newline:
        plain = pc.binary_join_element_wise(plain, b"", b"\n")
    return _contents(plain)


def _contents(values: "pa.Array[Any]") -> pa.Buffer:
    """The bytes between the first and the last offset of a plain binary array, not copied."""
    _, offsets, data = values.buffers()
    if len(values) == 0 or offsets is None or data is None:
        return pa.py_buffer(b"")
    ends = memoryview(offsets).cast("i")
    start, stop = ends[values.offset], ends[values.offset + len(values)]
    return data.slice(start, stop - start)


__all__ = [
    "PIECE_BYTES_MAX",
    "as_text",
    "is_payload",
    "joined",
    "payloads",
    "pieces",
    "without_views",
]
