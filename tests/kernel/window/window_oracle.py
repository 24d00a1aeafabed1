"""What windows must say, as plain loops over all the rows of all partitions (W3, W6, W7, W9, N2).

No batch, no watermark of an operator, no order between partitions: lateness of a row follows from
the rows before it in its own partition, and the rest is arithmetic.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Result = tuple[int, int, int]
"""Start and end of a window, and the key."""

Values = tuple[int, int, int, int]
"""Count, sum, min and max."""

SIZES: dict[str, dict[str, Any]] = {
    "tumbling": {"size_ms": 10},
    "sliding": {"size_ms": 10, "slide_ms": 4},
    "session": {"gap_ms": 5},
}
"""One of each kind of window, as `WindowCase` takes it."""


@dataclass(frozen=True)
class Row:
    """A row of a partition; `n` is unique in the job."""

    n: int
    ts: int
    k: int
    v: int


@dataclass(frozen=True)
class WindowCase:
    """A window over partitions; the fields are those of its configuration."""

    kind: str
    size_ms: int = 0
    slide_ms: int = 0
    gap_ms: int = 0
    offset_ms: int = 0
    bound_ms: int = 0
    policy: str = "drop"
    lateness_ms: int = 0

    @property
    def kept_ms(self) -> int:
        """For how long after its end a window takes rows."""
        return self.lateness_ms if self.policy == "update" else 0

    def of(self, ts: int) -> list[tuple[int, int]]:
        """The windows that a time is in, half-open; of sessions the row's own."""
        if self.kind == "session":
            return [(ts, ts + self.gap_ms)]
        slide = self.slide_ms if self.kind == "sliding" else self.size_ms
        last = (ts - self.offset_ms) // slide * slide + self.offset_ms
        starts = range(last, ts - self.size_ms, -slide)
        return [(start, start + self.size_ms) for start in starts]


@dataclass(frozen=True)
class Truth:
    """`late`: rows that no window takes; `results`: what each window says of each key at last."""

    late: list[Row]
    results: dict[Result, Values]


def with_watermarks(rows: Iterable[Row], bound_ms: int) -> Iterator[tuple[Row, float]]:
    """Each row of a partition and the watermark of the rows before it (W3)."""
    greatest = -math.inf
    for row in rows:
        yield row, greatest - bound_ms
        greatest = max(greatest, row.ts)


def truth(case: WindowCase, partitions: Iterable[Iterable[Row]]) -> Truth:
    """Judge every row, then count what is left."""
    late: list[Row] = []
    taken: list[tuple[Row, list[tuple[int, int]]]] = []
    for rows in partitions:
        for row, watermark in with_watermarks(rows, case.bound_ms):
            open_ones = [
                (start, end) for start, end in case.of(row.ts) if end + case.kept_ms > watermark
            ]
            if open_ones:
                taken.append((row, open_ones))
            else:
                late.append(row)
    members = _sessions(case, taken) if case.kind == "session" else _panes(taken)
    return Truth(late, {window: _values(rows) for window, rows in members.items()})


def _panes(taken: list[tuple[Row, list[tuple[int, int]]]]) -> dict[Result, list[Row]]:
    found: dict[Result, list[Row]] = {}
    for row, windows in taken:
        for start, end in windows:
            found.setdefault((start, end, row.k), []).append(row)
    return found


def _sessions(
    case: WindowCase, taken: list[tuple[Row, list[tuple[int, int]]]]
) -> dict[Result, list[Row]]:
    by_key: dict[int, list[Row]] = {}
    for row, _ in sorted(taken, key=lambda each: each[0].ts):
        by_key.setdefault(row.k, []).append(row)
    found: dict[Result, list[Row]] = {}
    for key, rows in by_key.items():
        sessions = [[rows[0]]]
        for row in rows[1:]:
            if row.ts - sessions[-1][-1].ts > case.gap_ms:
                sessions.append([])
            sessions[-1].append(row)
        for session in sessions:
            found[session[0].ts, session[-1].ts + case.gap_ms, key] = session
    return found


def _values(rows: list[Row]) -> Values:
    values = [row.v for row in rows]
    return len(values), sum(values), min(values), max(values)


def finals(rows: Iterable[dict[str, Any]], *, keyed: bool = True) -> dict[Result, Values]:
    """The last word of each window and key among published rows, as they came (W9, N2).

    Where there are no keys, the key is 0.

    A row with the update flag replaces the one before it; with the count 0 it leaves nothing. A row
    without the flag must be the first of its window and key.
    """
    found: dict[Result, Values] = {}
    gone: set[Result] = set()
    for row in rows:
        key = int(row["key"]) if keyed else 0
        window = (row["window_start"], row["window_end"], key)
        told = window in found or window in gone
        assert row["__arkflow_window_update"] or not told, f"{window} is told twice as new: {row}"
        if row["count"] == 0:
            assert window in found, f"{window} is taken back, and nobody was told of it"
            del found[window]
            gone.add(window)
        else:
            found[window] = (row["count"], row["sum"], row["min"], row["max"])
    return found


__all__ = [
    "SIZES",
    "Result",
    "Row",
    "Truth",
    "Values",
    "WindowCase",
    "finals",
    "truth",
    "with_watermarks",
]
