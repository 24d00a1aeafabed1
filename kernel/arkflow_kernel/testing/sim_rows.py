"""Rows of the simulation: small, cheap to make, and each tells where it came from.

A row is a number: its split times `SPLIT_ROWS`, plus its place in the split from 0. Its key follows
from its place, so every part of the kit knows it. Batches have the columns `id` and `key`.
"""

from collections.abc import Sequence as Seq
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from arkflow_kernel.ids import SplitId

SPLIT_ROWS: Final = 1_000_000
"""No split has more rows."""

KEYS: Final = 5
"""Different keys of a job."""

ROW_BYTES: Final = 16
"""What a row takes at least."""

FINISH_SPLITS: Final = 900
"""From this split on, rows were read nowhere: operators yield them when they are finished."""

_FIELDS: list["pa.Field[Any]"] = [pa.field("id", pa.int64()), pa.field("key", pa.int64())]
SCHEMA: Final = pa.schema(_FIELDS)
BAD_SCHEMA: Final = pa.schema([pa.field("key", pa.int64()), pa.field("id", pa.int64())])
"""Of rows that a source or an operator rejects: other columns than those of good rows."""


def batch_of(rows: Seq[int], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """A batch of rows."""
    ids = np.array(rows, np.int64)
    keys = ids % SPLIT_ROWS % KEYS
    by_name = {"id": pa.array(ids), "key": pa.array(keys)}
    return pa.RecordBatch.from_arrays([by_name[name] for name in schema.names], schema=schema)


def rows_of(batch: pa.RecordBatch) -> list[int]:
    """The rows of a batch of any kind."""
    rows: list[Any] = batch.column("id").to_pylist()
    return rows


def split_of(row: int) -> int:
    """The split of a row."""
    return row // SPLIT_ROWS


def place_of(row: int) -> int:
    """Its place in the split, from 0."""
    return row % SPLIT_ROWS


def split_name(split: int) -> SplitId:
    """The name of a split."""
    return SplitId(f"split-{split:03}")


def split_number(name: SplitId) -> int:
    """The inverse of `split_name`."""
    return int(name[-3:])


@lru_cache(maxsize=4096)
def group_of(row_key: int, max_parallelism: int) -> int:
    """The group of a key (G3), byte by byte as the rule says it."""
    state = 0xCBF29CE484222325
    for byte in row_key.to_bytes(8, "big", signed=True):
        state = ((state ^ byte) * 0x100000001B3) % 2**64
    return state % max_parallelism


@lru_cache(maxsize=4096)
def owner_of(row_key: int, parallelism: int, max_parallelism: int) -> int:
    """The subtask that owns a key."""
    group = group_of(row_key, max_parallelism)
    firsts = [i * max_parallelism // parallelism for i in range(parallelism + 1)]
    return next(i for i in range(parallelism) if firsts[i] <= group < firsts[i + 1])


__all__ = [
    "BAD_SCHEMA",
    "FINISH_SPLITS",
    "KEYS",
    "ROW_BYTES",
    "SCHEMA",
    "SPLIT_ROWS",
    "batch_of",
    "group_of",
    "owner_of",
    "place_of",
    "rows_of",
    "split_name",
    "split_number",
    "split_of",
]
