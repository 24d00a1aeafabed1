"""One side of a join as a state of its chain: sealed, written, merged, restored (S6, B0).

The watermark is that of the operator: rows below what it holds have left, whatever runs say.
"""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from pathlib import Path

import pyarrow as pa

from arkflow_kernel.join.join_keys import JoinKeys
from arkflow_kernel.join.join_runs import JoinRun, arranged
from arkflow_kernel.join.side_format import (
    KnownMarks,
    Marks,
    brought_up,
    entries,
    row_piece,
    rows_in,
)
from arkflow_kernel.join.side_rows import FreshRun, SideRows, low_of
from arkflow_kernel.plan import JoinPlan
from arkflow_kernel.state.api import Sealed, StateAddress, StateJournal, StateLayout
from arkflow_kernel.state.run_file import RUN_BYTES
from arkflow_kernel.state.run_format import parsed_type
from arkflow_kernel.timestamps import had_by_all
from arkflow_kernel.window.kept_runs import FORMAT_VERSION, ROWS, RunPiece, run_of
from arkflow_kernel.window.refusals import check_version, other_state
from arkflow_kernel.window.row_batches import brought_to
from arkflow_kernel.window.stream_file import SpillPaths


class SideState(SideRows):
    """A `RunState`, named after its side."""

    def __init__(
        self,
        address: StateAddress,
        plan: JoinPlan,
        keys: JoinKeys,
        journal: StateJournal,
        *,
        max_bytes: int | None = None,
        memory_bytes: int | None = None,
        max_parallelism: int = 1,
    ) -> None:
        super().__init__(
            address.operator,
            address.name,
            plan,
            keys,
            journal,
            max_bytes=max_bytes,
            memory_bytes=memory_bytes,
            max_parallelism=max_parallelism,
        )
        self._address = address

    @property
    def holds(self) -> str:
        """What its rows are, for snapshots and errors."""
        return f"rows of the {self.name} side of a join"

    @property
    def layout(self) -> StateLayout:
        """What a snapshot says of it."""
        return StateLayout(
            self._address.namespace,
            self._address.name,
            (self._join.left.key, self._join.right.key),
            (str(self._keys.type),),
            self.holds,
            FORMAT_VERSION,
            self.watermark,
        )

    def track(self) -> None:
        """See `RunState.track`."""
        self._tracked = True

    def spill_to(self, folder: Callable[[], Path], prefix: str) -> None:
        """See `RunState.spill_to`."""
        self._spool = SpillPaths(folder, prefix, "rows")

    def seal(self) -> Sealed:
        """See `RunState.seal`."""
        changes = (*self._fresh, *self._marks)
        self._fresh, self._marks = [], []
        return Sealed(changes, self.layout)

    @property
    def merge_bytes_max(self) -> int | None:
        """Marks must meet their rows: any are merged."""
        return None

    def written(self, sealed: Seq[Sealed]) -> Iterator[pa.RecordBatch]:
        """See `RunState.written`."""
        pieces = [self._piece(change) for each in sealed for change in each.changes]
        waiting: list[RunPiece] = []
        for piece in self._kept(pieces, sealed[-1].layout.watermark, oldest=False):
            waiting.append(piece)
            if sum(each.batch.nbytes for each in waiting) >= RUN_BYTES:
                yield from self._run(waiting)
                waiting = []
        yield from self._run(waiting)

    def _run(self, pieces: list[RunPiece]) -> Iterator[pa.RecordBatch]:
        run = run_of(pieces, self._owner())
        if run is not None:
            yield run

    def _piece(self, change: FreshRun | Marks) -> RunPiece:
        if isinstance(change, Marks):
            return change.piece()
        run = change.run
        rows = run.rows.read()
        groups = self.key_groups(rows) if run.groups is None else run.groups
        return row_piece(rows, groups, run.times, run.numbers, run.cuts, change.matched)

    def merged(
        self, runs: Seq[pa.RecordBatch], layout: StateLayout, *, oldest: bool, newest: bool
    ) -> pa.RecordBatch | None:
        """See `RunState.merged`. Marks of no row go with a merge that begins at the oldest run."""
        del newest
        return run_of(self._kept(entries(runs), layout.watermark, oldest=oldest), self._owner())

    def _kept(
        self, pieces: Seq[RunPiece], watermark: int | None, *, oldest: bool
    ) -> list[RunPiece]:
        """What of some runs is still of use at a watermark."""
        return brought_up(pieces, self._low_at(watermark), oldest=oldest)

    def _low_at(self, watermark: int | None) -> int:
        """Rows with a time below it have left at a watermark."""
        return low_of(watermark, self._join.hold_ms)

    def _owner(self) -> dict[str, object]:
        address = self._address
        return {
            "namespace": address.namespace,
            "operator": address.operator,
            "name": address.name,
            "key_fields": [self.key_field],
        }

    def restore(self, layouts: Seq[StateLayout], runs: Iterable[pa.RecordBatch]) -> None:
        """See `RunState.restore`."""
        for layout in layouts:
            self._check(layout)
            self._keys.restored(parsed_type(layout.key_types[0]))
        pieces = entries(runs)
        watermark = had_by_all(each.watermark for each in layouts)
        low = self._low_at(watermark)
        marks = KnownMarks((piece for piece in pieces if piece.since is not None), low)
        rows = [marks.applied(piece) for piece in pieces if piece.since is None]
        rows = [piece for piece in rows if len(piece)]
        for piece in rows:
            self.schema.restored(rows_in(piece)[0].schema)
        # Marks of rows that are gone may still be there: no new row may take their numbers.
        number = max((int(piece.numbers.max()) + 1 for piece in pieces), default=0)
        self.restored((self._held(piece) for piece in rows), watermark, number)

    def _held(self, piece: RunPiece) -> JoinRun:
        rows, cuts, matched = rows_in(piece)
        keys = self._keys.restored_numbers(rows.column(rows.schema.names.index(self.key_field)))
        noted = self.outer or self._join.evicts_oldest
        return arranged(
            brought_to(rows, self.schema.of_rows),
            keys,
            piece.times,
            piece.numbers,
            cuts,
            piece.groups if noted else None,
            matched if self.outer else None,
        )

    def _check(self, layout: StateLayout) -> None:
        check_version(layout.format_version, FORMAT_VERSION, ROWS, self.operator)
        if layout.value_type != self.layout.value_type:
            what = f"'{layout.name}' has {layout.value_type}, and the job now has a join there"
            raise other_state(self.operator, what)


__all__ = ["SideState"]
