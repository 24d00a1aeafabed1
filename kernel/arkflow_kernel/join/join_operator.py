"""The interval join of two keyed streams on event time (J1-J4).

A row is matched with the rows of the other side as it comes, and kept until no row that is not late
can match it. So a pair leaves once, with the later of its rows. What a batch changes in the state
has changed before the first of its pairs leaves; the pairs themselves leave in parts (T1c).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.errors import ProcessingError, ProtocolError
from arkflow_kernel.ids import EARLIEST, LATEST, EventTimeMs, OperatorId, WallMs
from arkflow_kernel.join.join_keys import JoinKeys
from arkflow_kernel.join.join_output import JoinOutput, Matches
from arkflow_kernel.join.join_runs import NULL_KEY, JoinRun, arranged
from arkflow_kernel.join.side_rows import RunRows, SideRows
from arkflow_kernel.join.side_state import SideState
from arkflow_kernel.plan import JoinPlan, LatePolicy, OperatorPlan
from arkflow_kernel.ports import OperatorResult
from arkflow_kernel.state.api import StateAddress
from arkflow_kernel.state.arrow_numpy import as_array
from arkflow_kernel.state.growing import Mask, Slots
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from arkflow_kernel.timestamps import Int64s, operator_times
from arkflow_kernel.window.lateness import either, turned_away, unstamped

LEFT, RIGHT = "left", "right"
"""The sides, and the names of their states."""

NOTHING = OperatorResult(())


@dataclass(frozen=True, slots=True)
class _Taken:
    """The rows of a batch that are not late, with their times and cuts; and those that leave."""

    rows: pa.RecordBatch
    times: Int64s
    cuts: Int64s | None
    away: pa.RecordBatch | None
    away_rows: int


class JoinOperator:
    """A `ports.TwoSided` operator. `keys` and `sides` are its states."""

    def __init__(
        self,
        operator: OperatorId,
        plan: JoinPlan,
        left: SideState,
        right: SideState,
        keys: JoinKeys,
    ) -> None:
        self._operator = operator
        self._plan = plan
        self.keys = keys
        self.sides = (left, right)
        self._sides: dict[str, SideRows] = {LEFT: left, RIGHT: right}
        self._others: dict[str, SideRows] = {LEFT: right, RIGHT: left}
        self._output = JoinOutput(left, right, keys)

    def open(self) -> None:
        """The states are opened by whoever restores them."""

    def close(self) -> None:
        """The states are released by whoever made them."""

    def finish(self) -> OperatorResult:
        """`end` has let everything leave."""
        return NOTHING

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:
        """A row is of one of two sides."""
        del batch
        raise ProtocolError(f"join '{self._operator}' got rows of no side, from {origin}")

    # --- rows ----------------------------------------------------------------------------------

    def process_edge(self, edge: str, batch: pa.RecordBatch) -> Iterator[OperatorResult]:
        """Match the rows that came by an edge, and keep them. See `TwoSided`.

        Raises `ProcessingError` for a key or time column that is missing or of a type that does
        not fit, for columns that do not go together with those before, and when a bound is passed.
        """
        side = LEFT if edge == self._plan.left.edge else RIGHT
        mine, other = self._sides[side], self._others[side]
        taken = self._judged(batch, mine)
        away = OperatorResult((), late=taken.away, late_rows=taken.away_rows)
        probe = self._probe(taken, mine) if taken.rows.num_rows else None
        if probe is None:
            return iter((away,))
        matches = Matches(probe, other.pairs(probe, self._plan.window_ms))
        self._mark(matches, mine, other)
        mine.add(probe, mine.live_bytes + other.live_bytes)
        evicted, leaving = self._bounded(probe, mine)
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

    def _judged(self, batch: pa.RecordBatch, mine: SideRows) -> _Taken:
        """Rows without a time, and those that are late, are not joined (J3, J4, W5)."""
        batch, marks = unstamped(batch)
        times = operator_times(batch, mine.plan.timestamp_field, self._operator)
        cuts = None
        if marks is not None:
            hold = self._plan.hold_ms
            cuts = np.maximum(marks, EARLIEST + hold) - hold
        low = mine.low
        late: Mask | None = times.ms < (low if cuts is None else np.maximum(cuts, low))
        assert late is not None
        if times.valid is not None:
            late &= times.valid
        late = late if late.any() else None
        untimed = None if times.valid is None else ~times.valid
        gone = either(late, untimed)
        if gone is None:
            return _Taken(batch, times.ms, cuts, None, 0)
        kept = ~gone
        routed = late if self._plan.late is LatePolicy.ROUTE else None
        return _Taken(
            batch.filter(as_array(kept)),
            times.ms[kept],
            None if cuts is None else cuts[kept],
            turned_away(batch, routed, untimed),
            int(gone.sum()),
        )

    def _probe(self, taken: _Taken, mine: SideRows) -> JoinRun | None:
        """The rows in order of key and time. A null key matches nothing, so it is of no use but on
        an outer side.
        """
        rows, times, cuts = taken.rows, taken.times, taken.cuts
        keys = self.keys.numbers(self.keys.column(rows, mine), mine)
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

    def _mark(self, matches: Matches, mine: SideRows, other: SideRows) -> None:
        """Rows of outer sides that have matched do not leave alone."""
        if not (mine.outer or other.outer):
            return
        for rows, there in matches.parts():
            if matches.probe.matched is not None:
                matches.probe.matched[rows] = True
            if other.outer:
                other.mark(there.run, there.places)

    def _bounded(self, probe: JoinRun, mine: SideRows) -> tuple[int, list[RunRows]]:
        """A key has at most `max_per_key` rows of a side (J3)."""
        keys = mine.over(probe)
        if not len(keys):
            return 0, []
        if self._plan.evicts_oldest:
            return mine.evict(keys)
        raise self._too_many(probe, keys, mine)

    def _too_many(self, probe: JoinRun, keys: Slots, mine: SideRows) -> ProcessingError:
        key = int(keys[0])
        place = np.flatnonzero(probe.keys == key)[:1]
        (text,) = self.keys.texts(self.keys.column(probe.rows.take(place), mine)).to_pylist()
        return mine.failure(
            f"{mine.rows_of(key)} rows of the key '{str(text)[:60]}' are within the time that it "
            f"waits for matches, more than `max_per_key: {self._plan.max_per_key}`; raise it, make "
            "`window_ms` or `ttl_ms` smaller, or set `on_overflow: evict_oldest`"
        )

    # --- time ----------------------------------------------------------------------------------

    def advance(self, watermark: EventTimeMs) -> Iterator[OperatorResult]:
        """Let go of rows that nothing can match any more; unmatched ones of outer sides leave."""
        known = self._sides[LEFT].watermark
        if known is not None and watermark <= known:
            return
        due = [(side, side.advance(watermark)) for side in self._sides.values()]
        for side, rows in due:
            for batch in self._output.unmatched(side, rows):
                yield OperatorResult((batch,))

    def tick(self, wall_ms: WallMs) -> Iterator[OperatorResult]:
        """The wall clock plays no part."""
        del wall_ms
        yield from ()

    def end(self) -> Iterator[OperatorResult]:
        """Everything unmatched leaves, once (W10)."""
        yield from self.advance(LATEST)

    def timer(self) -> WallMs | None:
        """It wants no tick."""
        return None


def join_operator(
    plan: OperatorPlan, journal: CommitOnAck, states: ChainStates | None = None
) -> JoinOperator:
    """The operator of a plan that has a `join`, with its states in the chain's journal.

    `states` are those of the chain, if it takes snapshots or spills.
    """
    join, state = plan.join, plan.state
    assert join is not None
    assert state is not None
    keys = JoinKeys(plan.operator)

    def side(name: str) -> SideState:
        made = SideState(
            StateAddress(state.namespace, plan.operator, name),
            join,
            keys,
            journal,
            max_bytes=state.max_bytes,
            memory_bytes=None if state.memory_bytes is None else state.memory_bytes // 2,
            max_parallelism=state.max_parallelism,
        )
        journal.joined(made)
        if states is not None:
            states.joined(made)
        return made

    left, right = side(LEFT), side(RIGHT)
    keys.sides = (left, right)
    return JoinOperator(plan.operator, join, left, right, keys)


__all__ = ["LEFT", "RIGHT", "JoinOperator", "join_operator"]
