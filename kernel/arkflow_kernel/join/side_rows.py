"""The rows of one side of a join, as a state (J2, S2, S6): added, matched, let go of, sealed.

Rows lie in a few immutable runs that merge by size when nothing can be undone any more. A row whose
time is below `low` has left; it is in no answer, though its run may still hold it. Every change
replaces a list, adds to its end, or sets flags that are known, so that it is undone exactly.
"""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import EARLIEST, LATEST, EventTimeMs, OperatorId, WallMs
from arkflow_kernel.join.join_keys import JoinKeys
from arkflow_kernel.join.join_runs import NULL_KEY, Groups, JoinRun, SpilledRows, merged, tier
from arkflow_kernel.join.pairs import Pairs
from arkflow_kernel.join.side_format import Marks
from arkflow_kernel.join.side_schema import SideSchema
from arkflow_kernel.key_groups import key_groups
from arkflow_kernel.plan import JoinPlan, JoinSidePlan
from arkflow_kernel.state.api import StateJournal
from arkflow_kernel.state.growing import Growing, Mask, Slots
from arkflow_kernel.window.stream_file import SpillPaths

MERGED_AT_ONCE = 4
"""So many runs of about one size become one."""

_COMPACT_ROWS_MIN = 4_096


def low_of(watermark: int | None, hold_ms: int) -> int:
    """Rows with a time below it have left (J3)."""
    if watermark is None or watermark == LATEST:
        return EARLIEST if watermark is None else LATEST
    return max(EARLIEST, watermark - hold_ms)


@dataclass(frozen=True, slots=True)
class FreshRun:
    """A run since the last seal, and which of its rows had matched when they came."""

    run: JoinRun
    matched: Mask | None


@dataclass(frozen=True, slots=True)
class RunRows:
    """Some rows of a run."""

    run: JoinRun
    places: Slots

    def __len__(self) -> int:
        return len(self.places)

    def unmatched(self) -> "RunRows":
        """Those of an outer side that have not matched."""
        return RunRows(self.run, self.run.unmatched(self.places))


class SideRows:
    """What the lane calls: a `Settling`. `keys` are those of both sides."""

    def __init__(
        self,
        operator: OperatorId,
        name: str,
        plan: JoinPlan,
        keys: JoinKeys,
        journal: StateJournal,
        *,
        max_bytes: int | None = None,
        memory_bytes: int | None = None,
        max_parallelism: int = 1,
    ) -> None:
        self.name = name
        self.plan: JoinSidePlan = plan.left if name == "left" else plan.right
        self.operator = operator
        self.schema = SideSchema(self)
        self.watermark: EventTimeMs | None = None
        self._join = plan
        self._keys = keys
        self._journal = journal
        self._max_bytes = max_bytes
        self._budget = memory_bytes
        self._max_parallelism = max_parallelism
        self._runs: tuple[JoinRun, ...] = ()
        self._counts: Growing[np.int64] = Growing(np.int64)
        self._number = 0
        self._fresh: list[FreshRun] = []
        self._marks: list[Marks] = []
        self._tracked = False
        self._spool: SpillPaths | None = None

    @property
    def key_field(self) -> str:
        """The column of its keys."""
        return self.plan.key

    @property
    def outer(self) -> bool:
        """Its rows leave also if they match nothing."""
        return self.plan.outer

    @property
    def live_keys(self) -> int:
        """Rows that it holds."""
        return sum(run.live for run in self._runs)

    @property
    def live_bytes(self) -> int:
        """Bytes of them (S4)."""
        return sum(run.live_bytes for run in self._runs)

    @property
    def held_bytes(self) -> int:
        """Memory that their runs take; none of those in files."""
        return sum(run.rows.memory_bytes for run in self._runs)

    @property
    def low(self) -> int:
        """Rows with a time below it have left."""
        return low_of(self.watermark, self._join.hold_ms)

    def stage(self, size_bytes: int, undo: Callable[[], None]) -> None:
        """Announce a change; a part of the item at work."""
        self._journal.stage(self, size_bytes, undo)

    # --- rows ----------------------------------------------------------------------------------

    def numbered(self, rows: int) -> Slots:
        """Numbers in order of arrival for so many rows that `add` brings."""
        return np.arange(self._number, self._number + rows)

    def groups_of(self, batch: pa.RecordBatch) -> Groups | None:
        """The key groups of rows, if anything will be said of single rows later."""
        if self._tracked and (self.outer or self._join.evicts_oldest):
            return self.key_groups(batch)
        return None

    def key_groups(self, batch: pa.RecordBatch) -> Groups:
        """The key groups of rows."""
        return key_groups(batch, (self.key_field,), self._max_parallelism).astype(np.int32)

    def pairs(self, probe: JoinRun, window_ms: int) -> list[tuple[JoinRun, Pairs]]:
        """Which rows here may match rows of the other side: same key, close enough, not left, not
        below the cut of the other row. Their own cuts are for the caller to look at.
        """
        first = int(np.searchsorted(probe.keys, NULL_KEY, side="right"))
        keys, times = probe.keys[first:], probe.times[first:]
        if not len(keys):
            return []
        low = np.maximum(times - window_ms, self.low)
        if probe.cuts is not None:
            low = np.maximum(low, probe.cuts[first:])
        high, found = times + window_ms, []
        earliest, latest = int(low.min()), int(high.max())
        for run in self._runs:
            if run.rising[-1] < earliest or run.rising[0] > latest:
                continue
            starts, ends = run.index.find(keys, low, high)
            pairs = Pairs(starts, ends, first)
            if len(pairs):
                found.append((run, pairs))
        return found

    def add(self, run: JoinRun, everything: int) -> None:
        """Take rows in; `everything` are the bytes of both sides. Raises `ProcessingError`."""
        size = run.size_bytes
        if self._max_bytes is not None and everything + size > self._max_bytes:
            raise self.failure(
                f"the rows that it keeps would take {everything + size} bytes of the "
                f"`max_bytes: {self._max_bytes}` that its state has; raise it, or "
                f"{self._join.smaller}"
            )
        runs, fresh, number = self._runs, len(self._fresh), self._number
        keys, rows = _counted(run.keys)
        self._counts.extend_to(self._keys.size, 0)

        def undo() -> None:
            self._runs, self._number = runs, number
            del self._fresh[fresh:]
            self._counts.room[keys] -= rows

        self.stage(size, undo)
        self._runs = (*runs, run)
        self._number += len(run)
        self._counts.room[keys] += rows
        if self._tracked:
            matched = None if run.matched is None else run.matched.copy()
            self._fresh.append(FreshRun(run, matched))

    def mark(self, run: JoinRun, places: Slots) -> None:
        """These rows of a run have matched."""
        assert run.matched is not None
        matched = run.matched
        new = np.unique(places[~matched[places]])
        if not len(new):
            return
        marks = len(self._marks)

        def undo() -> None:
            matched[new] = False
            del self._marks[marks:]

        self.stage(0, undo)
        matched[new] = True
        self._marked(run, new, gone=False)

    def _marked(self, run: JoinRun, places: Slots, *, gone: bool) -> None:
        if self._tracked:
            assert run.groups is not None
            groups, times = run.groups[places], run.times[places]
            self._marks.append(Marks(groups, times, run.numbers[places], gone))

    # --- time ----------------------------------------------------------------------------------

    def advance(self, watermark: EventTimeMs) -> list[RunRows]:
        """Let go of what is below the new `low`; the rows that are."""
        before, runs, counts = self.watermark, self._runs, self._counts
        fresh, marks = self._fresh, self._marks
        low = low_of(watermark, self._join.hold_ms)
        due = [(run, run.left, run.due(low)) for run in runs if run.rising[run.left] < low]

        def undo() -> None:
            self.watermark, self._runs = before, runs
            self._fresh, self._marks = fresh, marks
            for run, left, places in due:
                run.left = left
                np.add.at(counts.room, run.keys[places], 1)

        self.stage(0, undo)
        self.watermark = watermark
        for run, _, places in due:
            run.left = int(np.searchsorted(run.rising, low))
            np.subtract.at(counts.room, run.keys[places], 1)
        self._runs = tuple(run for run in runs if run.left < len(run))
        self._fresh = [each for each in fresh if each.run.rising[-1] >= low]
        self._marks = [each for each in marks if each.times.max() >= low]
        return [RunRows(run, places) for run, _, places in due if len(places)]

    # --- the bound of a key --------------------------------------------------------------------

    def over(self, run: JoinRun) -> Slots:
        """Keys of a run that was added which now have more rows than one may (`max_per_key`)."""
        keys, _ = _counted(run.keys)
        keys = keys[keys != NULL_KEY]
        more: Slots = keys[self._counts.room[keys] > self._join.max_per_key]
        return more

    def rows_of(self, key: int) -> int:
        """How many rows a key has."""
        return int(self._counts.room[key])

    def evict(self, keys: Slots) -> tuple[int, list[RunRows]]:
        """The oldest rows of these keys have to go, until each has as many as it may. How many, and
        those that leave for it: of an outer side, without a match.
        """
        evicted, leaving = 0, []
        for run, places in self._oldest(keys):
            evicted += len(places)
            unmatched = RunRows(run, places).unmatched()
            if len(unmatched):
                leaving.append(unmatched)
            self._go(run, places)
        return evicted, leaving

    def _oldest(self, keys: Slots) -> Iterator[tuple[JoinRun, Slots]]:
        """Which rows have to go, by run."""
        low, high = np.full(len(keys), self.low), np.full(len(keys), LATEST)
        which, times, numbers, runs, places = [], [], [], [], []
        for number, run in enumerate(self._runs):
            pairs = Pairs(*run.index.find(keys, low, high))
            mine, there = pairs.part(0, len(pairs))
            if run.gone is not None:
                kept = ~run.gone[there]
                mine, there = mine[kept], there[kept]
            which.append(mine)
            times.append(run.times[there])
            numbers.append(run.numbers[there])
            runs.append(np.full(len(mine), number))
            places.append(there)
        key = np.concatenate(which)
        order = np.lexsort((np.concatenate(numbers), np.concatenate(times), key))
        counts = np.bincount(key, minlength=len(keys))
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        surplus = np.repeat(counts - self._join.max_per_key, counts)
        victims = order[np.arange(len(order)) - starts < surplus]
        run_of, place_of = np.concatenate(runs)[victims], np.concatenate(places)[victims]
        for number in np.unique(run_of).tolist():
            yield self._runs[number], np.sort(place_of[run_of == number])

    def _go(self, run: JoinRun, places: Slots) -> None:
        marks, counts, before = len(self._marks), self._counts, run.gone
        gone = np.zeros(len(run), np.bool_) if before is None else before.copy()

        def undo() -> None:
            run.gone = before
            np.add.at(counts.room, run.keys[places], 1)
            del self._marks[marks:]

        self.stage(0, undo)
        gone[places] = True
        run.gone = gone
        np.subtract.at(counts.room, run.keys[places], 1)
        self._marked(run, places, gone=True)

    # --- between two items ---------------------------------------------------------------------

    def settle(self, wall_ms: WallMs) -> None:
        """Merge runs of about one size, drop what is mostly gone, forget keys, spill."""
        del wall_ms
        self._merge()
        self._keys.settle()
        self._spill()

    def _merge(self) -> None:
        runs = list(self._runs)
        changed = False
        while due := _due(runs):
            one = merged(due, self.schema.of_rows)
            runs = [run for run in runs if run not in due]
            if one is not None:
                runs.append(one)
            changed = True
        if changed:
            self._runs = tuple(runs)

    def _spill(self) -> None:
        """The largest runs in memory go to files, if there are more than the budget allows."""
        if self._spool is None or self._budget is None:
            return
        held = self.held_bytes
        if held <= self._budget:
            return
        for run in sorted(self._runs, key=lambda run: -run.rows.memory_bytes):
            if held <= self._budget // 2:
                return
            held -= run.rows.memory_bytes
            run.rows = SpilledRows(self._spool.next(), run.rows.read(), self.operator)

    def uses_keys(self, size: int) -> Mask:
        """See `KeyedSide`. Also those of rows that have left, while their run is there."""
        used = np.zeros(size, np.bool_)
        for run in self._runs:
            used[run.keys] = True
        return used

    def renumbered(self, kept: Slots) -> None:
        """See `KeyedSide`. The order of rows stays: that of numbers does."""
        self._counts.extend_to(int(kept[-1]) + 1, 0)
        self._counts.keep(kept)
        for run in self._runs:
            run.renumber(kept)

    def restored(self, runs: Iterable[JoinRun], watermark: EventTimeMs | None, number: int) -> None:
        """Hold these rows; before the first item. `number` is that of the next row."""
        self.watermark, self._number = watermark, number
        for run in runs:
            keys, rows = _counted(run.keys)
            self._counts.extend_to(self._keys.size, 0)
            self._counts.room[keys] += rows
            self._runs = (*self._runs, run)
            self._spill()
        self._merge()

    def failure(self, cause: str) -> ProcessingError:
        """An item that the side cannot take."""
        text = f"its {self.name} side: {cause}"
        return ProcessingError(self.operator, text, error_class="StateError")


def _counted(keys: Slots) -> tuple[Slots, Slots]:
    """Keys that stand together, each once, and how many rows each has."""
    starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    return keys[starts], np.diff(np.append(starts, len(keys)))


def _due(runs: Seq[JoinRun]) -> list[JoinRun]:
    """Runs in memory that should become one; none: []."""
    held = [run for run in runs if not isinstance(run.rows, SpilledRows)]
    tiers: dict[int, list[JoinRun]] = {}
    for run in held:
        mine = tiers.setdefault(tier(run), [])
        mine.append(run)
        if len(mine) == MERGED_AT_ONCE:
            return mine
        if len(run) > _COMPACT_ROWS_MIN and 2 * run.live < len(run):
            return [run]
    return []


__all__ = ["MERGED_AT_ONCE", "FreshRun", "RunRows", "SideRows", "low_of"]
