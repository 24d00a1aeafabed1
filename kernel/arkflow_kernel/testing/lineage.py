"""What became of every row of a job, over all of its attempts: the ground truth of the checkers.

A row that a source handed to the lane is on its way in so many copies: an item that yields two
copies of it for one that came in leaves one more, a sink that publishes one leaves one less. At
none the row is *covered*: whatever it led to can be seen by a reader, or was dropped by an
operator. Positions may stand only behind covered rows (F1).
"""

from collections import Counter
from collections.abc import Iterable
from typing import NoReturn

from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.testing.sim_rows import (
    FINISH_SPLITS,
    SPLIT_ROWS,
    place_of,
    split_number,
    split_of,
)


class ViolationError(AssertionError):
    """An invariant does not hold: a bug in a machine, or in the test kit."""


class Lineage:
    """The rows of one job; `ends` says how many each split has."""

    def __init__(self, ends: dict[int, int]) -> None:
        self._ends = ends
        self._covered = dict.fromkeys(ends, 0)
        self._beyond: set[int] = set()
        self._on_way: dict[int, int] = {}
        self._submitted: dict[int, int] = {}

    def new_attempt(self) -> None:
        """What was on its way is lost."""
        self._on_way.clear()
        self._submitted.clear()

    # --- what happens to rows ------------------------------------------------------------------

    def submitted(self, rows: Iterable[int], split: int, end: int) -> None:
        """A source's batch went to the lane; its split continues at `end`."""
        self._submitted[split] = end
        self.started(rows)

    def started(self, rows: Iterable[int]) -> None:
        """Rows come into being, one copy of each."""
        for row in rows:
            if row in self._on_way:
                _fail(f"row {_name(row)} was read twice in one attempt")
            self._on_way[row] = 1

    def copied(self, rows: Iterable[int]) -> None:
        """An item of a lane yields them. What went in is there until the item is done."""
        on_way = self._on_way
        for row in rows:
            on_way[row] = on_way.get(row, 0) + 1

    def done(self, rows: Iterable[int]) -> None:
        """Copies are gone: a sink published them, or they went into an item that is done."""
        on_way = self._on_way
        for row in rows:
            left = on_way.get(row)
            if left is None:
                _fail(f"row {_name(row)} came once more than it was sent")
            if left > 1:
                on_way[row] = left - 1
                continue
            del on_way[row]
            self._beyond.add(row)

    # --- what must hold ------------------------------------------------------------------------

    def covered(self, split: int) -> int:
        """The first row of the split that is not covered."""
        place = self._covered[split]
        row = split * SPLIT_ROWS + place
        while row in self._beyond:
            row += 1
        self._covered[split] = place_of(row)
        return place_of(row)

    def check_positions(self, positions: Iterable[SplitPosition], what: str) -> None:
        """No position stands past a row that is not covered (F1)."""
        for position in positions:
            split, place = split_number(position.split), place_in(position)
            if place > self._covered[split] and place > self.covered(split):
                _fail(f"{what} of {position.split} is {place}, but row {self._covered[split]}")
            if position.ended and place != self._ends[split]:
                _fail(f"{what} of {position.split} claims an end at {place}")

    def check_all_covered(self) -> None:
        """At the end of the data."""
        self.check_quiet()
        for split, end in self._ends.items():
            if self.covered(split) != end:
                _fail(f"finished, but row {self.covered(split)} of split {split} is lost")

    def check_quiet(self) -> None:
        """Nothing is on its way when an attempt ends in order."""
        if self._on_way:
            some = [_name(row) for row in list(self._on_way)[:3]]
            _fail(f"ended in order, but {len(self._on_way)} rows are on their way: {some}")

    def check_stopped_at(self, positions: Iterable[SplitPosition]) -> None:
        """What a source's chain stopped at is what it submitted."""
        found = {split_number(p.split): place_in(p) for p in positions}
        for split, place in found.items():
            if self._submitted.get(split, place) != place:
                _fail(f"stopped at {place} of split {split}, submitted {self._submitted[split]}")


def place_in(position: SplitPosition) -> int:
    """The row at which a position stands."""
    row = position.position["row"]
    assert isinstance(row, int)
    return row


def missing(rows_in: Iterable[int], rows_out: Iterable[int]) -> "Counter[int]":
    """Rows that did not come out; raises for one that came out and had not gone in."""
    left = Counter(rows_in)
    left.subtract(rows_out)
    for row, count in left.items():
        if count < 0:
            _fail(f"row {_name(row)} came out of an item more often than it went in")
    return +left


def _name(row: int) -> str:
    split = split_of(row)
    kind = "finish" if split >= FINISH_SPLITS else "split"
    return f"{kind} {split}:{place_of(row)}"


def _fail(message: str) -> NoReturn:
    raise ViolationError(message)


__all__ = ["Lineage", "ViolationError", "missing", "place_in"]
