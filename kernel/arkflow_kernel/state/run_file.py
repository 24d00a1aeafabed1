"""A run as bytes and back: Arrow IPC with one record batch, in order of key group (S6, S11)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from arkflow_kernel.limits import MIB

RUN_BYTES = 8 * MIB
"""About so large are the runs of a state that makes several of one seal."""


def runs_of(batch: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
    """The runs of a state that makes one of a seal, or none."""
    if batch is not None:
        yield batch


def written(batch: pa.RecordBatch) -> pa.Buffer:
    """A run's bytes."""
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def read_batch(source: Any) -> pa.RecordBatch:
    """The batch of a run, over the memory of its buffer or mapped file.

    Raises `pa.ArrowInvalid` or `OSError` for what is no run.
    """
    reader = ipc.open_file(source)
    if reader.num_record_batches != 1:
        raise pa.ArrowInvalid(f"a run has one record batch, not {reader.num_record_batches}")
    batch = reader.get_batch(0)
    if not batch.num_columns or batch.schema.field(0).type != pa.int32():
        raise pa.ArrowInvalid("the first column of a run is its key group, as int32")
    return batch


def group_limits(batch: pa.RecordBatch) -> tuple[int, int]:
    """The first and the last key group of a run that has rows."""
    groups = np.asarray(batch.column(0))
    return int(groups[0]), int(groups[-1])


def limited(batch: pa.RecordBatch, first: int, last: int) -> pa.RecordBatch:
    """The part of key groups `first` to `last`, both included; over the same memory."""
    groups = np.asarray(batch.column(0))
    start = int(np.searchsorted(groups, first))
    end = int(np.searchsorted(groups, last, side="right"))
    if end - start == batch.num_rows:
        return batch
    return batch.slice(start, max(0, end - start))


__all__ = ["RUN_BYTES", "group_limits", "limited", "read_batch", "runs_of", "written"]
