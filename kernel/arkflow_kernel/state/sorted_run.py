"""One immutable run: found by key, merged with others (S6, M7)."""

from collections.abc import Iterator
from collections.abc import Sequence as Seq

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_kernel.state.growing import Mask, Slots
from arkflow_kernel.state.key_form import KeyPart, parts_equal, parts_joined
from arkflow_kernel.state.run_format import RunLayout, RunOwner, from_batch, laid_out, to_batch
from arkflow_kernel.state.run_rows import NEVER, RunRows, Wanted, joined


class SortedRun:
    """A run's batch in memory or in a mapped file. Thread-safe: nothing of it changes."""

    def __init__(self, batch: pa.RecordBatch, layout: RunLayout | None = None) -> None:
        self.batch, self.layout = (batch, layout) if layout is not None else laid_out(batch)
        self.groups = np.asarray(self.batch.column(0))
        self.hashes = np.asarray(self.batch.column(1))
        highest = int(self.groups[-1]) if len(self.groups) else -1
        self._starts = np.searchsorted(self.groups, np.arange(highest + 2))

    @classmethod
    def of(cls, rows: RunRows, owner: RunOwner) -> "SortedRun":
        """A run of these entries, in any order."""
        return cls(to_batch(rows.in_order(), owner))

    def __len__(self) -> int:
        return self.batch.num_rows

    def rows(self) -> RunRows:
        """All its entries."""
        return from_batch(self.batch, self.layout)

    def at(self, places: Slots) -> RunRows:
        """Its entries at these places."""
        return from_batch(self.batch.take(places), self.layout)

    def deadlines(self) -> npt.NDArray[np.int64]:
        """When each entry is gone (S7)."""
        if not self.layout.ttl:
            return np.full(len(self), NEVER, np.int64)
        column = self.batch.column(self.batch.num_columns - 2)
        deadlines: npt.NDArray[np.int64] = np.asarray(column, dtype=np.int64)
        return deadlines

    def deleted(self) -> Mask:
        """Which entries are tombstones."""
        return np.asarray(self.batch.column(self.batch.num_columns - 1), dtype=np.bool_)

    def wanted(self) -> Wanted:
        """All its keys, to look for them elsewhere."""
        rows = self.rows()
        return Wanted(rows.groups, rows.hashes, rows.parts)

    def find(self, keys: Wanted) -> Slots:
        """The place of each key, -1 where it is not."""
        found = np.full(len(keys), -1, np.int64)
        if not len(self) or not len(keys):
            return found
        groups = np.minimum(keys.groups, len(self._starts) - 2).astype(np.int64)
        ends = np.where(groups == keys.groups, self._starts[groups + 1], 0)
        places = self._lower(self._starts[groups], ends, keys)
        rows = self._on_way(np.arange(len(keys)), places, ends, keys)
        while len(rows):
            same = keys.equal(rows, self.at(places[rows]).parts)
            found[rows[same]] = places[rows[same]]
            rows = rows[~same]  # another key has the same hash: the next place may be it
            places[rows] += 1
            rows = self._on_way(rows, places, ends, keys)
        return found

    def _on_way(self, rows: Slots, places: Slots, ends: Slots, keys: Wanted) -> Slots:
        """Those of the keys whose place holds their hash."""
        inside = rows[places[rows] < ends[rows]]
        here: Mask = self.hashes[places[inside]] == keys.hashes[inside]
        return inside[here]

    def _lower(self, low: Slots, high: Slots, keys: Wanted) -> Slots:
        """Per key the first place from `low` to `high` whose hash is not less than its own."""
        low, high = low.copy(), np.maximum(low, high)
        while (low < high).any():
            middle = (low + high) >> 1
            less = self.hashes[np.minimum(middle, len(self) - 1)] < keys.hashes
            less &= low < high
            low = np.where(less, middle + 1, low)
            high = np.where(less, high, middle)
        return low


def newest(runs: Seq[SortedRun]) -> list[Mask]:
    """Per run, oldest first, which of its entries no newer run has another of."""
    sizes = [len(run) for run in runs]
    # A search costs more a key than a sort, and a sort sorts all of them.
    looked_up = sum(number * size for number, size in enumerate(sizes))
    masks = _by_sorting(runs) if looked_up > sum(sizes) else None
    return _by_search(runs) if masks is None else masks


def _by_sorting(runs: Seq[SortedRun]) -> list[Mask] | None:
    """The same by one sort of all entries, which is quicker for many runs; None if two different
    keys cannot be told apart so.
    """
    groups = np.concatenate([run.groups for run in runs]).astype(np.uint64)
    hashes = np.concatenate([run.hashes for run in runs])
    if len(groups) and groups.max() > _GROUP_MAX:
        return None
    keys = groups << _GROUP_SHIFT | hashes >> _HASH_SHIFT
    order = np.argsort(keys, kind="stable")  # runs are sorted: little is left to do
    doubled = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    older, newer = order[doubled], order[doubled + 1]
    ends = np.cumsum([len(run) for run in runs])
    if not _same_keys(runs, ends, older, newer):
        return None
    alone = np.ones(len(keys), np.bool_)
    alone[older] = False
    return np.split(alone, ends[:-1])


_GROUP_SHIFT, _HASH_SHIFT = np.uint64(48), np.uint64(16)
_GROUP_MAX = (1 << 16) - 1


def _same_keys(runs: Seq[SortedRun], ends: Slots, mine: Slots, others: Slots) -> bool:
    """Whether the entries at these places of all runs have the same keys, pair by pair."""
    if not len(mine):
        return True
    mine_parts, other_parts = _parts_at(runs, ends, mine), _parts_at(runs, ends, others)
    pairs = zip(mine_parts, other_parts, strict=True)
    return all(bool(parts_equal(one, other).all()) for one, other in pairs)


def _parts_at(runs: Seq[SortedRun], ends: Slots, places: Slots) -> list[KeyPart]:
    """The keys at these places of all runs, as if these were one."""
    order = np.argsort(places, kind="stable")
    limits = np.searchsorted(places[order], [0, *ends])
    pieces = []
    for number, run in enumerate(runs):
        inside = places[order[limits[number] : limits[number + 1]]]
        pieces.append(run.at(inside - (ends[number] - len(run))).parts)
    inverse = np.empty(len(places), np.int64)
    inverse[order] = np.arange(len(places))
    return [parts_joined(parts).take(inverse) for parts in zip(*pieces, strict=True)]


def _by_search(runs: Seq[SortedRun]) -> list[Mask]:
    """The same by looking for the keys of each run in all older ones."""
    masks = [np.ones(len(run), np.bool_) for run in runs]
    for number, run in enumerate(runs[1:], 1):
        keys = run.wanted()
        for older, mask in zip(runs[:number], masks[:number], strict=True):
            places = older.find(keys)
            mask[places[places >= 0]] = False
    return masks


def live_rows(runs: Seq[SortedRun]) -> Iterator[RunRows]:
    """The newest entry of each key that is not deleted, run by run; they are given oldest first."""
    for run, mask in zip(runs, newest(runs), strict=True):
        rows = run.rows()
        yield rows.where(mask & ~rows.deleted)


def merged(runs: Seq[SortedRun], *, keep_deleted: bool, wall_ms: int | None = None) -> RunRows:
    """The newest entry of each key, in any order; runs are given oldest first.

    Tombstones go with a merge of all runs (not `keep_deleted`), and entries that are expired at
    `wall_ms` with them.
    """
    pieces = []
    for run, mask in zip(runs, newest(runs), strict=True):
        rows = run.rows()
        if not keep_deleted:
            mask = mask & ~rows.deleted
            if wall_ms is not None and rows.deadlines is not None:
                mask &= rows.deadlines > wall_ms
        pieces.append(rows.where(mask))
    return joined(pieces)


_FAN_IN = 8
_RUNS_MAX = 4 * _FAN_IN
_ALIKE = 2


def merge_due(sizes: Seq[int]) -> tuple[int, int] | None:
    """Which runs to merge next, as a range of their numbers; None for none. Oldest first.

    `sizes` are rows: the bytes of small runs are mostly their schema.

    All of them when those above the oldest exceed half of it; else the newest ones, when there
    are eight of about one size. So an entry is rewritten about once per factor of eight between
    what a checkpoint adds and half of the state, and once per base merge (M7).
    """
    if len(sizes) < 2:
        return None
    if 2 * sum(sizes[1:]) > sizes[0]:
        return 0, len(sizes)
    first, total = len(sizes) - 1, sizes[-1]
    while first > 1 and sizes[first - 1] * (len(sizes) - first) <= _ALIKE * total:
        first -= 1
        total += sizes[first]
    if len(sizes) - first >= _FAN_IN:
        return first, len(sizes)
    return (1, len(sizes)) if len(sizes) > _RUNS_MAX else None


__all__ = ["SortedRun", "live_rows", "merge_due", "merged", "newest"]
