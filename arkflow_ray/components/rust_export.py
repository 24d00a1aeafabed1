"""Batches made fit for libraries on arrow-rs (DataFusion, arro3).

arrow-rs 59 panics on importing a sliced struct that has a struct inside: it applies the slice's
offset at both levels. Batches with such columns are copied once, which leaves no offsets; all
others pass as they are.
"""

import pyarrow as pa


def safe_for_rust(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, or an equal copy without offsets if it has a struct with nested fields."""
    if not any(_is_struct_of_nested(field.type) for field in batch.schema):
        return batch
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    with pa.ipc.open_stream(out.getvalue()) as reader:
        return reader.read_next_batch()


def _is_struct_of_nested(kind: pa.DataType) -> bool:
    children = [kind.field(i).type for i in range(kind.num_fields)]
    if isinstance(kind, pa.StructType) and any(child.num_fields > 0 for child in children):
        return True
    return any(_is_struct_of_nested(child) for child in children)


__all__ = ["safe_for_rust"]
