"""Planted bugs: each is one plausible mistake in a machine. The simulation must find every one.

They test the test. Each is a subclass of the real machine, so the machines know nothing of them.
"""

from collections.abc import Callable

from arkflow_kernel.commit import CommitFrontier
from arkflow_kernel.coordinator import JobCoordinator
from arkflow_kernel.ids import MonotonicMs, RequestToken, Sequence
from arkflow_kernel.item_queue import BatchRef, Item, ItemQueue
from arkflow_kernel.lane import LaneSchedule
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import SourceBatch, SplitPosition, WriteReceipt
from arkflow_kernel.protocol import (
    ChainReport,
    FlushSink,
    ItemDone,
    RollSink,
    SourceRead,
    Submit,
    Write,
)
from arkflow_kernel.read_lane import ReadLane
from arkflow_kernel.task import ChainTask
from arkflow_kernel.testing.simulation import Machines
from arkflow_kernel.write_lane import WriteLane

# --- settlement and frontier -------------------------------------------------------------------


class SettlesInCompletionOrder(ChainTask):
    """A batch counts as processed when its answer arrives, not when its results have left."""

    def _on_item_done(self, event: ItemDone) -> None:
        item = self._items._by_token[event.token]
        super()._on_item_done(event)
        if not event.more and item.batch is not None:
            super()._processed(item.batch)

    def _processed(self, batch: BatchRef) -> None:
        pass


class _LeapingFrontier(CommitFrontier):
    def settle(self, first: Sequence, last: Sequence) -> bool:
        del first
        return super().settle(Sequence(1), Sequence(min(last + 1, self._tracked)))


class ExposesPastAGap(ChainTask):
    """The frontier takes a batch for settled because the one before it is."""

    def _submit(self) -> None:
        for split, frontier in self._frontiers.items():
            if not isinstance(frontier, _LeapingFrontier):
                leaping = _LeapingFrontier(split)
                leaping.__dict__.update(frontier.__dict__)
                self._frontiers[split] = leaping
        super()._submit()


class CommitsReadAhead(ChainTask):
    """The frontier follows what was read instead of what is settled."""

    def _on_source_read(self, event: SourceRead) -> None:
        super()._on_source_read(event)
        if isinstance(event.result, SourceBatch):
            read = event.result
            self._restored[read.split] = SplitPosition(read.split, read.position)

    def frontier(self) -> tuple[SplitPosition, ...]:
        return tuple(self._restored[split] for split in sorted(self._restored))


class CommitsAfterTheEnd(ChainTask):
    """The chain ends without waiting for its source to hear of the last settled batch."""

    def _next_phase(self, now_ms: MonotonicMs) -> None:
        known, self._commit_token = self._commit_token, None
        super()._next_phase(now_ms)
        self._commit_token = known


# --- order of items ----------------------------------------------------------------------------


class _ImpatientQueue(ItemQueue):
    def head(self) -> Item | None:
        items = self._items
        if len(items) > 1 and not items[0].answered and items[1].answered:
            items[0], items[1] = items[1], items[0]
        return super().head()


class PublishesInCompletionOrder(ChainTask):
    """The second item's slice leaves before the first item has answered."""

    def __init__(self, plan: ChainPlan, *rest: object, **named: object) -> None:
        super().__init__(plan, *rest, **named)  # type: ignore[arg-type]
        self._items = _ImpatientQueue(plan.workers)


class _ForgetfulQueue(ItemQueue):
    def __len__(self) -> int:
        return 0 if self._items and self._items[-1].batch is None else len(self._items)


class FinishesBeforeAllItems(ChainTask):
    """The sinks are flushed as soon as the finish item is submitted."""

    def __init__(self, plan: ChainPlan, *rest: object, **named: object) -> None:
        super().__init__(plan, *rest, **named)  # type: ignore[arg-type]
        self._items = _ForgetfulQueue(plan.workers)


class StartsBeforeTheLastSlice(LaneSchedule):
    """One worker starts the next item while slices of the one before are still in the lane."""

    def _may_start(self, submit: Submit) -> bool:
        del submit
        return True


class FinishOvertakesBatches(LaneSchedule):
    """With several workers, the operators are finished while batches are still at work."""

    def _may_start(self, submit: Submit) -> bool:
        return self._workers > 1 or super()._may_start(submit)


# --- sinks -------------------------------------------------------------------------------------


class _HastySink(WriteLane):
    def next_request(
        self, token: RequestToken, now_ms: MonotonicMs
    ) -> Write | RollSink | FlushSink | None:
        request = super().next_request(token, now_ms)
        if isinstance(request, Write):
            self._confirmed = request.sequence
        return request

    def answered(self, receipt: WriteReceipt) -> None:
        super().answered(WriteReceipt(self._written, receipt.roll_at_ms))


class _FlushlessSink(WriteLane):
    def answered(self, receipt: WriteReceipt) -> None:
        super().answered(receipt)
        if self._flushing:
            self._confirmed = self._given


class _RoomySink(WriteLane):
    @property
    def has_room(self) -> bool:
        return True


class _WithSinks(ChainTask):
    write_lane: type[WriteLane]

    def __init__(self, plan: ChainPlan, *rest: object, **named: object) -> None:
        super().__init__(plan, *rest, **named)  # type: ignore[arg-type]
        self._sinks = {sink.output: self.write_lane(sink.output) for sink in plan.sinks}


class ConfirmsAtWrite(_WithSinks):
    """A write counts as confirmed once it is ordered, not once the receipt says so."""

    write_lane = _HastySink


class EndsBeforeTheFlush(_WithSinks):
    """Any answer while flushing counts as the flush's."""

    write_lane = _FlushlessSink


class IgnoresTheWriteBound(_WithSinks):
    """A slow sink is handed everything."""

    write_lane = _RoomySink


# --- source ------------------------------------------------------------------------------------


class _GreedySource(ReadLane):
    def answered(self, result: object, now_ms: MonotonicMs) -> None:
        stopped, self._stopped = self._stopped, False
        super().answered(result, now_ms)  # type: ignore[arg-type]
        self._stopped = stopped

    def stop(self) -> None:
        self._stopped = True


class _SharedSequences(ReadLane):
    def take(self) -> tuple[SourceBatch, Sequence] | None:
        taken = super().take()
        if taken is not None:
            for split in self._sequences:
                self._sequences[split] = taken[1]
        return taken


class _WithSource(ChainTask):
    read_lane: type[ReadLane]

    def __init__(self, plan: ChainPlan, *rest: object, **named: object) -> None:
        super().__init__(plan, *rest, **named)  # type: ignore[arg-type]
        assert plan.source is not None
        self._source = self.read_lane(plan.source.rows_per_second)


class KeepsReadAheadAtStop(_WithSource):
    """What was read ahead stays behind when the job stops, and is submitted all the same."""

    read_lane = _GreedySource


class CountsSplitsTogether(_WithSource):
    """One sequence for all splits of a source."""

    read_lane = _SharedSequences


class LosesBatchesWithoutRows(ChainTask):
    """A batch that leads to no row is forgotten instead of settled."""

    def _processed(self, batch: BatchRef) -> None:
        if batch.rows:
            super()._processed(batch)


# --- coordinator -------------------------------------------------------------------------------


class SaysItOnce(JobCoordinator):
    """Control is sent once and not repeated with the reports: a lost message never heals."""

    def _on_chain_report(self, event: ChainReport) -> None:
        self._chains[event.chain].statistics = event.statistics


class EndsWithTheFirst(JobCoordinator):
    """The job ends when one chain is closed."""

    def _end_if_closed(self, at: object) -> None:
        if any(chain.closed for chain in self._chains.values()):
            for chain in self._chains.values():
                chain.closed = True
                chain.outcome = chain.outcome or next(
                    c.outcome for c in self._chains.values() if c.outcome
                )
        super()._end_if_closed(at)  # type: ignore[arg-type]


class NeverKills(JobCoordinator):
    """A chain that hangs in its teardown is waited for, for ever."""

    def _kill_by(self, chain: object, at: object) -> None:
        pass


def _machines(name: str, kind: Callable[..., object]) -> tuple[str, Machines]:
    if issubclass(kind, ChainTask):  # type: ignore[arg-type]
        return name, Machines(task=kind)  # type: ignore[arg-type]
    if issubclass(kind, JobCoordinator):  # type: ignore[arg-type]
        return name, Machines(coordinator=kind)  # type: ignore[arg-type]
    return name, Machines(schedule=kind)  # type: ignore[arg-type]


PLANTED: dict[str, Machines] = dict(
    _machines(kind.__name__, kind)
    for kind in (
        SettlesInCompletionOrder,
        ExposesPastAGap,
        CommitsReadAhead,
        CommitsAfterTheEnd,
        PublishesInCompletionOrder,
        FinishesBeforeAllItems,
        StartsBeforeTheLastSlice,
        FinishOvertakesBatches,
        ConfirmsAtWrite,
        EndsBeforeTheFlush,
        IgnoresTheWriteBound,
        KeepsReadAheadAtStop,
        CountsSplitsTogether,
        LosesBatchesWithoutRows,
        SaysItOnce,
        EndsWithTheFirst,
        NeverKills,
    )
)
"""Name of each planted bug, and the machines that have it."""

__all__ = ["PLANTED"]
