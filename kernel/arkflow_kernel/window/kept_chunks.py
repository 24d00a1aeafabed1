"""Rows that a window keeps, in the order in which they came: in memory, or in local files (S5).

A chunk is of one schema and never changes; what fires of it is told by the places that stay.
One in a file takes memory for its rows only while they are looked at.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_kernel.state.growing import Mask, Slots
from arkflow_kernel.window.assign import Times
from arkflow_kernel.window.row_batches import joined, rows_at
from arkflow_kernel.window.stream_file import RowsFile

Groups = npt.NDArray[np.int32]

_SMALL_ROWS = 1_024
_SMALL_CHUNKS = 64
"""More neighbours with fewer rows than that become one chunk: an input may give single rows."""


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows in memory."""

    batch: pa.RecordBatch
    memory_bytes: int

    @property
    def schema(self) -> pa.Schema:
        """Their schema."""
        return self.batch.schema

    @property
    def num_rows(self) -> int:
        """How many there are."""
        return self.batch.num_rows

    def read(self) -> pa.RecordBatch:
        """All of them."""
        return self.batch


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows in a local file."""

    file: RowsFile
    number: int
    schema: pa.Schema
    num_rows: int

    @property
    def memory_bytes(self) -> int:
        """They take none."""
        return 0

    def read(self) -> pa.RecordBatch:
        """All of them."""
        return self.file.read(self.number)


@dataclass(frozen=True, slots=True)
class KeptChunk:
    """Some rows of one schema, in order of arrival.

    `picks` are their places in `rows`, None if they are all of them. Per row: its key group, its
    time in ms, its mark (what it is in its window by: the start of its pane, or its time), the slot
    of its key, its number in order of arrival. `size_bytes` counts against the budget (S4).
    """

    rows: HeldRows | FileRows
    picks: Slots | None
    groups: Groups
    times: Times
    marks: Times
    slots: Slots
    numbers: Slots
    size_bytes: int

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def schema(self) -> pa.Schema:
        """The schema of its rows."""
        return self.rows.schema

    def batch(self, places: Slots | None = None) -> pa.RecordBatch:
        """Its rows, or those at these places."""
        picks = self.picks
        if places is not None:
            picks = places if picks is None else picks[places]
        batch = self.rows.read()
        return batch if picks is None else rows_at(batch, picks)

    def parted(self, mask: Mask) -> "tuple[KeptChunk, KeptChunk]":
        """The rows that the mask marks, and the others; not all are of one kind."""
        marked = np.flatnonzero(mask)
        size = self.size_bytes * len(marked) // len(self)
        others = self._at(np.flatnonzero(~mask), self.size_bytes - size)
        return self._at(marked, size), others.compact()

    def _at(self, places: Slots, size_bytes: int) -> "KeptChunk":
        return KeptChunk(
            self.rows,
            places if self.picks is None else self.picks[places],
            self.groups[places],
            self.times[places],
            self.marks[places],
            self.slots[places],
            self.numbers[places],
            size_bytes,
        )

    def compact(self) -> "KeptChunk":
        """The same over memory of its own, if most of what it lies in is of rows that are gone."""
        if isinstance(self.rows, FileRows) or 2 * len(self) > self.rows.num_rows:
            return self
        return replace(self, rows=_held(self.batch()), picks=None)


def _held(batch: pa.RecordBatch) -> HeldRows:
    return HeldRows(batch, batch.nbytes)


def chunks_joined(chunks: Seq[KeptChunk]) -> KeptChunk:
    """One chunk in memory of neighbours of one schema."""
    return KeptChunk(
        _held(joined([chunk.batch() for chunk in chunks])),
        None,
        np.concatenate([chunk.groups for chunk in chunks]),
        np.concatenate([chunk.times for chunk in chunks]),
        np.concatenate([chunk.marks for chunk in chunks]),
        np.concatenate([chunk.slots for chunk in chunks]),
        np.concatenate([chunk.numbers for chunk in chunks]),
        sum(chunk.size_bytes for chunk in chunks),
    )


def tidied(chunks: list[KeptChunk]) -> list[KeptChunk]:
    """The same rows in fewer chunks, if there are many small ones."""
    if sum(_small(chunk) for chunk in chunks) <= _SMALL_CHUNKS:
        return chunks
    kept: list[KeptChunk] = []
    waiting: list[KeptChunk] = []

    def flush() -> None:
        if waiting:
            kept.append(chunks_joined(waiting) if len(waiting) > 1 else waiting[0])
            waiting.clear()

    for chunk in chunks:
        if waiting and not (_small(chunk) and _alike(waiting[0], chunk)):
            flush()
        if _small(chunk):
            waiting.append(chunk)
        else:
            kept.append(chunk)
    flush()
    return kept


def _small(chunk: KeptChunk) -> bool:
    return len(chunk) < _SMALL_ROWS and isinstance(chunk.rows, HeldRows)


def _alike(chunk: KeptChunk, other: KeptChunk) -> bool:
    return chunk.schema.equals(other.schema, check_metadata=True)


def spilled(chunks: Seq[KeptChunk], path: Path, operator: str) -> list[KeptChunk]:
    """The same chunks with their rows in a new file of this name. Raises `ResourceError`."""
    file = RowsFile(path, [chunk.batch() for chunk in chunks], operator)
    return [
        replace(chunk, rows=FileRows(file, number, chunk.schema, len(chunk)), picks=None)
        for number, chunk in enumerate(chunks)
    ]


__all__ = [
    "FileRows",
    "Groups",
    "HeldRows",
    "KeptChunk",
    "chunks_joined",
    "spilled",
    "tidied",
]
