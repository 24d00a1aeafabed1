"""A tumbling count per key, as simple as a `TimedOperator` can be: the window of the simulation.

It is slow and plain, and notes whatever it is given that it must not be given: a watermark that
does not rise, a row within the bound that is late, a late row that is not.
"""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from arkflow_kernel.bad_rows import NOWHERE, Origin
from arkflow_kernel.event_time_gate import ROW_WATERMARK
from arkflow_kernel.ids import EARLIEST, EventTimeMs, OperatorId, WallMs
from arkflow_kernel.plan import OperatorPlan
from arkflow_kernel.ports import OperatorResult
from arkflow_kernel.state.api import Sealed, StateLayout
from arkflow_kernel.state.run_file import runs_of
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.testing.sim_epochs import TOTALS
from arkflow_kernel.testing.sim_rows import KEYS, SPLIT_ROWS, batch_of, group_of, rows_of
from arkflow_kernel.testing.sim_times import TIME_FIELD, WINDOW_SPLIT, TimeScript, TimeTable

Pane = tuple[int, int]
"""Number of the window, and key."""

_FIRED_ROWS: Final = 2
"""Results of one piece: few, so that a firing has several."""

_TICK_MS: Final = 7
"""So long after the first rows does it want a tick."""

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("group", pa.int32()),
    *(pa.field(name, pa.int64()) for name in ("window", "key", "value")),
]
RUN_SCHEMA: Final = pa.schema(_FIELDS)
"""A run: entries whose `value` is null are deleted."""


def result_row(window: int, key: int) -> int:
    """The row that is the result of a pane; its place gives the key, as everywhere."""
    return WINDOW_SPLIT * SPLIT_ROWS + (window + 1_000) * KEYS + key


def pane_of(row: int) -> Pane:
    """The inverse of `result_row`."""
    window, key = divmod(row % SPLIT_ROWS, KEYS)
    return window - 1_000, key


class SimWindow:
    """One subtask of the window: a `TimedOperator` and a `RunState` in one.

    `table` says which rows are late; `misuses` are kept, raised they would pass for failures.
    """

    live_bytes = 0

    def __init__(
        self, plan: OperatorPlan, journal: CommitOnAck, table: TimeTable, misuses: list[str]
    ) -> None:
        assert plan.state is not None
        self.operator: OperatorId = plan.operator
        self.finished = 0
        self._tick_at: WallMs | None = None
        self._state, self._journal = plan.state, journal
        self._table, self._misuses = table, misuses
        self._watermark: EventTimeMs | None = None
        self._panes: dict[Pane, int] = {}
        self._changed: dict[Pane, int | None] = {}

    @property
    def _time(self) -> TimeScript:
        return self._table.time

    # --- operator ------------------------------------------------------------------------------

    def open(self) -> None:
        """Nothing to open."""

    def close(self) -> None:
        """Nothing is open."""

    def process(self, batch: pa.RecordBatch, origin: Origin = NOWHERE) -> OperatorResult:
        """Count the rows that are not late."""
        del origin
        if self.finished:
            self._misuses.append("process after finish")
        if self._tick_at is None:
            self._tick_at = WallMs(self._journal.wall_ms + _TICK_MS)
        late = 0
        for row, time_ms, watermark in _judged(batch):
            window, key = self._time.window_of(time_ms), row % SPLIT_ROWS % KEYS
            known = max(watermark, EARLIEST if self._watermark is None else self._watermark)
            is_late = self._time.end_of(window) <= known
            if is_late != self._table.late(row):
                self._misuses.append(f"row {row} is late: {is_late}, watermark {known} (W6)")
            late += is_late
            if not is_late:
                self._put((window, key), self._panes.get((window, key), 0) + 1)
        return OperatorResult((), late_rows=late, absorbed=batch.num_rows - late)

    def advance(self, watermark: EventTimeMs) -> Iterator[OperatorResult]:
        """Fire the windows that end by then."""
        known = self._watermark
        if known is not None and watermark <= known:
            self._misuses.append(f"{self.operator} has {known} and is told {watermark} (W1)")
        self._journal.stage(self, 0, lambda: self._go_back(known))
        self._watermark = watermark
        return self._fired([p for p in self._panes if self._time.end_of(p[0]) <= watermark])

    def tick(self, wall_ms: WallMs) -> Iterator[OperatorResult]:
        """Nothing goes by the wall clock: the ticks only stand in the way of other items."""
        if self._tick_at is not None and wall_ms >= self._tick_at:
            self._tick_at = None
        return iter(())

    def timer(self) -> WallMs | None:
        """A while after the first rows since the last tick."""
        return self._tick_at

    def end(self) -> Iterator[OperatorResult]:
        """Fire everything that is open."""
        return self._fired(list(self._panes))

    def finish(self) -> OperatorResult:
        """Nothing is left."""
        self.finished += 1
        return OperatorResult(())

    def _fired(self, panes: list[Pane]) -> Iterator[OperatorResult]:
        """Take panes out of the state, then yield their results a few at a time (N5)."""
        found = [(pane, self._panes[pane]) for pane in sorted(panes)]
        for pane, _ in found:
            self._put(pane, None)
        pieces = [found[i : i + _FIRED_ROWS] for i in range(0, len(found), _FIRED_ROWS)]
        return (OperatorResult((self._results(piece),)) for piece in pieces)

    def _results(self, found: list[tuple[Pane, int]]) -> pa.RecordBatch:
        batch = batch_of([result_row(*pane) for pane, _ in found])
        times: Any = pa.array([self._time.end_of(pane[0]) - 1 for pane, _ in found], pa.int64())
        totals: Any = pa.array([total for _, total in found], pa.int64())
        batch = batch.append_column(pa.field(TIME_FIELD, pa.int64()), times)
        return batch.append_column(pa.field(f"{TOTALS}{self.operator}", pa.int64()), totals)

    # --- state ---------------------------------------------------------------------------------

    @property
    def live_keys(self) -> int:
        """Open panes."""
        return len(self._panes)

    @property
    def layout(self) -> StateLayout:
        """Its layout now."""
        return StateLayout(
            self._state.namespace, "panes", ("key",), ("int64",), "int64", 1, self._watermark
        )

    def _put(self, pane: Pane, value: int | None) -> None:
        before, changed = self._panes.get(pane), dict(self._changed)

        def undo() -> None:
            self._set(pane, before)
            self._changed = changed

        self._journal.stage(self, 8, undo)
        self._set(pane, value)
        self._changed[pane] = value

    def _set(self, pane: Pane, value: int | None) -> None:
        if value is None:
            self._panes.pop(pane, None)
        else:
            self._panes[pane] = value

    def _go_back(self, watermark: EventTimeMs | None) -> None:
        self._watermark = watermark

    def settle(self, wall_ms: WallMs) -> None:
        """Nothing to tidy up."""

    def track(self) -> None:
        """It always does."""

    def spill_to(self, folder: Callable[[], Path], prefix: str) -> None:
        """It never does."""

    def seal(self) -> Sealed:
        """What changed since the last seal."""
        changed, self._changed = self._changed, {}
        return Sealed(changed, self.layout)

    merge_bytes_max: int | None = None

    def written(self, sealed: Seq[Sealed]) -> Iterator[pa.RecordBatch]:
        """One run; the newest entry of a pane counts."""
        entries: dict[Pane, int | None] = {}
        for each in sealed:
            entries.update(each.changes)
        return runs_of(self._run(entries))

    def merged(
        self, runs: Seq[pa.RecordBatch], layout: StateLayout, *, oldest: bool, newest: bool
    ) -> pa.RecordBatch | None:
        """One run for these."""
        del layout, newest
        entries = entries_of(runs)
        return self._run({p: v for p, v in entries.items() if v is not None or not oldest})

    def restore(self, layouts: Seq[StateLayout], runs: Iterable[pa.RecordBatch]) -> None:
        """Hold what they say."""
        (layout,) = layouts
        self._watermark = layout.watermark
        self._panes = {pane: v for pane, v in entries_of(runs).items() if v is not None}

    def _run(self, entries: dict[Pane, int | None]) -> pa.RecordBatch | None:
        if not entries:
            return None
        most = self._state.max_parallelism
        rows = sorted((group_of(key, most), w, key, v) for (w, key), v in entries.items())
        columns: list[Any] = [
            pa.array(list(column), each.type)
            for column, each in zip(zip(*rows, strict=True), RUN_SCHEMA, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=RUN_SCHEMA)


def entries_of(runs: Iterable[pa.RecordBatch]) -> dict[Pane, int | None]:
    """The entries of runs, oldest first; the newest of a pane counts."""
    entries: dict[Pane, int | None] = {}
    for run in runs:
        columns = [run.column(name).to_pylist() for name in ("window", "key", "value")]
        entries.update({(w, key): value for w, key, value in zip(*columns, strict=True)})
    return entries


def _judged(batch: pa.RecordBatch) -> Iterator[tuple[int, int, int]]:
    """Row, its time, and the watermark in its stamp."""
    times: list[Any] = batch.column(TIME_FIELD).to_pylist()
    stamps: list[Any] = [None] * batch.num_rows
    if ROW_WATERMARK in batch.schema.names:
        stamps = batch.column(ROW_WATERMARK).to_pylist()
    known = (EARLIEST if stamp is None else stamp for stamp in stamps)
    return zip(rows_of(batch), times, known, strict=True)


__all__ = ["RUN_SCHEMA", "Pane", "SimWindow", "entries_of", "pane_of", "result_row"]
