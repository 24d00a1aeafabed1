"""Rows of one side of a join in order of (key, time), as immutable runs.

What becomes of a row stands beside: whether it has matched, whether it had to go for want of room,
and how many of the oldest have left. Only a state changes that, which also takes it back.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_kernel.ids import EARLIEST
from arkflow_kernel.join.time_index import TimeIndex
from arkflow_kernel.state.growing import Mask, Slots
from arkflow_kernel.timestamps import Int64s
from arkflow_kernel.window.row_batches import brought_to, joined, rows_at
from arkflow_kernel.window.stream_file import RowsFile

Item = TypeVar("Item", bound=np.generic)
Groups = npt.NDArray[np.int32]

_SECTION_ROWS = 4_096
"""Rows of a spilled run that are read together."""

NULL_KEY = 0
"""The number of a null: it matches nothing, not another null either (J1)."""


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows in memory."""

    batch: pa.RecordBatch
    memory_bytes: int

    @property
    def schema(self) -> pa.Schema:
        """Their schema."""
        return self.batch.schema

    def take(self, places: Slots) -> pa.RecordBatch:
        """Those at these places, in this order."""
        return rows_at(self.batch, places)

    def read(self) -> pa.RecordBatch:
        """All of them."""
        return self.batch


class SpilledRows:
    """Rows in a local file (S5), in sections. Any thread may read."""

    memory_bytes = 0

    def __init__(self, path: Path, batch: pa.RecordBatch, operator: str) -> None:
        self.schema = batch.schema
        self._rows = batch.num_rows
        starts = range(0, max(1, batch.num_rows), _SECTION_ROWS)
        parts = (batch.slice(start, _SECTION_ROWS) for start in starts)
        self._file = RowsFile(path, parts, operator)

    def take(self, places: Slots) -> pa.RecordBatch:
        """Those at these places, in this order; each section is read once."""
        sections = places // _SECTION_ROWS
        numbers = np.unique(sections)
        if not len(numbers):
            return self._file.read(0).slice(0, 0)
        parts, order = [], []
        for number in numbers.tolist():
            mine = np.flatnonzero(sections == number)
            inside = places[mine] - number * _SECTION_ROWS
            parts.append(rows_at(self._file.read(number), inside))
            order.append(mine)
        return rows_at(joined(parts), np.argsort(np.concatenate(order), kind="stable"))

    def read(self) -> pa.RecordBatch:
        """All of them."""
        return self.take(np.arange(self._rows))


@dataclass(slots=True, eq=False)
class JoinRun:
    """Rows in order of (key, time). Per row: the number of its key, its time, its number in order
    of arrival, its cut (rows of the other side with a time below it are none of its own; None: no
    row has one), its key group (None where nobody asks).

    `matched`: which have matched; None where nobody asks. `gone`: which had to go; None: none.
    The first `left` of `by_time`, all places in order of time, have left.
    """

    rows: HeldRows | SpilledRows
    keys: Slots
    times: Int64s
    numbers: Slots
    cuts: Int64s | None
    groups: Groups | None
    index: TimeIndex
    matched: Mask | None
    size_bytes: int
    gone: Mask | None = None
    left: int = 0
    by_time: Slots = field(init=False)
    rising: Int64s = field(init=False)

    def __post_init__(self) -> None:
        self.by_time = np.argsort(self.times, kind="stable")
        self.rising = self.times[self.by_time]

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def live(self) -> int:
        """Rows that have not left and did not have to go."""
        return len(self) - self.left - (0 if self.gone is None else self._gone_alive())

    def _gone_alive(self) -> int:
        assert self.gone is not None
        return int(self.gone[self.by_time[self.left :]].sum())

    def renumber(self, kept: Slots) -> None:
        """Keys have other numbers, in the same order: their places among these."""
        self.keys = np.searchsorted(kept, self.keys)
        self.index, _ = TimeIndex.of(self.keys, self.times)

    def alive(self) -> Slots:
        """Their places, rising."""
        mask = np.ones(len(self), np.bool_)
        mask[self.by_time[: self.left]] = False
        if self.gone is not None:
            mask &= ~self.gone
        return np.flatnonzero(mask)

    def due(self, low: int) -> Slots:
        """Places of rows with times below `low` that have not left, in order of time."""
        upto = int(np.searchsorted(self.rising, low))
        places = self.by_time[self.left : upto]
        return places if self.gone is None else places[~self.gone[places]]

    def unmatched(self, places: Slots) -> Slots:
        """Those of these places whose row has not matched."""
        return places[~self.matched[places]] if self.matched is not None else places[:0]

    @property
    def live_bytes(self) -> int:
        """What the live rows count against the budget (S4)."""
        return self.size_bytes * self.live // len(self)


def arranged(
    batch: pa.RecordBatch,
    keys: Slots,
    times: Int64s,
    numbers: Slots,
    cuts: Int64s | None,
    groups: Groups | None,
    matched: Mask | None,
) -> JoinRun:
    """A run of rows in any order."""
    index, order = TimeIndex.of(keys, times)
    rows = batch.take(order) if _takes(batch) else rows_at(batch, order)
    return JoinRun(
        HeldRows(rows, rows.nbytes),
        keys[order],
        times[order],
        numbers[order],
        None if cuts is None else cuts[order],
        None if groups is None else groups[order],
        index,
        None if matched is None else matched[order],
        rows.nbytes,
    )


def _takes(batch: pa.RecordBatch) -> bool:
    """Whether Arrow takes rows of all columns; see `rows_at`."""
    return not any(
        pa.types.is_string_view(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_run_end_encoded(kind)
        or pa.types.is_nested(kind)
        for kind in batch.schema.types
    )


def merged(runs: Seq[JoinRun], schema: pa.Schema) -> JoinRun | None:
    """One run in memory of the rows that are left of some, under `schema`; None if none is."""
    places = [run.alive() for run in runs]
    kept = [(run, mine) for run, mine in zip(runs, places, strict=True) if len(mine)]
    if not kept:
        return None
    cuts = None
    if any(run.cuts is not None for run, _ in kept):
        cuts = np.concatenate(
            [np.full(len(p), EARLIEST) if r.cuts is None else r.cuts[p] for r, p in kept]
        )
    return arranged(
        joined([brought_to(run.rows.take(mine), schema) for run, mine in kept]),
        np.concatenate([run.keys[mine] for run, mine in kept]),
        np.concatenate([run.times[mine] for run, mine in kept]),
        np.concatenate([run.numbers[mine] for run, mine in kept]),
        cuts,
        _beside([(run.groups, mine) for run, mine in kept]),
        _beside([(run.matched, mine) for run, mine in kept]),
    )


def _beside(
    parts: "list[tuple[npt.NDArray[Item] | None, Slots]]",
) -> "npt.NDArray[Item] | None":
    found = [values[places] for values, places in parts if values is not None]
    return np.concatenate(found) if len(found) == len(parts) else None


def tier(run: JoinRun) -> int:
    """Runs of one tier are of about one size: each is of four times the rows of the one below."""
    return max(3, len(run).bit_length() // 2)


__all__ = ["NULL_KEY", "Groups", "HeldRows", "JoinRun", "SpilledRows", "arranged", "merged", "tier"]
