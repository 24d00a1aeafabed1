"""Settlement and the commit frontier of ack mode (F1, F3, F5).

Rules
- A batch is settled when every output it led to is confirmed; a batch without output is settled
  when all batches before it are. Settlement is cumulative: `SettlementQueue` settles its head only.
- `CommitFrontier` exposes, per split, the position below which everything is settled, without a
  gap: a settled N+1 never exposes a position past a missing N. Repeats change nothing.
- Both are bounded. When they are full they get coarser: what they expose gets older, never wrong.

Who sees what: the chain's machine adds a batch once its last slice went to the outputs, reports
confirmations as sinks give them, and moves the frontiers by what the queue returns. What can
conflict: outputs confirm independently; the slowest of them holds the head.
"""

from collections import deque
from dataclasses import dataclass

from arkflow_kernel.ids import ChannelId, CheckpointId, Sequence, SplitId
from arkflow_kernel.limits import FRONTIER_PAIRS_MAX, SETTLEMENT_ENTRIES_MAX
from arkflow_kernel.ports import Position, SplitPosition

StreamKey = SplitId | ChannelId
"""Where numbered batches enter a chain: a split of its source, or an input channel."""


@dataclass(frozen=True, slots=True)
class SettledRange:
    """Batches `first` to `last` of a stream, both included, are settled."""

    stream: StreamKey
    first: Sequence
    last: Sequence


class CommitFrontier:
    """How far one split is settled (F1).

    `track` in reading order, `settle` in any order. `exposed` is what may be committed.
    """

    def __init__(self, split: SplitId, *, pairs_max: int = FRONTIER_PAIRS_MAX) -> None:
        self._split = split
        self._pairs_max = pairs_max
        self._pairs: deque[tuple[Sequence, SplitPosition]] = deque()
        self._tracked = 0
        self._settled = 0
        self._beyond: dict[int, int] = {}
        self._exposed: SplitPosition | None = None

    @property
    def exposed(self) -> SplitPosition | None:
        """The newest position below which everything is settled; None before the first."""
        return self._exposed

    @property
    def settled(self) -> Sequence:
        """The highest sequence below which nothing is missing."""
        return Sequence(self._settled)

    def track(self, sequence: Sequence, position: Position, *, ended: bool = False) -> None:
        """Remember the position after the batch `sequence`; sequences rise by one from 1."""
        assert sequence == self._tracked + 1, (sequence, self._tracked)
        self._tracked = sequence
        self._pairs.append((sequence, SplitPosition(self._split, position, ended)))
        if len(self._pairs) > self._pairs_max:
            self._thin()

    def settle(self, first: Sequence, last: Sequence) -> bool:
        """`AckAdvance`: `first` to `last` are settled. True if the exposed position moved."""
        assert 1 <= first <= last <= self._tracked, (first, last, self._tracked)
        if last <= self._settled:
            return False
        self._beyond[first] = max(last, self._beyond.get(first, 0))
        self._join()
        return self._expose()

    def validate(self) -> None:
        """Assert the invariants: order, bounds, and no exposed position past an unsettled batch."""
        assert self._settled <= self._tracked
        assert len(self._pairs) <= self._pairs_max
        assert all(first > self._settled + 1 for first in self._beyond)
        assert not self._pairs or self._pairs[0][0] > self._settled

    def _join(self) -> None:
        """Take every range that touches the contiguous part, in any order of arrival."""
        for first in sorted(self._beyond):
            if first > self._settled + 1:
                break
            self._settled = max(self._settled, self._beyond.pop(first))

    def _expose(self) -> bool:
        moved = False
        while self._pairs and self._pairs[0][0] <= self._settled:
            self._exposed = self._pairs.popleft()[1]
            moved = True
        return moved

    def _thin(self) -> None:
        """Drop every second pair but the newest: that one alone can say that the split ended."""
        newest = self._pairs.pop()
        self._pairs = deque(list(self._pairs)[1::2])
        self._pairs.append(newest)


class _Telling:
    """What a source's own system was told: one commit is on its way at a time, and the next one
    covers what moved meanwhile. `commits`: the source wants to hear.
    """

    def __init__(self, *, commits: bool) -> None:
        self._commits = commits
        self._due = False
        self._under_way = False

    def take_due(self) -> bool:
        """Whether a commit is to be ordered now; it then counts as under way."""
        if not self._due or self._under_way:
            return False
        self._due, self._under_way = False, True
        return True

    def committed(self) -> None:
        """The commit under way was answered."""
        self._under_way = False

    @property
    def quiet(self) -> bool:
        """The source knows all that it is to know."""
        return not self._under_way and not self._due


class SourceCommits(_Telling):
    """The frontiers of all splits of one source, and what its own system was told of them (F3, F6).

    `restored` positions are the frontier until a batch is settled.
    """

    def __init__(self, restored: tuple[SplitPosition, ...], *, commits: bool) -> None:
        super().__init__(commits=commits)
        self._restored = {position.split: position for position in restored}
        self._frontiers: dict[SplitId, CommitFrontier] = {}

    def track(self, split: SplitId, sequence: Sequence, position: Position, *, ended: bool) -> None:
        """A batch goes to the lane; `position` is where its split continues behind it."""
        frontier = self._frontiers.get(split)
        if frontier is None:
            frontier = self._frontiers[split] = CommitFrontier(split)
        frontier.track(sequence, position, ended=ended)

    def cut(self, checkpoint: CheckpointId) -> tuple[SplitPosition, ...]:
        """There are no rounds in ack mode."""
        raise AssertionError(f"a cut of round {checkpoint} in ack mode")

    def told(self, completed: CheckpointId, failed: CheckpointId) -> None:
        """Nothing follows from rounds in ack mode."""

    def settle(self, split: SplitId, first: Sequence, last: Sequence) -> None:
        """Batches of a split are settled."""
        moved = self._frontiers[split].settle(first, last)
        self._due |= moved and self._commits

    def frontier(self) -> tuple[SplitPosition, ...]:
        """Per split, the position below which everything is settled, by the names of the splits."""
        positions = dict(self._restored)
        for split, frontier in self._frontiers.items():
            if frontier.exposed is not None:
                positions[split] = frontier.exposed
        return _by_name(positions)

    def validate(self) -> None:
        """Assert the invariants of every frontier."""
        for frontier in self._frontiers.values():
            frontier.validate()


class SourceCuts(_Telling):
    """The same in checkpoint mode: a completed cut alone moves the frontier (F4).

    The positions of a cut are those after the batches that went to the lane before it (B0).
    """

    def __init__(self, restored: tuple[SplitPosition, ...], *, commits: bool) -> None:
        super().__init__(commits=commits)
        self._read = {position.split: position for position in restored}
        self._exposed = dict(self._read)
        self._cuts: dict[CheckpointId, dict[SplitId, SplitPosition]] = {}

    def track(self, split: SplitId, sequence: Sequence, position: Position, *, ended: bool) -> None:
        """A batch goes to the lane; `position` is where its split continues behind it."""
        del sequence
        self._read[split] = SplitPosition(split, position, ended)

    def cut(self, checkpoint: CheckpointId) -> tuple[SplitPosition, ...]:
        """The seal of a round goes to the lane: the positions of its cut."""
        self._cuts[checkpoint] = dict(self._read)
        return _by_name(self._read)

    def told(self, completed: CheckpointId, failed: CheckpointId) -> None:
        """`CheckpointCut`: the record of round `completed` is in the log. Every round up to either
        is over, and its cut forgotten (B6).
        """
        if completed in self._cuts:
            self._exposed = self._cuts[completed]
            self._due |= self._commits
        over = max(completed, failed, key=int)
        self._cuts = {round_id: cut for round_id, cut in self._cuts.items() if round_id > over}

    def settle(self, split: SplitId, first: Sequence, last: Sequence) -> None:
        """Nothing follows from it: only a cut moves the frontier."""

    def frontier(self) -> tuple[SplitPosition, ...]:
        """Per split, the position of the last completed cut, by the names of the splits."""
        return _by_name(self._exposed)

    def validate(self) -> None:
        """Assert that nothing is exposed that was not read."""
        assert self._exposed.keys() <= self._read.keys()


def _by_name(positions: dict[SplitId, SplitPosition]) -> tuple[SplitPosition, ...]:
    return tuple(positions[split] for split in sorted(positions))


@dataclass(slots=True)
class _Entry:
    ranges: dict[StreamKey, tuple[Sequence, Sequence]]
    marks: tuple[Sequence, ...]
    rows: int


class SettlementQueue:
    """Batches whose outputs are not all confirmed, in order (F3).

    `outputs` is the number of outputs of the chain; a mark is, per output, the sequence of the
    last write that the batch, or one before it, led to.
    """

    def __init__(self, outputs: int, *, entries_max: int = SETTLEMENT_ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._entries: deque[_Entry] = deque()
        self._confirmed: list[Sequence] = [Sequence(0)] * outputs
        self._settled_rows = 0

    @property
    def settled_rows(self) -> int:
        """Rows of all batches settled so far."""
        return self._settled_rows

    def __len__(self) -> int:
        return len(self._entries)

    def add(
        self, stream: StreamKey, sequence: Sequence, marks: tuple[Sequence, ...], *, rows: int = 0
    ) -> None:
        """A batch of `rows` is processed; it is settled once every output confirmed its mark."""
        assert len(marks) == len(self._confirmed)
        last = self._entries[-1] if self._entries else None
        if last is not None and last.marks == marks:
            _extend(last.ranges, stream, sequence, sequence)
            last.rows += rows
            return
        self._entries.append(_Entry({stream: (sequence, sequence)}, marks, rows))
        if len(self._entries) > self._entries_max:
            self._merge_pairs()

    def confirm(self, output: int, upto: Sequence) -> None:
        """An output confirmed every write up to `upto`. Never goes back."""
        self._confirmed[output] = max(self._confirmed[output], upto)

    def settle(self) -> list[SettledRange]:
        """Take the settled batches off the head."""
        settled: list[SettledRange] = []
        while self._entries and self._is_settled(self._entries[0]):
            entry = self._entries.popleft()
            settled += [SettledRange(key, a, b) for key, (a, b) in entry.ranges.items()]
            self._settled_rows += entry.rows
        return settled

    def validate(self) -> None:
        """Assert order of marks and the bound."""
        assert len(self._entries) <= self._entries_max
        for before, after in zip(self._entries, list(self._entries)[1:], strict=False):
            assert all(a <= b for a, b in zip(before.marks, after.marks, strict=True))

    def _is_settled(self, entry: _Entry) -> bool:
        return all(m <= c for m, c in zip(entry.marks, self._confirmed, strict=True))

    def _merge_pairs(self) -> None:
        """Every second entry merges into its successor: settled later, never wrong."""
        merged: deque[_Entry] = deque()
        entries = list(self._entries)
        for i in range(0, len(entries) - 1, 2):
            first, second = entries[i], entries[i + 1]
            for stream, (low, high) in second.ranges.items():
                _extend(first.ranges, stream, low, high)
            merged.append(_Entry(first.ranges, second.marks, first.rows + second.rows))
        if len(entries) % 2:
            merged.append(entries[-1])
        self._entries = merged


def _extend(
    ranges: dict[StreamKey, tuple[Sequence, Sequence]],
    stream: StreamKey,
    low: Sequence,
    high: Sequence,
) -> None:
    """Add a range behind the one of the same stream. Batches of a stream come without gaps."""
    known = ranges.get(stream)
    assert known is None or known[1] + 1 == low, (known, low)
    ranges[stream] = (low if known is None else known[0], high)


__all__ = [
    "CommitFrontier",
    "SettledRange",
    "SettlementQueue",
    "SourceCommits",
    "SourceCuts",
    "StreamKey",
]
