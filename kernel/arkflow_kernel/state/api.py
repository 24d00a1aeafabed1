"""What an operator sees of keyed state (S1), and what the state sees of its transaction (S2).

Everything is said about the rows of a batch at once: keys and values are Arrow arrays, answers are
in the order of the rows. A state belongs to one operator and one name; none sees another's.
"""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_kernel.ids import EventTimeMs, OperatorId, WallMs
from arkflow_kernel.state.arrow_numpy import AnyArray
from arkflow_kernel.state.growing import Mask
from arkflow_kernel.state.key_rows import KeyRows


@dataclass(frozen=True, slots=True)
class StateAddress:
    """Whose state it is, below the job: the user's namespace, the operator, the state's name."""

    namespace: str
    operator: OperatorId
    name: str


@dataclass(frozen=True, slots=True)
class Found:
    """Answer to `get`, per row: the value, and whether the key is there (a value may be null)."""

    values: AnyArray
    present: Mask


@dataclass(frozen=True, slots=True)
class StateEntries:
    """Entries of a state in order of key group.

    `keys` has one array per key field, of the ledger's type (S10). `deadlines` are wall-clock
    milliseconds at which the entry is gone (S7), None without TTL.
    """

    groups: npt.NDArray[np.int32]
    keys: tuple[AnyArray, ...]
    values: AnyArray
    deadlines: npt.NDArray[np.int64] | None


class KeyedState(Protocol):
    """One named state of one operator. Called in the lane, with a transaction open.

    Every write may raise `ProcessingError`: the budget (S4) or the bound of one item (S3) would be
    passed. Then nothing of it is applied.
    """

    def keys(self, batch: pa.RecordBatch) -> KeyRows:
        """The keys of a batch's rows; take them once for several calls.

        Raises `ProcessingError` for a missing key column, or one whose type cannot follow the
        types before (S10).
        """
        ...

    def get(self, keys: KeyRows) -> Found:
        """Values of the rows' keys, writes of this item included."""
        ...

    def put(self, keys: KeyRows, values: AnyArray) -> None:
        """Set the value of each row's key; of rows with one key the last counts."""
        ...

    def delete(self, keys: KeyRows) -> None:
        """Forget the rows' keys; those that are not there stay so."""
        ...

    def increment(self, keys: KeyRows, by: int | AnyArray = 1) -> AnyArray:
        """Add row by row; the key's value after each row. A missing or null value counts as 0."""
        ...

    def entries(self) -> Iterator[StateEntries]:
        """All live entries, by key group, in pieces. Nothing may be written meanwhile."""
        ...


@dataclass(frozen=True, slots=True)
class StateLayout:
    """What a snapshot says of a state beside its runs (`snapshot.StateSnapshot`), at one seal.

    `watermark` is None for a state that does not live by event time. Panes below `low` were let go
    of, whatever runs still hold of them (N6); None: none were.
    """

    namespace: str
    name: str
    key_fields: tuple[str, ...]
    key_types: tuple[str, ...]
    value_type: str
    format_version: int
    watermark: EventTimeMs | None = None
    low: int | None = None


@dataclass(frozen=True, slots=True)
class Sealed:
    """What changed between two seals, frozen: nothing changes it any more. `changes` is the
    state's own, and empty (falsy) if nothing changed.
    """

    changes: Any
    layout: StateLayout


class RunState(Protocol):
    """A state whose changes become runs (S5, S6): keyed values, panes, sessions, kept rows.

    `seal` is called in the lane, between two items; `written` and `merged` meanwhile, in the upload
    lane: they use nothing but their arguments and what never changes. A run is one record batch
    whose first column is `group`, the key group as int32, in rising order.
    """

    @property
    def operator(self) -> OperatorId:
        """Whose state it is."""
        ...

    @property
    def layout(self) -> StateLayout:
        """Its layout now."""
        ...

    def track(self) -> None:
        """Changes are gathered by `seal` from now on. Before the first item."""
        ...

    def spill_to(self, folder: Callable[[], Path], prefix: str) -> None:
        """Where runs beyond the memory budget go (S5); files that begin with `prefix` are its own.
        `folder` is called when the first are spilled.
        """
        ...

    def seal(self) -> Sealed:
        """Everything that changed since the last seal. Quick: no hashing, no sorting, no copy."""
        ...

    @property
    def merge_bytes_max(self) -> int | None:
        """Runs of more bytes are not merged: that would take too much memory. None: any are."""
        ...

    def written(self, sealed: Seq[Sealed]) -> Iterator[pa.RecordBatch]:
        """What was sealed, oldest first, as runs: one, or several of about `RUN_BYTES`; none if
        nothing is left of it. Each is made when it is asked for.
        """
        ...

    def merged(
        self, runs: Seq[pa.RecordBatch], layout: StateLayout, *, oldest: bool, newest: bool
    ) -> pa.RecordBatch | None:
        """One run that stands for these neighbours, oldest first; None if nothing is left.

        `layout` is that of the last seal whose runs are uploaded: what was let go of by then may
        be left out. `oldest`: no older run precedes them, so deletions need not be kept. `newest`:
        no run that is uploaded follows them; later seals may. With both, they are all that was
        known at `layout`.
        """
        ...

    def restore(self, layouts: Seq[StateLayout], runs: Iterable[pa.RecordBatch]) -> None:
        """Hold what these runs say, oldest first; before the first item. They are read one by one.
        Rows of other key groups are not among them. Raises `RestoreError` for a layout that does
        not fit (S9).
        """
        ...


class StateJournal(Protocol):
    """The transaction of the lane item that is at work."""

    @property
    def wall_ms(self) -> WallMs:
        """The item's wall clock: one for all its reads and writes, never less than before (S7)."""
        ...

    def stage(self, state: "Settling", size_bytes: int, undo: Callable[[], None]) -> None:
        """Announce a write before it is made. Raises `ProcessingError` beyond the bound (S3)."""
        ...


class Settling(Protocol):
    """A state, as its transaction sees it."""

    @property
    def operator(self) -> OperatorId:
        """Whose state it is."""
        ...

    @property
    def live_keys(self) -> int:
        """Entries that it holds."""
        ...

    @property
    def live_bytes(self) -> int:
        """Encoded bytes of their keys and values (S4)."""
        ...

    def settle(self, wall_ms: WallMs) -> None:
        """The transaction is applied: nothing of it will be undone."""
        ...


__all__ = [
    "Found",
    "KeyedState",
    "RunState",
    "Sealed",
    "Settling",
    "StateAddress",
    "StateEntries",
    "StateJournal",
    "StateLayout",
]
