"""The driver's half of a lane: runs items through the fused operators, hands results out in slices.

Not a machine: it calls user code and may block. It knows no threads either; a driver calls it from
one thread, or from `workers` of them for a chain that keeps nothing across batches (T2).

Invariant (S2): the output of a `RunItem` leaves only after all operators have returned and all of
it has been routed; what the item changed in keyed state is applied then. If one fails, or a row
finds no way (`outlet.py`), the batch goes to the error output as it entered the chain, nothing else
of it leaves and nothing of it stays in the state; without an error output the item fails.

The other items are made slice by slice (T1c): an operator that fires millions of rows yields them
in pieces, and each goes through the operators behind it when a slice has room. Its own state has
changed before the first piece (N5). Nothing else enters the lane between two slices.
"""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import TypeVar, cast

import pyarrow as pa

from arkflow_kernel.bad_rows import NOWHERE, Origin, failed_batch
from arkflow_kernel.errors import (
    ArkflowError,
    OperatorTimeoutError,
    ProcessingError,
)
from arkflow_kernel.ids import MonotonicMs, OperatorId, RequestToken, WallMs
from arkflow_kernel.item_work import ItemWork
from arkflow_kernel.metrics import KeyGroupRows, OperatorCounts
from arkflow_kernel.outlet import ChainOutlets
from arkflow_kernel.pieces import next_slice
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import Operator, OperatorResult, TimedOperator, TwoSided
from arkflow_kernel.protocol import (
    AdvanceItem,
    FinishItem,
    LaneSlice,
    RunItem,
    TickItem,
)
from arkflow_kernel.state_journal import CommitOnAck

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class LaneAnswer:
    """What one request to the lane yields; becomes an `ItemDone`."""

    slice: LaneSlice
    more: bool
    counts: tuple[OperatorCounts, ...] = ()
    key_groups: tuple[KeyGroupRows, ...] = ()


@dataclass(frozen=True, slots=True)
class _Call:
    """An operator call in progress, for time-outs."""

    operator: OperatorId
    since_ms: MonotonicMs
    timeout_ms: int
    origin: Origin


class ChainLane:
    """The fused operators of one chain. `now_ms` is the driver's monotonic clock."""

    def __init__(
        self,
        plan: ChainPlan,
        operators: Seq[Operator],
        now_ms: Callable[[], MonotonicMs],
        journal: CommitOnAck | None = None,
    ) -> None:
        assert len(operators) == len(plan.operators)
        self._plan = plan
        self._operators = tuple(operators)
        self._now_ms = now_ms
        self._journal = journal or CommitOnAck(lambda: WallMs(0))
        self._outlets = ChainOutlets(plan)
        self._timed_at = tuple(index for index, op in enumerate(plan.operators) if op.timed)
        self._two_sided = any(op.join is not None for op in plan.operators[:1])
        self._left: dict[RequestToken, _Stream] = {}
        self._calls: dict[RequestToken, _Call] = {}

    def run(self, item: RunItem | AdvanceItem | TickItem | FinishItem) -> LaneAnswer:
        """Work an item off; the first slice of its results. Raises `ArkflowError`."""
        work = ItemWork(self._plan, self._outlets, item.token)
        return self._answer(_Stream(work, self._steps(item, work)))

    def next_slice(self, token: RequestToken) -> LaneAnswer:
        """The next slice of an item whose last answer said `more`."""
        return self._answer(self._left.pop(token))

    def overdue(self, now_ms: MonotonicMs) -> tuple[RequestToken, OperatorTimeoutError] | None:
        """An item that is in one operator for longer than its time-out, if there is one (T1b)."""
        for token, call in list(self._calls.items()):
            if now_ms - call.since_ms > call.timeout_ms:
                where = str(call.origin)
                return token, OperatorTimeoutError(call.operator, call.timeout_ms, where=where)
        return None

    # --- one item ------------------------------------------------------------------------------

    def _steps(
        self, item: RunItem | AdvanceItem | TickItem | FinishItem, work: ItemWork
    ) -> Iterator[None]:
        """The work of an item, in steps between which a slice may leave."""
        match item:
            case RunItem() if self._two_sided:
                yield from self._run_side(item, work)
            case RunItem():
                self._run_batch(item, work)
            case AdvanceItem(watermark=watermark):
                yield from self._timed_steps(work, lambda each: each.advance(watermark))
            case TickItem():
                wall_ms = self._journal.wall_ms
                yield from self._timed_steps(work, lambda each: each.tick(wall_ms))
            case FinishItem():
                yield from self._finish(work)

    def _timed_steps(
        self, work: ItemWork, call: Callable[[TimedOperator], Iterator[OperatorResult]]
    ) -> Iterator[None]:
        """Let the operators act on time, in order: what one fires reaches those behind it first."""
        for index in self._timed_at:
            yield from self._pieces_of(index, call, work)

    def _pieces_of(
        self,
        index: int,
        call: Callable[[TimedOperator], Iterator[OperatorResult]],
        work: ItemWork,
    ) -> Iterator[None]:
        results = call(cast(TimedOperator, self._operators[index]))
        yield from self._drained(index, results, work)

    def _drained(
        self, index: int, results: Iterator[OperatorResult], work: ItemWork, rows: int = 0
    ) -> Iterator[None]:
        """Pass on what an operator yields; its first result accounts for so many rows."""
        name = self._plan.operators[index].operator
        while True:
            result = _guarded(name, lambda: next(results, _NO_MORE))
            if result is _NO_MORE:
                return
            self._passed_on(index, result, work, rows)
            rows = 0
            yield

    def _passed_on(self, index: int, result: OperatorResult, work: ItemWork, rows: int = 0) -> None:
        """What an operator yields of its own accord goes through those behind it."""
        work.counted(index, rows, result)
        work.error(result.bad)
        work.late(result.late)
        for batch in result.batches:
            self._finish_batch(batch, index + 1, work)

    def _run_side(self, item: RunItem, work: ItemWork) -> Iterator[None]:
        """Rows of one of two inputs. Their pairs may be any number, so they leave in pieces; what
        the operators behind fail on then goes to the error output alone, as in `Advance` (S2).
        """
        assert item.edge is not None
        if item.batch.num_rows == 0:
            return
        operator, edge = cast(TwoSided, self._operators[0]), item.edge
        name, rows = self._plan.operators[0].operator, item.batch.num_rows
        try:
            with self._journal.part(), self._timed(0, item.origin, work):
                results = _guarded(name, lambda: operator.process_edge(edge, item.batch))
        except ProcessingError as error:
            work.errored(0, rows)
            located = _located(error, item.origin)
            if self._plan.error_output is None:
                raise located from error
            work.failed(work.made(), _failed(item.batch, located, item.origin))
            return
        yield from self._drained(0, results, work, rows)

    def _run_batch(self, item: RunItem, work: ItemWork) -> None:
        work.error(item.bad, item.origin)
        work.late(item.untimed)
        if item.batch.num_rows == 0:
            return
        kept = work.made()
        try:
            with self._journal.part():
                for batch in self._through(item.batch, 0, item.origin, work):
                    work.emit(batch)
        except ProcessingError as error:
            located = _located(error, item.origin)
            if self._plan.error_output is None:
                raise located from error
            work.failed(kept, _failed(item.batch, located, item.origin))

    def _finish(self, work: ItemWork) -> Iterator[None]:
        """Flush the operators in order; what one yields passes through those behind it."""
        for index, operator in enumerate(self._operators):
            if index in self._timed_at:
                yield from self._pieces_of(index, lambda each: each.end(), work)
            with self._timed(index, NOWHERE, work):
                result = _guarded(self._plan.operators[index].operator, operator.finish)
            self._passed_on(index, result, work)
            yield

    def _finish_batch(self, batch: pa.RecordBatch, start: int, work: ItemWork) -> None:
        """What an operator behind fails on goes to the error output; the item goes on (S2)."""
        kept = work.made()
        try:
            with self._journal.part():
                for out in self._through(batch, start, NOWHERE, work):
                    work.emit(out)
        except ProcessingError as error:
            if self._plan.error_output is None:
                raise
            work.failed(kept, _failed(batch, error, NOWHERE))

    def _through(
        self, batch: pa.RecordBatch, start: int, origin: Origin, work: ItemWork
    ) -> list[pa.RecordBatch]:
        batches = [batch] if batch.num_rows else []
        for index in range(start, len(self._operators)):
            made: list[pa.RecordBatch] = []
            for each in batches:
                made += self._call(index, each, origin, work)
            batches = made
        return batches

    def _call(
        self, index: int, batch: pa.RecordBatch, origin: Origin, work: ItemWork
    ) -> list[pa.RecordBatch]:
        operator = self._operators[index]
        name = self._plan.operators[index].operator
        with self._timed(index, origin, work):
            try:
                result = _guarded(name, lambda: operator.process(batch, origin))
            except ProcessingError:
                work.errored(index, batch.num_rows)
                raise
        work.counted(index, batch.num_rows, result)
        work.error(result.bad, origin)
        work.late(result.late)
        return [out for out in result.batches if out.num_rows]

    def _timed(self, index: int, origin: Origin, work: ItemWork) -> "_Timed":
        return _Timed(self, index, origin, work.token)

    def _answer(self, stream: "_Stream") -> LaneAnswer:
        """Work until a slice is full, or nothing follows."""
        work = stream.work
        try:
            with self._journal.item():
                while not stream.ended and not work.fills_slice:
                    stream.ended = next(stream.steps, _NO_STEP) is _NO_STEP
        finally:
            self._calls.pop(work.token, None)
        for growth in self._journal.growth():
            work.add(growth)
        slice_ = LaneSlice(next_slice(work.pieces))
        more = bool(work.pieces) or not stream.ended
        if more:
            self._left[work.token] = stream
        return LaneAnswer(slice_, more, work.take_counts(), work.take_key_groups())

    def timer(self) -> WallMs | None:
        """When the first of the operators wants a tick."""
        operators = (cast(TimedOperator, self._operators[index]) for index in self._timed_at)
        timers = [timer for each in operators if (timer := each.timer()) is not None]
        return min(timers, default=None)


class _Timed:
    """Notes that an operator with a time-out is at work, for `overdue`."""

    def __init__(self, lane: ChainLane, index: int, origin: Origin, token: RequestToken) -> None:
        self._calls = lane._calls
        self._token = token
        plan = lane._plan.operators[index]
        if plan.timeout_ms is not None:
            self._calls[token] = _Call(plan.operator, lane._now_ms(), plan.timeout_ms, origin)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._calls.pop(self._token, None)


_NO_MORE = OperatorResult(())
_NO_STEP = object()
"""Nothing follows."""


@dataclass(slots=True)
class _Stream:
    """An item at work: what it has made, and the steps that are left."""

    work: ItemWork
    steps: Iterator[None]
    ended: bool = False


def _failed(batch: pa.RecordBatch, error: ProcessingError, origin: Origin) -> pa.RecordBatch:
    return failed_batch(batch, error=error.cause, operator=error.operator, origin=origin)


def _guarded(operator: OperatorId, call: Callable[[], Answer]) -> Answer:
    """Call an operator; whatever it raises becomes a `ProcessingError` that names it.

    Not only an `Exception`: user code may call `sys.exit`, and a panic of a Rust library derives
    from `BaseException`. Only the user's interrupt of the whole program passes.
    """
    try:
        return call()
    except (ArkflowError, KeyboardInterrupt):
        raise
    except BaseException as error:
        kind = type(error).__name__
        raise ProcessingError(operator, f"{kind}: {error}", error_class=kind) from error


def _located(error: ProcessingError, origin: Origin) -> ProcessingError:
    if error.where or origin.source is None:
        return error
    return ProcessingError(
        error.operator,
        error.cause,
        error_class=error.error_class,
        where=f"the batch from {origin}",
        row=error.row,
    )


__all__ = ["ChainLane", "LaneAnswer"]
