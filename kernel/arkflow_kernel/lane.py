"""The driver's half of a lane: runs items through the fused operators, hands results out in slices.

Not a machine: it calls user code and may block. It knows no threads either; a driver calls it from
one thread, or from `workers` of them for a chain that keeps nothing across batches (T2).

Invariant (S2): the output of a `RunItem` leaves only after all operators have returned and all of
it has been routed; what the item changed in keyed state is applied then. If one fails, or a row
finds no way (`outlet.py`), the batch goes to the error output as it entered the chain, nothing else
of it leaves and nothing of it stays in the state; without an error output the item fails.
"""

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import pyarrow as pa

from arkflow_kernel.bad_rows import NOWHERE, Origin, bad_row_error, failed_batch
from arkflow_kernel.errors import (
    ArkflowError,
    OperatorTimeoutError,
    ProcessingError,
)
from arkflow_kernel.ids import MonotonicMs, OperatorId, OutputId, RequestToken, WallMs
from arkflow_kernel.metrics import OperatorCounts
from arkflow_kernel.outlet import ChainOutlets
from arkflow_kernel.pieces import next_slice
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import Operator, OperatorResult
from arkflow_kernel.protocol import (
    FinishItem,
    LaneSlice,
    NextSlice,
    Piece,
    RunItem,
    Submit,
)
from arkflow_kernel.state_journal import CommitOnAck


@dataclass(frozen=True, slots=True)
class LaneAnswer:
    """What one request to the lane yields; becomes an `ItemDone`."""

    slice: LaneSlice
    more: bool
    counts: tuple[OperatorCounts, ...] = ()


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
        self._left: dict[RequestToken, deque[Piece]] = {}
        self._calls: dict[RequestToken, _Call] = {}

    def run(self, item: RunItem | FinishItem) -> LaneAnswer:
        """Work an item off; the first slice of its results. Raises `ArkflowError`."""
        work = _Work(self._plan, self._outlets, item.token)
        try:
            with self._journal.item():
                match item:
                    case RunItem():
                        self._run_batch(item, work)
                    case FinishItem():
                        self._finish(work)
        finally:
            self._calls.pop(item.token, None)
        for growth in self._journal.growth():
            work.add(growth)
        return self._answer(item.token, deque(work.pieces), tuple(work.counts.values()))

    def next_slice(self, token: RequestToken) -> LaneAnswer:
        """The next slice of an item whose last answer said `more`."""
        return self._answer(token, self._left.pop(token), ())

    def overdue(self, now_ms: MonotonicMs) -> tuple[RequestToken, OperatorTimeoutError] | None:
        """An item that is in one operator for longer than its time-out, if there is one (T1b)."""
        for token, call in list(self._calls.items()):
            if now_ms - call.since_ms > call.timeout_ms:
                where = str(call.origin)
                return token, OperatorTimeoutError(call.operator, call.timeout_ms, where=where)
        return None

    # --- one item ------------------------------------------------------------------------------

    def _run_batch(self, item: RunItem, work: "_Work") -> None:
        work.error(item.bad, item.origin)
        if item.batch.num_rows == 0:
            return
        kept = len(work.pieces)
        try:
            with self._journal.part():
                for batch in self._through(item.batch, 0, item.origin, work):
                    work.emit(batch)
        except ProcessingError as error:
            located = _located(error, item.origin)
            if self._plan.error_output is None:
                raise located from error
            work.failed(kept, _failed(item.batch, located, item.origin))

    def _finish(self, work: "_Work") -> None:
        """Flush the operators in order; what one yields passes through those behind it."""
        for index, operator in enumerate(self._operators):
            with self._timed(index, NOWHERE, work):
                result = _guarded(self._plan.operators[index].operator, operator.finish)
            work.counted(index, 0, result)
            work.error(result.bad)
            for batch in result.batches:
                self._finish_batch(batch, index + 1, work)

    def _finish_batch(self, batch: pa.RecordBatch, start: int, work: "_Work") -> None:
        """What an operator behind fails on goes to the error output; the item goes on (S2)."""
        kept = len(work.pieces)
        try:
            with self._journal.part():
                for out in self._through(batch, start, NOWHERE, work):
                    work.emit(out)
        except ProcessingError as error:
            if self._plan.error_output is None:
                raise
            work.failed(kept, _failed(batch, error, NOWHERE))

    def _through(
        self, batch: pa.RecordBatch, start: int, origin: Origin, work: "_Work"
    ) -> list[pa.RecordBatch]:
        batches = [batch] if batch.num_rows else []
        for index in range(start, len(self._operators)):
            made: list[pa.RecordBatch] = []
            for each in batches:
                made += self._call(index, each, origin, work)
            batches = made
        return batches

    def _call(
        self, index: int, batch: pa.RecordBatch, origin: Origin, work: "_Work"
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
        return [out for out in result.batches if out.num_rows]

    def _timed(self, index: int, origin: Origin, work: "_Work") -> "_Timed":
        return _Timed(self, index, origin, work.token)

    def _answer(
        self,
        token: RequestToken,
        pieces: deque[Piece],
        counts: tuple[OperatorCounts, ...],
    ) -> LaneAnswer:
        slice_ = LaneSlice(next_slice(pieces))
        if pieces:
            self._left[token] = pieces
        return LaneAnswer(slice_, bool(pieces), counts)


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


class _Work:
    """Results and counts of one item while it runs."""

    def __init__(self, plan: ChainPlan, outlets: ChainOutlets, token: RequestToken) -> None:
        self.plan = plan
        self.outlets = outlets
        self.token = token
        self.pieces: list[Piece] = []
        self.counts: dict[OperatorId, OperatorCounts] = {}

    def emit(self, batch: pa.RecordBatch) -> None:
        """Rows that passed all operators. Raises `ProcessingError` if a row finds no way."""
        if batch.num_rows:
            for output in self.plan.outputs:
                self._leave(output, batch)

    def error(self, bad: pa.RecordBatch | None, origin: Origin = NOWHERE) -> None:
        """Bad rows; without an error output the first of them fails the item."""
        if bad is None or bad.num_rows == 0:
            return
        if self.plan.error_output is None:
            raise bad_row_error(bad, origin)
        self._leave(self.plan.error_output, bad)

    def failed(self, kept: int, batch: pa.RecordBatch) -> None:
        """An operator failed: of all pieces but the first `kept`, the batch alone leaves."""
        assert self.plan.error_output is not None
        del self.pieces[kept:]
        self._leave(self.plan.error_output, batch)

    def _leave(self, output: OutputId, batch: pa.RecordBatch) -> None:
        self.pieces += self.outlets.pieces(output, batch)

    def counted(self, index: int, rows_in: int, result: OperatorResult) -> None:
        """Book one call (T6)."""
        rows_out = sum(batch.num_rows for batch in result.batches)
        errors = 0 if result.bad is None else result.bad.num_rows
        left = rows_in - errors - rows_out
        self._add(
            index,
            rows_in=rows_in,
            rows_out=rows_out,
            errors=errors,
            filtered=max(left, 0),
            expanded=max(-left, 0),
        )

    def errored(self, index: int, rows: int) -> None:
        """Book a call that failed: all its rows are errors."""
        self._add(index, rows_in=rows, errors=rows)

    def _add(self, index: int, **counts: int) -> None:
        self.add(OperatorCounts(self.plan.operators[index].operator, **counts))

    def add(self, counts: OperatorCounts) -> None:
        """Add to what is booked for an operator."""
        known = self.counts.get(counts.operator, OperatorCounts(counts.operator))
        self.counts[counts.operator] = known.plus(counts)


class LaneSchedule:
    """The order in which a driver works off requests to a lane (T1c).

    One worker: the next item starts after the last slice of the one before. Several: items start
    in order and overlap (T2), but `Finish` starts when no item is at work any more: an operator
    is finished once, after its last batch. `put` takes `Submit` and `NextSlice`; `next` gives what
    may start now; the driver tells with `answered` whether an item has more slices.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._submits: deque[Submit] = deque()
        self._slices: deque[NextSlice] = deque()
        self._running = 0
        self._partial: set[RequestToken] = set()

    def put(self, request: Submit | NextSlice) -> None:
        """A request of the machine."""
        if isinstance(request, NextSlice):
            self._slices.append(request)
        else:
            self._submits.append(request)

    def next(self) -> Submit | NextSlice | None:
        """The request to start now, or None. Call until None, after `put` and `answered`."""
        if self._running >= self._workers:
            return None
        request: Submit | NextSlice | None = None
        if self._slices:
            request = self._slices.popleft()
        elif self._submits and self._may_start(self._submits[0]):
            request = self._submits.popleft()
        if request is not None:
            self._running += 1
        return request

    def _may_start(self, submit: Submit) -> bool:
        if isinstance(submit.item, FinishItem):
            return self._running == 0 and not self._partial
        return self._workers > 1 or not self._partial

    def answered(self, token: RequestToken, *, more: bool) -> None:
        """A request that `next` gave was worked off."""
        self._running -= 1
        if more:
            self._partial.add(token)
        else:
            self._partial.discard(token)


def _failed(batch: pa.RecordBatch, error: ProcessingError, origin: Origin) -> pa.RecordBatch:
    return failed_batch(batch, error=error.cause, operator=error.operator, origin=origin)


def _guarded(operator: OperatorId, call: Callable[[], OperatorResult]) -> OperatorResult:
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


__all__ = ["ChainLane", "LaneAnswer", "LaneSchedule"]
