"""What one lane item has made so far: pieces on their way to outputs, and counts (T1c, T6)."""

from collections import deque
from dataclasses import dataclass

import pyarrow as pa

from arkflow_kernel.bad_rows import NOWHERE, Origin, bad_row_error
from arkflow_kernel.ids import OperatorId, OutputId, RequestToken
from arkflow_kernel.limits import SLICE_BYTES_MAX, SLICE_ROWS_MAX
from arkflow_kernel.metrics import KeyGroupRows, OperatorCounts
from arkflow_kernel.outlet import ChainOutlets
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import OperatorResult
from arkflow_kernel.protocol import Piece


@dataclass(frozen=True, slots=True)
class Made:
    """How far an item is, between two slices."""

    pieces: int
    key_groups: dict[OutputId, KeyGroupRows]


class ItemWork:
    """Results and counts of one item while it runs."""

    def __init__(self, plan: ChainPlan, outlets: ChainOutlets, token: RequestToken) -> None:
        self.plan = plan
        self.outlets = outlets
        self.token = token
        self.pieces: deque[Piece] = deque()
        self.counts: dict[OperatorId, OperatorCounts] = {}
        self.key_groups: dict[OutputId, KeyGroupRows] = {}

    def emit(self, batch: pa.RecordBatch) -> None:
        """Rows that passed all operators. Raises `ProcessingError` if a row finds no way."""
        if batch.num_rows:
            for output in self.plan.outputs:
                self._leave(output, batch)

    def error(self, bad: pa.RecordBatch | None, origin: Origin = NOWHERE) -> None:
        """Bad rows; without an error output the first of them fails the item."""
        if bad is None or bad.num_rows == 0:
            return
        if self.plan.error_output is None:
            raise bad_row_error(bad, origin)
        self._leave(self.plan.error_output, bad)

    def late(self, rows: pa.RecordBatch | None) -> None:
        """Rows for the late route; nothing without one: then they are counted only."""
        if rows is not None and rows.num_rows and self.plan.late_output is not None:
            self._leave(self.plan.late_output, rows)

    @property
    def fills_slice(self) -> bool:
        """Whether a slice of what there is would be full."""
        return (
            sum(piece.batch.num_rows for piece in self.pieces) >= SLICE_ROWS_MAX
            or sum(piece.size_bytes for piece in self.pieces) >= SLICE_BYTES_MAX
        )

    def take_counts(self) -> tuple[OperatorCounts, ...]:
        """What was counted since the last call."""
        counts, self.counts = tuple(self.counts.values()), {}
        return counts

    def take_key_groups(self) -> tuple[KeyGroupRows, ...]:
        """The same by key group."""
        groups, self.key_groups = tuple(self.key_groups.values()), {}
        return groups

    def made(self) -> "Made":
        """What there is now."""
        return Made(len(self.pieces), dict(self.key_groups))

    def failed(self, kept: "Made", batch: pa.RecordBatch) -> None:
        """An operator failed: instead of what was made since, the batch leaves."""
        assert self.plan.error_output is not None
        while len(self.pieces) > kept.pieces:
            self.pieces.pop()
        self.key_groups = kept.key_groups
        self._leave(self.plan.error_output, batch)

    def _leave(self, output: OutputId, batch: pa.RecordBatch) -> None:
        self.pieces += self.outlets.pieces(output, batch, self.key_groups)

    def counted(self, index: int, rows_in: int, result: OperatorResult) -> None:
        """Book one call (T6)."""
        rows_out = sum(batch.num_rows for batch in result.batches)
        errors = 0 if result.bad is None else result.bad.num_rows
        left = rows_in - errors - rows_out - result.late_rows - result.absorbed
        self._add(
            index,
            rows_in=rows_in,
            rows_out=rows_out,
            errors=errors,
            late=result.late_rows,
            absorbed=result.absorbed,
            evicted=result.evicted,
            filtered=max(left, 0),
            expanded=max(-left, 0),
        )

    def errored(self, index: int, rows: int) -> None:
        """Book a call that failed: all its rows are errors."""
        self._add(index, rows_in=rows, errors=rows)

    def _add(self, index: int, **counts: int) -> None:
        self.add(OperatorCounts(self.plan.operators[index].operator, **counts))

    def add(self, counts: OperatorCounts) -> None:
        """Add to what is booked for an operator."""
        known = self.counts.get(counts.operator, OperatorCounts(counts.operator))
        self.counts[counts.operator] = known.plus(counts)


__all__ = ["ItemWork", "Made"]
