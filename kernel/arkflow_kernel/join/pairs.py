"""Pairs of a row and a range of places, expanded in parts of any size (T1c)."""

import numpy as np

from arkflow_kernel.state.growing import Slots


class Pairs:
    """All pairs of a row with the places from its `first` to before its `end`, in order of row.

    The bounds are those of rows from the number `offset` on.
    """

    def __init__(self, first: Slots, end: Slots, offset: int = 0) -> None:
        some = np.flatnonzero(end > first)
        self.rows = some + offset
        """Rows that have a pair."""
        self._first = first[some]
        self._upto = np.cumsum(end[some] - self._first)

    def __len__(self) -> int:
        return int(self._upto[-1]) if len(self._upto) else 0

    def part(self, start: int, stop: int) -> tuple[Slots, Slots]:
        """The pairs with the numbers `start` to before `stop`: rows, and places beside them."""
        begin = int(np.searchsorted(self._upto, start, side="right"))
        end = int(np.searchsorted(self._upto, stop))
        stop = min(stop, len(self))
        upto = np.minimum(self._upto[begin : end + 1], stop)
        since = np.concatenate(([start], upto[:-1]))
        counts = upto - since
        # The number of a pair minus that of its row's first pair counts from `first`.
        shift = self._first[begin : end + 1].copy()
        if begin and len(shift):
            shift[0] += start - self._upto[begin - 1]
        elif len(shift):
            shift[0] += start
        places = np.arange(start, stop) + np.repeat(shift - since, counts)
        return np.repeat(self.rows[begin : end + 1], counts), places


__all__ = ["Pairs"]
