"""Event times of simulated rows: drawn by a hash of the row, so that everybody knows them.

Times of a split rise on the whole. Some rows come out of order within the bound, some beyond it,
some have no time at all. What the gate must find follows from the rows alone, and is found here
again, row by row, for the checks.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from arkflow_kernel.testing.sim_rows import SPLIT_ROWS

TIME_FIELD: Final = "ts"
"""Name of the column with the event times."""

STEP_MS: Final = 10
"""So much later is a row than the one before it, on the whole."""

WINDOW_SPLIT: Final = 800
"""Results of a window are rows of a split that nobody reads."""


@dataclass(frozen=True)
class TimeScript:
    """Event time of one job. `window` is the one operator that is a window, None if there is none.

    Every `nulls`-th hash has no time, every `strays`-th is beyond the bound; 0 for none.
    """

    seed: int
    bound_ms: int
    size_ms: int
    idle_timeout_ms: int | None = None
    nulls: int = 0
    strays: int = 0
    window: str | None = None

    def time_of(self, row: int) -> int | None:
        """Milliseconds; None for a row without a time."""
        drawn = ((row * 2_654_435_761 + self.seed * 40_503) & 0xFFFF_FFFF) >> 5
        if self.nulls and drawn % self.nulls == 1:
            return None
        time_ms = row % SPLIT_ROWS * STEP_MS - drawn // 64 % (self.bound_ms + 1)
        stray = self.strays and drawn % self.strays == 2
        return time_ms - self.bound_ms - 3 * self.size_ms if stray else time_ms

    def with_times(self, batch: pa.RecordBatch, rows: Seq[int]) -> pa.RecordBatch:
        """A batch with the times of its rows."""
        times: Any = pa.array([self.time_of(row) for row in rows], pa.int64())
        return batch.append_column(pa.field(TIME_FIELD, pa.int64()), times)

    def window_of(self, time_ms: int) -> int:
        """The number of the window that a time falls into."""
        return time_ms // self.size_ms

    def end_of(self, window: int) -> int:
        """The first time behind a window."""
        return (window + 1) * self.size_ms


class TimeTable:
    """What follows from the times of all rows. `bad(split, row)` are rows that nobody decodes."""

    def __init__(self, time: TimeScript, splits: Iterable[tuple[int, list[int]]]) -> None:
        self.time = time
        self._greatest = {split: self._running(rows) for split, rows in splits}

    def _running(self, rows: list[int]) -> tuple[int | None, ...]:
        """By place, the greatest time before it; `rows` has -1 in the places of bad rows."""
        found: list[int | None] = [None]
        for row in rows:
            time_ms, known = None if row < 0 else self.time.time_of(row), found[-1]
            higher = time_ms is not None and (known is None or time_ms > known)
            found.append(time_ms if higher else known)
        return tuple(found)

    def greatest(self, split: int, place: int) -> int | None:
        """The greatest time of a split before a place (W1); None if there is none."""
        return self._greatest[split][place]

    def watermark(self, split: int, place: int) -> int | None:
        """The split's watermark before a place."""
        greatest = self.greatest(split, place)
        return None if greatest is None else greatest - self.time.bound_ms

    def within_bound(self, row: int) -> bool:
        """Whether a row is not behind its split (W3); results of windows never are."""
        split, place = divmod(row, SPLIT_ROWS)
        time_ms = self.time.time_of(row)
        if split not in self._greatest or time_ms is None:
            return True
        watermark = self.watermark(split, place)
        return watermark is None or time_ms >= watermark

    def late(self, row: int) -> bool:
        """Whether a row is late for its window by its own split alone (W6)."""
        split, place = divmod(row, SPLIT_ROWS)
        time_ms, watermark = self.time.time_of(row), self.watermark(split, place)
        assert time_ms is not None
        return watermark is not None and self.time.end_of(self.time.window_of(time_ms)) <= watermark


__all__ = ["STEP_MS", "TIME_FIELD", "WINDOW_SPLIT", "TimeScript", "TimeTable"]
