"""Entries in order of (key, time), and where those of a key in a span of time are: one search each.

A key and a time are one number, so that numpy finds all rows of a batch at once. Where they do not
fit into 64 bits together, the rank of the time stands for it.
"""

from dataclasses import dataclass

import numpy as np

from arkflow_kernel.state.growing import Slots
from arkflow_kernel.timestamps import Int64s

_PLACES_MAX = 2**62
"""Sums of two numbers below it do not wrap."""


@dataclass(frozen=True, slots=True)
class TimeIndex:
    """An entry's place is `key * stride + offset of its time`; places rise.

    Offsets count from `base`, or are ranks among `ranks`, the distinct times.
    """

    places: Int64s
    base: int
    stride: int
    last_key: int
    ranks: Int64s | None

    @staticmethod
    def of(keys: Slots, times: Int64s) -> "tuple[TimeIndex, Slots]":
        """The index of some entries, and their order in it. Keys are 0 or more."""
        if not len(keys):
            return TimeIndex(np.zeros(0, np.int64), 0, 1, -1, None), np.zeros(0, np.int64)
        base, last_key = int(times.min()), int(keys.max())
        stride = int(times.max()) - base + 2
        ranks = None
        if (last_key + 2) * stride < _PLACES_MAX:
            offsets = times - base
        else:
            ranks = np.unique(times)
            stride = len(ranks) + 1
            offsets = np.searchsorted(ranks, times)
        places = keys * np.int64(stride) + offsets
        order = np.argsort(places, kind="stable")
        return TimeIndex(places[order], base, stride, last_key, ranks), order

    def find(self, keys: Slots, low: Int64s, high: Int64s) -> tuple[Slots, Slots]:
        """For each key the first entry of it with a time from `low` on, and the one behind the
        last up to `high`.
        """
        starts = self._starts(keys)
        if self.ranks is None:
            lows = np.minimum(np.maximum(low, self.base) - self.base, self.stride - 1)
        else:
            lows = np.searchsorted(self.ranks, low)
        bounds = starts + self._offsets_behind(high)
        first = np.searchsorted(self.places, starts + lows)
        end = first.copy()
        # Most keys have nothing there: only for the others a second search.
        inside = first < len(self.places)
        inside[inside] = self.places[first[inside]] < bounds[inside]
        end[inside] = np.searchsorted(self.places, bounds[inside])
        return first, end

    def last(self, keys: Slots, high: Int64s) -> Slots:
        """For each key its last entry with a time up to `high`; -1: there is none."""
        starts = self._starts(keys)
        found = np.searchsorted(self.places, starts + self._offsets_behind(high)) - 1
        some = found >= 0
        some[some] = self.places[found[some]] >= starts[some]
        found[~some] = -1
        return found

    def _starts(self, keys: Slots) -> Int64s:
        starts: Int64s = np.minimum(keys, self.last_key + 1) * np.int64(self.stride)
        return starts

    def _offsets_behind(self, times: Int64s) -> Int64s:
        """The offset behind those of all times up to each."""
        if self.ranks is not None:
            return np.searchsorted(self.ranks, times, side="right")
        highs = np.minimum(times, self.base + self.stride - 2)
        offsets: Int64s = np.maximum(highs, self.base - 1) - (self.base - 1)
        return offsets


__all__ = ["TimeIndex"]
