"""The table of a temporal join as a state of its chain (J9, J10): versions of each key, of which
those that can still be an answer are kept.

What is needless plays no part in any answer, so when it is swept away is a matter of memory alone.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq

import numpy as np

from arkflow_kernel.ids import EARLIEST, EventTimeMs, WallMs
from arkflow_kernel.join.join_runs import JoinRun, SpilledRows, merged
from arkflow_kernel.join.side_format import rows_in
from arkflow_kernel.join.side_rows import RunRows
from arkflow_kernel.join.side_state import SideState
from arkflow_kernel.join.version_index import (
    VersionIndex,
    Versions,
    needless,
    newest,
    valid_from,
)
from arkflow_kernel.state.growing import Mask, Slots
from arkflow_kernel.timestamps import Int64s
from arkflow_kernel.window.kept_runs import RunPiece
from arkflow_kernel.window.key_numbers import KeyNumbers

_SWEPT_ROWS_MIN = 4_096


class VersionState(SideState):
    """A `RunState`: rows that stay until a newer one of their key has taken their place."""

    _swept_rows = 0
    _indexes: dict[JoinRun, VersionIndex] | None = None

    @property
    def holds(self) -> str:
        """See `SideState`."""
        return "versions of a temporal join"

    @property
    def ttl_ms(self) -> int | None:
        """How long a version holds at most."""
        assert self._join.versions is not None
        return self._join.versions.ttl_ms

    def valid_at(self, keys: Slots, times: Int64s) -> Versions:
        """The version of each key at a time."""
        known, indexed = self._indexes or {}, {}
        for run in self._runs:
            index = known.get(run)
            indexed[run] = index if index and index.keys is run.keys else VersionIndex.of(run)
        self._indexes = indexed
        return newest(indexed, keys, times, self.ttl_ms)

    def add(self, run: JoinRun, everything: int) -> None:
        """See `SideRows`. What is needless is not what a budget is passed by."""
        if self._max_bytes is not None and everything + run.size_bytes > self._max_bytes:
            before = self.live_bytes
            self._sweep()
            everything -= before - self.live_bytes
        super().add(run, everything)

    def advance(self, watermark: EventTimeMs) -> list[RunRows]:
        """Nothing leaves by time alone."""
        before = self.watermark

        def undo() -> None:
            self.watermark = before

        self.stage(0, undo)
        self.watermark = watermark
        return []

    def settle(self, wall_ms: WallMs) -> None:
        """See `SideRows`. Swept as often as the rows have doubled."""
        if self._rows >= max(_SWEPT_ROWS_MIN, 2 * self._swept_rows):
            self._sweep()
            self._swept_rows = self._rows
        super().settle(wall_ms)

    @property
    def _rows(self) -> int:
        return sum(len(run) for run in self._runs)

    def _sweep(self) -> None:
        """Let go of what no row can need that is not late. Runs in memory become one, those in
        files are written anew once half of them is gone.
        """
        runs = self._runs
        if not runs:
            return
        gone = needless(
            np.concatenate([run.keys for run in runs]),
            np.concatenate([valid_from(run.times, run.cuts) for run in runs]),
            np.concatenate([run.times for run in runs]),
            np.concatenate([run.numbers for run in runs]),
            self.low,
            self.ttl_ms,
        )
        if not gone.any():
            return
        ends = np.cumsum([len(run) for run in runs])
        held: list[JoinRun] = []
        kept: list[JoinRun] = []
        for run, mine in zip(runs, np.split(gone, ends[:-1]), strict=True):
            run.gone = mine
            if isinstance(run.rows, SpilledRows) and 2 * run.live >= len(run):
                kept.append(run)
            elif run.live:
                held.append(run)
        one = merged(held, self.schema.of_rows) if held else None
        self._runs = tuple(kept) if one is None else (*kept, one)

    # --- snapshots -----------------------------------------------------------------------------

    def _low_at(self, watermark: int | None) -> int:
        del watermark
        return EARLIEST

    def _kept(
        self, pieces: Seq[RunPiece], watermark: int | None, *, oldest: bool
    ) -> list[RunPiece]:
        """What is not needless beside the other versions of these runs."""
        del oldest
        pieces = [piece for piece in pieces if len(piece)]
        if not pieces:
            return []
        numbers = KeyNumbers(1)
        keys, since = [], []
        for piece in pieces:
            rows, cuts, _ = rows_in(piece)
            column = rows.column(rows.schema.names.index(self.key_field))
            keys.append(numbers.of_columns([column], len(piece)))
            since.append(valid_from(piece.times, cuts))
        gone = needless(
            np.concatenate(keys),
            np.concatenate(since),
            np.concatenate([piece.times for piece in pieces]),
            np.concatenate([piece.numbers for piece in pieces]),
            super()._low_at(watermark),
            self.ttl_ms,
        )
        return list(_without(pieces, gone))


def _without(pieces: Seq[RunPiece], gone: Mask) -> Iterable[RunPiece]:
    start = 0
    for piece in pieces:
        left = piece.where(~gone[start : start + len(piece)])
        start += len(piece)
        if len(left):
            yield left


__all__ = ["VersionState"]
