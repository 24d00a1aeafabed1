"""Which windows a time belongs to: tumbling and sliding, as functions on whole arrays (N1, N2, W6).

A window is half-open, `[start, end)`. Its state lies in panes, of equal width, of which each window
is a whole number: a tumbling window is one pane, a sliding one is of slices as wide as the greatest
common divisor of size and slide, so that a slide need not divide the size. All times are int64
milliseconds since 1970; division rounds down, also before 1970.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from arkflow_kernel.limits import INT64_MAX, INT64_MIN
from arkflow_kernel.state.growing import Mask

Times = npt.NDArray[np.int64]

_NEAR_PANES = 4

DUE_MAX = 1 << 16
"""Windows that `due` gives at once."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows in order of their end, which is the order of their start."""

    starts: Times
    ends: Times

    def __len__(self) -> int:
        return len(self.starts)

    def part(self, first: int, end: int) -> "Windows":
        """Some neighbours among them."""
        return Windows(self.starts[first:end], self.ends[first:end])


class Panes(Protocol):
    """How times fall into panes, and panes into windows. Panes are known by their start."""

    @property
    def overlapping(self) -> bool:
        """Whether a pane is of several windows; if not, a pane is a window."""
        ...

    def in_range(self, times: Times) -> Mask | None:
        """Which times have windows inside of int64; None: all of them.

        The other functions take only such times, so that nothing wraps.
        """
        ...

    def panes(self, times: Times) -> Times:
        """The pane of each time."""
        ...

    def first_ends(self, panes: Times) -> Times:
        """The end of the first window that each pane is of."""
        ...

    def last_ends(self, panes: Times) -> Times:
        """The end of the last window that each pane is of."""
        ...

    def due(self, panes: Times, above: int, upto: int) -> Iterator[Windows]:
        """Windows of these panes (sorted, distinct) with above < end <= upto, in order, lazily."""
        ...

    def next_end(self, panes: Times, above: int) -> int | None:
        """The end of the first window of these panes (sorted) that ends after `above`, if any."""
        ...


def within(times: Times, low: int, high: int) -> Mask | None:
    """Which times have low <= time <= high; None: all of them."""
    if not len(times) or (times.min() >= low and times.max() <= high):
        return None
    inside: Mask = (times >= low) & (times <= high)
    return inside


class FixedPanes:
    """Windows `[offset + k * slide, offset + k * slide + size)` for every integer k.

    `slide <= size`; they are alike in tumbling windows.
    """

    def __init__(self, size_ms: int, slide_ms: int, offset_ms: int = 0) -> None:
        assert 0 < slide_ms <= size_ms
        self.size = size_ms
        self.slide = slide_ms
        self.width = math.gcd(size_ms, slide_ms)
        self._offset = offset_ms % slide_ms
        self._low = INT64_MIN + 2 * size_ms + 1
        self._high = INT64_MAX - 2 * size_ms - 1

    @property
    def overlapping(self) -> bool:
        """Whether a slice is of several windows."""
        return self.slide < self.size

    def in_range(self, times: Times) -> Mask | None:
        """Which times are further than two windows from the limits of int64; None: all."""
        return within(times, self._low, self._high)

    def panes(self, times: Times) -> Times:
        """The pane of each time: a tumbling window's start, a sliding one's slice."""
        if not len(times):
            return times
        first, last = (self._pane(int(time)) for time in (times.min(), times.max()))
        if last - first > _NEAR_PANES * self.width:
            starts: Times = times - np.mod(times - self._offset, self.width)
            return starts
        # Few panes: comparing is several times faster than dividing.
        near: Times = np.full(len(times), first, np.int64)
        for start in range(first + self.width, last + 1, self.width):
            near[times >= start] = start
        return near

    def _pane(self, time: int) -> int:
        return time - (time - self._offset) % self.width

    def first_starts(self, panes: Times) -> Times:
        """The start of the first window that each pane is of."""
        if not self.overlapping:
            return panes
        # The first multiple of the slide that is after the pane's end minus the size.
        least = panes + self.width - self.size
        starts: Times = least + np.mod(self._offset - least, self.slide)
        return starts

    def last_starts(self, panes: Times) -> Times:
        """The start of the last window that each pane is of."""
        if not self.overlapping:
            return panes
        starts: Times = panes - np.mod(panes - self._offset, self.slide)
        return starts

    def first_ends(self, panes: Times) -> Times:
        """The end of the first window that each pane is of."""
        return self.first_starts(panes) + self.size

    def last_ends(self, panes: Times) -> Times:
        """The end of the last window that each pane is of."""
        return self.last_starts(panes) + self.size

    def end_upto(self, limits: Times) -> Times:
        """The last end of any window that is not after each limit; of limits that are in range."""
        last = limits - np.mod(limits - (self._offset + self.size), self.slide)
        return np.asarray(last, np.int64)

    def due(self, panes: Times, above: int, upto: int) -> Iterator[Windows]:
        """Windows of these panes with above < end <= upto, in order, up to `DUE_MAX` at a time."""
        firsts, lasts = self.first_starts(panes), self.last_starts(panes)
        high = min(upto, INT64_MAX) - self.size
        if above > INT64_MIN:
            low = above - self.size + 1
            # The first window that ends after `above`.
            firsts = np.maximum(firsts, _clipped(low + (self._offset - low) % self.slide))
        for first, last in _joined(firsts, lasts, self.slide):
            yield from self._between(first, min(last, high - (high - self._offset) % self.slide))

    def _between(self, first: int, last: int) -> Iterator[Windows]:
        step = DUE_MAX * self.slide
        for start in range(first, last + 1, step):
            starts = np.arange(start, min(start + step, last + 1), self.slide, dtype=np.int64)
            yield Windows(starts, starts + self.size)

    def next_end(self, panes: Times, above: int) -> int | None:
        """The end of the first window of these panes that ends after `above`."""
        open_ = panes[self.last_ends(panes) > above]
        if not len(open_):
            return None
        first = int(self.first_ends(open_[:1])[0])
        if first > above:
            return first
        return first + ((above - first) // self.slide + 1) * self.slide


def _clipped(value: int) -> int:
    return max(INT64_MIN, min(INT64_MAX, value))


def _joined(firsts: Times, lasts: Times, slide: int) -> Iterator[tuple[int, int]]:
    """Ranges of starts, both rising and both ends included, as ranges that do not overlap."""
    kept = firsts <= lasts
    firsts, lasts = firsts[kept], lasts[kept]
    if not len(firsts):
        return
    # Both rise, so a range can only be joined with its neighbour.
    begins = np.flatnonzero(firsts[1:] > lasts[:-1] + slide) + 1
    opening = np.concatenate(([0], begins))
    closing = np.concatenate((begins - 1, [len(lasts) - 1]))
    yield from zip(firsts[opening].tolist(), lasts[closing].tolist(), strict=True)


__all__ = ["DUE_MAX", "FixedPanes", "Panes", "Times", "Windows", "within"]
