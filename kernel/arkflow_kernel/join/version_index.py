"""Which version of a key is valid at a time, and which versions never will be again (J9, J10).

A version is valid from its time on, a late one from its cut on: what was before that has left.
Of all that are valid the one with the greatest time is the answer; of one time, the last to come.
"""

from dataclasses import dataclass

import numpy as np

from arkflow_kernel.join.join_runs import JoinRun
from arkflow_kernel.join.time_index import TimeIndex
from arkflow_kernel.state.growing import Mask, Slots
from arkflow_kernel.timestamps import Int64s

NO_RUN = -1


def valid_from(times: Int64s, cuts: Int64s | None) -> Int64s:
    """When versions begin to count."""
    return times if cuts is None else np.maximum(times, cuts)


def _ranks(keys: Slots, times: Int64s, numbers: Slots) -> tuple[Slots, Slots]:
    """The place of each in order of (key, time, number), and which stands at each place."""
    order = np.lexsort((numbers, times, keys))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks, order


def needless(
    keys: Slots, since: Int64s, times: Int64s, numbers: Slots, low: int, ttl_ms: int | None
) -> Mask:
    """Which versions are no answer at any time from `low` on: another one of their key, newer
    than they are, is valid whenever they would be; or they have expired.
    """
    ranks, _ = _ranks(keys, times, numbers)
    begin = np.maximum(since, low)
    order = np.lexsort((-ranks, begin, keys))
    best = np.maximum.accumulate(ranks[order])
    gone = np.zeros(len(keys), np.bool_)
    gone[order] = best > ranks[order]
    if ttl_ms is not None:
        gone |= times < _before(low, ttl_ms)
    return gone


def _before(low: int, ttl_ms: int) -> int:
    return max(-(2**63), low - ttl_ms)


@dataclass(frozen=True, slots=True, eq=False)
class VersionIndex:
    """The versions of a run in order of key and of when they begin to count. `best`: the place in
    the run of the answer from each on; None: each is its own.
    """

    keys: Slots
    index: TimeIndex
    best: Slots | None

    @staticmethod
    def of(run: JoinRun) -> "VersionIndex":
        """That of a run."""
        same = (run.keys[1:] == run.keys[:-1]) & (run.times[1:] == run.times[:-1])
        if run.cuts is None and not (same & (run.numbers[1:] < run.numbers[:-1])).any():
            return VersionIndex(run.keys, run.index, None)
        index, order = TimeIndex.of(run.keys, valid_from(run.times, run.cuts))
        ranks, ranked = _ranks(run.keys, run.times, run.numbers)
        # Ranks of a key are above those of the keys before it, so the maximum begins anew.
        return VersionIndex(run.keys, index, ranked[np.maximum.accumulate(ranks[order])])

    def last(self, keys: Slots, times: Int64s) -> Slots:
        """The place of the version of each key that is valid at a time; -1: none is."""
        found = self.index.last(keys, times)
        if self.best is not None:
            some = found >= 0
            found[some] = self.best[found[some]]
        return found


@dataclass(frozen=True, slots=True)
class Versions:
    """The version of each of some rows: its run, by its number in `runs`, and its place there."""

    runs: tuple[JoinRun, ...]
    numbers: Slots
    places: Slots


def newest(
    indexed: dict[JoinRun, VersionIndex], keys: Slots, times: Int64s, ttl_ms: int | None
) -> Versions:
    """The version of each key that is valid at a time, out of several runs; `NO_RUN`: none is."""
    count = len(keys)
    which, places = np.full(count, NO_RUN), np.zeros(count, np.int64)
    best_times, best_numbers = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for number, (run, index) in enumerate(indexed.items()):
        found = index.last(keys, times)
        rows = np.flatnonzero(found >= 0)
        there = found[rows]
        own_times, own_numbers = run.times[there], run.numbers[there]
        later = (own_times > best_times[rows]) | (
            (own_times == best_times[rows]) & (own_numbers > best_numbers[rows])
        )
        later |= which[rows] == NO_RUN
        mine, there = rows[later], there[later]
        which[mine], places[mine] = number, there
        best_times[mine], best_numbers[mine] = own_times[later], own_numbers[later]
    if ttl_ms is not None:
        which[times - best_times > ttl_ms] = NO_RUN
    return Versions(tuple(indexed), which, places)


__all__ = ["NO_RUN", "VersionIndex", "Versions", "needless", "newest", "valid_from"]
