"""What windows must have counted and fired at a cut: from the rows, their times, and the plan.

Where no split is ever idle, all of it follows from the rows before the cut: a row is late by its
own split alone (W6), and a window holds every other row of it. Which windows have fired follows
from the watermarks of the cut, which `time_truth` looks at.
"""

from collections import Counter
from typing import Final

from arkflow_kernel.ids import ChainId, OperatorId
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.testing.cut_oracle import Came, Cut, Oracle
from arkflow_kernel.testing.scenario import Scenario
from arkflow_kernel.testing.sim_order import head_of
from arkflow_kernel.testing.sim_parts import every
from arkflow_kernel.testing.sim_rows import KEYS, SPLIT_ROWS, owner_of
from arkflow_kernel.testing.sim_times import TimeTable
from arkflow_kernel.testing.sim_windows import Pane, pane_of, result_row

RESULTS: Final = ChainId("~results")
"""Stands for the place where results of the window begin; no chain has this name."""


def time_table(scenario: Scenario) -> TimeTable:
    """The times of all rows of a job."""
    assert scenario.time is not None
    splits = [
        (split, [-1 if every(script.bad, row) else row for row in rows])
        for script in scenario.sources.values()
        for split in script.sizes
        for rows in [[split * SPLIT_ROWS + n for n in range(script.rows(split))]]
    ]
    return TimeTable(scenario.time, splits)


class TimeOracle(Oracle):
    """Where every row of a job with event time goes."""

    def __init__(self, scenario: Scenario) -> None:
        self.table = time_table(scenario)
        self._time = self.table.time
        self._windowed = Came()
        self._owners: dict[int, ChainId] = {}
        self._behind: dict[Pane, tuple[ChainPlan, int]] = {}
        super().__init__(scenario)
        self._make_owners()
        for pane, (plan, index) in self._behind.items():
            self._enter(plan, index + 1, result_row(*pane), RESULTS, 1)

    def _make_owners(self) -> None:
        chains = [
            plan
            for plan in self._scenario.graph.chains
            if any(op.window is not None for op in plan.operators)
        ]
        most = self._scenario.graph.max_parallelism
        for key in range(KEYS) if chains else ():
            subtask = owner_of(key, len(chains), most)
            self._owners[key] = ChainId(f"{head_of(chains[0].chain)}-{subtask}")

    def _enter_window(self, plan: ChainPlan, index: int, row: int, times: int) -> None:
        if not self.table.late(row):
            self._windowed.read.setdefault(row // SPLIT_ROWS, []).extend([row] * times)
            self._behind.setdefault(self._pane(row), (plan, index))

    def _pane(self, row: int) -> Pane:
        time_ms = self._time.time_of(row)
        assert time_ms is not None
        return self._time.window_of(time_ms), row % SPLIT_ROWS % KEYS

    # --- at a cut ------------------------------------------------------------------------------

    def owner(self, key: int) -> ChainId:
        """The chain whose window has a key."""
        return self._owners[key]

    def totals(self, cut: Cut) -> Counter[Pane]:
        """Of all windows, how many rows before a cut they have."""
        return Counter(self._pane(row) for row in self._windowed.before(cut))

    def fired(self, pane: Pane, cut: Cut) -> bool:
        """Whether a window has fired before a cut, if it has rows."""
        chain = self._owners[pane[1]]
        watermark = cut.watermarks.get(chain)
        due = watermark is not None and self._time.end_of(pane[0]) <= watermark
        return due or chain in cut.finished

    def open_panes(self, cut: Cut) -> dict[Pane, int]:
        """What windows hold at a cut."""
        return {p: n for p, n in self.totals(cut).items() if not self.fired(p, cut)}

    def written(self, sink: OperatorId, cut: Cut) -> list[int]:
        """The rows that a sink has, results of windows included."""
        return sorted(super().written(sink, cut) + self._results(self._sinks[sink], cut))

    def counts(self, operator: OperatorId, cut: Cut) -> dict[int, int]:
        """By key, how many rows a stateful operator has counted, results included."""
        found = Counter(super().counts(operator, cut))
        found.update(r % SPLIT_ROWS % KEYS for r in self._results(self._counted[operator], cut))
        return dict(found)

    def _results(self, came: Came, cut: Cut) -> list[int]:
        totals, rows = self.totals(cut), came.finished.get(RESULTS, [])
        return [row for row in rows if totals[pane_of(row)] and self.fired(pane_of(row), cut)]


__all__ = ["RESULTS", "TimeOracle", "time_table"]
