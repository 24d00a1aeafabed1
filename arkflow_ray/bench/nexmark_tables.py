"""The events of Nexmark as JSON lines, one file a table: what both sides of a comparison read.

Times are milliseconds since 1970. 10,000 events a second of event time, up to 0.9 s out of order.
"""

import pathlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from arkflow_kernel.ids import MonotonicMs
from arkflow_kernel.ports import SourceBatch
from arkflow_ray.components.codecs.json_encode import encode_lines
from arkflow_ray.components.inputs.nexmark import NexmarkReader
from arkflow_ray.components.inputs.nexmark_config import NexmarkConfig
from arkflow_ray.components.inputs.nexmark_rows import TABLES

INTER_EVENT_US: Final = 100
OUT_OF_ORDERNESS_MS: Final = 900
WATERMARK_MS: Final = 1_000
"""How far the watermark is behind, on both sides."""


def written(folder: pathlib.Path, kinds: Iterable[str], events: int) -> dict[str, pathlib.Path]:
    """The files of these tables in `folder`; one that is there is taken as it is."""
    return {kind: _written(folder / f"{kind}-{events}.jsonl", kind, events) for kind in kinds}


def rows_of(kind: str, events: int) -> int:
    """How many of the first `events` events are in a table."""
    return TABLES[kind].rows_of(events)


def _written(path: pathlib.Path, kind: str, events: int) -> pathlib.Path:
    if path.exists():
        return path
    config = NexmarkConfig.model_validate(
        {
            "kind": kind,
            "events": events,
            "inter_event_us": INTER_EVENT_US,
            "out_of_orderness_ms": OUT_OF_ORDERNESS_MS,
        }
    )
    with _whole(path) as unfinished, unfinished.open("wb") as out:
        for batch in _batches(config):
            out.write(encode_lines(_with_numbers(batch)))
    return path


@contextmanager
def _whole(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file that has its name only once it is whole."""
    unfinished = path.with_suffix(".unfinished")
    try:
        yield unfinished
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _batches(config: NexmarkConfig) -> Iterator[pa.RecordBatch]:
    reader = NexmarkReader("written", config)
    reader.open([])
    while isinstance(read := reader.read(MonotonicMs(0)), SourceBatch):
        yield read.batch


def _with_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its times as numbers."""
    columns: list[Any] = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


__all__ = ["INTER_EVENT_US", "OUT_OF_ORDERNESS_MS", "WATERMARK_MS", "rows_of", "written"]
