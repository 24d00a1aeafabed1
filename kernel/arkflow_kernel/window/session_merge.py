"""From fragments to sessions (N2): columns in, columns out, no loop over rows.

A fragment is an interval [first, last] of event times of one key in which no two neighbours are
more than the gap apart; a single row is one, too. Fragments of a key that are at most the gap away
from each other are parts of one session. In which order they come, and how rows were cut into
fragments, plays no part: that is why state may keep fragments and merge them when it likes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from arkflow_kernel.limits import INT64_MAX, INT64_MIN

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions in order of (key, first), and which session each fragment is part of.

    `keys`, `first` and `last` are per session, `session_of` is per fragment. `order` are the
    fragments in order of (key, first); those of session `s` stand there from `starts[s]` on.
    """

    keys: Numbers
    first: Numbers
    last: Numbers
    session_of: Numbers
    order: Numbers
    starts: Numbers

    @property
    def count(self) -> int:
        """How many sessions there are."""
        return len(self.keys)

    def any_of(self, marks: Mask) -> Mask:
        """Which sessions have a fragment that is marked."""
        if not len(marks):
            return np.zeros(0, np.bool_)
        found: Mask = np.logical_or.reduceat(marks[self.order], self.starts)
        return found


def sessions(keys: Numbers, first: Numbers, last: Numbers, gap_ms: int) -> Sessions:
    """The maximal sessions of fragments; `keys` are numbers of keys, each `first` <= `last`.

    Fragments that are exactly `gap_ms` apart are in one session. Exact over all of Int64.
    """
    order = in_order(keys, first)
    if not len(order):
        return Sessions(keys[:0], first[:0], last[:0], order, order, order)
    sorted_keys, sorted_first, sorted_last = keys[order], first[order], last[order]
    same_key = sorted_keys[1:] == sorted_keys[:-1]
    reached = _reached(sorted_last, same_key)[:-1]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = ~same_key | _apart(reached, sorted_first[1:], gap_ms)
    starts = begins.nonzero()[0]
    session_of = np.empty(len(order), np.int64)
    session_of[order] = begins.cumsum() - 1
    return Sessions(
        sorted_keys[starts],
        sorted_first[starts],
        np.maximum.reduceat(sorted_last, starts),
        session_of,
        order,
        starts,
    )


def run_starts(keys: Numbers) -> Numbers:
    """Where each run of equal keys begins; there is at least one key."""
    begins = np.empty(len(keys), np.bool_)
    begins[0] = True
    np.not_equal(keys[1:], keys[:-1], out=begins[1:])
    return begins.nonzero()[0]


def in_order(keys: Numbers, times: Numbers) -> Numbers:
    """Places in order of (key, time), those of one key and time in their own order."""
    count = len(keys)
    if count < 2:
        return np.arange(count)
    least, lowest = int(times.min()), int(keys.min())
    span, width = int(times.max()) - least + 1, int(keys.max()) - lowest + 1
    bits = (count - 1).bit_length()
    if (width * span) << bits > INT64_MAX:
        return np.lexsort((times, keys))
    # Key, time and place as one number: a sort of numbers is ten times faster than one of places.
    packed = (((keys - lowest) * span + (times - least)) << bits) | np.arange(count)
    packed.sort()
    packed &= (1 << bits) - 1
    return packed


def distinct(keys: Numbers) -> Numbers:
    """Each key once, in order."""
    if len(keys) < 2:
        return keys
    keys = np.sort(keys)
    kept = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=kept[1:])
    return keys[kept]


def _reached(last: Numbers, same_key: Mask) -> Numbers:
    """The latest time of each fragment and those of its key before it."""
    if not (same_key & (last[1:] < last[:-1])).any():
        return last
    key_number = np.concatenate([[0], np.cumsum(~same_key)])
    least, span = int(last.min()), int(last.max()) - int(last.min()) + 1
    reached: Numbers
    if (int(key_number[-1]) + 1) * span <= INT64_MAX:
        # A maximum of times, which leave room for the number of the key above them.
        base = key_number * span
        reached = np.maximum.accumulate(last - least + base) - base + least
        return reached
    by_time = np.argsort(last, kind="stable")  # or of ranks, which always do
    ranks = np.empty(len(last), np.int64)
    ranks[by_time] = np.arange(len(last))
    base = key_number * len(last)
    reached = last[by_time[np.maximum.accumulate(ranks + base) - base]]
    return reached


def _apart(reached: Numbers, first: Numbers, gap_ms: int) -> Mask:
    """Whether `first` is more than the gap after `reached`; a difference may exceed Int64."""
    distance = first.astype(np.uint64) - reached.astype(np.uint64)
    apart: Mask = (first > reached) & (distance > np.uint64(gap_ms))
    return apart


def passed(last: Numbers, after_ms: int, watermark: int) -> Mask:
    """Where the watermark is greater than `last + after_ms`, without a wrap."""
    limit = watermark - after_ms
    if limit <= INT64_MIN:
        return np.zeros(len(last), np.bool_)
    below: Mask = last < limit
    return below


def ends(last: Numbers, gap_ms: int) -> Numbers:
    """The ends of sessions, `last + gap`; the greatest Int64 where that lies beyond it."""
    return np.where(last > INT64_MAX - gap_ms, INT64_MAX, last + min(gap_ms, INT64_MAX))


__all__ = [
    "Mask",
    "Numbers",
    "Sessions",
    "distinct",
    "ends",
    "in_order",
    "passed",
    "run_starts",
    "sessions",
]
