"""Transactions over the keyed state of a chain: one lane item, applied or discarded as a whole.

`CommitOnAck` is the chain's journal. A driver's lane opens a transaction per item; it is committed
when the operators have returned and their outputs are queued in order, and discarded if the item
fails (S2). A part of an item that fails alone, and whose rows go to the error output, is taken
back alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from arkflow_kernel.errors import ProcessingError, ProtocolError
from arkflow_kernel.ids import WallMs
from arkflow_kernel.limits import STAGED_BYTES_MAX
from arkflow_kernel.metrics import OperatorCounts
from arkflow_kernel.state.api import Settling


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of a transaction to which it can be rolled back."""

    writes: int
    staged_bytes: int


class StateTxn:
    """What one lane item changes in all states of its chain."""

    def __init__(self, wall_ms: WallMs) -> None:
        self.wall_ms = wall_ms
        self.staged_bytes = 0
        self._undos: list[Callable[[], None]] = []
        self._states: dict[int, Settling] = {}

    def stage(self, state: Settling, size_bytes: int, undo: Callable[[], None]) -> None:
        """Take note of a write that is about to be made. Raises `ProcessingError` (S3)."""
        if self.staged_bytes + size_bytes > STAGED_BYTES_MAX:
            raise ProcessingError(
                state.operator,
                f"one batch changes {self.staged_bytes + size_bytes} bytes of state, more than "
                f"the {STAGED_BYTES_MAX} that one may; make batches or values smaller",
                error_class="StateError",
            )
        self.staged_bytes += size_bytes
        self._undos.append(undo)
        self._states[id(state)] = state

    def mark(self) -> Mark:
        """Now."""
        return Mark(len(self._undos), self.staged_bytes)

    def roll_back(self, mark: Mark) -> None:
        """Take back everything that was staged since `mark`, newest first."""
        while len(self._undos) > mark.writes:
            self._undos.pop()()
        self.staged_bytes = mark.staged_bytes

    def settle(self) -> None:
        """Nothing is taken back any more: the states may tidy up."""
        self._undos.clear()
        for state in self._states.values():
            state.settle(self.wall_ms)


class CommitOnAck:
    """The journal of a chain: at most one transaction is open (S2).

    `clock` gives the wall clock. A chain without keyed state has a journal too; its items may
    overlap (T2), so it opens nothing.
    """

    def __init__(self, clock: Callable[[], WallMs]) -> None:
        self._clock = clock
        self._open: StateTxn | None = None
        self._wall_ms = WallMs(0)
        self._states: list[Settling] = []
        self._told: list[tuple[int, int]] = []

    def joined(self, state: Settling) -> None:
        """A state of the chain, once it is made; before the first item."""
        self._states.append(state)
        self._told.append((0, 0))

    @property
    def wall_ms(self) -> WallMs:
        """The wall clock of the item at work."""
        return self._txn().wall_ms

    def stage(self, state: Settling, size_bytes: int, undo: Callable[[], None]) -> None:
        """Take note of a write of the item at work."""
        self._txn().stage(state, size_bytes, undo)

    @contextmanager
    def item(self) -> Iterator[None]:
        """A lane item: what it stages is applied at the end, or discarded if it raises.

        A wall clock that was set back stands still until it catches up (S7).
        """
        if not self._states:
            yield
            return
        if self._open is not None:
            raise ProtocolError("a lane item began while the state of another was open")
        self._wall_ms = max(self._wall_ms, self._clock())
        self._open = StateTxn(self._wall_ms)
        try:
            with self.part():
                yield
            self._open.settle()
        finally:
            self._open = None

    @contextmanager
    def part(self) -> Iterator[None]:
        """A part of the item at work: what it stages is taken back if it raises."""
        if not self._states:
            yield
            return
        txn = self._txn()
        mark = txn.mark()
        try:
            yield
        except BaseException:  # whatever ends the part: nothing of it may stay
            txn.roll_back(mark)
            raise

    def growth(self) -> list[OperatorCounts]:
        """How many keys and bytes each state holds more than at the last call (R4)."""
        counts = []
        for number, state in enumerate(self._states):
            keys, size = self._told[number]
            self._told[number] = (state.live_keys, state.live_bytes)
            grown = (state.live_keys - keys, state.live_bytes - size)
            counts.append(OperatorCounts(state.operator, state_keys=grown[0], state_bytes=grown[1]))
        return counts

    def _txn(self) -> StateTxn:
        if self._open is None:
            raise ProtocolError("keyed state was used outside of a lane item")
        return self._open


__all__ = ["CommitOnAck", "Mark", "StateTxn"]
