"""The original rows of open windows, as a state (S6, B0): added, released once, sealed, spilled.

A window is a span of marks: of the starts of panes (gap 0), or of the times of one key (sessions).
Chunks of rows that were sealed, and those that were not, stand in two lists, each in order of
arrival. A release takes rows out of them and leaves tombstones for those that some run has. Every
change replaces lists or adds to their end, so that it is undone by putting back what was.

Memory: rows beyond `memory_bytes` go to local files (S5); their times, keys and numbers stay. A
window that fires is put together in memory: it leaves as one batch.
"""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import EventTimeMs, WallMs
from arkflow_kernel.key_encoding import KeyColumnError
from arkflow_kernel.key_groups import key_groups
from arkflow_kernel.state.api import Sealed, StateAddress, StateJournal, StateLayout
from arkflow_kernel.state.growing import Mask, Slots
from arkflow_kernel.state.key_types import KeyTypeError
from arkflow_kernel.state.run_file import runs_of
from arkflow_kernel.state.run_format import parsed_type
from arkflow_kernel.state.run_rows import widest
from arkflow_kernel.window.assign import Times
from arkflow_kernel.window.kept_chunks import Groups, HeldRows, KeptChunk, spilled, tidied
from arkflow_kernel.window.kept_keys import KeyTypes, columns_of, ledger
from arkflow_kernel.window.kept_runs import (
    FORMAT_VERSION,
    ROWS,
    RunPiece,
    Tombstones,
    alive,
    pieces_of,
    run_of,
)
from arkflow_kernel.window.key_numbers import KeyNumbers
from arkflow_kernel.window.refusals import check_version, other_state
from arkflow_kernel.window.released import FiredRows, Released, tombstones
from arkflow_kernel.window.spans import Spans, SpanSearch
from arkflow_kernel.window.stream_file import SpillPaths

_COMPACT_SLOTS_MIN = 1_024
_UNSETTLED_CHUNKS = 64
"""After so many new chunks, or a sixteenth of the memory budget, the state tidies up."""


@dataclass(frozen=True, slots=True)
class RowWindows:
    """How rows fall into windows.

    `by_key`: each key has windows of its own (sessions). `marks` gives the marks of times; marks of
    one window are at most `gap_ms` apart.
    """

    by_key: bool
    gap_ms: int
    marks: Callable[[Times], Times]

    @property
    def value_type(self) -> str:
        """What a snapshot calls the rows."""
        return "rows of sessions" if self.by_key else "rows of windows"


@dataclass(frozen=True, slots=True)
class _Undone:
    """What brings the state back to where it was."""

    sealed: list[KeptChunk]
    fresh: list[KeptChunk]
    fresh_count: int
    tombstones: tuple[RunPiece, ...]
    spans: Spans
    types: KeyTypes
    slots: int
    number: int
    live: tuple[int, int]
    watermark: EventTimeMs | None


class KeptRows:
    """A `RunState` and a `Settling`. `key_fields` decide the key group of a row."""

    def __init__(
        self,
        address: StateAddress,
        key_fields: tuple[str, ...],
        windows: RowWindows,
        journal: StateJournal,
        *,
        max_bytes: int | None = None,
        memory_bytes: int | None = None,
        max_parallelism: int = 1,
    ) -> None:
        self.operator = address.operator
        self.live_keys = 0
        self.live_bytes = 0
        self._watermark: EventTimeMs | None = None
        self._address = address
        self._fields = key_fields
        self._windows = windows
        self._journal = journal
        self._max_bytes = max_bytes
        self._budget = memory_bytes
        self._max_parallelism = max_parallelism
        self._own = key_fields if windows.by_key else ()
        self._types: KeyTypes = tuple(pa.null() for _ in key_fields)
        self._slots = KeyNumbers(len(self._own))
        self._spans = Spans.joined([])
        self._sealed: list[KeptChunk] = []
        self._fresh: list[KeptChunk] = []
        self._tombstones: tuple[RunPiece, ...] = ()
        self._number = 0
        self._unsettled = self._unsettled_bytes = 0
        self._tracked = False
        self._spool: SpillPaths | None = None

    # --- windows -------------------------------------------------------------------------------

    @property
    def spans(self) -> Spans:
        """The open windows, in any order; by number in `release`."""
        return self._spans

    @property
    def watermark(self) -> EventTimeMs | None:
        """Up to when windows have fired, as `fired_upto` was told; None: never."""
        return self._watermark

    def fired_upto(self, time: EventTimeMs) -> None:
        """Windows that were due at this time have been released; part of the cut (N5)."""
        self._journal.stage(self, 0, self._undo())
        self._watermark = time

    def add(self, batch: pa.RecordBatch, times: Times) -> None:
        """Keep rows with these times. Raises `ProcessingError`; then nothing of it is kept."""
        if not batch.num_rows:
            return
        try:
            types = ledger(self._fields, self._types, batch)
            groups = key_groups(batch, self._fields, self._max_parallelism).astype(np.int32)
        except (KeyColumnError, KeyTypeError) as error:
            raise self._failure(str(error)) from error
        size = batch.nbytes
        if self._max_bytes is not None and self.live_bytes + size > self._max_bytes:
            raise self._failure(
                f"the rows that its windows keep would take {self.live_bytes + size} bytes of the "
                f"`max_bytes: {self._max_bytes}` that its state has; raise it, or make the windows "
                "smaller"
            )
        self._journal.stage(self, size, self._undo())
        self._types = types
        numbers = np.arange(self._number, self._number + batch.num_rows)
        self._number += batch.num_rows
        self._fresh.append(self._chunk(batch, groups, times, numbers))
        self._added(self._fresh[-1])

    def _chunk(
        self, batch: pa.RecordBatch, groups: Groups, times: Times, numbers: Slots
    ) -> KeptChunk:
        marks, size = self._windows.marks(times), batch.nbytes
        slots = self._slots.of_columns(columns_of(batch, self._own), batch.num_rows)
        return KeptChunk(HeldRows(batch, size), None, groups, times, marks, slots, numbers, size)

    def _added(self, chunk: KeptChunk) -> None:
        self.live_keys += len(chunk)
        self.live_bytes += chunk.size_bytes
        self._unsettled += 1
        self._unsettled_bytes += chunk.size_bytes
        self._spans = self._spans.grown(chunk.slots, chunk.marks, self._windows.gap_ms)

    def release(self, due: Mask) -> Released:
        """Let go of the windows of `spans` that the mask marks, at once; their rows, to iterate.

        The windows come in order of their end, then of their beginning, then of their first row.
        """
        if not due.any():
            return Released([])
        self._journal.stage(self, 0, self._undo())
        spans = self._spans.at(due)
        search = SpanSearch(spans)
        self._sealed, old = _parted(self._sealed, search)
        self._fresh, new = _parted(self._fresh, search)
        if self._tracked:
            self._tombstones += tuple(tombstones(old, self._own, self._number))
        fired = [*old, *new]
        self.live_keys -= sum(len(each.chunk) for each in fired)
        self.live_bytes -= sum(each.chunk.size_bytes for each in fired)
        self._spans = self._spans.at(~due)
        return Released.of(fired, spans)

    def _undo(self) -> Callable[[], None]:
        was = _Undone(
            self._sealed,
            self._fresh,
            len(self._fresh),
            self._tombstones,
            self._spans,
            self._types,
            self._slots.size,
            self._number,
            (self.live_keys, self.live_bytes),
            self._watermark,
        )

        def undo() -> None:
            self._sealed, self._fresh = was.sealed, was.fresh
            del self._fresh[was.fresh_count :]
            self._tombstones, self._spans, self._types = was.tombstones, was.spans, was.types
            self._slots.truncate(was.slots)
            self._number = was.number
            self.live_keys, self.live_bytes = was.live
            self._watermark = was.watermark

        return undo

    # --- memory --------------------------------------------------------------------------------

    def settle(self, wall_ms: WallMs) -> None:
        """Put small chunks together, forget keys without rows, spill."""
        del wall_ms
        budget = self._budget or 0
        if self._unsettled < _UNSETTLED_CHUNKS and self._unsettled_bytes * 16 < budget:
            return
        self._unsettled = self._unsettled_bytes = 0
        self._sealed, self._fresh = tidied(self._sealed), tidied(self._fresh)
        self._compact_keys()
        self._spill()

    @property
    def memory_bytes(self) -> int:
        """Memory that the rows take."""
        return sum(chunk.rows.memory_bytes for chunk in (*self._sealed, *self._fresh))

    def _compact_keys(self) -> None:
        if self._slots.size <= max(_COMPACT_SLOTS_MIN, 2 * len(self._spans)) or not self._own:
            return
        kept = np.unique(self._spans.slots)
        self._slots.keep(kept)
        spans = self._spans
        self._spans = Spans(np.searchsorted(kept, spans.slots), spans.first, spans.last)
        self._sealed, self._fresh = (
            [replace(each, slots=np.searchsorted(kept, each.slots)) for each in chunks]
            for chunks in (self._sealed, self._fresh)
        )

    def _spill(self) -> None:
        """Rows in memory go to a file, if there are more than the budget allows."""
        if self._spool is None or self._budget is None or self.memory_bytes <= self._budget:
            return
        held = [
            chunk for chunk in (*self._sealed, *self._fresh) if isinstance(chunk.rows, HeldRows)
        ]
        files = spilled(held, self._spool.next(), self.operator)
        moved = dict(zip(map(id, held), files, strict=True))
        self._sealed = [moved.get(id(chunk), chunk) for chunk in self._sealed]
        self._fresh = [moved.get(id(chunk), chunk) for chunk in self._fresh]

    # --- runs (S6) -----------------------------------------------------------------------------

    @property
    def layout(self) -> StateLayout:
        """What a snapshot says of it."""
        return StateLayout(
            self._address.namespace,
            self._address.name,
            self._fields,
            tuple(str(kind) for kind in self._types),
            self._windows.value_type,
            FORMAT_VERSION,
            self._watermark,
        )

    def track(self) -> None:
        """See `RunState.track`."""
        self._tracked = True

    def spill_to(self, folder: Callable[[], Path], prefix: str) -> None:
        """See `RunState.spill_to`."""
        self._spool = SpillPaths(folder, prefix, "rows")

    def seal(self) -> Sealed:
        """See `RunState.seal`."""
        changes = (*self._fresh, *self._tombstones)
        self._sealed = [*self._sealed, *self._fresh]
        self._fresh, self._tombstones = [], ()
        return Sealed(changes, self.layout)

    @property
    def merge_bytes_max(self) -> int | None:
        """Tombstones must meet their rows: any are merged."""
        return None

    def written(self, sealed: Seq[Sealed]) -> Iterator[pa.RecordBatch]:
        """See `RunState.written`. Rows and their tombstone may both be among them."""
        pieces = [
            change if isinstance(change, RunPiece) else _piece_of(change)
            for each in sealed
            for change in each.changes
        ]
        rows, fired = alive(pieces, self._own)
        return runs_of(run_of([*rows, *fired], self._owner()))

    def merged(
        self, runs: Seq[pa.RecordBatch], layout: StateLayout, *, oldest: bool, newest: bool
    ) -> pa.RecordBatch | None:
        """See `RunState.merged`. Tombstones go with a merge that begins at the oldest run."""
        del layout, newest
        rows, fired = alive([piece for run in runs for piece in pieces_of(run)], self._own)
        return run_of(rows if oldest else [*rows, *fired], self._owner())

    def _owner(self) -> dict[str, object]:
        address = self._address
        return {
            "namespace": address.namespace,
            "operator": address.operator,
            "name": address.name,
            "key_fields": list(self._fields),
        }

    def restore(self, layouts: Seq[StateLayout], runs: Iterable[pa.RecordBatch]) -> None:
        """See `RunState.restore`. The windows are those of the plan now: rows know their times."""
        for layout in layouts:
            self._check(layout)
        if layouts:
            self._types = widest([tuple(map(parsed_type, each.key_types)) for each in layouts])
            marks = [each.watermark for each in layouts if each.watermark is not None]
            self._watermark = max(marks, default=None)
        runs = list(runs)  # tombstones of later ones count for earlier ones
        fired = [piece for run in runs for piece in pieces_of(run, fired=True)]
        gone = Tombstones(fired, self._own)
        for run in runs:
            for piece in gone.left(pieces_of(run, fired=False)):
                chunk = self._chunk(piece.batch, piece.groups, piece.times, piece.numbers)
                self._sealed.append(chunk)
                self._added(chunk)
                self._number = max(self._number, int(piece.numbers.max()) + 1)
            self._spill()

    def _check(self, layout: StateLayout) -> None:
        check_version(layout.format_version, FORMAT_VERSION, ROWS, self.operator)
        if layout.key_fields != self._fields:
            what = (
                f"'{layout.name}' has rows by {_named(layout.key_fields)}, and the job now keys by "
                f"{_named(self._fields)}"
            )
            raise other_state(self.operator, what)
        if layout.value_type != self._windows.value_type:
            what = (
                f"'{layout.name}' has {layout.value_type}, and the job now keeps "
                f"{self._windows.value_type}"
            )
            raise other_state(self.operator, what)

    def _failure(self, cause: str) -> ProcessingError:
        return ProcessingError(self.operator, cause, error_class="StateError")


def _named(fields: tuple[str, ...]) -> str:
    return ", ".join(fields) if fields else "no key"


def _piece_of(chunk: KeptChunk) -> RunPiece:
    return RunPiece(chunk.batch(), chunk.groups, chunk.times, chunk.numbers)


def _parted(chunks: list[KeptChunk], spans: SpanSearch) -> tuple[list[KeptChunk], list[FiredRows]]:
    """The rows that stay, and those of these windows."""
    stay: list[KeptChunk] = []
    gone: list[FiredRows] = []
    for chunk in chunks:
        window = spans.find(chunk.slots, chunk.marks)
        mine = window >= 0
        if not mine.any():
            stay.append(chunk)
        elif mine.all():
            gone.append(FiredRows(chunk, window))
        else:
            fired, rest = chunk.parted(mine)
            gone.append(FiredRows(fired, window[mine]))
            stay.append(rest)
    return stay, gone


__all__ = ["KeptRows", "RowWindows"]
