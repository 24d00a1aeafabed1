"""The fragments of sessions that an operator holds: by key, by time, in runs (N2, S5, S6).

State is a set of fragments: partial aggregates of rows of one key over an interval (see
`session_merge.py`). A batch adds its own; nothing of what is there is looked at or changed, so an
item is undone by forgetting its piece. What is a session is found when it matters: sessions of the
keys of which a fragment has just been passed by the watermark. Pieces of like size merge, as in an
LSM tree, and with them the fragments of one session: so a session has few fragments at any time,
and each row is merged about once per factor of eight of what is held.

Which sessions have left is no part of the state: corrections leave at once, so between two items
they are exactly those with last + gap passed by the watermark, and the cut has the watermark. Only
that a session, which is not due yet, corrects others that have left cannot be derived: it is a mark
of the fragment that joined them, and a session has it if any of its fragments does.

A session goes once last + 2 * gap + allowed lateness is passed. A row that is accepted later cannot
reach it. Whether a fragment is of such a session only all fragments can tell: it may be connected
through any of them. So fragments go when all are looked at together, here as in a merge of runs.
"""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from pathlib import Path

import numpy as np
import pyarrow as pa

from arkflow_kernel.ids import EARLIEST, EventTimeMs, WallMs
from arkflow_kernel.limits import MAX_PARALLELISM_DEFAULT
from arkflow_kernel.state.api import Sealed, StateAddress, StateJournal, StateLayout
from arkflow_kernel.state.arrow_numpy import as_array
from arkflow_kernel.state.key_columns import key_columns, state_error
from arkflow_kernel.state.run_file import runs_of
from arkflow_kernel.state.run_format import parsed_type
from arkflow_kernel.state.run_rows import widest
from arkflow_kernel.window.aggregates import Aggregates
from arkflow_kernel.window.key_numbers import KeyNumbers
from arkflow_kernel.window.keys import KeyForm, KeyLedger
from arkflow_kernel.window.session_format import (
    FORMAT_VERSION,
    SessionFormat,
    SessionRun,
    both,
    type_texts,
)
from arkflow_kernel.window.session_merge import (
    Mask,
    Numbers,
    distinct,
    in_order,
    passed,
    run_starts,
)
from arkflow_kernel.window.session_partials import Partials, merged_piece
from arkflow_kernel.window.session_pieces import HeldRows, Picked, Piece, near
from arkflow_kernel.window.session_spill import spilled
from arkflow_kernel.window.stream_file import SpillPaths

SESSIONS = "sessions"
"""Name of the state."""

_FAN_IN = 8
_SMALL_ROWS = 1_024
_COMPACT_ROWS_MIN = 1_024


class SessionRuns:
    """The fragments of one operator: a `RunState`, and a `Settling` of its transactions.

    `watermark` is the operator's, EARLIEST before the first; sessions that it has passed by more
    than `gap_ms` have left. `keep_ms` is how long after its last row a session is kept.
    """

    def __init__(
        self,
        aggregates: Aggregates,
        ledger: KeyLedger,
        address: StateAddress,
        journal: StateJournal,
        *,
        gap_ms: int,
        keep_ms: int,
        max_bytes: int | None = None,
        memory_bytes: int | None = None,
        max_parallelism: int = MAX_PARALLELISM_DEFAULT,
    ) -> None:
        self.operator = address.operator
        self.gap_ms = gap_ms
        self.partials = Partials(aggregates.families)
        self.watermark: int = EARLIEST
        self._aggregates = aggregates
        self._ledger = ledger
        self._address = address
        self._journal = journal
        self._keep_ms = keep_ms
        self._max_bytes = max_bytes
        self._memory_bytes = memory_bytes
        self._groups = max_parallelism
        self._format = SessionFormat(self.operator, ledger.fields, aggregates.families, gap_ms)
        self._keys = KeyNumbers(len(ledger.fields))
        self._fresh: tuple[Piece, ...] = ()
        self._sealed: tuple[Piece, ...] = ()
        self._passed_before = 0
        self._tracked = False
        self._spool: SpillPaths | None = None
        ledger.undone_by(journal, self)

    # --- what is there -------------------------------------------------------------------------

    @property
    def live_keys(self) -> int:
        """Fragments that it holds: about as many as sessions."""
        return sum([len(piece.keys) for piece in self._pieces])

    @property
    def live_bytes(self) -> int:
        """Bytes of their columns, those in local files too (S4)."""
        return sum([piece.size_bytes for piece in self._pieces])

    @property
    def memory_bytes(self) -> int:
        """Memory that it takes, its index of keys included."""
        return self._keys.memory_bytes + sum([piece.memory_bytes for piece in self._pieces])

    @property
    def _pieces(self) -> tuple[Piece, ...]:
        return (*self._sealed, *self._fresh)

    def numbers(self, batch: pa.RecordBatch) -> Numbers:
        """The number of each row's key; they hold until the item ends. Raises `ProcessingError`."""
        columns = key_columns(batch, self._ledger.fields, self.operator)
        return self._keys.of_columns(columns, batch.num_rows)

    def reached(self, keys: Numbers, first: Numbers, last: Numbers) -> Picked:
        """The whole sessions that an interval of each of these keys, sorted and distinct, reaches;
        maybe others beside them.
        """
        return near(self._pieces, keys, first, last, self.gap_ms, self._keys.size)

    def ending(self, low: int, high: int) -> Picked:
        """The whole sessions that leave when the watermark rises from `low` to `high`, and others.

        Each has a fragment whose own last + gap is passed then: its last one.
        """
        found = []
        for piece in self._pieces:
            places = piece.ending(self.gap_ms, low, high)
            if len(places):
                found.append([column[places] for column in piece.columns[:3]])
        if not found:
            return Picked.of((), ())
        keys, first, last = (np.concatenate(columns) for columns in zip(*found, strict=True))
        order = in_order(keys, first)
        keys, first, last = keys[order], first[order], last[order]
        starts = run_starts(keys)
        # What begins after the last of them plus the gap cannot make them later than they are.
        return self.reached(keys[starts], first[starts], np.maximum.reduceat(last, starts))

    def next_end(self) -> int | None:
        """A time not after the end of the first session that has not left; None: there is none."""
        lasts = [piece.next_last(self.gap_ms, self.watermark) for piece in self._pieces]
        return min((last + self.gap_ms for last in lasts if last is not None), default=None)

    # --- changes -------------------------------------------------------------------------------

    def add(self, piece: Piece) -> None:
        """Take in what a batch made. Raises `ProcessingError` beyond a budget (S3, S4)."""
        held = self._fresh, self._sealed
        self._journal.stage(self, piece.size_bytes, lambda: self._back_to(held))
        self._make_room(piece.size_bytes)
        self._fresh = (*self._fresh, piece)

    def _back_to(self, held: tuple[tuple[Piece, ...], tuple[Piece, ...]]) -> None:
        self._fresh, self._sealed = held

    def _make_room(self, size: int) -> None:
        """Raise `ProcessingError` if the state would be larger than it may (S4)."""
        if self._max_bytes is None or self.live_bytes + size <= self._max_bytes:
            return
        self._compact()
        if self.live_bytes + size > self._max_bytes:
            raise state_error(
                self.operator,
                f"its sessions would take {self.live_bytes + size} bytes of the "
                f"`max_bytes: {self._max_bytes}` that they have; raise it, or make `gap_ms` or "
                "the allowed lateness smaller",
            )

    def advance(self, watermark: int) -> None:
        """The watermark rises; what it passes has left from now on (N5)."""
        before = self.watermark
        self._journal.stage(self, 0, lambda: self._watermark_back_to(before))
        self.watermark = watermark

    def _watermark_back_to(self, watermark: int) -> None:
        self.watermark = watermark

    # --- space ---------------------------------------------------------------------------------

    def settle(self, wall_ms: WallMs) -> None:  # noqa: ARG002 - sessions have no TTL
        """Merge pieces of like size, let go of what no row can reach any more, spill."""
        self._fresh = self._tidied(self._fresh)
        self._sealed = self._tidied(self._sealed)
        least = max(2 * self._passed_before + _COMPACT_ROWS_MIN, self.live_keys // 2)
        if self._count_passed() > least:
            self._compact()
            self._renumber()
        if self._spool is not None and self._memory_bytes is not None:
            self._spill(self._memory_bytes, self._spool)

    def _count_passed(self) -> int:
        """Fragments that may be of sessions which no row can reach: some are connected to later
        ones, so this many were passed at the last look and had to stay.
        """
        return sum([piece.count_passed(self._keep_ms, self.watermark) for piece in self._pieces])

    def _tidied(self, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
        """Fewer pieces: eight of about one size become one."""
        if len(pieces) < _FAN_IN:
            return pieces
        levels: dict[int, list[Piece]] = {}
        for piece in pieces:
            levels.setdefault((max(len(piece), _SMALL_ROWS) - 1).bit_length() // 3, []).append(
                piece
            )
        kept: list[Piece] = []
        for alike in levels.values():
            kept += alike if len(alike) < _FAN_IN else [self._merged(alike)]
        return tuple(kept)

    def _merged(self, pieces: Seq[Piece]) -> Piece:
        if len(pieces) == 1:
            return pieces[0]
        picked = Picked.of(pieces, [None] * len(pieces))
        return merged_piece(picked, self.gap_ms, self.partials, self._ledger.form)

    def _compact(self) -> None:
        """Let go of sessions that no row can reach, and merge what is left."""
        picked = Picked.of(self._pieces, [None] * len(self._pieces))
        found = picked.sessions(self.gap_ms)
        kept = ~passed(found.last, self._keep_ms, self.watermark)[found.session_of]
        sealed = sum(len(piece) for piece in self._sealed)
        self._sealed = self._kept(self._sealed, kept[:sealed])
        self._fresh = self._kept(self._fresh, kept[sealed:])
        self._passed_before = self._count_passed()

    def _kept(self, pieces: Seq[Piece], kept: Mask) -> tuple[Piece, ...]:
        ends = np.cumsum([len(piece) for piece in pieces])
        masks = np.split(kept, ends[:-1]) if len(pieces) else []
        left = [piece.where(mask) for piece, mask in zip(pieces, masks, strict=True) if mask.any()]
        return (self._merged(left),) if left else ()

    def _renumber(self) -> None:
        """Take back the numbers of keys that are gone."""
        if self._keys.size <= _COMPACT_ROWS_MIN:
            return
        numbers = [piece.keys for piece in self._pieces]
        held = distinct(np.concatenate(numbers)) if numbers else np.zeros(0, np.int64)
        if 2 * len(held) < self._keys.size:
            self._keys.keep(held)
            self._sealed = tuple(p.renumbered(np.searchsorted(held, p.keys)) for p in self._sealed)
            self._fresh = tuple(p.renumbered(np.searchsorted(held, p.keys)) for p in self._fresh)

    def _spill(self, budget: int, paths: SpillPaths) -> None:
        """Rows go to files, those of large pieces first, until what is in memory fits."""
        over = self.memory_bytes - budget
        if over <= 0:
            return
        held = sorted(self._pieces, key=lambda piece: piece.rows.memory_bytes, reverse=True)
        moved: dict[int, Piece] = {}
        for piece in held:
            if over <= 0 or piece.rows.memory_bytes < piece.rows.size_bytes:
                break
            moved[id(piece)] = spilled(piece, paths.next(), self.operator)
            over -= piece.rows.memory_bytes
        self._sealed = tuple(moved.get(id(piece), piece) for piece in self._sealed)
        self._fresh = tuple(moved.get(id(piece), piece) for piece in self._fresh)

    def spill_to(self, folder: Callable[[], Path], prefix: str) -> None:
        """Where rows beyond the memory budget go (S5)."""
        self._spool = SpillPaths(folder, prefix, "sessions")

    # --- runs (S6) -----------------------------------------------------------------------------

    @property
    def layout(self) -> StateLayout:
        """What a snapshot says of it now."""
        return StateLayout(
            self._address.namespace,
            self._address.name,
            self._ledger.fields,
            type_texts(self._ledger.types),
            self._format.value_type(self._aggregates.types),
            FORMAT_VERSION,
            None if self.watermark == EARLIEST else EventTimeMs(self.watermark),
        )

    def track(self) -> None:
        """Fragments are handed to `seal` from now on."""
        self._tracked = True

    def seal(self) -> Sealed:
        """The fragments that came since the last seal, as they are: none ever changes."""
        fresh = self._fresh
        if self._tracked:
            self._sealed, self._fresh = (*self._sealed, *fresh), ()
        return Sealed(fresh, self.layout)

    @property
    def merge_bytes_max(self) -> int | None:
        """Fragments that may be one session must meet: any are merged."""
        return None

    def written(self, sealed: Seq[Sealed]) -> Iterator[pa.RecordBatch]:
        """One run of the fragments of some seals."""
        pieces = [piece for each in sealed for piece in each.changes]
        form = _form([each.layout for each in sealed])
        runs = [SessionRun(p.first, p.last, p.corrects, p.rows.read()) for p in pieces]
        return runs_of(self._run(runs, form, None))

    def merged(
        self, runs: Seq[pa.RecordBatch], layout: StateLayout, *, oldest: bool, newest: bool
    ) -> pa.RecordBatch | None:
        """One run of some. What no row can reach is left out of all of them only."""
        whole = oldest and newest
        mark = layout.watermark if whole else None
        return self._run([self._format.read(run) for run in runs], _form([layout]), mark)

    def _run(
        self, runs: Seq[SessionRun], form: KeyForm, watermark: int | None
    ) -> pa.RecordBatch | None:
        """One run of these fragments, merged, without what the watermark allows to let go of."""
        picked = self._picked(runs, form, KeyNumbers(len(self._ledger.fields)))
        if not len(picked):
            return None
        piece = merged_piece(picked, self.gap_ms, self.partials, form)
        if watermark is not None:
            piece = piece.where(~passed(piece.last, self._keep_ms, watermark))
            if not len(piece):
                return None
        groups = (form.hashes(piece.rows.read()) % np.uint64(self._groups)).astype(np.int32)
        order = np.argsort(groups, kind="stable")
        run = SessionRun(
            piece.first[order], piece.last[order], piece.corrects[order], piece.rows.read(order)
        )
        return self._format.written(form, groups[order], run)

    def _picked(self, runs: Seq[SessionRun], form: KeyForm, keys: KeyNumbers) -> Picked:
        """The fragments of runs under numbers that `keys` gives."""
        pieces = []
        for run in runs:
            numbers = keys.of_table(form.aligned(run.table), form)
            order = in_order(numbers, run.first)
            rows = HeldRows(run.table.take(as_array(order)))
            columns = (numbers[order], run.first[order], run.last[order], run.corrects[order])
            pieces.append(Piece(*columns, rows))
        return Picked.of(pieces, [None] * len(pieces))

    def restore(self, layouts: Seq[StateLayout], runs: Iterable[pa.RecordBatch]) -> None:
        """Hold what runs say. The subtasks of a chain have one watermark at a cut (W13)."""
        for layout in layouts:
            types = self._format.checked(layout)
            self._aggregates.types = both(self._aggregates.types, types)
            self._ledger.learn(tuple(parsed_type(kind) for kind in layout.key_types))
        marks = [layout.watermark for layout in layouts if layout.watermark is not None]
        self.watermark = min(marks, default=EARLIEST)
        picked = self._picked(
            [self._format.read(run) for run in runs], self._ledger.form, self._keys
        )
        if len(picked):
            piece = merged_piece(picked, self.gap_ms, self.partials, self._ledger.form)
            self._sealed = (piece.where(~passed(piece.last, self._keep_ms, self.watermark)),)


def _form(layouts: Seq[StateLayout]) -> KeyForm:
    """The form of keys after all of these."""
    return KeyForm(widest([tuple(map(parsed_type, layout.key_types)) for layout in layouts]))


__all__ = ["SESSIONS", "SessionRuns"]
