"""The machine of one chain (T1-T7): what it reads, in which order it works, what it confirms.

It takes one event and returns commands. It never blocks, reads no clock, and touches no operator:
those live in the driver's lane, which the machine orders item by item (T1b).

    read or Deliver ─▶ submit ─▶ publish slices ─▶ write or Emit ─▶ settle ─▶ commit or grant

`read_lane` says when to read, `inlet` watches one input channel, `item_queue` keeps the order of
the lane, `output_lanes` feeds sinks (`write_lane`) and channels (`outbox`), `commit` knows what is
settled. This module moves batches between them, in `_pump`, after every event, until nothing more
can move.

Phases: WAITING (no control state yet) → RUNNING → FINISHING (the data ended; the operators
flush) or STOPPING (the source was asked to stop, or an input ended so) → FLUSHING (sinks confirm,
channels end) → COMMITTING (the source hears of it) → ENDED. A failed request, a broken channel or
a cancel leads to ENDED from anywhere.
"""

from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Any

from arkflow_kernel.bad_rows import Origin, bad_row_error
from arkflow_kernel.commit import SettlementQueue, SourceCommits
from arkflow_kernel.envelope import Data
from arkflow_kernel.errors import ArkflowError, ChannelError, SinkError
from arkflow_kernel.ids import ChannelId, Generation, MonotonicMs, SplitId
from arkflow_kernel.inlet import Inlets
from arkflow_kernel.item_queue import BatchRef, ItemQueue
from arkflow_kernel.metrics import ChainStatistics, OperatorCounts, Wait
from arkflow_kernel.output_lanes import OutputLanes
from arkflow_kernel.outstanding import Outstanding
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.protocol import (
    ChainCommand,
    ChainEvent,
    ChainOutcome,
    ChannelBroken,
    CommitPermit,
    CommitSource,
    Control,
    ControlState,
    CreditGranted,
    Deliver,
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
    """Machine of one chain, in ack mode.

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
        assert (plan.source is None) == bool(plan.inputs), "a chain has a source or inputs"
        self._plan = plan
        self._generation = generation
        self._control: ControlState | None = None
        self._phase = Phase.WAITING
        rate = None if plan.source is None else plan.source.rows_per_second
        self._source = ReadLane(rate, nothing=plan.source is None)
        self._inlets = Inlets(plan, generation)
        self._items = ItemQueue(plan.workers)
        self._outputs = OutputLanes(plan)
        self._settlement = SettlementQueue(len(self._outputs))
        self._commits = SourceCommits(restored, commits=commits)
        self._stopped = False
        self._outstanding = Outstanding(plan.chain)
        self._commands: list[ChainCommand] = []
        self._counts = {op.operator: OperatorCounts(op.operator) for op in plan.operators}
        self._statistics: Counter[str] = Counter()
        self._handlers: dict[type, Callable[[Any], None]] = {
            Control: self._on_control,
            Tick: lambda _: None,  # `_pump` looks at what is due
            SourceRead: self._on_source_read,
            ItemDone: self._on_item_done,
            WriteDone: self._on_write_done,
            SourceCommitted: self._on_source_committed,
            RequestFailed: self._on_request_failed,
            Deliver: self._on_deliver,
            CreditGranted: self._on_credit_granted,
            ChannelBroken: lambda event: self._end(OutcomeKind.FAILED, event.error),
        }

    # --- the one door --------------------------------------------------------------------------

    def handle(self, event: ChainEvent) -> list[ChainCommand]:
        """Take one event, return the commands that follow from it, in order.

        Raises `ProtocolError` with the machine's story for an answer that was not asked for.
        Answers that arrive after the end are dropped: their requests were given up (T4).
        """
        self._outstanding.tell(event, self._phase)
        if self._phase is not Phase.ENDED:
            self._commands = []
            try:
                self._handlers[type(event)](event)
            except (ChannelError, SinkError) as error:  # a peer or a sink that broke its rules
                self._end(OutcomeKind.FAILED, error)
            self._pump(event.at.now_ms)
            return self._commands
        return []

    def next_deadline_ms(self) -> MonotonicMs | None:
        """When a `Tick` is due though nothing else happens."""
        if self._phase in (Phase.WAITING, Phase.ENDED):
            return None
        reads = self._source.deadline_ms() if self._phase is Phase.RUNNING else None
        return deadline(reads, self._outputs.deadline_ms())

    def takes(self, channel: ChannelId) -> bool:
        """Whether the head of this input's queue may be delivered now (T1)."""
        if channel not in self._inlets:
            raise self._outstanding.error(f"channel {channel} does not enter it")
        return self._phase is Phase.RUNNING and self._items.has_room and self._inlets.takes(channel)

    @property
    def phase(self) -> Phase:
        """Where the chain is in its life."""
        return self._phase

    def frontier(self) -> tuple[SplitPosition, ...]:
        """Per split, the position below which everything is settled (F1, F6)."""
        return self._commits.frontier()

    def statistics(self) -> ChainStatistics:
        """An immutable snapshot of the counters."""
        held = self._source.held_bytes + self._items.held_bytes + self._outputs.held_bytes
        return ChainStatistics(
            self._plan.chain,
            **self._statistics,
            settled_rows=self._settlement.settled_rows,
            in_flight=len(self._items) + self._source.waiting,
            confirmed_writes=self._outputs.confirmed_writes,
            held_bytes=held,
            channels=self._outputs.channel_statistics(),
            operators=tuple(self._counts.values()),
            rows_to=tuple(self._outputs.rows_to.items()),
        )

    def waits(self, now_ms: MonotonicMs) -> tuple[Wait, ...]:
        """What has made no progress for too long, and what it needs (E5)."""
        item = self._items.wait(now_ms)
        return (*self._outputs.waits(now_ms), *(() if item is None else (item,)))

    def validate(self) -> None:
        """Assert the invariants across all parts; called after every event in tests."""
        self._source.validate()
        self._items.validate()
        self._settlement.validate()
        self._outputs.validate()
        self._inlets.validate()
        self._commits.validate()
        self._outstanding.validate()
        assert all(count.conserved() for count in self._counts.values()), self._counts
        assert self._phase is not Phase.WAITING or not self._outstanding

    # --- events --------------------------------------------------------------------------------

    def _on_control(self, event: Control) -> None:
        if event.state.generation != self._generation:
            self._count("stale_controls", 1)
            return
        known = self._control
        self._control = event.state if known is None else known.merged(event.state)
        if self._phase is Phase.WAITING:
            self._phase = Phase.RUNNING
            self._outputs.start(self._generation)
        if self._control.desired is Desired.CANCEL:
            self._end(OutcomeKind.CANCELLED)
        elif self._control.desired is Desired.STOP:
            self._stop_source()

    def _on_source_read(self, event: SourceRead) -> None:
        self._outstanding.answered(event.token, ReadSource)
        self._source.answered(event.result, event.size_bytes, event.at.now_ms)
        self._count("bytes_in", event.size_bytes)

    def _on_deliver(self, event: Deliver) -> None:
        if not self.takes(event.channel):
            raise self._outstanding.error(f"{event.channel} was delivered and takes nothing now")
        envelope = event.envelope
        self._inlets.delivered(event.channel, envelope)
        if isinstance(envelope, Data):
            (batch,) = envelope.pieces
            ref = BatchRef(event.channel, envelope.sequence, batch.num_rows, envelope.size_bytes)
            origin = Origin(f"channel {event.channel}", offset=envelope.sequence)
            item = RunItem(self._outstanding.token(), batch, None, origin)
            self._submit_batch(item, ref, event.at.now_ms)
            self._count("bytes_in", envelope.size_bytes)

    def _on_credit_granted(self, event: CreditGranted) -> None:
        if not self._outputs.has_channel(event.channel):
            raise self._outstanding.error(f"channel {event.channel} does not leave it")
        self._outputs.granted(event)

    def _on_item_done(self, event: ItemDone) -> None:
        self._outstanding.answered(event.token, Submit, NextSlice)
        self._items.answered(event)
        for counts in event.counts:
            self._counts[counts.operator] = self._counts[counts.operator].plus(counts)
            self._count("errors", counts.errors)

    def _on_write_done(self, event: WriteDone) -> None:
        request = self._outstanding.answered(event.token)
        output = getattr(request, "output", None)
        if output is None or not self._outputs.has_sink(output):
            raise self._outstanding.error(f"{event} answers {request}")
        self._outputs.written(output, event.receipt, event.at.now_ms)

    def _on_source_committed(self, event: SourceCommitted) -> None:
        self._outstanding.answered(event.token, CommitSource)
        self._commits.committed()

    def _on_request_failed(self, event: RequestFailed) -> None:
        self._outstanding.answered(event.token)
        self._end(OutcomeKind.FAILED, event.error)

    # --- moving batches ------------------------------------------------------------------------

    def _pump(self, now_ms: MonotonicMs) -> None:
        """Move whatever can move, from the outputs back to the source, then look at the phase."""
        if self._phase in (Phase.WAITING, Phase.ENDED):
            return
        self._write(now_ms)
        while self._publish(now_ms):
            self._write(now_ms)
        self._settle()
        self._submit(now_ms)
        if self.phase is not Phase.ENDED:
            self._read(now_ms)
            self._next_phase(now_ms)

    def _write(self, now_ms: MonotonicMs) -> None:
        for request in self._outputs.requests(self._outstanding.token, now_ms):
            self._order(request)
        self._commands += self._outputs.emits(now_ms)

    def _publish(self, now_ms: MonotonicMs) -> bool:
        """Hand the head item's slice to its outputs, batch by batch in order.

        A slice may hold more batches for one output than that has room for; it leaves in parts.
        True if an output got something, or the next item is at the head: more may move then.
        """
        head = self._items.head()
        if head is None or not head.answered:
            return False
        if head.slice is not None:
            before = head.taken
            while head.taken < len(head.slice.pieces):
                piece = head.slice.pieces[head.taken]
                if not self._outputs.give(piece, now_ms):
                    return head.taken > before
                self._count("batches_out", 1)
                self._count("rows_out", piece.batch.num_rows)
                head.taken += 1
            token = self._items.slice_taken(now_ms)
            if token is not None:
                self._order(NextSlice(token))
                return True
        done = self._items.pop_done()
        if done is not None and done.batch is not None:
            self._processed(done.batch)
        return done is not None

    def _processed(self, batch: BatchRef) -> None:
        marks = self._outputs.marks()
        self._settlement.add(batch.stream, batch.sequence, marks, rows=batch.rows)
        self._inlets.taken(batch.stream, batch.sequence)

    def _submit(self, now_ms: MonotonicMs) -> None:
        while self._items.has_room:
            taken = self._source.take()
            if taken is None:
                return
            read, sequence, size_bytes = taken
            if read.bad is not None and read.bad.num_rows and self._plan.error_output is None:
                self._end(OutcomeKind.FAILED, bad_row_error(read.bad, read.origin))
                return
            self._commits.track(read.split, sequence, read.position, ended=read.split_ended)
            ref = BatchRef(read.split, sequence, read.batch.num_rows, size_bytes)
            item = RunItem(self._outstanding.token(), read.batch, read.bad, read.origin)
            self._submit_batch(item, ref, now_ms)
            self._count("bad_rows", 0 if read.bad is None else read.bad.num_rows)
            self._count("skipped_rows", read.skipped)

    def _submit_batch(self, item: RunItem, ref: BatchRef, now_ms: MonotonicMs) -> None:
        self._items.submitted(item.token, ref, now_ms)
        self._order(Submit(item))
        self._count("batches_in", 1)
        self._count("rows_in", ref.rows)

    def _read(self, now_ms: MonotonicMs) -> None:
        if self._phase is Phase.RUNNING and self._source.wants_read(now_ms):
            token = self._outstanding.token()
            self._source.reading(token)
            self._order(ReadSource(token))

    def _settle(self) -> None:
        for index, upto in enumerate(self._outputs.confirmed()):
            self._settlement.confirm(index, upto)
        for settled in self._settlement.settle():
            if not self._inlets.settled(settled):
                self._commits.settle(SplitId(settled.stream), settled.first, settled.last)
        self._commands += self._inlets.grants()
        if self._commits.take_due():
            permit = CommitPermit("the commit frontier advanced")
            self._order(CommitSource(self._outstanding.token(), permit, self.frontier()))

    # --- phases --------------------------------------------------------------------------------

    def _next_phase(self, now_ms: MonotonicMs) -> None:
        ended = self._source.exhausted and self._inlets.ended
        if self._phase is Phase.RUNNING and ended:
            self._leave_running(now_ms)
        if self._phase is Phase.STOPPING and not self._source.quiet:
            return
        if self._phase in (Phase.FINISHING, Phase.STOPPING) and not self._items:
            self._phase = Phase.FLUSHING
            self._outputs.flush(stopped=self._stopped)
            self._write(now_ms)
        if self._phase is Phase.FLUSHING and self._all_settled():
            self._phase = Phase.COMMITTING
        if self._phase is Phase.COMMITTING and self._commits.quiet:
            self._end(OutcomeKind.STOPPED if self._stopped else OutcomeKind.FINISHED)

    def _leave_running(self, now_ms: MonotonicMs) -> None:
        """Operators are finished only where every stream came to its end by itself (D5)."""
        if self._inlets.stopped:
            self._phase, self._stopped = Phase.STOPPING, True
        elif self._items.has_room:
            self._phase = Phase.FINISHING
            token = self._outstanding.token()
            self._items.submitted(token, None, now_ms)
            self._order(Submit(FinishItem(token)))

    def _stop_source(self) -> None:
        """Chains behind hear of it by the end of their inputs."""
        if self._plan.source is not None and self._phase is Phase.RUNNING:
            self._phase, self._stopped = Phase.STOPPING, True
            self._source.stop()

    def _all_settled(self) -> bool:
        return not self._settlement and self._outputs.settled

    def _end(self, kind: OutcomeKind, error: ArkflowError | None = None) -> None:
        if self._phase is not Phase.ENDED:
            self._phase = Phase.ENDED
            self._commands.append(EndChain(ChainOutcome(kind, error, self.frontier())))

    # --- small things --------------------------------------------------------------------------

    def _order(self, request: Request) -> None:
        self._outstanding.ordered(request)
        self._commands.append(request)

    def _count(self, name: str, amount: int) -> None:
        self._statistics[name] += amount


__all__ = ["ChainTask", "Phase"]
