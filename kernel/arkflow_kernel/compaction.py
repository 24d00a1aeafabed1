"""Batches that hold their own bytes only, ready to leave a chain (H3, H5).

Arrow's IPC writer cuts slices of most layouts by itself. It does not for three, which are brought
to a plain layout here, at any depth: a dictionary is decoded, a view of text or bytes becomes a
`string` or `binary`, a list view becomes a list. Run-end encoded columns are decoded as well: no
kernel of Arrow takes rows of them. So rows are copied only where the writer would send others'.

An extension type stays if its storage is plain; else the column becomes its plain storage.

One more oddity of the writer: of an array without rows it writes the offsets of the whole parent.
Such arrays, also as the children of lists that are all empty, are replaced by fresh ones.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.limits import SLICE_BYTES_MAX


class Compactor:
    """Makes batches plain. Remembers the last plain schema, so that plain batches cost nothing.

    Safe to call from several threads: the memory is one reference, replaced as a whole.
    """

    def __init__(self) -> None:
        self._plain: tuple[pa.Schema, tuple[int, ...]] | None = None

    def compacted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows in plain layouts; the batch itself if it is plain already."""
        schema = batch.schema
        nested = self._nested_of_plain(schema)
        plain = nested is not None and batch.num_rows
        if plain and not any(_hollow(batch.column(i)) for i in nested or ()):
            return batch
        columns = [_plain(column) for column in batch.columns]
        fields = [
            field.with_type(column.type) for field, column in zip(schema, columns, strict=True)
        ]
        metadata: Any = schema.metadata
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata))

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of a batch in plain batches, in order.

        Several only where decoding would make much of little: a long text that a dictionary holds
        once stands in every row afterwards.
        """
        if not batch.num_rows or self._nested_of_plain(batch.schema) is not None:
            yield self.compacted(batch)
            return
        size = sum(_plain_bytes(column) for column in batch.columns)
        rows = batch.num_rows
        if size > SLICE_BYTES_MAX:
            rows = max(1, rows * SLICE_BYTES_MAX // size)
        for start in range(0, batch.num_rows, rows):
            yield self.compacted(batch.slice(start, rows))

    def _nested_of_plain(self, schema: pa.Schema) -> tuple[int, ...] | None:
        """The nested columns of a schema of plain types; None if some type is not plain."""
        known = self._plain
        if known is not None and schema.equals(known[0]):
            return known[1]
        if any(_plain_type(field.type) != field.type for field in schema):
            return None
        nested = tuple(i for i, field in enumerate(schema) if _is_nested(field.type))
        self._plain = schema, nested
        return nested


def compacted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """`Compactor.compacted` without a memory."""
    return Compactor().compacted(batch)


def _plain_type(kind: Any) -> Any:
    """The layout in which a type leaves a chain; the same type if it may leave as it is."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        storage = _plain_type(kind.storage_type)
        return kind if storage == kind.storage_type else storage
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _plain_type(kind.value_type)
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_map(kind):
        key, item = _plain_field(kind.key_field), _plain_field(kind.item_field)
        made: Any = pa.map_  # the stubs know no fields here
        return made(key, item, keys_sorted=kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    if types.is_list(kind) or types.is_list_view(kind):
        return pa.list_(_plain_field(kind.value_field))
    if types.is_large_list(kind) or types.is_large_list_view(kind):
        return pa.large_list(_plain_field(kind.value_field))
    if types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind.fields])
    if types.is_union(kind):
        fields = [_plain_field(kind.field(i)) for i in range(kind.num_fields)]
        return pa.union(fields, kind.mode, kind.type_codes)
    return kind


def _plain_field(field: "pa.Field[Any]") -> "pa.Field[Any]":
    return field.with_type(_plain_type(field.type))


def _plain(column: Any) -> Any:
    """The values of an array in the layout that `_plain_type` names."""
    kind, types = column.type, pa.types
    target = _plain_type(kind)
    if not len(column):
        return pa.nulls(0, target)
    if target == kind and not (_is_nested(kind) and _hollow(column)):
        return column
    if isinstance(column, pa.ExtensionArray):
        storage = _plain(column.storage)
        return pa.ExtensionArray.from_storage(kind, storage) if target == kind else storage
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return column.cast(target)
    if types.is_dictionary(kind):
        values = _plain(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
    if types.is_run_end_encoded(kind):
        return _plain(_decoded_runs(column))
    if types.is_struct(kind):
        children = [_plain(child) for child in column.flatten()]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(children, fields=target.fields, mask=mask)
    if types.is_union(kind):
        return _plain_union(column, target)
    return _plain_list(column, target)


def _decoded_runs(column: Any) -> Any:
    """A run-end encoded array without its runs, whatever its values are."""
    values = column.values
    places = pa.RunEndEncodedArray.from_arrays(
        column.run_ends, pa.array(np.arange(len(values), dtype=np.int64))
    ).slice(column.offset, len(column))
    return _plain(values).take(pc.call_function("run_end_decode", [places]))


def _plain_list(column: Any, target: Any) -> Any:
    """Lists and maps of any layout over plain children; children of a null list are left out."""
    mask = column.is_null() if column.null_count else None
    made: Any
    if pa.types.is_fixed_size_list(target):
        made, size = pa.FixedSizeListArray, target.list_size
        children = column.values.slice(column.offset * size, len(column) * size)
        return made.from_arrays(_plain(children), type=target, mask=mask)
    if pa.types.is_map(target):
        made = pa.MapArray
        offsets = pc.subtract(column.offsets, column.offsets[0])
        window = column.offsets[0].as_py(), offsets[-1].as_py()
        keys, items = (_plain(child.slice(*window)) for child in (column.keys, column.items))
        return made.from_arrays(offsets, keys, items, type=target, mask=mask)
    views = pa.types.is_list_view(column.type) or pa.types.is_large_list_view(column.type)
    lengths = column.sizes.to_numpy() if views else np.diff(column.offsets.to_numpy())
    if mask is not None:
        lengths = np.where(mask.to_numpy(zero_copy_only=False), 0, lengths)
    large = pa.types.is_large_list(target)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64 if large else np.int32)
    offsets = pa.array(ends)
    made = pa.LargeListArray if large else pa.ListArray
    return made.from_arrays(offsets, _plain(column.flatten()), type=target, mask=mask)


def _is_nested(kind: Any) -> bool:
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return bool(kind.num_fields)


def _hollow(column: Any) -> bool:
    """Whether a column of a plain type has lists without any element over a parent with some."""
    kind, types = column.type, pa.types
    if isinstance(column, pa.ExtensionArray):
        return _hollow(column.storage)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        offsets = column.offsets
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        if first == last:
            return len(column.values) > 0
        return bool(kind.num_fields) and _hollow(column.values.slice(first, last - first))
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        return _hollow(column.values.slice(column.offset * size, len(column) * size))
    if types.is_struct(kind):
        return any(_hollow(column.field(i)) for i in range(kind.num_fields))
    return False


def _plain_union(column: Any, target: Any) -> Any:
    """A union over plain children. Reads its buffers: `offsets` of a slice are its parent's."""
    rows, buffers = len(column), column.buffers()
    made: Any = pa.UnionArray
    codes = np.frombuffer(buffers[1], np.int8, rows, column.offset)
    names = [target.field(i).name for i in range(target.num_fields)]
    children = [column.field(i) for i in range(target.num_fields)]
    if target.mode == "sparse":
        plain = [_plain(child) for child in children]
        return made.from_sparse(pa.array(codes), plain, names, target.type_codes)
    places = np.frombuffer(buffers[2], np.int32, rows, column.offset * 4).copy()
    for i, code in enumerate(target.type_codes):
        chosen = codes == code
        window = places[chosen]
        first, end = (int(window.min()), int(window.max()) + 1) if len(window) else (0, 0)
        children[i] = _plain(children[i].slice(first, end - first))
        places[chosen] -= first
    return made.from_dense(pa.array(codes), pa.array(places), children, names, target.type_codes)


def _plain_bytes(column: Any) -> int:
    """At most so many bytes does a column take when it is plain; nested ones as they stand."""
    kind, types = column.type, pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind):
        heads = np.frombuffer(column.buffers()[1], np.int32, len(column) * 4, column.offset * 16)
        lengths = heads[::4].astype(np.int64)
        if column.null_count:
            lengths = lengths[column.is_valid().to_numpy(zero_copy_only=False)]
        return int(lengths.sum())
    if types.is_dictionary(kind) and len(column.dictionary):
        values = _plain(column.dictionary)
        if types.is_string(values.type) or types.is_binary(values.type):
            return len(column) * int(pc.max(pc.binary_length(values)).as_py() or 0)
        return len(column) * (int(values.nbytes) // len(values) + 1)
    return int(column.nbytes)


__all__ = ["Compactor", "compacted"]
