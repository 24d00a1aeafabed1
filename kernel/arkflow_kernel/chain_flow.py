"""How batches move through a chain: from source or inputs through the lane to its outputs.

A part of `task.py`, which says when: this holds the parts and hands batches on between them.

    read or Deliver ─▶ submit ─▶ publish slices ─▶ write or Emit ─▶ settle ─▶ commit or grant

`read_lane` says when to read, `inlet` watches one input channel, `item_queue` keeps the order of
the lane, `chain_clock` knows what time it is there, `output_lanes` feeds sinks (`write_lane`) and
channels (`outbox`), `commit` knows what is settled, `chain_rounds` what a checkpoint round needs
next. A cut has its place in the order of the items (B0): its seal is an item, and the barrier
leaves when all rows before it have left. So has time (W11).
"""

from collections import Counter

from arkflow_kernel.bad_rows import Origin, bad_row_error
from arkflow_kernel.chain_clock import ChainClock, OpenedSource
from arkflow_kernel.chain_rounds import ChainRounds, CutPlace
from arkflow_kernel.commit import SettlementQueue, SourceCommits, SourceCuts
from arkflow_kernel.envelope import Barrier, Data, Idle, Watermark
from arkflow_kernel.ids import (
    EARLIEST,
    ChannelId,
    EventTimeMs,
    Generation,
    MonotonicMs,
    OutputId,
    SplitId,
)
from arkflow_kernel.inlet import Inlets
from arkflow_kernel.item_queue import BatchRef, ItemQueue
from arkflow_kernel.metrics import ChainStatistics, KeyGroupRows, OperatorCounts, Stopwatch, Wait
from arkflow_kernel.output_lanes import OutputLanes
from arkflow_kernel.outstanding import Outstanding
from arkflow_kernel.plan import ChainPlan, Mode
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import (
    AdvanceItem,
    ChainCommand,
    CommitPermit,
    CommitSource,
    CreditGranted,
    FinishItem,
    ItemDone,
    NextSlice,
    ReadSource,
    Request,
    RunItem,
    SealItem,
    Slowest,
    SourceRead,
    Submit,
    TickItem,
    WriteDone,
)
from arkflow_kernel.read_lane import ReadLane
from arkflow_kernel.snapshot import RestoredChain


class ChainFlow:
    """The parts of one chain, and what moves between them. `commands` collects what is ordered."""

    def __init__(
        self, plan: ChainPlan, generation: Generation, restored: RestoredChain, opened: OpenedSource
    ) -> None:
        self._plan = plan
        self._generation = generation
        self._edges = {channel.channel: channel.edge for channel in plan.inputs}
        self.acks = plan.mode is Mode.ACK
        self.finished = restored.finished
        self.commands: list[ChainCommand] = []
        rate = None if plan.source is None else plan.source.rows_per_second
        self.source = ReadLane(rate, nothing=plan.source is None or restored.finished)
        self.inlets = Inlets(plan, generation)
        self.items = ItemQueue(plan.workers)
        self.outputs = OutputLanes(plan)
        # In checkpoint mode no settlement travels (F4): a batch has nothing to wait for.
        self.settlement = SettlementQueue(len(self.outputs) if self.acks else 0)
        kind = SourceCommits if self.acks else SourceCuts
        self.commits: SourceCommits | SourceCuts = kind(restored.sources, commits=opened.commits)
        self.time = ChainClock(plan, self.inlets, restored, opened.splits)
        self.rounds = ChainRounds(plan, generation, restored)
        self.outstanding = Outstanding(plan.chain)
        self._counts = {op.operator: OperatorCounts(op.operator) for op in plan.operators}
        self._key_groups: dict[OutputId, KeyGroupRows] = {}
        self._statistics: Counter[str] = Counter()
        self._blocked = Stopwatch()

    # --- what comes in -------------------------------------------------------------------------

    def takes(self, channel: ChannelId) -> bool:
        """Whether the parts have room for the head of this input's queue."""
        if channel not in self.inlets:
            raise self.outstanding.error(f"channel {channel} does not enter it")
        open_ = self.inlets.takes(channel) or not self.acks  # barriers follow the end of the data
        return open_ and self.items.has_room and not self.rounds.paused(channel)

    def read(self, event: SourceRead) -> None:
        """The source answered."""
        self.outstanding.answered(event.token, ReadSource)
        self.source.answered(event)
        self.time.answered(event)
        self.count("bytes_in", event.size_bytes)

    def delivered(self, channel: ChannelId, envelope: Data, now_ms: MonotonicMs) -> None:
        """Rows came in a channel."""
        self._say_time(now_ms)  # rows that end an idleness come behind the word that it ends (W2)
        (batch,) = envelope.pieces
        ref = BatchRef(channel, envelope.sequence, batch.num_rows, envelope.size_bytes)
        origin = Origin(f"channel {channel}", offset=envelope.sequence)
        token = self.outstanding.token()
        item = RunItem(token, batch, None, origin, edge=self._edges[channel])
        self._submit_batch(item, ref, now_ms)
        self.count("bytes_in", envelope.size_bytes)

    def granted(self, event: CreditGranted) -> None:
        """A peer's word."""
        if not self.outputs.has_channel(event.channel):
            raise self.outstanding.error(f"channel {event.channel} does not leave it")
        self.outputs.granted(event)

    def item_done(self, event: ItemDone) -> None:
        """The lane answered."""
        self.outstanding.answered(event.token, Submit, NextSlice)
        self.time.timer_ms = event.timer
        if self.items.answered(event).batch is not None:
            self.rounds.item_done(event.at.now_ms)
        for counts in event.counts:
            self._counts[counts.operator] = self._counts[counts.operator].plus(counts)
            self.count("errors", counts.errors)
        for groups in event.key_groups:
            self._key_groups[groups.output] = groups.plus(self._key_groups.get(groups.output))

    def written(self, event: WriteDone) -> None:
        """A sink answered."""
        request = self.outstanding.answered(event.token)
        output = getattr(request, "output", None)
        if output is None or not self.outputs.has_sink(output):
            raise self.outstanding.error(f"{event} answers {request}")
        epoch = self.outputs.written(output, event.receipt, event.at.now_ms)
        if epoch is not None:
            self.rounds.sink_sealed(output, epoch.checkpoint)

    # --- what moves ----------------------------------------------------------------------------

    def move(self, now_ms: MonotonicMs) -> None:
        """Move what can move on its own: results to outputs, what is settled back."""
        self.write(now_ms)
        while self._publish(now_ms):
            self.write(now_ms)
        head = self.items.head()  # what it still holds found no room
        self._blocked.look(so=head is not None and head.slice is not None, now_ms=now_ms)
        self._settle()

    def write(self, now_ms: MonotonicMs) -> None:
        """Order what sinks are to do, send what may be sent."""
        for request in self.outputs.requests(self.outstanding.token, now_ms):
            self.order(request)
        self.commands += self.outputs.emits(now_ms)

    def _publish(self, now_ms: MonotonicMs) -> bool:
        """Hand the head item's slice to its outputs, batch by batch in order.

        A slice may hold more batches for one output than that has room for; it leaves in parts.
        True if an output got something, or the next item is at the head: more may move then.
        """
        head = self.items.head()
        if head is None or not head.answered:
            return False
        if head.slice is not None:
            before = head.taken
            while head.taken < len(head.slice.pieces):
                piece = head.slice.pieces[head.taken]
                if not self.outputs.give(piece, now_ms):
                    return head.taken > before
                self.count("batches_out", 1)
                self.count("rows_out", piece.batch.num_rows)
                head.taken += 1
            token = self.items.slice_taken(now_ms)
            if token is not None:
                self.order(NextSlice(token))
                return True
        done = self.items.pop_done()
        if done is not None and done.batch is not None:
            self._processed(done.batch)
        elif done is not None and done.checkpoint is not None:
            self.outputs.seal(self.rounds.sealed(done.checkpoint))
        elif done is not None and done.said is not None:
            self.outputs.say(self._held_back(done.said), now_ms)
        return done is not None

    def _processed(self, batch: BatchRef) -> None:
        marks = self.outputs.marks() if self.acks else ()
        self.settlement.add(batch.stream, batch.sequence, marks, rows=batch.rows)
        self.inlets.taken(batch.stream, batch.sequence)

    def _settle(self) -> None:
        if self.acks:
            for index, upto in enumerate(self.outputs.confirmed()):
                self.settlement.confirm(index, upto)
        for settled in self.settlement.settle():
            if not self.inlets.settled(settled):
                self.commits.settle(SplitId(settled.stream), settled.first, settled.last)
        self.commands += self.inlets.grants()
        if self.commits.take_due():
            why = "the commit frontier advanced" if self.acks else "a cut was completed"
            positions = self.commits.frontier()
            self.order(CommitSource(self.outstanding.token(), CommitPermit(why), positions))

    def submit(self, now_ms: MonotonicMs) -> None:
        """Give the lane what was read. `BadRowError` for a bad row that nobody takes."""
        while self.items.has_room:
            taken = self.source.take()
            if taken is None:
                break
            self._say_time(now_ms)
            (read, size_bytes, time), sequence = taken
            if read.bad is not None and read.bad.num_rows and self._plan.error_output is None:
                raise bad_row_error(read.bad, read.origin)
            self.commits.track(read.split, sequence, read.position, ended=read.split_ended)
            if time is not None:
                self.time.submitted(read, time)
                self.count("invalid_times", time.invalid)
                self.count("ahead_rows", time.ahead)
            ref = BatchRef(read.split, sequence, read.batch.num_rows, size_bytes)
            token = self.outstanding.token()
            item = RunItem(token, read.batch, read.bad, read.origin, read.untimed)
            self._submit_batch(item, ref, now_ms)
            self.count("bad_rows", 0 if read.bad is None else read.bad.num_rows)
            self.count("skipped_rows", read.skipped)
        self.source.look(now_ms)

    def _submit_batch(self, item: RunItem, ref: BatchRef, now_ms: MonotonicMs) -> None:
        self.items.submitted(item.token, ref, now_ms)
        self.order(Submit(item))
        self.count("batches_in", 1)
        self.count("rows_in", ref.rows)

    def ask(self, now_ms: MonotonicMs, slowest: Slowest) -> None:
        """Read on, if the read lane wants it and the source does not run ahead (W12)."""
        if self.time.runs_ahead(slowest):
            return
        if self.source.wants_read(now_ms):
            token = self.outstanding.token()
            self.source.reading(token)
            self.order(ReadSource(token))

    # --- time ----------------------------------------------------------------------------------

    def pass_time(self, at: Moment) -> None:
        """Say what is new of time, and let operators have the tick that they asked for."""
        self.time.passed(at)
        self._say_time(at.now_ms)
        if self.time.tick_due(at) and not self.items.time_waits:
            self.time.ticking()
            token = self.outstanding.token()
            self.items.ticking(token, at.now_ms)
            self.order(Submit(TickItem(token)))
        head = self.items.head()
        if head is not None and head.passes:  # nothing is before it
            self.move(at.now_ms)

    def _say_time(self, now_ms: MonotonicMs, *, at_cut: bool = False) -> None:
        """Give time its place behind the batches submitted so far (W11).

        Operators get one watermark at a time, unless a cut is to hold the newest (W13).
        """
        while (said := self.time.next()) is not None:
            advances = self._plan.timed and self.time.rises(said)
            if advances and self.items.time_waits and not at_cut:
                return
            self.time.took(said)
            if advances and isinstance(said, Watermark):
                token = self.outstanding.token()
                self.items.advancing(token, said, now_ms)
                self.order(Submit(AdvanceItem(token, said.time_ms)))
            else:
                self.items.passing(said, now_ms)

    def start(self, now_ms: MonotonicMs) -> None:
        """The attempt begins: channels are reset, and hear the watermark that was restored."""
        self.outputs.start(self._generation)
        if self.finished:  # it was, before it was restored: no rows follow (B8)
            self.time.end()
            self.outputs.end(stopped=False)
        elif self.time.watermark is not None:
            self.outputs.say(self._held_back(Watermark(self.time.watermark)), now_ms)

    def _held_back(self, said: Watermark | Idle) -> Watermark | Idle:
        """What those behind hear: rows that a join keeps may still leave (J3)."""
        hold_ms = self._plan.hold_ms
        if not hold_ms or isinstance(said, Idle):
            return said
        return Watermark(EventTimeMs(max(EARLIEST, said.time_ms - hold_ms)))

    # --- cuts and the end ----------------------------------------------------------------------

    def seal(self, barrier: Barrier, now_ms: MonotonicMs) -> None:
        """The cut (B0): what was submitted before it belongs to it, nothing else does."""
        self._say_time(now_ms, at_cut=True)
        token, checkpoint = self.outstanding.token(), barrier.round_id
        place = CutPlace(
            self.commits.cut(checkpoint),
            self.time.cut(),
            self.inlets.snapshots(),
            self.time.watermark,
            self.finished,
        )
        self.items.sealing(token, checkpoint, now_ms)
        self.rounds.cut(barrier, place, now_ms)
        self.order(Submit(SealItem(token, checkpoint)))

    def finish(self, now_ms: MonotonicMs) -> bool:
        """Order that the operators are finished (T3); False while the lane has no room."""
        if not self.items.has_room:
            return False
        self.finished = True
        self.time.end()
        token = self.outstanding.token()
        self.items.submitted(token, None, now_ms)
        self.order(Submit(FinishItem(token)))
        return True

    def end(self, *, stopped: bool) -> None:
        """Every row has left the lane, and none follows."""
        self.time.end()
        self.outputs.end(stopped=stopped)

    @property
    def settled(self) -> bool:
        """Every batch is settled, every output confirmed."""
        return not self.settlement and self.outputs.settled

    # --- measures ------------------------------------------------------------------------------

    def statistics(self, now_ms: MonotonicMs) -> ChainStatistics:
        """An immutable snapshot of the counters. Waits that go on count until `now_ms`."""
        held = self.source.held_bytes + self.items.held_bytes + self.outputs.held_bytes
        return ChainStatistics(
            self._plan.chain,
            **self._statistics,
            settled_rows=self.settlement.settled_rows,
            in_flight=len(self.items) + self.source.waiting,
            confirmed_writes=self.outputs.confirmed_writes,
            held_bytes=held,
            channels=self.outputs.channel_statistics(),
            operators=tuple(self._counts.values()),
            rows_to=tuple(self.outputs.rows_to.items()),
            key_groups=tuple((key, tuple(e.rows.tolist())) for key, e in self._key_groups.items()),
            watermark=self.time.watermark,
            idle=self.time.idle,
            held_ms=self.source.held_ms(now_ms),
            blocked_ms=self._blocked.passed_ms(now_ms),
        )

    def waits(self, now_ms: MonotonicMs) -> tuple[Wait, ...]:
        """What has made no progress for too long, and what it needs (E5)."""
        item = self.items.wait(now_ms)
        waits = (*self.outputs.waits(now_ms), *self.rounds.waits(now_ms))
        return waits if item is None else (*waits, item)

    def validate(self) -> None:
        """Assert the invariants of all parts."""
        self.source.validate()
        self.items.validate()
        self.settlement.validate()
        self.outputs.validate()
        self.inlets.validate()
        self.commits.validate()
        self.rounds.validate()
        self.time.validate()
        self.outstanding.validate()
        assert all(count.conserved() for count in self._counts.values()), self._counts

    def order(self, request: Request) -> None:
        """A request goes out."""
        self.outstanding.ordered(request)
        self.commands.append(request)

    def count(self, name: str, amount: int) -> None:
        """Add to a counter of the chain's statistics."""
        self._statistics[name] += amount


__all__ = ["ChainFlow"]
