"""Windows that release their original rows together when they fire (`legacy_payload`, B.4).

So a `sql` processor behind one sees a whole window as its table. A tumbling or calendar window
leaves as one batch of the rows of all keys, a session as one batch of its key's rows, in order of
arrival; rows whose schemas do not fit into one leave as more batches (`row_batches.py`).

By processing time a row is of the moment at which it comes in. By event time rows are judged as by
every window (W6), but a window that was released takes nothing more: no policy corrects it, and a
row that is accepted after the session next to it was released begins a session of its own.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.errors import ConfigError, Issue, ProcessingError
from arkflow_kernel.ids import EARLIEST, EventTimeMs, OperatorId, WallMs
from arkflow_kernel.plan import LatePolicy, OperatorPlan, WindowPlan
from arkflow_kernel.ports import OperatorResult
from arkflow_kernel.state.api import StateAddress, StateJournal
from arkflow_kernel.state.growing import Mask
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from arkflow_kernel.timestamps import operator_times
from arkflow_kernel.window.assign import Panes, Times
from arkflow_kernel.window.kept_rows import KeptRows, RowWindows
from arkflow_kernel.window.lateness import either, turned_away, unstamped
from arkflow_kernel.window.row_batches import rows_at
from arkflow_kernel.window.session_merge import ends, passed

ROWS_STATE = "rows"
"""Name of the state that holds the rows."""

NOTHING = OperatorResult(())


class RowsOperator:
    """A `ports.TimedOperator` over kept rows. `panes` is None for sessions."""

    def __init__(
        self,
        operator: OperatorId,
        plan: WindowPlan,
        panes: Panes | None,
        rows: KeptRows,
        journal: StateJournal,
    ) -> None:
        self._operator = operator
        self._plan = plan
        self._panes = panes
        self._rows = rows
        self._journal = journal

    def open(self) -> None:
        """The state is opened by whoever restores it."""

    def finish(self) -> OperatorResult:
        """`end` has released everything."""
        return NOTHING

    def close(self) -> None:
        """The state is released by whoever made it."""

    @property
    def _fired_upto(self) -> int:
        mark = self._rows.watermark
        return EARLIEST if mark is None else mark

    # --- rows ----------------------------------------------------------------------------------

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:
        """Keep the rows until their window fires.

        Raises `ProcessingError` for a key or time column that is missing or does not fit, for a
        time that does not fit, and when the budget is passed.
        """
        del origin
        batch, marks = unstamped(batch)
        if self._plan.event_time:
            return self._judged(batch, marks)
        # A clock that was set back, or another machine's, stands still until it catches up (S7).
        now = max(self._journal.wall_ms, self._fired_upto)
        self._rows.add(batch, np.broadcast_to(np.int64(now), batch.num_rows))
        return OperatorResult((), absorbed=batch.num_rows)

    def _judged(self, batch: pa.RecordBatch, marks: Times | None) -> OperatorResult:
        """Event time: rows without a time, and those that are late, are not kept (W5, W6)."""
        times = operator_times(batch, self._plan.timestamp_field, self._operator)
        self._check_range(times.ms)
        cut = self._fired_upto if marks is None else np.maximum(marks, self._fired_upto)
        refused: Mask = self._row_ends(times.ms) <= cut
        if times.valid is not None:
            refused &= times.valid
        late = refused if refused.any() else None
        untimed = None if times.valid is None else ~times.valid
        gone = either(late, untimed)
        if gone is None:
            self._rows.add(batch, times.ms)
            return OperatorResult((), absorbed=batch.num_rows)
        routed = late if self._plan.late is LatePolicy.ROUTE else None
        away = turned_away(batch, routed, untimed)
        self._rows.add(rows_at(batch, np.flatnonzero(~gone)), times.ms[~gone])
        away_rows = int(gone.sum())
        kept = batch.num_rows - away_rows
        return OperatorResult((), late=away, late_rows=away_rows, absorbed=kept)

    def _row_ends(self, times: Times) -> Times:
        """The end of the window that a row alone would be in."""
        if self._panes is None:
            return ends(times, self._plan.gap_ms)
        return self._panes.last_ends(self._panes.panes(times))

    def _check_range(self, times: Times) -> None:
        inside = None if self._panes is None else self._panes.in_range(times)
        if inside is not None:
            raise ProcessingError(
                self._operator,
                f"the window of the time {times[~inside][0]} in '{self._plan.timestamp_field}' "
                "leaves the times that 64 bits can hold; make the windows smaller",
            )

    # --- time ----------------------------------------------------------------------------------

    def advance(self, watermark: EventTimeMs) -> Iterator[OperatorResult]:
        """Event time: release what is due at the watermark."""
        if self._plan.event_time:
            yield from self._release(watermark)

    def tick(self, wall_ms: WallMs) -> Iterator[OperatorResult]:
        """Processing time: release what is due by the wall clock."""
        if not self._plan.event_time:
            yield from self._release(wall_ms)

    def end(self) -> Iterator[OperatorResult]:
        """Release everything, once (W10)."""
        yield from self._released(np.ones(len(self._rows.spans), np.bool_))

    def timer(self) -> WallMs | None:
        """Processing time: when the first open window is due."""
        last = self._rows.spans.last
        if self._plan.event_time or not len(last):
            return None
        if self._panes is None:
            return WallMs(int(last.min()) + self._plan.gap_ms + 1)
        return WallMs(int(self._panes.last_ends(last).min()))

    def _release(self, upto: int) -> Iterator[OperatorResult]:
        if upto <= self._fired_upto:
            return
        due = self._due(upto)
        if self._plan.event_time or due.any():
            self._rows.fired_upto(EventTimeMs(upto))
        yield from self._released(due)

    def _due(self, upto: int) -> Mask:
        """Which of the open windows fire: a session when the time is *greater* than its end."""
        last = self._rows.spans.last
        if self._panes is None:
            return passed(last, self._plan.gap_ms, upto)
        due: Mask = self._panes.last_ends(last) <= upto
        return due

    def _released(self, due: Mask) -> Iterator[OperatorResult]:
        """The windows that are due; all of them have left the state before the first is read."""
        for batches in self._rows.release(due):
            yield OperatorResult(batches)


def rows_operator(
    plan: OperatorPlan,
    panes: Panes | None,
    journal: CommitOnAck,
    states: ChainStates | None = None,
) -> RowsOperator:
    """The operator of a plan whose window releases its rows, with its state in the chain's journal.

    `panes`: how times fall into windows; None for sessions. `states` are those of the chain, if it
    takes snapshots or spills. Raises `ConfigError` for what released rows cannot have.
    """
    window, state = plan.window, plan.state
    assert window is not None
    assert state is not None
    _check(plan.operator, window)
    rows = KeptRows(
        StateAddress(state.namespace, plan.operator, ROWS_STATE),
        state.key_fields,
        RowWindows(by_key=True, gap_ms=window.gap_ms, marks=_same)
        if panes is None
        else RowWindows(by_key=False, gap_ms=0, marks=panes.panes),
        journal,
        max_bytes=state.max_bytes,
        memory_bytes=state.memory_bytes,
        max_parallelism=state.max_parallelism,
    )
    journal.joined(rows)
    if states is not None:
        states.joined(rows)
    return RowsOperator(plan.operator, window, panes, rows, journal)


def _same(times: Times) -> Times:
    return times


def _check(operator: OperatorId, window: WindowPlan) -> None:
    if window.late is LatePolicy.UPDATE:
        text = (
            f"window '{operator}' releases its rows (`legacy_payload`), so it cannot correct what "
            "it has released; set `late_event_policy` to `drop` or `route`"
        )
        raise ConfigError([Issue("late_event_policy", text)])
    if window.max_buffered_keys is not None:
        text = (
            f"window '{operator}' releases its rows (`legacy_payload`) and counts no keys; remove "
            "`max_buffered_keys` and bound its state by `state.max_bytes`"
        )
        raise ConfigError([Issue("config.max_buffered_keys", text)])


__all__ = ["ROWS_STATE", "RowsOperator", "rows_operator"]
