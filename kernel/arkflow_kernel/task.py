"""The machine of one chain (T1-T7): what it reads, in which order it works, what it confirms.

It takes one event and returns commands. It never blocks, reads no clock, and touches no operator:
those live in the driver's lane, which the machine orders item by item (T1b).

    Control ─▶ read ─▶ submit ─▶ publish slices ─▶ write ─▶ settle ─▶ commit

`read_lane` says when to read, `item_queue` keeps the order of the lane, `write_lane` feeds one
sink, `commit` knows what is settled. This module moves batches between them, in `_pump`, after
every event, until nothing more can move.

Phases: WAITING (no control state yet) → RUNNING → FINISHING (the source ended; the operators
flush) or STOPPING (asked to stop) → FLUSHING (sinks confirm) → COMMITTING (the source hears of
it) → ENDED. A failed request or a cancel leads to ENDED from anywhere.
"""

from collections import Counter, deque
from collections.abc import Callable
from enum import Enum
from typing import Any

import pyarrow as pa

from arkflow_kernel.bad_rows import bad_row_error
from arkflow_kernel.commit import CommitFrontier, SettlementQueue
from arkflow_kernel.errors import ArkflowError, ProtocolError, SinkError
from arkflow_kernel.ids import Generation, MonotonicMs, OutputId, RequestToken, SplitId
from arkflow_kernel.item_queue import BatchRef, ItemQueue
from arkflow_kernel.limits import STORY_ENTRIES_MAX
from arkflow_kernel.metrics import ChainStatistics, OperatorCounts
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import SourceBatch, SplitPosition
from arkflow_kernel.protocol import (
    ChainCommand,
    ChainEvent,
    ChainOutcome,
    CommitPermit,
    CommitSource,
    Control,
    ControlState,
    Desired,
    EndChain,
    FinishItem,
    ItemDone,
    NextSlice,
    OutcomeKind,
    ReadSource,
    Request,
    RequestFailed,
    RunItem,
    SourceCommitted,
    SourceRead,
    Submit,
    Tick,
    WriteDone,
    deadline,
)
from arkflow_kernel.read_lane import ReadLane
from arkflow_kernel.write_lane import WriteLane


class Phase(Enum):
    """Where a chain is in its life; see the module's docstring."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHING = "finishing"
    STOPPING = "stopping"
    FLUSHING = "flushing"
    COMMITTING = "committing"
    ENDED = "ended"


class ChainTask:
    """Machine of one chain that reads a source and writes sinks, in ack mode.

    `commits`: the source wants to hear what is settled. `restored`: where its splits continue;
    they are the frontier until a batch is settled (F6).
    """

    def __init__(
        self,
        plan: ChainPlan,
        generation: Generation,
        *,
        commits: bool = False,
        restored: tuple[SplitPosition, ...] = (),
    ) -> None:
        assert plan.source is not None, "a chain without a source needs input edges"
        self._plan = plan
        self._generation = generation
        self._commits = commits
        self._control: ControlState | None = None
        self._phase = Phase.WAITING
        self._source = ReadLane(plan.source.rows_per_second)
        self._items = ItemQueue(plan.workers)
        self._sinks = {sink.output: WriteLane(sink.output) for sink in plan.sinks}
        self._settlement = SettlementQueue(len(self._sinks))
        self._frontiers: dict[SplitId, CommitFrontier] = {}
        self._restored = {position.split: position for position in restored}
        self._commit_due = False
        self._commit_token: RequestToken | None = None
        self._stopped = False
        self._requests: dict[RequestToken, Request] = {}
        self._next_token = 1
        self._commands: list[ChainCommand] = []
        self._counts = {op.operator: OperatorCounts(op.operator) for op in plan.operators}
        self._statistics: Counter[str] = Counter()
        self._rows_to = dict.fromkeys(self._sinks, 0)
        self._story: deque[tuple[str, Any, Phase]] = deque(maxlen=STORY_ENTRIES_MAX)
        self._handlers: dict[type, Callable[[Any], None]] = {
            Control: self._on_control,
            Tick: self._on_tick,
            SourceRead: self._on_source_read,
            ItemDone: self._on_item_done,
            WriteDone: self._on_write_done,
            SourceCommitted: self._on_source_committed,
            RequestFailed: self._on_request_failed,
        }

    # --- the one door --------------------------------------------------------------------------

    def handle(self, event: ChainEvent) -> list[ChainCommand]:
        """Take one event, return the commands that follow from it, in order.

        Raises `ProtocolError` with the machine's story for an answer that was not asked for.
        Answers that arrive after the end are dropped: their requests were given up (T4).
        """
        self._story.append((type(event).__name__, getattr(event, "token", None), self._phase))
        if self._phase is not Phase.ENDED:
            self._commands = []
            self._handlers[type(event)](event)
            self._pump(event.at.now_ms)
            return self._commands
        return []

    def next_deadline_ms(self) -> MonotonicMs | None:
        """When a `Tick` is due though nothing else happens."""
        if self._phase in (Phase.WAITING, Phase.ENDED):
            return None
        sinks = (sink.deadline_ms() for sink in self._sinks.values())
        reads = self._source.deadline_ms() if self._phase is Phase.RUNNING else None
        return deadline(reads, *sinks)

    @property
    def phase(self) -> Phase:
        """Where the chain is in its life."""
        return self._phase

    def frontier(self) -> tuple[SplitPosition, ...]:
        """Per split, the position below which everything is settled (F1, F6)."""
        positions = dict(self._restored)
        for split, frontier in self._frontiers.items():
            if frontier.exposed is not None:
                positions[split] = frontier.exposed
        return tuple(positions[split] for split in sorted(positions))

    def statistics(self) -> ChainStatistics:
        """An immutable snapshot of the counters."""
        return ChainStatistics(
            self._plan.chain,
            **self._statistics,
            settled_rows=self._settlement.settled_rows,
            in_flight=len(self._items) + self._source.waiting,
            confirmed_writes=sum(int(s.confirmed_upto) for s in self._sinks.values()),
            operators=tuple(self._counts.values()),
            rows_to=tuple(self._rows_to.items()),
        )

    def validate(self) -> None:
        """Assert the invariants across all parts; called after every event in tests."""
        self._source.validate()
        self._items.validate()
        self._settlement.validate()
        for sink in self._sinks.values():
            sink.validate()
        for frontier in self._frontiers.values():
            frontier.validate()
        reads = [r for r in self._requests.values() if isinstance(r, ReadSource)]
        assert len(reads) <= 1, "two reads outstanding"
        assert all(count.conserved() for count in self._counts.values()), self._counts
        if self._phase is Phase.WAITING:
            assert not self._requests

    # --- events --------------------------------------------------------------------------------

    def _on_control(self, event: Control) -> None:
        if event.state.generation != self._generation:
            self._count("stale_controls", 1)
            return
        known = self._control
        self._control = event.state if known is None else known.merged(event.state)
        if self._phase is Phase.WAITING:
            self._phase = Phase.RUNNING
        if self._control.desired is Desired.CANCEL:
            self._end(OutcomeKind.CANCELLED)
        elif self._control.desired is Desired.STOP and self._phase is Phase.RUNNING:
            self._phase = Phase.STOPPING
            self._stopped = True
            self._source.stop()

    def _on_tick(self, event: Tick) -> None:
        """Nothing of its own: `_pump` looks at what is due."""

    def _on_source_read(self, event: SourceRead) -> None:
        self._answered(event.token, ReadSource)
        self._source.answered(event.result, event.at.now_ms)
        self._count("bytes_in", event.size_bytes)

    def _on_item_done(self, event: ItemDone) -> None:
        self._answered(event.token, Submit, NextSlice)
        self._items.answered(event)
        for counts in event.counts:
            self._counts[counts.operator] = self._counts[counts.operator].plus(counts)
            self._count("errors", counts.errors)

    def _on_write_done(self, event: WriteDone) -> None:
        request = self._answered(event.token)
        output = getattr(request, "output", None)
        if output not in self._sinks:
            raise self._protocol_error(f"{event} answers {request}")
        try:
            self._sinks[output].answered(event.receipt)
        except SinkError as error:
            self._end(OutcomeKind.FAILED, error)

    def _on_source_committed(self, event: SourceCommitted) -> None:
        self._answered(event.token, CommitSource)
        self._commit_token = None

    def _on_request_failed(self, event: RequestFailed) -> None:
        self._answered(event.token)
        self._end(OutcomeKind.FAILED, event.error)

    def _answered(self, token: RequestToken, *kinds: type) -> Request:
        request = self._requests.pop(token, None)
        if request is None or (kinds and not isinstance(request, kinds)):
            raise self._protocol_error(f"answer to request {token}, which is {request}")
        return request

    # --- moving batches ------------------------------------------------------------------------

    def _pump(self, now_ms: MonotonicMs) -> None:
        """Move whatever can move, from the outputs back to the source, then look at the phase."""
        if self._phase in (Phase.WAITING, Phase.ENDED):
            return
        moved = True
        while moved:
            self._write(now_ms)
            moved = self._publish()
        self._write(now_ms)
        self._submit()
        self._settle()
        if self.phase is not Phase.ENDED:
            self._read(now_ms)
            self._next_phase(now_ms)

    def _write(self, now_ms: MonotonicMs) -> None:
        for sink in self._sinks.values():
            request = sink.next_request(RequestToken(self._next_token), now_ms)
            if request is not None:
                self._order(request)

    def _publish(self) -> bool:
        """Hand the head item's slice to its outputs, batch by batch in order.

        A slice may hold more batches for one output than that has room for; it leaves in parts.
        True if more may move: the sinks got something, or the next item is at the head.
        """
        head = self._items.head()
        if head is None or not head.answered:
            return False
        if head.slice is not None:
            before = head.taken
            while head.taken < len(head.slice.outputs):
                if not self._give(*head.slice.outputs[head.taken]):
                    return head.taken > before
                head.taken += 1
            token = self._items.slice_taken()
            if token is not None:
                self._order(NextSlice(token))
                return False
        done = self._items.pop_done()
        if done is None:
            return False
        if done.batch is not None:
            self._processed(done.batch)
        return True

    def _give(self, output: OutputId, batch: pa.RecordBatch) -> bool:
        """Hand one batch to its output; False if that has no room now."""
        sink = self._sinks[output]
        if not sink.has_room:
            return False
        sink.give(batch)
        self._count("batches_out", 1)
        self._count("rows_out", batch.num_rows)
        self._rows_to[output] += batch.num_rows
        return True

    def _processed(self, batch: BatchRef) -> None:
        marks = tuple(sink.last_sequence for sink in self._sinks.values())
        self._settlement.add(batch.split, batch.sequence, marks, rows=batch.rows)

    def _submit(self) -> None:
        while self._items.has_room:
            taken = self._source.take()
            if taken is None:
                return
            read, sequence = taken
            if read.bad is not None and read.bad.num_rows and self._plan.error_output is None:
                self._end(OutcomeKind.FAILED, bad_row_error(read.bad, read.origin))
                return
            token = RequestToken(self._next_token)
            frontier = self._frontiers.get(read.split)
            if frontier is None:
                frontier = self._frontiers[read.split] = CommitFrontier(read.split)
            frontier.track(sequence, read.position, ended=read.split_ended)
            self._items.submitted(token, BatchRef(read.split, sequence, read.batch.num_rows))
            self._order(Submit(RunItem(token, read.batch, read.bad, read.origin)))
            self._count_read(read)

    def _read(self, now_ms: MonotonicMs) -> None:
        if self._phase is Phase.RUNNING and self._source.wants_read(now_ms):
            token = RequestToken(self._next_token)
            self._source.reading(token)
            self._order(ReadSource(token))

    def _settle(self) -> None:
        for index, sink in enumerate(self._sinks.values()):
            self._settlement.confirm(index, sink.confirmed_upto)
        for settled in self._settlement.settle():
            moved = self._frontiers[settled.split].settle(settled.first, settled.last)
            self._commit_due |= moved and self._commits
        if self._commit_due and self._commit_token is None and self._phase is not Phase.ENDED:
            self._commit_due = False
            self._commit_token = token = RequestToken(self._next_token)
            permit = CommitPermit("the commit frontier advanced")
            self._order(CommitSource(token, permit, self.frontier()))

    # --- phases --------------------------------------------------------------------------------

    def _next_phase(self, now_ms: MonotonicMs) -> None:
        if self._phase is Phase.RUNNING and self._source.exhausted and self._items.has_room:
            self._phase = Phase.FINISHING
            token = RequestToken(self._next_token)
            self._items.submitted(token, None)
            self._order(Submit(FinishItem(token)))
        if self._phase is Phase.STOPPING and not self._source.quiet:
            return
        if self._phase in (Phase.FINISHING, Phase.STOPPING) and not self._items:
            self._phase = Phase.FLUSHING
            for sink in self._sinks.values():
                sink.flush()
            self._write(now_ms)
        if self._phase is Phase.FLUSHING and self._all_settled():
            self._phase = Phase.COMMITTING
        committed = self._commit_token is None and not self._commit_due
        if self._phase is Phase.COMMITTING and committed:
            self._end(OutcomeKind.STOPPED if self._stopped else OutcomeKind.FINISHED)

    def _all_settled(self) -> bool:
        return not self._settlement and all(sink.settled for sink in self._sinks.values())

    def _end(self, kind: OutcomeKind, error: ArkflowError | None = None) -> None:
        if self._phase is not Phase.ENDED:
            self._phase = Phase.ENDED
            self._commands.append(EndChain(ChainOutcome(kind, error, self.frontier())))

    # --- small things --------------------------------------------------------------------------

    def _order(self, request: Request) -> None:
        assert request.token not in self._requests
        self._requests[request.token] = request
        self._next_token = max(self._next_token, request.token + 1)
        self._commands.append(request)

    def _count(self, name: str, amount: int) -> None:
        self._statistics[name] += amount

    def _count_read(self, read: SourceBatch) -> None:
        self._count("batches_in", 1)
        self._count("rows_in", read.batch.num_rows)
        self._count("bad_rows", 0 if read.bad is None else read.bad.num_rows)
        self._count("skipped_rows", read.skipped)

    def _protocol_error(self, message: str) -> ProtocolError:
        story = tuple(
            f"{name} token={token} in {phase.value}" for name, token, phase in self._story
        )
        return ProtocolError(f"chain '{self._plan.chain}': {message}", story)


__all__ = ["ChainTask", "Phase"]
