"""`max_buffered_keys`: how many keys of open windows an operator may hold (N6).

A key counts once for each pane that it is in. They are counted exactly, but only when the rows that
came since the last count might have brought too many.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import OperatorId
from arkflow_kernel.plan import AggregatePlan, WindowPlan
from arkflow_kernel.state.api import StateJournal
from arkflow_kernel.window.aggregates import PANES, Aggregates, result_column
from arkflow_kernel.window.assign import Panes, Times
from arkflow_kernel.window.keys import KeyLedger
from arkflow_kernel.window.pane_runs import PaneRuns
from arkflow_kernel.window.pane_tables import PANE, Places, panes_of

ROWS_STATE = "rows"
"""Name of the state that counts the rows of each pane, for those that go."""

_ROWS = AggregatePlan("count", None, "rows")


def row_counts(plan: WindowPlan, operator: OperatorId) -> Aggregates:
    """What a pane's rows are counted by, whatever its own aggregates count."""
    return Aggregates(replace(plan, aggregates=(_ROWS,), plain=False), operator)


class KeyBound:
    """Fails or lets the oldest panes go when there are more than `most` keys.

    `held` are all states of the operator, `main` is the one whose keys count. `rows` counts rows by
    pane (`row_counts`); without it too many keys are an error.
    """

    def __init__(
        self,
        operator: OperatorId,
        most: int,
        windows: Panes,
        ledger: KeyLedger,
        main: PaneRuns,
        held: Iterable[PaneRuns],
        journal: StateJournal,
        rows: tuple[PaneRuns, Aggregates] | None = None,
    ) -> None:
        self._operator = operator
        self._most = most
        self._windows = windows
        self._ledger = ledger
        self._main = main
        self._held = tuple(held)
        self._journal = journal
        self._rows = rows
        self._at_most: int | None = None

    def kept(self, added: int, watermark: int) -> int:
        """Rows were added, `added` of them: how many rows go for want of room.

        Rows of windows that have all fired do not count: their results have left. Raises
        `ProcessingError` if none may go.
        """
        if self._at_most is not None:
            self._at_most += added
            if self._at_most <= self._most:
                return 0
        panes, counts = self._counted()
        total = int(counts.sum())
        if total <= self._most:
            self._at_most = total
            return 0
        if self._rows is None:
            raise ProcessingError(
                self._operator,
                f"its open windows hold {total} keys, more than `max_buffered_keys: {self._most}`; "
                "raise it, or set `on_overflow: evict_oldest` to lose the oldest windows instead",
                error_class="StateError",
            )
        newest_first = np.cumsum(counts[::-1])
        kept = int(np.searchsorted(newest_first, self._most, side="right"))
        gone = len(panes) - kept
        self._journal.stage(self._main, 0, self._forget)
        self._at_most = int(newest_first[kept - 1]) if kept else 0
        below = int(panes[gone - 1]) + 1
        lost = self._lost(panes[:gone], watermark, *self._rows)
        for runs in self._held:
            runs.drop_below(below)
        return lost

    def _forget(self) -> None:
        self._at_most = None

    def _counted(self) -> tuple[Times, Places]:
        """The panes that hold keys, in order, and how many each."""
        panes = self._main.panes()
        if not len(panes):
            return panes, panes
        first, end = int(panes[0]), int(panes[-1]) + 1
        parts = self._main.parts(first, end)
        counts = np.zeros(len(panes), np.int64)
        for part in range(parts):
            by = [PANE, *self._ledger.names]
            found, keys = panes_of(self._main.rows(first, end, part, parts, by))
            counts[np.searchsorted(panes, found)] += keys
        return panes, counts

    def _lost(self, panes: Times, watermark: int, runs: PaneRuns, counter: Aggregates) -> int:
        open_ = panes[self._windows.last_ends(panes) > watermark]
        if not len(open_):
            return 0
        table = runs.rows(int(open_[0]), int(open_[-1]) + 1, 0, 1, [PANE])
        rows = counter.final({PANES: table}, [PANE]).column(result_column(_ROWS.name))
        return int(pc.sum(rows).as_py() or 0)


__all__ = ["ROWS_STATE", "KeyBound", "row_counts"]
