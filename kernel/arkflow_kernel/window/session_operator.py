"""Session windows over keyed rows, by watermark or by the wall clock (N2).

    gap 10        0    5        20   25                 watermark passes 15: [0, 15) leaves
                  a    a        b    b                  and 35: [20, 35) leaves
    late row 12             x                           [0, 15) and [20, 35) leave with count 0,
                  a    a    x   b    b                  [0, 35) as a correction

A row joins the sessions of its key that it is at most the gap away from, so it may join two to one.
When it reaches a session that has left, what has left is wrong: each interval that is no more
leaves again with count 0, at once, and the session that took its place as a correction: at once if
it is due, else when it is. (If its interval is the same, the corrected row alone says all.)

Both at once, and not with the next watermark, so that nothing waits in between that a cut would
have to keep: which sessions have left is then a function of the watermark, see `session_runs.py`.
Only rows before the operator's watermark can reach a session that has left, so a batch without one
is added without a look at what is there.

A row with a null value is a row: it holds a session together. A session with only such rows yields
nothing in ArkFlow's own columns (N4), and so nothing is to be taken back of it either.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.ids import LATEST, EventTimeMs, OperatorId, WallMs
from arkflow_kernel.limits import INT64_MIN
from arkflow_kernel.plan import LatePolicy, OperatorPlan, WindowPlan
from arkflow_kernel.ports import OperatorResult
from arkflow_kernel.state.api import StateAddress, StateJournal
from arkflow_kernel.state.arrow_numpy import as_array
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from arkflow_kernel.timestamps import operator_times
from arkflow_kernel.window.aggregates import PANES, Aggregates
from arkflow_kernel.window.keys import KeyLedger
from arkflow_kernel.window.lateness import either, lateness_of, turned_away, unstamped
from arkflow_kernel.window.results import RESULT_ROWS_MAX, WINDOW_END, WINDOW_UPDATE, Results
from arkflow_kernel.window.row_batches import rows_at
from arkflow_kernel.window.session_merge import (
    Mask,
    Numbers,
    Sessions,
    ends,
    passed,
    run_starts,
    sessions,
)
from arkflow_kernel.window.session_partials import SESSION, keys_of
from arkflow_kernel.window.session_pieces import HeldRows, Picked, Piece, ranges
from arkflow_kernel.window.session_runs import SESSIONS, SessionRuns

NOTHING = OperatorResult(())

_COUNTS = ("count", "count_distinct")

Batches = tuple[pa.RecordBatch, ...]


@dataclass(frozen=True, slots=True)
class _Taken:
    """The rows of a batch that join sessions, and those that do not."""

    rows: pa.RecordBatch
    times: Numbers
    away: pa.RecordBatch | None
    away_rows: int


class SessionOperator:
    """A `ports.TimedOperator` over the fragments of sessions."""

    def __init__(
        self,
        operator: OperatorId,
        plan: WindowPlan,
        aggregates: Aggregates,
        ledger: KeyLedger,
        runs: SessionRuns,
        results: Results,
        journal: StateJournal,
    ) -> None:
        self._operator = operator
        self._plan = plan
        self._gap = plan.gap_ms
        self._lateness = lateness_of(plan)
        self._aggregates = aggregates
        self._ledger = ledger
        self.runs = runs
        self._results = results
        self._journal = journal

    def open(self) -> None:
        """The state is opened by whoever restores it."""

    def finish(self) -> OperatorResult:
        """`end` has fired everything."""
        return NOTHING

    def close(self) -> None:
        """The state is released by whoever made it."""

    # --- rows ----------------------------------------------------------------------------------

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:  # noqa: ARG002
        """Take the rows into their sessions; corrections of sessions that have left leave at once.

        Raises `ProcessingError` for a column that is missing or has a type which does not fit, for
        a time that does not fit, and when a budget is passed.
        """
        batch, marks = unstamped(batch)
        taken = self._judged(batch, marks) if self._plan.event_time else self._stamped(batch)
        made: Batches = ()
        if taken.rows.num_rows:
            made = self._added(self._piece(taken))
        return OperatorResult(
            made, late=taken.away, late_rows=taken.away_rows, absorbed=taken.rows.num_rows
        )

    def _stamped(self, batch: pa.RecordBatch) -> _Taken:
        """Processing time: the rows are of now. A session that has left takes none of them."""
        now = max(self._journal.wall_ms, self.runs.watermark)
        return _Taken(batch, np.full(batch.num_rows, now, np.int64), None, 0)

    def _judged(self, batch: pa.RecordBatch, marks: Numbers | None) -> _Taken:
        """Event time: rows without a time, and those that are late, do not join (W5, W6).

        A row is judged by its own [ts, ts + gap), which says nothing of the session that it would
        join: a session is kept long enough for every row that is not late.
        """
        times = operator_times(batch, self._plan.timestamp_field, self._operator)
        ms = times.ms
        if self._plan.timestamp_field == WINDOW_END and WINDOW_UPDATE in batch.schema.names:
            ms = ms - 1  # rows of a window before this one (N7)
        refused = self._late(ms, marks)
        if times.valid is not None:
            refused &= times.valid
        late = refused if refused.any() else None
        untimed = None if times.valid is None else ~times.valid
        gone = either(late, untimed)
        if gone is None:
            return _Taken(batch, ms, None, 0)
        routed = late if self._plan.late is LatePolicy.ROUTE else None
        return _Taken(
            batch.filter(as_array(~gone)),
            ms[~gone],
            turned_away(batch, routed, untimed),
            int(gone.sum()),
        )

    def _late(self, ms: Numbers, marks: Numbers | None) -> Mask:
        """Rows with ts + gap (+ lateness) not after max(w(row), the operator's watermark)."""
        back = self._gap + self._lateness
        limit = self.runs.watermark - back
        late: Mask = ms <= limit if limit >= INT64_MIN else np.zeros(len(ms), np.bool_)
        if marks is not None and back <= LATEST:
            late |= (marks >= INT64_MIN + back) & (ms <= marks - back)
        return late

    def _piece(self, taken: _Taken) -> Piece:
        """The sessions of the rows by themselves, as fragments."""
        numbers = self.runs.numbers(taken.rows)
        own = sessions(numbers, taken.times, taken.times, self._gap)
        ones = own.order[own.starts]
        keys = {}
        if self._ledger.fields:
            keys = self._ledger.columns(rows_at(taken.rows.select(list(self._ledger.fields)), ones))
        types = self._aggregates.types
        raw = self._aggregates.raw(taken.rows)
        if self._aggregates.types != types:
            self._journal.stage(self.runs, 0, lambda: self._forget(types))
        if self._aggregates.uses_time:
            raw["ts"] = as_array(taken.times)
        content = self.runs.partials.of_rows(raw, own.session_of, own.count)
        for name, column in keys.items():
            content = content.append_column(name, column)
        marks = np.zeros(own.count, np.bool_)
        return Piece(own.keys, own.first, own.last, marks, HeldRows(content))

    def _forget(self, types: tuple[pa.DataType, ...]) -> None:
        self._aggregates.types = types

    def _added(self, piece: Piece) -> Batches:
        """Keep the fragments; what they correct."""
        early = piece.first < self.runs.watermark
        if not early.any():
            self.runs.add(piece)
            return ()
        return self._corrected(piece, early.nonzero()[0])

    def _corrected(self, piece: Piece, new_places: Numbers) -> Batches:
        """Keep the fragments, of which those at these places may reach sessions that have left."""
        keys = piece.keys[new_places]
        starts = run_starts(keys)
        last = np.maximum.reduceat(piece.last[new_places], starts)
        before = self.runs.reached(keys[starts], piece.first[new_places[starts]], last)
        old = before.sessions(self._gap)
        had_left = passed(old.last, self._gap, self.runs.watermark)
        after = before.and_more(piece, new_places)
        now = after.sessions(self._gap)
        # The session that each old one is part of now: that of any fragment of it.
        became = now.session_of[: len(before)][old.order[old.starts]]
        joined = np.zeros(now.count, np.bool_)
        touched = np.zeros(now.count, np.bool_)
        new_sessions = now.session_of[len(before) :]
        touched[new_sessions] = True
        joined[became[had_left]] = True
        marks = piece.corrects.copy()
        marks[new_places] = joined[new_sessions]
        self.runs.add(piece.marked(marks))
        replaced = had_left & touched[became]
        replaced &= (old.first != now.first[became]) | (old.last != now.last[became])
        made: list[pa.RecordBatch] = []
        for batches in self._left(before, old, replaced.nonzero()[0], None):
            made += batches
        due = touched & passed(now.last, self._gap, self.runs.watermark)
        for batches in self._left(after, now, due.nonzero()[0], joined):
            made += batches
        return tuple(made)

    # --- time ----------------------------------------------------------------------------------

    def advance(self, watermark: EventTimeMs) -> Iterator[OperatorResult]:
        """Sessions leave whose last row the watermark has passed by more than the gap."""
        if self._plan.event_time and watermark > self.runs.watermark:
            yield from self._fire(watermark, watermark)

    def tick(self, wall_ms: WallMs) -> Iterator[OperatorResult]:
        """Processing time: sessions leave that have had no row for more than the gap."""
        if not self._plan.event_time and wall_ms > self.runs.watermark:
            yield from self._fire(wall_ms, wall_ms)

    def end(self) -> Iterator[OperatorResult]:
        """Everything that is open leaves, once (W10)."""
        if self.runs.watermark < LATEST:
            yield from self._fire(LATEST, LATEST + self._gap + 1)

    def timer(self) -> WallMs | None:
        """Processing time: when the first session may be due."""
        if self._plan.event_time:
            return None
        end = self.runs.next_end()
        return None if end is None else WallMs(end + 1)

    def _fire(self, watermark: int, upto: int) -> Iterator[OperatorResult]:
        before = self.runs.watermark
        self.runs.advance(watermark)
        picked = self.runs.ending(before, upto)
        found = picked.sessions(self._gap)
        due = passed(found.last, self._gap, upto) & ~passed(found.last, self._gap, before)
        marks = found.any_of(picked.corrects)
        for batches in self._left(picked, found, due.nonzero()[0], marks):
            yield OperatorResult(batches)

    # --- what leaves ---------------------------------------------------------------------------

    def _left(
        self, picked: Picked, found: Sessions, chosen: Numbers, updates: Mask | None
    ) -> Iterator[Batches]:
        """The rows of some sessions, in pieces. `updates`: per session, whether it is a correction;
        None: they are taken back.
        """
        for start in range(0, len(chosen), RESULT_ROWS_MAX):
            part = chosen[start : start + RESULT_ROWS_MAX]
            final, numbers = self._final(picked, found, part)
            if not final.num_rows:
                continue
            if updates is None:
                final = self._emptied(final)
            first, last = found.first[numbers], ends(found.last[numbers], self._gap)
            update = True if updates is None else updates[numbers]
            yield self._results.batches(final, first, last, update=update)

    def _final(self, picked: Picked, found: Sessions, chosen: Numbers) -> tuple[pa.Table, Numbers]:
        """Keys and aggregates of some sessions, given by rising numbers; and whose rows they are:
        one without any value may have none.
        """
        stops = np.append(found.starts[1:], len(found.order))
        fragments = np.sort(
            found.order[ranges(found.starts[chosen], (stops - found.starts)[chosen])]
        )
        tables = picked.tables(fragments)
        mine = np.searchsorted(chosen, found.session_of[fragments])
        partials = self.runs.partials.grouped(tables, mine, len(chosen))
        one_each = np.searchsorted(fragments, found.order[found.starts[chosen]])
        keys = keys_of(tables, one_each, self._ledger.form)

        def where(row: int) -> str:
            number = partials[PANES].column(SESSION)[row].as_py()
            first = found.first[chosen[number]]
            last = ends(found.last[chosen[number : number + 1]], self._gap)[0]
            key = self._ledger.texts(keys.slice(number, 1))[0].as_py()
            return f"window [{first}, {last}), key {key!r}"

        made = self._aggregates.final(partials, [SESSION], where)
        rows = np.asarray(made.column(0), dtype=np.int64)
        names = made.column_names[1:]
        columns = [*keys.take(as_array(rows)).columns, *made.columns[1:]]
        return pa.Table.from_arrays(columns, [*keys.column_names, *names]), chosen[rows]

    def _emptied(self, final: pa.Table) -> pa.Table:
        """Rows that take back what has left: counts are 0, all other aggregates null."""
        keys = final.num_columns - len(self._plan.aggregates)
        for place, aggregate in enumerate(self._plan.aggregates, keys):
            kind = final.schema.field(place).type
            empty = pa.nulls(final.num_rows, kind)
            if aggregate.function in _COUNTS:
                empty = pc.fill_null(empty, pa.scalar(0, kind))
            final = final.set_column(place, final.column_names[place], empty)
        return final


def session_operator(
    plan: OperatorPlan, journal: CommitOnAck, states: ChainStates | None = None
) -> SessionOperator:
    """The operator of a plan of sessions, with its state in the chain's journal.

    `states` are those of the chain, if it takes snapshots or spills.
    """
    window, state = plan.window, plan.state
    assert window is not None
    assert state is not None
    aggregates = Aggregates(window, plan.operator)
    ledger = KeyLedger(state.key_fields, plan.operator)
    runs = SessionRuns(
        aggregates,
        ledger,
        StateAddress(state.namespace, plan.operator, SESSIONS),
        journal,
        gap_ms=window.gap_ms,
        # Every row that may still join finds the session that it reaches (N2).
        keep_ms=2 * window.gap_ms + lateness_of(window),
        max_bytes=state.max_bytes,
        memory_bytes=state.memory_bytes,
        max_parallelism=state.max_parallelism,
    )
    journal.joined(runs)
    if states is not None:
        states.joined(runs)
    results = Results(window, state.key_fields, ledger)
    return SessionOperator(plan.operator, window, aggregates, ledger, runs, results, journal)


__all__ = ["SessionOperator", "session_operator"]
