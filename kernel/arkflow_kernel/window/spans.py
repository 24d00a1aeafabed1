"""Spans of time by key: which rows are in them, and how new rows change them. No loop over rows."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np

from arkflow_kernel.state.growing import Mask, Slots
from arkflow_kernel.window.assign import Times
from arkflow_kernel.window.session_merge import sessions


@dataclass(frozen=True, slots=True)
class Spans:
    """Intervals `[first, last]`, both included, of keys that are known by their slots."""

    slots: Slots
    first: Times
    last: Times

    def __len__(self) -> int:
        return len(self.slots)

    @classmethod
    def joined(cls, spans: "Seq[Spans]") -> "Spans":
        """All of these."""
        if not spans:
            return cls(*(np.zeros(0, np.int64) for _ in range(3)))
        return cls(
            np.concatenate([each.slots for each in spans]),
            np.concatenate([each.first for each in spans]),
            np.concatenate([each.last for each in spans]),
        )

    def at(self, places: "Slots | Mask") -> "Spans":
        """Those at these places."""
        return Spans(self.slots[places], self.first[places], self.last[places])

    def grown(self, slots: Slots, times: Times, gap_ms: int) -> "Spans":
        """With these times: spans of a key that are at most the gap apart are one."""
        touched = np.zeros(max(slots.max(initial=0), self.slots.max(initial=0)) + 1, np.bool_)
        touched[slots] = True
        near = touched[self.slots]
        old = self.at(near)
        merged = sessions(
            np.concatenate((old.slots, slots)),
            np.concatenate((old.first, times)),
            np.concatenate((old.last, times)),
            gap_ms,
        )
        return Spans.joined([self.at(~near), Spans(merged.keys, merged.first, merged.last)])

    def cover(self, slots: Slots, times: Times) -> Mask:
        """Which times lie in a span of their key; spans may overlap."""
        if not len(self):
            return np.zeros(len(slots), np.bool_)
        order, place = self._located(slots, times)
        inside: Mask = place >= 0
        # The furthest end of the spans of a key that begin up to there decides.
        last = self.last[order]
        by_end = np.argsort(last, kind="stable")
        ranks = np.empty(len(last), np.int64)
        ranks[by_end] = np.arange(len(last))
        mine = self.slots[order]
        key = np.concatenate(([0], np.cumsum(mine[1:] != mine[:-1]))) * len(last)
        furthest = last[by_end[np.maximum.accumulate(ranks + key) - key]]
        inside[inside] = times[inside] <= furthest[place[inside]]
        return inside

    def find(self, slots: Slots, times: Times) -> Slots:
        """The number of the span that each time lies in, -1 for none; no two spans overlap."""
        if not len(self):
            return np.full(len(slots), -1, np.int64)
        order, place = self._located(slots, times)
        found = np.where(place >= 0, order[place], -1)
        beyond = (found >= 0) & (times > self.last[found])
        found[beyond] = -1
        return found

    def _located(self, slots: Slots, times: Times) -> tuple[Slots, Slots]:
        """The spans in order of (slot, first); and where among them each time's last one is that
        begins up to it, -1 for none.
        """
        order = np.lexsort((self.first, self.slots))
        begins = np.unique(self.first)
        width = len(begins) + 1
        keys = self.slots[order] * width + np.searchsorted(begins, self.first[order], "right")
        wanted = slots * width + np.searchsorted(begins, times, "right")
        place = np.searchsorted(keys, wanted, "right") - 1
        other = self.slots[order][place] != slots
        place[other | (place < 0)] = -1
        return order, place


__all__ = ["Spans"]
