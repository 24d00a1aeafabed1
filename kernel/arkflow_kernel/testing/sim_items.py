"""What goes through the lane of a simulated chain: items in work, and when credit is due."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from arkflow_kernel.envelope import Data
from arkflow_kernel.ids import ChannelId, OutputId, RequestToken, Sequence
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.protocol import (
    AdvanceItem,
    FinishItem,
    GrantCredit,
    ItemDone,
    NextSlice,
    RunItem,
    SealItem,
    Submit,
    TickItem,
)
from arkflow_kernel.testing.lineage import ViolationError, place_in
from arkflow_kernel.testing.sim_rows import rows_of, split_number
from arkflow_kernel.testing.sim_world import World


@dataclass
class _Item:
    """What went in, what came out, and whether the machine knows all of it."""

    rows_in: list[int]
    size_bytes: int
    out: dict[OutputId, list[int]] = field(default_factory=dict)
    rows_out: int = 0
    heard: bool = False


class SimItems:
    """The items of one chain, in the order of submission."""

    def __init__(self, plan: ChainPlan, world: World) -> None:
        self._plan, self._world = plan, world
        self._items: dict[RequestToken, _Item] = {}
        self._leaving: deque[RequestToken] = deque()
        self._left_rows = 0
        self._arrived: Data | None = None
        self._partial: set[RequestToken] = set()
        self._delivered: dict[ChannelId, deque[tuple[Sequence, RequestToken]]] = {
            channel.channel: deque() for channel in plan.inputs
        }

    def arrives(self, channel: ChannelId, envelope: Data, token: RequestToken) -> None:
        """A batch is handed to the machine, which will submit it with this token."""
        self._arrived = envelope
        self._delivered[channel].append((envelope.sequence, token))

    def submitted(self, command: Submit, read_upto: SplitPosition | None) -> None:
        """The machine orders an item; `read_upto`: where the split of a read batch continues."""
        lineage, item = self._world.lineage, command.item
        if isinstance(item, FinishItem):
            rows, size = self._world.all_finish_rows(self._plan), 0
            lineage.started(rows)
        elif isinstance(item, SealItem | AdvanceItem | TickItem):
            rows, size = [], 0
        elif read_upto is not None:
            rows, size = _rows_of_item(item), item.batch.nbytes
            lineage.submitted(rows, split_number(read_upto.split), place_in(read_upto))
        else:
            assert self._arrived is not None
            rows, size = _rows_of_item(item), self._arrived.size_bytes
        self._items[command.token] = _Item(rows, size)
        self._leaving.append(command.token)

    def starts(self, request: Submit | NextSlice) -> None:
        """The lane begins to work on a request."""
        if isinstance(request, Submit) and self._partial and self._plan.workers == 1:
            raise ViolationError("an item started before the last slice of the one before (T1c)")

    def yielded(self, answer: ItemDone) -> None:
        """The lane is done with a request."""
        item = self._items[answer.token]
        for piece in answer.slice.pieces:
            rows = rows_of(piece.batch)
            item.out.setdefault(piece.output, []).extend(rows)
            item.rows_out += len(rows)
            self._world.lineage.copied(rows)
        if answer.more:
            self._partial.add(answer.token)
            self._world.probes["slices"] += 1
            return
        self._partial.discard(answer.token)
        self._world.items[self._plan.chain].check(item.rows_in, item.out)
        self._world.lineage.done(item.rows_in)

    def failed(self, token: RequestToken) -> None:
        """The lane failed on a request: nothing follows of its item."""
        self._partial.discard(token)

    def heard(self, answer: ItemDone) -> None:
        """The machine is handed an answer."""
        if not answer.more:
            self._items[answer.token].heard = True

    def check_grant(self, command: GrantCredit, given: Iterable[int]) -> None:
        """Credit comes back when the results have left the lane, not before (T1).

        `given`: rows that the machine gave to its outputs so far.
        """
        delivered = self._delivered[command.channel]
        while delivered and delivered[0][0] <= command.taken_upto:
            token = delivered.popleft()[1]
            while token in self._items:
                item = self._items.pop(self._leaving.popleft())
                self._left_rows += item.rows_out
                if not item.heard:
                    raise ViolationError(f"{command.channel}: credit before the item is done (T1)")
        if self._left_rows > sum(given):
            raise ViolationError(f"{command.channel}: credit before the results have left (T1)")

    def sizes(self) -> dict[int, int]:
        """Bytes of the batch of each item that may be in the lane."""
        return {int(token): item.size_bytes for token, item in self._items.items()}


def _rows_of_item(item: RunItem) -> list[int]:
    return rows_of(item.batch) + ([] if item.bad is None else rows_of(item.bad))


__all__ = ["SimItems"]
