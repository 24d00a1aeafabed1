"""Rows that could not be decoded or processed, in the shape in which they reach `error_output`.

A bad row is a row of a `RecordBatch` with the columns below. A batch that an operator failed on
keeps its own columns, as they entered the chain, and gets the five `__meta_` columns beside them.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from arkflow_kernel.errors import BadRowError

VALUE_COLUMN = "__value__"
ERROR_COLUMN = "__meta_error"
OPERATOR_COLUMN = "__meta_error_operator"
SOURCE_COLUMN = "__meta_source"
PARTITION_COLUMN = "__meta_partition"
OFFSET_COLUMN = "__meta_offset"

META_FIELDS: tuple["pa.Field[Any]", ...] = (
    pa.field(ERROR_COLUMN, pa.string()),
    pa.field(OPERATOR_COLUMN, pa.string()),
    pa.field(SOURCE_COLUMN, pa.string()),
    pa.field(PARTITION_COLUMN, pa.uint32()),
    pa.field(OFFSET_COLUMN, pa.uint64()),
)

BAD_ROW_SCHEMA: pa.Schema = pa.schema([pa.field(VALUE_COLUMN, pa.binary()), *META_FIELDS])


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a batch was read: goes into the `__meta_` columns and into messages.

    `offset` is the position of the batch's first row (bytes in a file, offset in a partition).
    All three are None in a chain that reads no source.
    """

    source: str | None = None
    partition: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        if self.source is None:
            return "an unknown source position"
        where = self.source
        if self.partition is not None:
            where += f", partition {self.partition}"
        return where if self.offset is None else f"{where}, offset {self.offset}"


NOWHERE = Origin()

_TEXT_MAX = 200


def bad_row_batch(
    values: list[bytes],
    errors: list[str],
    *,
    operator: str,
    origin: Origin = NOWHERE,
    offsets: list[int | None] | None = None,
) -> pa.RecordBatch:
    """Build a batch of `BAD_ROW_SCHEMA`: one row per raw value, with its reason.

    `offsets` are the rows' own positions; without them all rows carry the origin's.
    """
    count = len(values)
    own = offsets if offsets is not None else [origin.offset] * count
    return pa.RecordBatch.from_arrays(
        [
            pa.array(values, pa.binary()),
            pa.array(errors, pa.string()),
            pa.array([operator] * count, pa.string()),
            pa.array([origin.source] * count, pa.string()),
            pa.array([origin.partition] * count, pa.uint32()),
            pa.array(own, pa.uint64()),
        ],
        schema=BAD_ROW_SCHEMA,
    )


def failed_batch(
    batch: pa.RecordBatch, *, error: str, operator: str, origin: Origin
) -> pa.RecordBatch:
    """The batch as it entered the chain, plus the five `__meta_` columns.

    A column of the batch that already has one of the five names is replaced.
    """
    kept = [
        (field, batch.column(i))
        for i, field in enumerate(batch.schema)
        if field.name not in _META_NAMES
    ]
    count = batch.num_rows
    constants = (error, operator, origin.source, origin.partition, origin.offset)
    added = [
        (field, pa.repeat(pa.scalar(value, field.type), count))
        for field, value in zip(META_FIELDS, constants, strict=True)
    ]
    fields, arrays = zip(*(kept + added), strict=True)
    return pa.RecordBatch.from_arrays(list(arrays), schema=pa.schema(fields))


def joined_bad_rows(raw: pa.RecordBatch, failed: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `bad_row_batch` and, behind them, those of `failed_batch`, as one batch.

    A column that only one of them has is null in the rows of the other. A column of the latter
    that has the name of the raw values and is none is left out.
    """
    place = failed.schema.get_field_index(VALUE_COLUMN)
    if place >= 0 and failed.schema.field(place).type != pa.binary():
        failed = failed.remove_column(place)
    tables = [pa.Table.from_batches([raw]), pa.Table.from_batches([failed])]
    joined = pa.concat_tables(tables, promote_options="default").combine_chunks()
    return joined.to_batches()[0]


def bad_row_error(bad: pa.RecordBatch, origin: Origin) -> BadRowError:
    """The error that names the first of some bad rows; its text is cut to 200 characters."""
    first = {name: bad.column(i).slice(0, 1) for i, name in enumerate(bad.schema.names)}
    error, operator, source, _, offset = (first.pop(f.name)[0].as_py() for f in META_FIELDS)
    where = source or origin.source or "the source"
    where = where if offset is None else f"{where}, offset {offset}"
    value = first.get(VALUE_COLUMN)
    if value is not None and value.type == pa.binary() and value[0].is_valid:
        row = value[0].as_py()[:_TEXT_MAX].decode("utf-8", "replace")
        return BadRowError(operator, error, where=where, row=row)
    row = _row_text({name: cell for name, cell in first.items() if name != VALUE_COLUMN})
    return BadRowError(operator, error, where=where, row=row[:_TEXT_MAX], parsed=True)


def _row_text(first: dict[str, "pa.Array[Any]"]) -> str:
    """A row that was parsed, given as columns of one value; also one that Python cannot hold."""
    cells = (f"{name}: {cell.to_string(skip_new_lines=True)[1:-1]}" for name, cell in first.items())
    return ", ".join(cells)


_META_NAMES = frozenset(field.name for field in META_FIELDS)

__all__ = [
    "BAD_ROW_SCHEMA",
    "ERROR_COLUMN",
    "META_FIELDS",
    "NOWHERE",
    "OFFSET_COLUMN",
    "OPERATOR_COLUMN",
    "PARTITION_COLUMN",
    "SOURCE_COLUMN",
    "VALUE_COLUMN",
    "Origin",
    "bad_row_batch",
    "bad_row_error",
    "failed_batch",
    "joined_bad_rows",
]
