"""The temporal join: each row of the left side with the version of its key at its time (J9-J11).

A row waits until the watermark has passed its time. All versions up to then have come, so that what
it leaves with does not depend on which of the two came first.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from arkflow_kernel.ids import EventTimeMs, OperatorId
from arkflow_kernel.join.join_base import JoinBase
from arkflow_kernel.join.join_keys import JoinKeys
from arkflow_kernel.join.side_rows import RunRows
from arkflow_kernel.join.side_state import SideState
from arkflow_kernel.join.temporal_output import TemporalOutput
from arkflow_kernel.join.version_state import VersionState
from arkflow_kernel.plan import JoinPlan
from arkflow_kernel.ports import OperatorResult


class TemporalJoinOperator(JoinBase):
    """A `ports.TwoSided` operator. `keys` and `sides` are its states."""

    def __init__(
        self,
        operator: OperatorId,
        plan: JoinPlan,
        left: SideState,
        right: VersionState,
        keys: JoinKeys,
    ) -> None:
        super().__init__(operator, plan, left, right, keys)
        self._waiting = left
        self._versions = right
        self._output = TemporalOutput(left, right, keys)

    def process_edge(self, edge: str, batch: pa.RecordBatch) -> Iterator[OperatorResult]:
        """Keep the rows that came by an edge. See `JoinBase`."""
        waits = edge == self._plan.left.edge
        side = self._waiting if waits else self._versions
        taken = self._intake.judged(batch, side, takes_late=not waits)
        probe = self._intake.probe(taken, side)
        absorbed = evicted = 0
        if probe is not None:
            absorbed = len(probe)
            side.add(probe, sum(each.live_bytes for each in self.sides))
            if waits:
                evicted, _ = self._intake.bounded(probe, side)
        taken_in = OperatorResult(
            (),
            late=taken.away,
            late_rows=taken.away_rows,
            absorbed=absorbed,
            evicted=evicted,
        )
        return iter((taken_in,))

    def advance(self, watermark: EventTimeMs) -> Iterator[OperatorResult]:
        """The rows whose time the watermark has passed leave, each with its version."""
        known = self._waiting.watermark
        if known is not None and watermark <= known:
            return
        due = [_in_order(each) for each in self._waiting.advance(watermark)]
        self._versions.advance(watermark)
        if not due:
            return
        # All at once, before the first of them leaves: between two parts the states may tidy up.
        keys = np.concatenate([each.run.keys[each.places] for each in due])
        times = np.concatenate([each.run.times[each.places] for each in due])
        found = self._versions.valid_at(keys, times)
        for batch in self._output.rows(due, found):
            yield OperatorResult((batch,))


def _in_order(rows: RunRows) -> RunRows:
    """By key and time, as the run is: neighbours are found, and read, together."""
    return RunRows(rows.run, np.sort(rows.places))


__all__ = ["TemporalJoinOperator"]
