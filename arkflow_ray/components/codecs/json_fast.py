"""Vectorised reading of JSON texts whose types are known; refuses whatever it cannot vouch for.

Not a parser of its own: `pyarrow.json` reads, with every field explicit and unknown ones an error.
The invariant: what is returned equals, value for value, what `json_text` makes of the same texts
under the same types. Known hazards of the reader, each refused here:

- it follows a null pointer on a `null` beside the objects (the process dies), so closing braces
  are checked before it sees a byte;
- it takes objects that share a line or go over several;
- it stops at a NUL and does not look at UTF-8;
- it takes `NaN` and `Infinity`, and rounds integers in float columns.
"""

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as pj

from arkflow_kernel.limits import EXACT_FLOAT_INT_MAX
from arkflow_ray.components.codecs.json_types import (
    JsonType,
    ListType,
    Scalar,
    StructType,
    arrow_schema,
    arrow_type,
)

BREAK, OPEN, CLOSE = b"\n{}"
"""Bytes that shape lines and objects, as numbers."""


class ReadPlan:
    """How texts of one root type are read: made once, used until the type widens.

    `columns` are the fields that are wanted, None for all; every field is looked at all the same,
    so what is bad does not depend on it. `kept` names the columns of the batches: where none of the
    wanted ones is there it is all of them, because a batch without columns has no rows.
    `flat_misses` counts the blocks in a row that `json_flat` refused or was not asked to read.
    """

    def __init__(self, root: StructType, columns: frozenset[str] | None = None) -> None:
        self.root = root
        self.columns = columns
        wanted = [name for name in root.fields if columns is None or name in columns]
        self.kept = wanted or list(root.fields)
        self.flat_misses = 0
        self.schema = arrow_schema(root)
        self.options = pj.ParseOptions(
            explicit_schema=pa.schema(
                [pa.field(name, _read_type(kind)) for name, kind in root.fields.items()]
            ),
            newlines_in_values=False,
            unexpected_field_behavior="error",
        )
        self.guarded = [
            (i, kind) for i, kind in enumerate(root.fields.values()) if not _is_plain(kind)
        ]

    def only_kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of all fields without the columns that nobody wants."""
        return batch if len(self.kept) == batch.num_columns else batch.select(self.kept)


def read_texts(
    text: memoryview, plan: ReadPlan, *, braces: int, rows: int | None
) -> pa.RecordBatch | None:
    """The rows of texts joined by line breaks, or None if they need a closer look.

    The caller made sure that each text begins with `{` and ends with `}`. A brace that closes is
    followed by one that opens only between two objects, so no object of texts that can be read
    reaches into the next text. `braces` is the number of texts; `rows` that of the objects, where
    it is known: with one a text, no text holds two. `text` is not referred to afterwards.
    """
    data = np.frombuffer(text, np.uint8)
    # With as many closing braces as texts, each ends its text: nothing stands between objects.
    if np.count_nonzero(data == CLOSE) != braces and _NULL_BESIDE.search(text):
        return None
    if not plan.root.fields or data.min() == 0 or not is_utf8(text, data):
        return None
    try:
        table = pj.read_json(
            pa.BufferReader(pa.py_buffer(text)),  # type: ignore[arg-type]  # the stubs lack it
            read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=plan.options,
        )
    except pa.ArrowInvalid:
        # Not an error yet: `json_text` finds out which row is bad, or what is new in it.
        return None
    if rows is not None and table.num_rows != rows:
        return None
    return _checked(table, plan)


def is_utf8(text: memoryview, data: npt.NDArray[np.uint8]) -> bool:
    """Whether `text`, which is also `data`, is UTF-8."""
    if data.max() < 128:
        return True
    edges: Any = np.array([0, len(text)], np.int32)
    whole = pa.StringArray.from_buffers(1, pa.py_buffer(edges), pa.py_buffer(text))
    try:
        whole.validate(full=True)  # nine times as fast as decoding it
    except pa.ArrowInvalid:
        return False
    return True


def _read_type(kind: JsonType) -> pa.DataType:
    """The type to read as. A null type is read as bool: the reader would infer any type in it."""
    if isinstance(kind, ListType):
        return pa.list_(_read_type(kind.item))
    if isinstance(kind, StructType):
        return pa.struct([pa.field(name, _read_type(t)) for name, t in kind.fields.items()])
    return pa.bool_() if kind is Scalar.NULL else arrow_type(kind)


def _is_plain(kind: JsonType) -> bool:
    """Whether what the reader accepts for this type needs no second look."""
    if isinstance(kind, ListType):
        return _is_plain(kind.item)
    if isinstance(kind, StructType):
        return all(_is_plain(inner) for inner in kind.fields.values())
    return kind not in (Scalar.NULL, Scalar.FLOAT)


def _checked(table: pa.Table, plan: ReadPlan) -> pa.RecordBatch | None:
    columns = [column.combine_chunks() for column in table.columns]
    arrays = [c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for c in columns]
    for i, kind in plan.guarded:
        settled = _settled(arrays[i], kind)
        if settled is None:
            return None
        arrays[i] = settled
    return plan.only_kept(pa.RecordBatch.from_arrays(arrays, schema=plan.schema))


def _settled(array: Any, kind: JsonType) -> Any:
    """The column under its own type, or None if a value is not what its token says."""
    if isinstance(kind, ListType):
        return _with_children(array, kind, [(array.values, kind.item)])
    if isinstance(kind, StructType):
        inner = [(array.field(i), t) for i, t in enumerate(kind.fields.values())]
        return _with_children(array, kind, inner)
    if kind is Scalar.NULL:
        return pa.nulls(len(array)) if array.null_count == len(array) else None
    if kind is Scalar.FLOAT:
        return array if are_exact(array) else None
    return array


def are_exact(floats: Any) -> bool:
    """Whether no float can be a rounded integer: all below 2^53 in magnitude, and numbers."""
    import pyarrow.compute as pc  # a tenth of a second that `validate` need not wait for

    # Not smaller also for NaN and the infinities. Without a value at all the answer is null.
    return pc.all(pc.less(pc.abs(floats), _EXACT)).as_py() is not False


def _with_children(array: Any, kind: JsonType, children: list[tuple[Any, JsonType]]) -> Any:
    settled = [_settled(child, inner) for child, inner in children]
    if any(child is None for child in settled) or array.offset != 0:
        return None
    own = array.buffers()[: 2 if isinstance(kind, ListType) else 1]
    return pa.Array.from_buffers(arrow_type(kind), len(array), own, children=settled)


_NULL_BESIDE = re.compile(rb"\}[ \t\r\n]*n")
_EXACT = pa.scalar(float(EXACT_FLOAT_INT_MAX))

__all__ = ["BREAK", "CLOSE", "OPEN", "ReadPlan", "are_exact", "is_utf8", "read_texts"]
