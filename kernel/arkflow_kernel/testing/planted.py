"""Planted bugs of a chain: each is one plausible mistake. The simulation must find every one.

They test the test. Each is a subclass of the real machine or of one of its parts, so the machines
know nothing of them. `planted_channels.py` and `planted_jobs.py` have more.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any

from arkflow_kernel.chain_flow import ChainFlow
from arkflow_kernel.commit import CommitFrontier, SettlementQueue, SourceCommits
from arkflow_kernel.ids import MonotonicMs, RequestToken, Sequence, SplitId
from arkflow_kernel.item_queue import BatchRef, Item, ItemQueue
from arkflow_kernel.lane_schedule import LaneSchedule
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import Position, SourceBatch, SplitPosition, WriteReceipt
from arkflow_kernel.protocol import ItemDone, SourceRead, Submit, Write, WriteRequest
from arkflow_kernel.read_lane import ReadBatch, ReadLane
from arkflow_kernel.snapshot import NOTHING_RESTORED, Epoch, RestoredChain
from arkflow_kernel.task import ChainTask
from arkflow_kernel.write_lane import WriteLane


class PlantedTask(ChainTask):
    """A chain's machine, some of whose parts are of other classes: subclasses of the real ones.

    `parts` are (name of the attribute, class): one part, or each of a dictionary of parts.
    """

    parts: Seq[tuple[str, type[Any]]] = ()

    def __init__(self, plan: ChainPlan, *rest: Any, **named: Any) -> None:
        super().__init__(plan, *rest, **named)
        for name, kind in self.parts:
            swap(self, name, kind)
        for event, handler in self._handlers.items():  # bound before its part was swapped
            part = getattr(handler, "__self__", None)
            if part is not None:
                self._handlers[event] = getattr(part, handler.__name__)


class PlantedRestore(ChainTask):
    """A chain's machine that takes its restored snapshot for one with other values.

    `changed` are the fields of the snapshot that have them.
    """

    changed: Mapping[str, Any] = {}

    def __init__(
        self,
        plan: ChainPlan,
        *rest: Any,
        restored: RestoredChain = NOTHING_RESTORED,
        **named: Any,
    ) -> None:
        if restored.snapshot is not None:
            restored = replace(restored, snapshot=replace(restored.snapshot, **self.changed))
        super().__init__(plan, *rest, restored=restored, **named)


def swap(owner: Any, path: str, kind: type[Any]) -> None:
    """Let the part at a dotted path become one of a subclass; of a dictionary, each that fits."""
    name, _, rest = path.partition(".")
    part = getattr(owner, name)
    parts = list(part.values()) if isinstance(part, dict) else [part]
    for each in parts:
        if rest:
            swap(each, rest, kind)
        elif issubclass(kind, type(each)):
            each.__class__ = kind


# --- settlement and frontier -------------------------------------------------------------------


class _HastyFlow(ChainFlow):
    def item_done(self, event: ItemDone) -> None:
        item = self.items._by_token[event.token]
        super().item_done(event)
        if not event.more and item.batch is not None:
            super()._processed(item.batch)

    def _processed(self, batch: BatchRef) -> None:
        pass


class SettlesInCompletionOrder(PlantedTask):
    """A batch counts as processed when its answer arrives, not when its results have left."""

    parts = (("_flow", _HastyFlow),)


class _LeapingFrontier(CommitFrontier):
    def settle(self, first: Sequence, last: Sequence) -> bool:
        del first
        return super().settle(Sequence(1), Sequence(min(last + 1, self._tracked)))


class _LeapingCommits(SourceCommits):
    def track(self, split: SplitId, sequence: Sequence, position: Position, *, ended: bool) -> None:
        self._frontiers.setdefault(split, _LeapingFrontier(split))
        super().track(split, sequence, position, ended=ended)


class ExposesPastAGap(PlantedTask):
    """The frontier takes a batch for settled because the one before it is."""

    parts = (("_flow.commits", _LeapingCommits),)


class _AheadFlow(ChainFlow):
    def read(self, event: SourceRead) -> None:
        super().read(event)
        if isinstance(event.result, SourceBatch) and isinstance(self.commits, SourceCommits):
            read = event.result
            self.commits._restored[read.split] = SplitPosition(read.split, read.position)


class CommitsReadAhead(PlantedTask):
    """The frontier follows what was read instead of what is settled."""

    parts = (("_flow", _AheadFlow),)

    def frontier(self) -> tuple[SplitPosition, ...]:
        commits = self._flow.commits
        assert isinstance(commits, SourceCommits)
        return tuple(commits._restored.values())


class _HastyCommits(SourceCommits):
    @property
    def quiet(self) -> bool:
        return True


class CommitsAfterTheEnd(PlantedTask):
    """The chain ends without waiting for its source to hear of the last settled batch."""

    parts = (("_flow.commits", _HastyCommits),)


class _RowsFlow(ChainFlow):
    def _processed(self, batch: BatchRef) -> None:
        if batch.rows:
            super()._processed(batch)


class LosesBatchesWithoutRows(PlantedTask):
    """A batch that leads to no row is forgotten instead of settled."""

    parts = (("_flow", _RowsFlow),)


class _EasySettlement(SettlementQueue):
    def _is_settled(self, entry: Any) -> bool:
        return any(mark <= done for mark, done in zip(entry.marks, self._confirmed, strict=True))


class SettledByOneOfSeveral(PlantedTask):
    """A batch that went to several outputs is settled when one of them has settled it (F5)."""

    parts = (("_flow.settlement", _EasySettlement),)


# --- order of items ----------------------------------------------------------------------------


class _ImpatientQueue(ItemQueue):
    def head(self) -> Item | None:
        items = self._items
        if len(items) > 1 and not items[0].answered and items[1].answered:
            items[0], items[1] = items[1], items[0]
        return super().head()


class PublishesInCompletionOrder(PlantedTask):
    """The second item's slice leaves before the first item has answered."""

    parts = (("_flow.items", _ImpatientQueue),)


class _ForgetfulQueue(ItemQueue):
    @property
    def idle(self) -> bool:
        return not self._items or self._items[-1].batch is None


class FinishesBeforeAllItems(PlantedTask):
    """The outputs are flushed as soon as the finish item is submitted."""

    parts = (("_flow.items", _ForgetfulQueue),)


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
    def next_request(self, token: RequestToken, now_ms: MonotonicMs) -> WriteRequest | None:
        request = super().next_request(token, now_ms)
        if isinstance(request, Write):
            self._confirmed = request.sequence
        return request

    def answered(self, receipt: WriteReceipt, now_ms: MonotonicMs) -> Epoch | None:
        return super().answered(WriteReceipt(self._written, receipt.roll_at_ms), now_ms)


class ConfirmsAtWrite(PlantedTask):
    """A write counts as confirmed once it is ordered, not once the receipt says so."""

    parts = (("_flow.outputs._sinks", _HastySink),)


class _FlushlessSink(WriteLane):
    def answered(self, receipt: WriteReceipt, now_ms: MonotonicMs) -> Epoch | None:
        epoch = super().answered(receipt, now_ms)
        if self._flushing:
            self._confirmed = self._given
        return epoch


class EndsBeforeTheFlush(PlantedTask):
    """Any answer while flushing counts as the flush's."""

    parts = (("_flow.outputs._sinks", _FlushlessSink),)


class _RoomySink(WriteLane):
    @property
    def has_room(self) -> bool:
        return True


class IgnoresTheWriteBound(PlantedTask):
    """A slow sink is handed everything."""

    parts = (("_flow.outputs._sinks", _RoomySink),)


# --- source ------------------------------------------------------------------------------------


class _GreedySource(ReadLane):
    def answered(self, event: SourceRead) -> None:
        stopped, self._stopped = self._stopped, False
        super().answered(event)
        self._stopped = stopped

    def stop(self) -> None:
        self._stopped = True


class KeepsReadAheadAtStop(PlantedTask):
    """What was read ahead stays behind when the job stops, and is submitted all the same."""

    parts = (("_flow.source", _GreedySource),)


class _SharedSequences(ReadLane):
    def take(self) -> tuple[ReadBatch, Sequence] | None:
        taken = super().take()
        if taken is not None:
            for split in self._sequences:
                self._sequences[split] = taken[1]
        return taken


class CountsSplitsTogether(PlantedTask):
    """One sequence for all splits of a source."""

    parts = (("_flow.source", _SharedSequences),)


CHAIN_BUGS: tuple[type[Any], ...] = (
    SettlesInCompletionOrder,
    ExposesPastAGap,
    CommitsReadAhead,
    CommitsAfterTheEnd,
    LosesBatchesWithoutRows,
    SettledByOneOfSeveral,
    PublishesInCompletionOrder,
    FinishesBeforeAllItems,
    StartsBeforeTheLastSlice,
    FinishOvertakesBatches,
    ConfirmsAtWrite,
    EndsBeforeTheFlush,
    IgnoresTheWriteBound,
    KeepsReadAheadAtStop,
    CountsSplitsTogether,
)

__all__ = ["CHAIN_BUGS", "PlantedRestore", "PlantedTask", "swap"]
