"""Transactions over the keyed state of a chain: one lane item, applied or discarded as a whole.

`CommitOnAck` is the chain's journal. A driver's lane opens a transaction per item; it is committed
when the operators have returned and their outputs are queued in order, and discarded if the item
fails (S2). Inside an item `mark` and `roll_back` take back the part that failed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from arkflow_kernel.errors import ProcessingError, ProtocolError
from arkflow_kernel.ids import WallMs
from arkflow_kernel.limits import STAGED_BYTES_MAX
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


_START = Mark(0, 0)


class CommitOnAck:
    """The journal of a chain: at most one transaction is open (S2)."""

    def __init__(self) -> None:
        self._open: StateTxn | None = None
        self._wall_ms = WallMs(0)

    @property
    def wall_ms(self) -> WallMs:
        """The wall clock of the item at work."""
        return self._txn().wall_ms

    def stage(self, state: Settling, size_bytes: int, undo: Callable[[], None]) -> None:
        """Take note of a write of the item at work."""
        self._txn().stage(state, size_bytes, undo)

    def begin(self, wall_ms: WallMs) -> StateTxn:
        """Open a transaction. A wall clock that was set back stands still until it catches up."""
        if self._open is not None:
            raise ProtocolError("a lane item began while the state of another was open")
        self._wall_ms = max(self._wall_ms, wall_ms)
        self._open = StateTxn(self._wall_ms)
        return self._open

    def commit(self) -> None:
        """The item is acknowledged: what it staged is the state now."""
        self._txn().settle()
        self._open = None

    def discard(self) -> None:
        """The item failed: nothing that it staged stays."""
        self._txn().roll_back(_START)
        self._open = None

    def _txn(self) -> StateTxn:
        if self._open is None:
            raise ProtocolError("keyed state was used outside of a lane item")
        return self._open


__all__ = ["CommitOnAck", "Mark", "StateTxn"]
