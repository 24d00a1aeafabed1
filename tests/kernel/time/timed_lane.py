"""The lane of a chain with scripted windows, and everything that it hands out."""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import replace

import pyarrow as pa

from arkflow_kernel.bad_rows import NOWHERE, Origin
from arkflow_kernel.ids import EventTimeMs, MonotonicMs, OperatorId, OutputId, RequestToken, WallMs
from arkflow_kernel.lane import ChainLane, LaneAnswer
from arkflow_kernel.metrics import OperatorCounts
from arkflow_kernel.plan import ChainPlan, EdgeKind, OutletPlan, WindowKind, WindowPlan
from arkflow_kernel.ports import Operator, OperatorResult
from arkflow_kernel.protocol import AdvanceItem, FinishItem, LaneItem, SealItem
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.testing.components import ScriptedOperator, rows_batch, rows_of
from arkflow_kernel.testing.plans import chain_plan, channel_plan

T = RequestToken(7)
ADVANCE = AdvanceItem(T, EventTimeMs(100))
FINISH = FinishItem(T)
WINDOW = WindowPlan(WindowKind.TUMBLING, "ts", size_ms=10)
EDGE = channel_plan("out", "chain-0", "chain-1")
LATE = OutputId("late")


class Windowed(ScriptedOperator):
    """A `TimedOperator` that fires results on each item of time, and tells what it does.

    It absorbs the rows that it is given, and says so in `told`.
    """

    def __init__(
        self, name: str, told: list[str], *fires: OperatorResult, timer: int | None = None
    ) -> None:
        super().__init__()
        self._name, self._told, self._fires = name, told, fires
        self._timer = None if timer is None else WallMs(timer)
        self.held = 0

    def process(self, batch: pa.RecordBatch, origin: Origin = NOWHERE) -> OperatorResult:
        self._told.append(f"{self._name} takes {batch.num_rows}")
        self.held += batch.num_rows
        return OperatorResult((), absorbed=batch.num_rows)

    def _fire(self, why: str) -> Iterator[OperatorResult]:
        for result in self._fires:
            self._told.append(f"{self._name} {why}")
            yield result
        if self.held:
            held, self.held = self.held, 0
            yield OperatorResult((rows_batch(self._name, range(held)),))

    def advance(self, watermark: EventTimeMs) -> Iterator[OperatorResult]:
        return self._fire(f"fires at {watermark}")

    def tick(self, wall_ms: WallMs) -> Iterator[OperatorResult]:
        return self._fire(f"ticks at {wall_ms}")

    def end(self) -> Iterator[OperatorResult]:
        return self._fire("ends")

    def finish(self) -> OperatorResult:
        self._told.append(f"{self._name} finishes")
        return super().finish()

    def timer(self) -> WallMs | None:
        return self._timer


class Taking(ScriptedOperator):
    """Passes rows on and tells which."""

    def __init__(self, told: list[str]) -> None:
        super().__init__()
        self._told = told

    def process(self, batch: pa.RecordBatch, origin: Origin = NOWHERE) -> OperatorResult:
        self._told.append(f"behind: {batch.num_rows}")
        return super().process(batch, origin)


class Settled:
    """A state of the chain that counts its transactions, and what was taken back."""

    operator = OperatorId("op-0")
    live_keys = live_bytes = 0

    def __init__(self) -> None:
        self.clocks: list[int] = []
        self.undone = 0

    def settle(self, wall_ms: WallMs) -> None:
        self.clocks.append(wall_ms)

    def undo(self) -> None:
        self.undone += 1


def _plan(operators: Seq[Operator], *, errors: bool, late: bool, edge: bool) -> ChainPlan:
    plan = chain_plan(
        operators=[f"op-{i}" for i in range(len(operators))],
        error_sink="errors" if errors else None,
        channels=(EDGE,) if edge else (),
    )
    timed = tuple(
        replace(each, window=WINDOW) if isinstance(operator, Windowed) else each
        for each, operator in zip(plan.operators, operators, strict=True)
    )
    if not late:
        return replace(plan, operators=timed)
    route = OutletPlan(LATE, EdgeKind.LATE, (channel_plan("late"),))
    return replace(plan, operators=timed, late_output=LATE, outlets=(*plan.outlets, route))


class Lane:
    """The lane of a chain with a state, and everything that it hands out."""

    def __init__(
        self, *operators: Operator, errors: bool = True, late: bool = False, edge: bool = False
    ) -> None:
        self.plan = _plan(operators, errors=errors, late=late, edge=edge)
        self.state, self.wall_ms = Settled(), 1_000
        self.journal = CommitOnAck(lambda: WallMs(self.wall_ms))
        self.journal.joined(self.state)
        self.lane = ChainLane(self.plan, operators, lambda: MonotonicMs(0), self.journal)
        self.answers: list[LaneAnswer] = []

    def run(self, item: LaneItem) -> dict[str, list[pa.RecordBatch]]:
        """All slices of an item; the batches of each output."""
        assert not isinstance(item, SealItem)
        self.answers = [self.lane.run(item)]
        while self.answers[-1].more:
            self.answers.append(self.lane.next_slice(T))
        found: dict[str, list[pa.RecordBatch]] = {}
        for piece in self.pieces():
            found.setdefault(piece[0], []).append(piece[1])
        return found

    def rows(self, item: LaneItem) -> dict[str, list[tuple[str, int]]]:
        """The scripted rows of each output."""
        found = self.run(item)
        return {name: [row for b in many for row in rows_of(b)] for name, many in found.items()}

    def pieces(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        for answer in self.answers:
            yield from ((piece.output, piece.batch) for piece in answer.slice.pieces)

    def counted(self) -> dict[str, OperatorCounts]:
        """The sum of what all answers have counted, by operator; each answer is conserved."""
        total: dict[str, OperatorCounts] = {}
        for answer in self.answers:
            for counts in answer.counts:
                assert counts.conserved()
                known = total.get(counts.operator, OperatorCounts(counts.operator))
                total[counts.operator] = known.plus(counts)
        return total


__all__ = ["ADVANCE", "FINISH", "Lane", "T", "Taking", "Windowed"]
