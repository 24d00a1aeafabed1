"""The order of a chain's lane items (T1b, T1c, T2).

A part of `task.py`. Items are submitted in order and may be answered in any order; their slices
leave in the order of submission. Only the head's slices are asked for beyond the first, so at
most one slice per item waits here.
"""

from collections import deque
from dataclasses import dataclass

from arkflow_kernel.commit import StreamKey
from arkflow_kernel.envelope import Idle, Watermark
from arkflow_kernel.ids import CheckpointId, MonotonicMs, RequestToken, Sequence
from arkflow_kernel.limits import LANE_ITEMS_QUEUED_MAX, STALL_TIMEOUT_MS
from arkflow_kernel.metrics import Wait
from arkflow_kernel.protocol import ItemDone, LaneSlice


@dataclass(frozen=True, slots=True)
class BatchRef:
    """Which batch an item runs: to be settled when its outputs are."""

    stream: StreamKey
    sequence: Sequence
    rows: int
    size_bytes: int = 0


@dataclass(slots=True)
class Item:
    """A submitted item: a batch, a seal (its checkpoint), time that passes, a tick or the finish.

    `said` leaves behind the item's rows. `light` items are not bounded: there is one of each kind
    at most, and they hold no batch. `taken` batches of the slice have left.
    """

    token: RequestToken | None
    batch: BatchRef | None = None
    checkpoint: CheckpointId | None = None
    said: Watermark | Idle | None = None
    light: bool = True
    slice: LaneSlice | None = None
    taken: int = 0
    more: bool = False
    answered: bool = False

    @property
    def passes(self) -> bool:
        """It is time that no operator looks at: it never went to the lane."""
        return self.token is None


class ItemQueue:
    """Items in work or waiting, in the order of submission; `workers` run at once."""

    def __init__(self, workers: int) -> None:
        self._bound = workers + LANE_ITEMS_QUEUED_MAX
        self._items: deque[Item] = deque()
        self._by_token: dict[RequestToken, Item] = {}
        self._progress_ms = MonotonicMs(0)
        self._light = self._seals = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def has_room(self) -> bool:
        """Whether another batch, or the finish, may be submitted."""
        return len(self._items) - self._light < self._bound

    @property
    def idle(self) -> bool:
        """Nothing that may yield rows is in work or waiting; seals may be."""
        return len(self._items) == self._seals

    @property
    def nothing_behind_seal(self) -> bool:
        """Nothing was submitted after the newest seal."""
        return not self._items or self._items[-1].checkpoint is not None

    @property
    def held_bytes(self) -> int:
        """Bytes of the batches in work or waiting, and of their slices that have not left."""
        batches = sum(item.batch.size_bytes for item in self._items if item.batch is not None)
        slices = (item.slice.pieces[item.taken :] for item in self._items if item.slice is not None)
        return batches + sum(piece.size_bytes for pieces in slices for piece in pieces)

    def submitted(self, token: RequestToken, batch: BatchRef | None, now_ms: MonotonicMs) -> None:
        """A batch or the finish went to the lane; only when `has_room`."""
        assert self.has_room
        self._add(Item(token, batch, light=False), now_ms)

    def sealing(self, token: RequestToken, checkpoint: CheckpointId, now_ms: MonotonicMs) -> None:
        """A seal went to the lane, which always takes one: a trigger does not wait (B3)."""
        self._add(Item(token, checkpoint=checkpoint), now_ms)

    @property
    def time_waits(self) -> bool:
        """A watermark or a tick is in work or waits: the next one takes its turn."""
        return any(item.light and item.checkpoint is None and item.token for item in self._items)

    def advancing(self, token: RequestToken, said: Watermark, now_ms: MonotonicMs) -> None:
        """A watermark went to the lane; it leaves behind what the operators make of it (N5)."""
        self._add(Item(token, said=said), now_ms)

    def ticking(self, token: RequestToken, now_ms: MonotonicMs) -> None:
        """A tick went to the lane."""
        self._add(Item(token), now_ms)

    def passing(self, said: Watermark | Idle, now_ms: MonotonicMs) -> None:
        """Time that no operator looks at: it keeps its place behind the batches before it (W11)."""
        last = self._items[-1] if self._items else None
        if last is not None and last.passes:
            last.said = said  # the newer one says it all
        else:
            self._add(Item(None, said=said, answered=True), now_ms)

    def _add(self, item: Item, now_ms: MonotonicMs) -> None:
        if not self._items:
            self._progress_ms = now_ms
        self._items.append(item)
        self._light += item.light
        self._seals += item.checkpoint is not None
        if item.token is not None:
            self._by_token[item.token] = item

    def answered(self, event: ItemDone) -> Item:
        """A slice of an item arrived; the item."""
        item = self._by_token[event.token]
        assert item.slice is None, "a slice arrived that nobody asked for"
        item.slice, item.more, item.answered = event.slice, event.more, True
        self._progress_ms = event.at.now_ms
        return item

    def head(self) -> Item | None:
        """The item whose slices leave next."""
        return self._items[0] if self._items else None

    def slice_taken(self, now_ms: MonotonicMs) -> RequestToken | None:
        """The head's slice left. Returns the token to ask the next slice with, or None."""
        item = self._items[0]
        assert item.slice is not None
        self._progress_ms = now_ms
        item.slice, item.taken = None, 0
        return item.token if item.more else None

    def pop_done(self) -> Item | None:
        """Take the head off if its last slice has left, else None."""
        item = self.head()
        if item is None or not item.answered or item.slice is not None or item.more:
            return None
        self._items.popleft()
        self._light -= item.light
        self._seals -= item.checkpoint is not None
        if item.token is not None:
            del self._by_token[item.token]
        return item

    def wait(self, now_ms: MonotonicMs) -> Wait | None:
        """The operators have not answered for too long (E5)."""
        waited = now_ms - self._progress_ms
        head = self.head()
        if head is None or head.answered or waited < STALL_TIMEOUT_MS:
            return None
        return Wait("the operators", "a batch is at work and nothing comes out", waited)

    def validate(self) -> None:
        """Assert the bound, and that both views agree."""
        assert self._seals == sum(item.checkpoint is not None for item in self._items)
        assert self._light == sum(item.light for item in self._items)
        assert len(self._items) - self._light <= self._bound
        assert set(self._by_token) == {item.token for item in self._items} - {None}


__all__ = ["BatchRef", "Item", "ItemQueue"]
