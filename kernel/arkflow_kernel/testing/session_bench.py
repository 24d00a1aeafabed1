"""Drives one session operator by hand, and says row by row what it must yield (N2, W6)."""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.event_time_gate import ROW_WATERMARK
from arkflow_kernel.ids import EventTimeMs, OperatorId, WallMs
from arkflow_kernel.plan import (
    AggregatePlan,
    ComponentPlan,
    LatePolicy,
    OperatorPlan,
    StatePlan,
    WindowKind,
    WindowPlan,
)
from arkflow_kernel.ports import OperatorResult
from arkflow_kernel.state.run_file import read_batch, written
from arkflow_kernel.state.sorted_run import merge_due
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.window.results import WINDOW_UPDATE
from arkflow_kernel.window.session_operator import SessionOperator, session_operator
from arkflow_kernel.window.session_runs import SessionRuns

Rows = list[dict[str, Any]]

PLAIN = tuple(AggregatePlan(name, "v", name) for name in ("count", "sum", "min", "max"))
"""What a window has without `aggregates:`."""


def session_plan(
    gap_ms: int,
    *,
    late: LatePolicy = LatePolicy.DROP,
    lateness_ms: int = 0,
    aggregates: tuple[AggregatePlan, ...] = PLAIN,
    key_fields: tuple[str, ...] = ("k",),
    event_time: bool = True,
    plain: bool | None = None,
    max_bytes: int | None = None,
    memory_bytes: int | None = None,
) -> OperatorPlan:
    """A session window over `k`, `ts` and `v`."""
    window = WindowPlan(
        WindowKind.SESSION,
        "ts",
        gap_ms=gap_ms,
        aggregates=aggregates,
        plain=aggregates == PLAIN if plain is None else plain,
        event_time=event_time,
        late=late,
        allowed_lateness_ms=lateness_ms,
    )
    state = StatePlan("default", key_fields, max_bytes=max_bytes, memory_bytes=memory_bytes)
    component = ComponentPlan("session", {})
    return OperatorPlan(OperatorId("s"), "window", component, state=state, window=window)


class SessionBench:
    """An operator in a chain of its own: rows and time go in, result rows come out.

    `spool`: a folder for what is beyond the memory budget. Every result is also in `results`.
    """

    def __init__(self, plan: OperatorPlan, spool: Path | None = None) -> None:
        self.plan = plan
        self.wall_ms = 0
        self.results: Rows = []
        self.late_rows = 0
        self._spool = spool
        self._attempts = 0
        self._runs: list[pa.RecordBatch] = []
        self._begin()

    def _begin(self) -> None:
        self.journal = CommitOnAck(lambda: WallMs(self.wall_ms))
        self.operator: SessionOperator = session_operator(self.plan, self.journal)
        self.state: SessionRuns = self.operator.runs
        self.state.track()
        if self._spool is not None:
            folder, self._attempts = self._spool, self._attempts + 1
            self.state.spill_to(lambda: folder, f"attempt-{self._attempts}")

    # --- items ---------------------------------------------------------------------------------

    def rows(self, rows: Seq[dict[str, Any]] | pa.RecordBatch) -> Rows:
        """A batch; what it yields at once."""
        batch = rows if isinstance(rows, pa.RecordBatch) else pa.RecordBatch.from_pylist(list(rows))
        with self.journal.item():
            result = self.operator.process(batch, NOWHERE)
            return self._taken([result])

    def advance(self, watermark: int) -> Rows:
        """The watermark rises."""
        with self.journal.item():
            return self._taken(self.operator.advance(EventTimeMs(watermark)))

    def tick(self, wall_ms: int) -> Rows:
        """The wall clock says that it is time."""
        self.wall_ms = max(self.wall_ms, wall_ms)
        with self.journal.item():
            return self._taken(self.operator.tick(WallMs(wall_ms)))

    def end(self) -> Rows:
        """The data have ended."""
        with self.journal.item():
            return self._taken(self.operator.end())

    def _taken(self, results: Iterator[OperatorResult] | Seq[OperatorResult]) -> Rows:
        found: Rows = []
        for result in results:
            for batch in result.batches:
                batch.validate(full=True)
                found += batch.to_pylist()
            self.late_rows += result.late_rows
        self.results += found
        return found

    # --- cuts ----------------------------------------------------------------------------------

    def crash(self) -> None:
        """A checkpoint, then a new operator that restores it; runs merge as a chain merges them."""
        layout = self.checkpoint()
        self._begin()
        self.state.restore([layout], self._runs)

    def checkpoint(self) -> Any:
        """What the operator holds goes into runs, through their bytes; its layout."""
        sealed = self.state.seal()
        if sealed.changes:
            self._runs += [read_batch(written(run)) for run in self.state.written([sealed])]
        due = merge_due([run.num_rows for run in self._runs])
        if due is not None:
            first, end = due
            run = self.state.merged(
                self._runs[first:end],
                sealed.layout,
                oldest=first == 0,
                newest=end == len(self._runs),
            )
            self._runs[first:end] = [] if run is None else [read_batch(written(run))]
        return sealed.layout


# --- what must come out --------------------------------------------------------------------------


@dataclass
class _Session:
    """A session of the oracle: its rows, and whether it corrects others."""

    rows: Rows
    corrects: bool = False

    @property
    def first(self) -> int:
        return int(min(row["ts"] for row in self.rows))

    @property
    def last(self) -> int:
        return int(max(row["ts"] for row in self.rows))


@dataclass
class SessionOracle:
    """Sessions by a loop over rows that forgets nothing. What it yields is sorted."""

    plan: OperatorPlan
    watermark: int = -(2**70)
    late_rows: int = 0
    sessions: dict[Any, list[_Session]] = field(default_factory=dict)

    @property
    def _window(self) -> WindowPlan:
        assert self.plan.window is not None
        return self.plan.window

    def _has_left(self, session: _Session) -> bool:
        return self.watermark > session.last + self._window.gap_ms

    def rows(self, rows: Rows) -> Rows:
        """A batch."""
        made: Rows = []
        changed: dict[int, _Session] = {}
        before = {
            key: [replace(session) for session in held if self._has_left(session)]
            for key, held in self.sessions.items()
        }
        for row in rows:
            if not self._is_late(row):
                session = self._joined(row)
                changed[id(session)] = session
        for key, had_left in before.items():
            now = self.sessions[key]
            for old in had_left:
                became = next(s for s in now if s.first <= old.first <= s.last)
                if id(became) not in changed:
                    continue
                became.corrects = True
                if (became.first, became.last) != (old.first, old.last):
                    made += self._row(key, old, taken_back=True)
        for key, held in self.sessions.items():
            for session in held:
                if id(session) in changed and self._has_left(session):
                    made += self._row(key, session)
        return in_order(made)

    def _is_late(self, row: dict[str, Any]) -> bool:
        window = self._window
        lateness = window.allowed_lateness_ms if window.late is LatePolicy.UPDATE else 0
        mark = row.get(ROW_WATERMARK)
        cut = self.watermark if mark is None else max(self.watermark, mark)
        late = bool(row["ts"] + window.gap_ms + lateness <= cut)
        self.late_rows += late
        return late

    def _joined(self, row: dict[str, Any]) -> _Session:
        """The session of a row, of those that it reaches and itself."""
        gap, joined = self._window.gap_ms, _Session([row])
        apart = []
        for session in self.sessions.get(row["k"], []):
            if session.first - gap <= row["ts"] <= session.last + gap:
                joined.rows += session.rows
                joined.corrects |= session.corrects
            else:
                apart.append(session)
        self.sessions[row["k"]] = [*apart, joined]
        return joined

    def advance(self, watermark: int) -> Rows:
        """The watermark rises."""
        open_ = [
            (key, session)
            for key, held in self.sessions.items()
            for session in held
            if not self._has_left(session)
        ]
        self.watermark = max(self.watermark, watermark)
        due = [(key, session) for key, session in open_ if self._has_left(session)]
        return in_order([row for each in due for row in self._row(*each)])

    def end(self) -> Rows:
        """The data have ended."""
        return self.advance(2**70)

    def _row(self, key: Any, session: _Session, *, taken_back: bool = False) -> Rows:
        values = [row["v"] for row in session.rows if row["v"] is not None]
        if not values:
            return []
        start, end = session.first, session.last + self._window.gap_ms
        made = {"window_start": start, "window_end": end, "key": None if key is None else str(key)}
        if taken_back:
            return [made | dict.fromkeys(("sum", "min", "max")) | {"count": 0, WINDOW_UPDATE: True}]
        figures = {"count": len(values), "sum": sum(values), "min": min(values), "max": max(values)}
        return [made | figures | {WINDOW_UPDATE: session.corrects}]


def in_order(rows: Rows) -> Rows:
    """Result rows in an order that does not depend on how they came."""
    return sorted(rows, key=lambda row: repr(sorted(row.items())))


def corrected(rows: Rows) -> Rows:
    """What a reader holds in the end: a row with the update flag replaces the row of the same
    window and key before it; none is left if its count is 0.
    """
    last: dict[Any, dict[str, Any]] = {}
    for number, row in enumerate(rows):
        window = (row["window_start"], row["window_end"], row["key"])
        update = row[WINDOW_UPDATE]
        place = window if update or window not in last else (window, number)
        last[place] = {name: value for name, value in row.items() if name != WINDOW_UPDATE}
    return in_order([row for row in last.values() if row["count"] != 0])


__all__ = [
    "PLAIN",
    "Rows",
    "SessionBench",
    "SessionOracle",
    "corrected",
    "in_order",
    "session_plan",
]
