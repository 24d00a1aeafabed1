"""Entries beyond the memory budget: runs in local files, mapped into memory (S5).

A file has no name once it is mapped: it goes with its mapping, whatever becomes of the process.
Runs here are the state's own and have nothing to do with those of checkpoints; nothing is dropped.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from arkflow_kernel.errors import ResourceError
from arkflow_kernel.state.growing import Mask, Slots
from arkflow_kernel.state.run_file import read_batch, written
from arkflow_kernel.state.run_format import RunOwner, to_batch
from arkflow_kernel.state.run_rows import RunRows, Wanted, joined
from arkflow_kernel.state.sorted_run import SortedRun, merge_due, merged, newest


class SpilledEntries:
    """The local runs of one state, oldest first; of one key the newest entry counts.

    `prefix` is unique among all that use the folder.
    """

    def __init__(self, folder: Path, prefix: str, owner: RunOwner) -> None:
        self._folder = folder
        self._prefix = prefix
        self._owner = owner
        self._files = 0
        self._runs: list[SortedRun] = []
        folder.mkdir(parents=True, exist_ok=True)

    def append(self, rows: RunRows) -> SortedRun:
        """Write changed entries as the newest run. Raises `ResourceError` if the disk refuses."""
        run = self.kept(written(to_batch(rows.in_order(), self._owner)))
        self._runs.append(run)
        while (due := merge_due([len(run) for run in self._runs])) is not None:
            self._merge(*due)
        return run

    def adopt(self, batch: pa.RecordBatch) -> None:
        """Keep a restored run as the newest, in a file of its own."""
        self._runs.append(self.kept(written(batch)))

    def _merge(self, first: int, end: int) -> None:
        rows = merged(self._runs[first:end], keep_deleted=first > 0)
        self._runs[first:end] = [self.kept(written(to_batch(rows.in_order(), self._owner)))]

    def kept(self, data: pa.Buffer) -> SortedRun:
        """A run of these bytes in a file of its own. Raises `ResourceError`."""
        self._files += 1
        path = self._folder / f"{self._prefix}-{self._files}.spill"
        try:
            with pa.OSFile(str(path), "wb") as file:
                file.write(data)
            mapped = pa.memory_map(str(path))
            path.unlink()
        except OSError as error:
            raise ResourceError(
                f"operator '{self._owner.operator}': its state does not fit its `memory_bytes` and "
                f"cannot be spilled to {self._folder}: {error}; free space there or raise it"
            ) from error
        return SortedRun(read_batch(mapped))

    def find(self, keys: Wanted) -> Iterator[tuple[Slots, RunRows]]:
        """Entries of the keys, and which keys they are of; without those that have none."""
        rows = np.arange(len(keys))
        for run in reversed(self._runs):
            if not len(rows):
                return
            places = run.find(keys.take(rows))
            here = places >= 0
            entries = run.at(places[here])
            mine, rows = rows[here], rows[~here]
            if (alive := ~entries.deleted).any():
                yield mine[alive], entries.where(alive)

    def count(self) -> tuple[int, int]:
        """Entries, and their encoded bytes (S4). Reads everything: for a restored state."""
        keys = size = 0
        for run, mask in zip(self._runs, newest(self._runs), strict=True):
            rows = run.rows()
            rows = rows.where(mask & ~rows.deleted)
            keys += len(rows)
            size += rows.size_bytes()
        return keys, size

    def expired(self, wall_ms: int) -> RunRows | None:
        """Entries whose deadline is reached; None if there are none."""
        pieces = []
        for number, run in enumerate(self._runs):
            due = run.deadlines() <= wall_ms
            rows = run.at(np.flatnonzero(due & ~run.deleted()))
            pieces.append(rows.where(self._is_newest(number, rows)))
        pieces = [rows for rows in pieces if len(rows)]
        return joined(pieces) if pieces else None

    def _is_newest(self, number: int, rows: RunRows) -> Mask:
        mask: Mask = np.ones(len(rows), np.bool_)
        for run in self._runs[number + 1 :]:
            mask &= run.find(Wanted(rows.groups, rows.hashes, rows.parts)) < 0
        return mask

    def rows(self) -> RunRows | None:
        """All entries, in any order; None if there are none."""
        return merged(self._runs, keep_deleted=False) if self._runs else None


__all__ = ["SpilledEntries"]
