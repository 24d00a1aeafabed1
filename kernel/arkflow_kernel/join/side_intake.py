"""Rows of a side of a join as they come: judged, numbered by key, put in order (J1, J3, J4, W5)."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import EARLIEST, OperatorId
from arkflow_kernel.join.join_keys import JoinKeys
from arkflow_kernel.join.join_runs import NULL_KEY, JoinRun, arranged
from arkflow_kernel.join.side_rows import RunRows, SideRows
from arkflow_kernel.plan import JoinPlan, LatePolicy
from arkflow_kernel.state.arrow_numpy import as_array
from arkflow_kernel.state.growing import Mask, Slots
from arkflow_kernel.timestamps import Int64s, operator_times
from arkflow_kernel.window.lateness import either, turned_away, unstamped


@dataclass(frozen=True, slots=True)
class Taken:
    """The rows of a batch that a side takes, with their times and cuts; and those that leave."""

    rows: pa.RecordBatch
    times: Int64s
    cuts: Int64s | None
    away: pa.RecordBatch | None
    away_rows: int


class SideIntake:
    """Brings batches into a side. `keys` are those of both sides."""

    def __init__(self, operator: OperatorId, plan: JoinPlan, keys: JoinKeys) -> None:
        self._operator = operator
        self._plan = plan
        self._keys = keys

    def judged(self, batch: pa.RecordBatch, mine: SideRows, *, takes_late: bool = False) -> Taken:
        """Rows without a time are not joined, nor are late ones unless they are taken, too (J3,
        J4, J10, W5). Raises `ProcessingError` for a time column that is missing or of no such type.
        """
        batch, marks = unstamped(batch)
        times = operator_times(batch, mine.plan.timestamp_field, self._operator)
        cuts = None
        if marks is not None:
            hold = self._plan.hold_ms
            cuts = np.maximum(marks, EARLIEST + hold) - hold
        late = None if takes_late else _late(times.ms, cuts, mine.low)
        if late is not None and times.valid is not None:
            late &= times.valid
        late = late if late is not None and late.any() else None
        untimed = None if times.valid is None else ~times.valid
        gone = either(late, untimed)
        if gone is None:
            return Taken(batch, times.ms, cuts, None, 0)
        kept = ~gone
        routed = late if self._plan.late is LatePolicy.ROUTE else None
        return Taken(
            batch.filter(as_array(kept)),
            times.ms[kept],
            None if cuts is None else cuts[kept],
            turned_away(batch, routed, untimed),
            int(gone.sum()),
        )

    def probe(self, taken: Taken, mine: SideRows) -> JoinRun | None:
        """The rows in order of key and time. A null key matches nothing, so it is of no use but on
        an outer side. None: no row is of use. Raises `ProcessingError`.
        """
        rows, times, cuts = taken.rows, taken.times, taken.cuts
        if not rows.num_rows:
            return None
        keys = self._keys.numbers(self._keys.column(rows, mine), mine)
        useless = keys == NULL_KEY
        if not mine.outer and useless.any():
            kept = ~useless
            rows, times, keys = rows.filter(as_array(kept)), times[kept], keys[kept]
            cuts = None if cuts is None else cuts[kept]
            if not rows.num_rows:
                return None
        if cuts is not None and int(cuts.max()) == EARLIEST:
            cuts = None
        matched = np.zeros(len(keys), np.bool_) if mine.outer else None
        groups = mine.groups_of(rows)
        numbers = mine.numbered(len(keys))
        return arranged(mine.schema.fitted(rows), keys, times, numbers, cuts, groups, matched)

    def bounded(self, probe: JoinRun, mine: SideRows) -> tuple[int, list[RunRows]]:
        """A key has at most `max_per_key` rows of a side (J3): how many had to go for that, and
        those of them that leave. Raises `ProcessingError` unless the oldest may go.
        """
        keys = mine.over(probe)
        if not len(keys):
            return 0, []
        if self._plan.evicts_oldest:
            return mine.evict(keys)
        raise self._too_many(probe, keys, mine)

    def _too_many(self, probe: JoinRun, keys: Slots, mine: SideRows) -> ProcessingError:
        key = int(keys[0])
        place = np.flatnonzero(probe.keys == key)[:1]
        (text,) = self._keys.texts(self._keys.column(probe.rows.take(place), mine)).to_pylist()
        return mine.failure(
            f"{mine.rows_of(key)} rows of the key '{str(text)[:60]}' are within the time that it "
            f"waits for matches, more than `max_per_key: {self._plan.max_per_key}`; raise it, "
            f"{self._plan.smaller}, or set `on_overflow: evict_oldest`"
        )


def _late(times: Int64s, cuts: Int64s | None, low: int) -> Mask:
    late: Mask = times < (low if cuts is None else np.maximum(cuts, low))
    return late


__all__ = ["SideIntake", "Taken"]
