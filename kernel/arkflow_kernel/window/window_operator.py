"""Tumbling, sliding and calendar windows over keyed rows, by watermark or by the wall clock.

Rows go into panes as they come (`pane_runs.py`); nothing is computed for a window before it fires.
Which windows have fired is known from one number, the operator's watermark: those that end at it
or before. So a restored operator fires what is open, and nothing twice (N5).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import EARLIEST, LATEST, EventTimeMs, OperatorId, WallMs
from arkflow_kernel.plan import LatePolicy, OperatorPlan, WindowPlan
from arkflow_kernel.ports import OperatorResult
from arkflow_kernel.state.api import StateAddress, StateJournal
from arkflow_kernel.state.arrow_numpy import AnyArray, as_array
from arkflow_kernel.state.growing import Mask
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from arkflow_kernel.timestamps import TIME_LIMIT_MS, operator_times
from arkflow_kernel.window.aggregates import PANES, Aggregates, Family
from arkflow_kernel.window.assign import Panes, Times
from arkflow_kernel.window.firing import Firing, WindowTable
from arkflow_kernel.window.key_bound import ROWS_STATE, KeyBound, row_counts
from arkflow_kernel.window.keys import KeyLedger
from arkflow_kernel.window.lateness import (
    closed_upto,
    either,
    judged,
    lateness_of,
    turned_away,
    unstamped,
)
from arkflow_kernel.window.pane_runs import PaneRuns
from arkflow_kernel.window.pane_sides import RawRows
from arkflow_kernel.window.pane_tables import AFTER, PANE
from arkflow_kernel.window.results import WINDOW_END, WINDOW_UPDATE, Results

NOTHING = OperatorResult(())


@dataclass(frozen=True, slots=True)
class _Taken:
    """The rows of a batch that join their windows, and those that do not."""

    rows: pa.RecordBatch
    times: Times
    panes: Times
    after: Times | None
    away: pa.RecordBatch | None
    away_rows: int


class ColumnarWindowOperator:
    """A `ports.TimedOperator` over panes. `runs` holds the panes by family, kept in step.

    `bound` is there if the number of keys is bounded (N6); `ROWS_STATE` is then in `runs`, too, if
    the oldest may go.
    """

    def __init__(
        self,
        operator: OperatorId,
        plan: WindowPlan,
        windows: Panes,
        aggregates: Aggregates,
        ledger: KeyLedger,
        runs: Mapping[str, PaneRuns],
        results: Results,
        journal: StateJournal,
        bound: KeyBound | None = None,
    ) -> None:
        self._operator = operator
        self._plan = plan
        self._windows = windows
        self._aggregates = aggregates
        self._ledger = ledger
        self._runs = runs
        self._main = runs[PANES]
        self._results = results
        self._journal = journal
        families = {family.name: runs[family.name] for family in aggregates.families}
        self._firing = Firing(windows, aggregates, ledger, families)
        self._bound = bound
        self._lateness = lateness_of(plan)
        limits = np.array([-TIME_LIMIT_MS - 1, TIME_LIMIT_MS], np.int64)
        self._all_fit = windows.in_range(limits) is None

    def open(self) -> None:
        """The states are opened by whoever restores them."""

    def finish(self) -> OperatorResult:
        """`end` has fired everything."""
        return NOTHING

    def close(self) -> None:
        """The states are released by whoever made them."""

    @property
    def _watermark(self) -> int:
        """What has fired: every window that ends at it or before."""
        mark = self._main.watermark
        return EARLIEST if mark is None else mark

    # --- rows ----------------------------------------------------------------------------------

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:  # noqa: ARG002
        """Take the rows into their panes; corrections of fired windows leave at once (W6).

        Raises `ProcessingError` for a column that is missing or that has a type which does not
        fit, for a time that does not fit, and when a budget is passed.
        """
        batch, marks = unstamped(batch)
        taken = self._judged(batch, marks) if self._plan.event_time else self._stamped(batch)
        rows = taken.rows.num_rows
        corrections: tuple[pa.RecordBatch, ...] = ()
        taken, evicted = self._not_evicted(taken)
        added = taken.rows.num_rows
        if added:
            corrections = self._added(taken)
            evicted += 0 if self._bound is None else self._bound.kept(added, self._watermark)
        return OperatorResult(
            corrections,
            late=taken.away,
            late_rows=taken.away_rows,
            absorbed=rows,
            evicted=evicted,
        )

    def _not_evicted(self, taken: _Taken) -> tuple[_Taken, int]:
        """Without rows of panes that had to go: what they are of would be told in part (N6)."""
        low = None if self._bound is None else self._main.low
        if low is None:
            return taken, 0
        kept = taken.panes >= low
        gone = len(kept) - int(kept.sum())
        if not gone:
            return taken, 0
        after = None if taken.after is None else taken.after[kept]
        rows = taken.rows.filter(as_array(kept))
        return replace(
            taken, rows=rows, times=taken.times[kept], panes=taken.panes[kept], after=after
        ), gone

    def _stamped(self, batch: pa.RecordBatch) -> _Taken:
        """Processing time: the rows are of now. A window that has fired takes none of them."""
        now = max(self._journal.wall_ms, self._watermark)
        times = np.full(batch.num_rows, now, np.int64)
        return _Taken(batch, times, self._windows.panes(times), None, None, 0)

    def _judged(self, batch: pa.RecordBatch, marks: Times | None) -> _Taken:
        """Event time: rows without a time, and those that are late, do not join (W5, W6, W7)."""
        times = operator_times(batch, self._plan.timestamp_field, self._operator)
        ms, valid = times.ms, times.valid
        if self._is_result(batch):
            ms = ms - 1
        inside = None if self._all_fit else self._windows.in_range(ms)
        if inside is not None:
            raise ProcessingError(
                self._operator,
                f"the windows of the time {ms[~inside][0]} in '{self._plan.timestamp_field}' "
                "leave the times that 64 bits can hold; make the windows smaller",
            )
        panes = self._windows.panes(ms)
        found = judged(self._windows, panes, marks, self._watermark, self._lateness)
        untimed = None if valid is None else ~valid
        late = found.refused
        if late is not None and valid is not None:
            late = late & valid
            late = late if late.any() else None
        gone = either(late, untimed)
        if gone is None:
            return _Taken(batch, ms, panes, found.after, None, 0)
        routed = late if self._plan.late is LatePolicy.ROUTE else None
        kept = ~gone
        after = None if found.after is None else found.after[kept]
        return _Taken(
            batch.filter(as_array(kept)),
            ms[kept],
            panes[kept],
            after,
            turned_away(batch, routed, untimed),
            int(gone.sum()),
        )

    def _is_result(self, batch: pa.RecordBatch) -> bool:
        """Rows of a window before this one, whose event time is `window_end - 1` (N7)."""
        ends = self._plan.timestamp_field == WINDOW_END
        return ends and WINDOW_UPDATE in batch.schema.names

    def _added(self, taken: _Taken) -> tuple[pa.RecordBatch, ...]:
        columns: dict[str, AnyArray] = {PANE: as_array(taken.panes)}
        if taken.after is not None:
            columns[AFTER] = as_array(taken.after)
        columns |= self._ledger.columns(taken.rows)
        by = list(columns)
        raw = RawRows.of(columns | self._raw(taken))
        for name, runs in self._runs.items():
            runs.add(raw.only_panes() if name == ROWS_STATE else raw)
        if not self._lateness or self._watermark == EARLIEST:
            return ()
        return self._corrections(raw.table.select(by), taken.panes)

    def _corrections(self, touched: pa.Table, panes: Times) -> tuple[pa.RecordBatch, ...]:
        upto = self._watermark
        fired = self._windows.first_ends(panes) <= upto
        if not fired.any():
            return ()
        above = closed_upto(upto, self._lateness)
        changed = self._firing.corrected(touched.filter(as_array(fired)), above, upto)
        return tuple(batch for part in changed for batch in self._batches(part, update=True))

    def _raw(self, taken: _Taken) -> dict[str, AnyArray]:
        """The value columns; what they teach of types is taken back with the batch."""
        types = self._aggregates.types
        raw = self._aggregates.raw(taken.rows)
        if self._aggregates.types != types:
            self._journal.stage(self._main, 0, lambda: self._forget(types))
        if self._aggregates.uses_time:
            raw["ts"] = as_array(taken.times)
        return raw

    def _forget(self, types: tuple[pa.DataType, ...]) -> None:
        self._aggregates.types = types

    # --- time ----------------------------------------------------------------------------------

    def advance(self, watermark: EventTimeMs) -> Iterator[OperatorResult]:
        """Fire what ends up to the watermark; then let go of what takes no more rows (W6)."""
        if self._plan.event_time:
            yield from self._fire(watermark)

    def tick(self, wall_ms: WallMs) -> Iterator[OperatorResult]:
        """Processing time: fire what has ended by the wall clock."""
        if not self._plan.event_time:
            yield from self._fire(wall_ms)

    def end(self) -> Iterator[OperatorResult]:
        """Fire everything that is open, once (W10)."""
        yield from self._fire(LATEST)

    def timer(self) -> WallMs | None:
        """Processing time: the end of the first open window."""
        if self._plan.event_time:
            return None
        end = self._windows.next_end(self._main.panes(), self._watermark)
        return None if end is None else WallMs(end)

    def _fire(self, upto: int) -> Iterator[OperatorResult]:
        above = self._watermark
        if upto <= above:
            return
        for runs in self._runs.values():
            runs.watermark = EventTimeMs(upto)
        panes = self._main.panes()
        if not len(panes) or upto < self._windows.first_ends(panes[:1])[0]:
            return
        for due in self._windows.due(panes, above, upto):
            for part in self._firing.fired(due):
                yield OperatorResult(self._batches(part, update=False))
        self._let_go(upto)

    def _let_go(self, upto: int) -> None:
        """Drop the panes of which no window takes a row any more."""
        panes = self._main.panes()
        limit = closed_upto(upto, self._lateness)
        gone = np.searchsorted(self._windows.last_ends(panes), limit, side="right")
        if gone:
            for runs in self._runs.values():
                runs.drop_below(int(panes[gone - 1]) + 1)

    def _batches(self, part: WindowTable, *, update: bool) -> tuple[pa.RecordBatch, ...]:
        return self._results.batches(part.table, part.starts, part.ends, update=update)


def columnar_window_operator(
    plan: OperatorPlan, panes: Panes, journal: CommitOnAck, states: ChainStates | None = None
) -> ColumnarWindowOperator:
    """The operator of a plan whose times fall into panes, with its states in the chain's journal.

    `states` are those of the chain, if it takes snapshots or spills.
    """
    window, state = plan.window, plan.state
    assert window is not None
    assert state is not None
    aggregates = Aggregates(window, plan.operator)
    ledger = KeyLedger(state.key_fields, plan.operator)
    lateness = lateness_of(window)

    def dead(starts: Times, watermark: int) -> Mask:
        return panes.last_ends(starts) <= closed_upto(watermark, lateness)

    def runs_of(name: str, kept: Aggregates, family: Family, keys: KeyLedger) -> PaneRuns:
        held = PaneRuns(
            family,
            keys,
            StateAddress(state.namespace, plan.operator, name),
            journal,
            max_bytes=state.max_bytes,
            memory_bytes=state.memory_bytes,
            max_parallelism=state.max_parallelism,
            windows=state.shape,
            dead=dead,
            values=kept,
        )
        journal.joined(held)
        if states is not None:
            states.joined(held)
        return held

    runs = {each.name: runs_of(each.name, aggregates, each, ledger) for each in aggregates.families}
    bound = None
    if window.max_buffered_keys is not None:
        rows = None
        if window.evicts_oldest:
            counter = row_counts(window, plan.operator)
            keyless = KeyLedger((), plan.operator)
            counts = runs_of(ROWS_STATE, counter, counter.families[0], keyless)
            runs[ROWS_STATE], rows = counts, (counts, counter)
        most, held = window.max_buffered_keys, runs.values()
        bound = KeyBound(plan.operator, most, panes, ledger, runs[PANES], held, journal, rows)
    results = Results(window, state.key_fields, ledger)
    return ColumnarWindowOperator(
        plan.operator, window, panes, aggregates, ledger, runs, results, journal, bound
    )


__all__ = ["ColumnarWindowOperator", "columnar_window_operator"]
