"""The interval join of two keyed streams on event time (J1-J4).

A row is matched with the rows of the other side as it comes, and kept until no row that is not late
can match it. So a pair leaves once, with the later of its rows. What a batch changes in the state
has changed before the first of its pairs leaves; the pairs themselves leave in parts (T1c).
"""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from arkflow_kernel.ids import EventTimeMs, OperatorId
from arkflow_kernel.join.join_base import LEFT, RIGHT, JoinBase
from arkflow_kernel.join.join_keys import JoinKeys
from arkflow_kernel.join.join_output import JoinOutput, Matches
from arkflow_kernel.join.side_rows import RunRows, SideRows
from arkflow_kernel.join.side_state import SideState
from arkflow_kernel.plan import JoinPlan
from arkflow_kernel.ports import OperatorResult


class JoinOperator(JoinBase):
    """A `ports.TwoSided` operator. `keys` and `sides` are its states."""

    def __init__(
        self,
        operator: OperatorId,
        plan: JoinPlan,
        left: SideState,
        right: SideState,
        keys: JoinKeys,
    ) -> None:
        super().__init__(operator, plan, left, right, keys)
        self._sides: dict[str, SideRows] = {LEFT: left, RIGHT: right}
        self._others: dict[str, SideRows] = {LEFT: right, RIGHT: left}
        self._output = JoinOutput(left, right, keys)

    # --- rows ----------------------------------------------------------------------------------

    def process_edge(self, edge: str, batch: pa.RecordBatch) -> Iterator[OperatorResult]:
        """Match the rows that came by an edge, and keep them. See `JoinBase`."""
        side = LEFT if edge == self._plan.left.edge else RIGHT
        mine, other = self._sides[side], self._others[side]
        taken = self._intake.judged(batch, mine)
        away = OperatorResult((), late=taken.away, late_rows=taken.away_rows)
        probe = self._intake.probe(taken, mine)
        if probe is None:
            return iter((away,))
        matches = Matches(probe, other.pairs(probe, self._plan.window_ms))
        self._mark(matches, mine, other)
        mine.add(probe, mine.live_bytes + other.live_bytes)
        evicted, leaving = self._intake.bounded(probe, mine)
        result = replace(away, absorbed=len(probe), evicted=evicted)
        return self._results(result, mine, matches, leaving)

    def _results(
        self, first: OperatorResult, mine: SideRows, matches: Matches, leaving: list[RunRows]
    ) -> Iterator[OperatorResult]:
        yield first
        for batch in self._output.matched(mine, matches):
            yield OperatorResult((batch,))
        for batch in self._output.unmatched(mine, leaving):
            yield OperatorResult((batch,))

    def _mark(self, matches: Matches, mine: SideRows, other: SideRows) -> None:
        """Rows of outer sides that have matched do not leave alone."""
        if not (mine.outer or other.outer):
            return
        for rows, there in matches.parts():
            if matches.probe.matched is not None:
                matches.probe.matched[rows] = True
            if other.outer:
                other.mark(there.run, there.places)

    # --- time ----------------------------------------------------------------------------------

    def advance(self, watermark: EventTimeMs) -> Iterator[OperatorResult]:
        """Let go of rows that nothing can match any more; unmatched ones of outer sides leave."""
        known = self._sides[LEFT].watermark
        if known is not None and watermark <= known:
            return
        due = [(side, side.advance(watermark)) for side in self._sides.values()]
        for side, rows in due:
            for batch in self._output.unmatched(side, [each.unmatched() for each in rows]):
                yield OperatorResult((batch,))


__all__ = ["JoinOperator"]
