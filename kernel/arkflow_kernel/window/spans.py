"""Spans of time by key: which rows are in them, and how new rows change them. No loop over rows."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import cached_property

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


class SpanSearch:
    """Finds times among one or more spans, which it puts in order of (slot, first) once."""

    def __init__(self, spans: Spans) -> None:
        self._order = np.lexsort((spans.first, spans.slots))
        self._spans = spans.at(self._order)
        self._begins = np.unique(spans.first)
        self._width = len(self._begins) + 1
        self._places = self._placed(self._spans.slots, self._spans.first)

    def _placed(self, slots: Slots, times: Times) -> Slots:
        """A number for each (slot, time) that is in their order, as far as spans tell times."""
        return slots * self._width + np.searchsorted(self._begins, times, "right")

    def cover(self, slots: Slots, times: Times) -> Mask:
        """Which times lie in a span of their key; spans may overlap."""
        place = self._located(slots, times)
        inside: Mask = place >= 0
        inside[inside] = times[inside] <= self._furthest[place[inside]]
        return inside

    @cached_property
    def _furthest(self) -> Times:
        """Of each span the furthest end of those of its key that begin up to it."""
        last, mine = self._spans.last, self._spans.slots
        by_end = np.argsort(last, kind="stable")
        ranks = np.empty(len(last), np.int64)
        ranks[by_end] = np.arange(len(last))
        key = np.concatenate(([0], np.cumsum(mine[1:] != mine[:-1]))) * len(last)
        furthest: Times = last[by_end[np.maximum.accumulate(ranks + key) - key]]
        return furthest

    def find(self, slots: Slots, times: Times) -> Slots:
        """The number of the span that each time lies in, -1 for none; no two spans overlap."""
        place = self._located(slots, times)
        place[(place >= 0) & (times > self._spans.last[place])] = -1
        return np.where(place >= 0, self._order[place], -1)

    def _located(self, slots: Slots, times: Times) -> Slots:
        """Where each time's last span is that begins up to it, -1 for none."""
        place = np.searchsorted(self._places, self._placed(slots, times), "right") - 1
        other = self._spans.slots[place] != slots
        place[other | (place < 0)] = -1
        return place


__all__ = ["SpanSearch", "Spans"]
