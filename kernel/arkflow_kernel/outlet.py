"""The outlets of a chain: which rows of a batch leave by which channel (G2, G3, E7).

Rows for one channel keep their order. Empty parts are dropped; they never mean anything. What
leaves is plain (`compaction.py`), so its size is what it takes on the wire (H5), and is cut to
the size of a slice (E3), or of the batches that the operator behind the edge asks for (E9).
"""

import itertools
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_kernel.compaction import Compactor
from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.event_time_gate import ROW_WATERMARK, without_column
from arkflow_kernel.ids import OutputId
from arkflow_kernel.key_encoding import KeyColumnError, key_kind
from arkflow_kernel.key_groups import key_column, key_groups
from arkflow_kernel.limits import KEY_GROUPS_COUNTED_MAX, MIB, ROW_BYTES_MAX, SLICE_BYTES_MAX
from arkflow_kernel.metrics import KeyGroupRows
from arkflow_kernel.pieces import cut, size_of
from arkflow_kernel.plan import ChainPlan, EdgeKind, OutletPlan
from arkflow_kernel.protocol import Piece

_ROW_SENT_MAX: Final = ROW_BYTES_MAX - MIB
"""A frame needs room for its header and Arrow's description of the batch beside the row (E3)."""

Targets = npt.NDArray[np.uint16]


class ChainOutlets:
    """All ways out of a chain: batches for a sink are cut, those for an edge are routed too.

    Behind a sink or a side edge no operator judges rows any more: nobody there is to see what the
    gate stamped them with (W8).
    """

    def __init__(self, plan: ChainPlan) -> None:
        last = plan.operators[-1].operator if plan.operators else None
        operator = last or (plan.source.operator if plan.source is not None else plan.chain)
        self._routers = {outlet.output: OutletRouter(outlet, operator) for outlet in plan.outlets}
        self._judged = {each.output for each in plan.outlets if not each.kind.is_side}

    def pieces(
        self, output: OutputId, batch: pa.RecordBatch, counted: dict[OutputId, KeyGroupRows]
    ) -> list[Piece]:
        """What leaves when a batch goes to a sink or to an edge. Raises `ProcessingError`.

        Its rows are added to those that are `counted` by key group.
        """
        if output not in self._judged:
            batch = without_column(batch, ROW_WATERMARK)
        router = self._routers.get(output)
        return (
            list(cut(output, batch, size_of(batch)))
            if router is None
            else router.route(batch, counted)
        )


class OutletRouter:
    """Routes the batches of one edge to its channels (G2). Several threads may call it (T2).

    `operator` is the one whose rows leave here; errors name it. What is remembered between calls
    is the kind of each key column, and whose turn it is: both change in one step each.
    """

    def __init__(self, plan: OutletPlan, operator: str) -> None:
        if not plan.channels:
            raise ValueError(f"edge '{plan.output}' has no channel")
        if plan.kind is EdgeKind.FORWARD and len(plan.channels) > 1:
            raise ValueError(f"forward edge '{plan.output}' has {len(plan.channels)} channels")
        self._plan = plan
        self._operator = operator
        self._outputs = tuple(channel.output for channel in plan.channels)
        self._rows_max = plan.channels[0].batch_rows  # all lead to one operator
        self._compactor = Compactor()
        self._kinds: dict[str, str] = {}
        self._turns = itertools.count()
        self._counts = plan.max_parallelism <= KEY_GROUPS_COUNTED_MAX
        partitioned = plan.kind is EdgeKind.PARTITIONED
        self._owners = owners_of_key_groups(
            len(plan.channels) if partitioned else 1, plan.max_parallelism
        )

    def route(
        self, batch: pa.RecordBatch, counted: dict[OutputId, KeyGroupRows] | None = None
    ) -> list[Piece]:
        """Pieces of the batch, each for one channel (`channel.output`), in order per channel.

        Rows that are divided by key are added to those that are `counted` by key group.
        Raises `ProcessingError` if a key column is missing, cannot be a key, or is of another
        kind than before (text against number), and if a row is larger than a frame may be: then
        nothing of the batch is routed.
        """
        try:
            return [piece for each in self._routed(batch, counted) for piece in self._cut(each)]
        except KeyColumnError as error:
            raise self._failure(str(error)) from error
        except pa.ArrowException as error:  # a layout that Arrow itself cannot take rows of
            raise self._failure(f"{type(error).__name__}: {error}") from error

    def _routed(
        self, batch: pa.RecordBatch, counted: dict[OutputId, KeyGroupRows] | None
    ) -> Iterator[Piece]:
        outputs, kind = self._outputs, self._plan.kind
        parts = self._compactor.parts(batch) if batch.num_rows else iter(())
        if kind is EdgeKind.BROADCAST:
            return (Piece(out, part, size_of(part)) for part in parts for out in outputs)
        if len(outputs) > 1 and kind is not EdgeKind.PARTITIONED:
            return self._in_turn(parts)
        if len(outputs) > 1 and self._plan.key_fields:
            return self._partitioned(batch, parts, counted)
        return (Piece(outputs[0], part, size_of(part)) for part in parts)

    def _in_turn(self, parts: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
        """A batch for each channel in its turn, but never more rows than a batch may have there.

        So one big batch is spread, and a small one is not torn into pieces that cost more to send.
        """
        for part in parts:
            for piece in cut(self._outputs[0], part, size_of(part), self._rows_max):
                turn = next(self._turns) % len(self._outputs)
                yield piece._replace(output=self._outputs[turn])

    def _partitioned(
        self,
        batch: pa.RecordBatch,
        parts: Iterator[pa.RecordBatch],
        counted: dict[OutputId, KeyGroupRows] | None,
    ) -> Iterator[Piece]:
        self._check_kinds(batch)
        groups = key_groups(batch, self._plan.key_fields, self._plan.max_parallelism)
        if counted is not None and self._counts:
            edge, rows = self._plan.output, np.bincount(groups, minlength=len(self._owners))
            counted[edge] = KeyGroupRows(edge, rows).plus(counted.get(edge))
        targets, first = self._owners[groups], 0
        for part in parts:
            yield from self._split(part, targets[first : first + part.num_rows])
            first += part.num_rows

    def _split(self, batch: pa.RecordBatch, targets: Targets) -> Iterator[Piece]:
        """One stable sort, one `take` for all targets, and a slice of it for each.

        From three targets on that costs less than one `take` per target.
        """
        counts = np.bincount(targets, minlength=len(self._outputs)).tolist()
        if max(counts) == batch.num_rows:
            yield Piece(self._outputs[counts.index(batch.num_rows)], batch, size_of(batch))
            return
        grouped = batch.take(np.argsort(targets, kind="stable"))
        whole, first = grouped.get_total_buffer_size(), 0
        for output, count in zip(self._outputs, counts, strict=True):
            if not count:
                continue
            part = self._compactor.compacted(grouped.slice(first, count))
            fits = whole <= SLICE_BYTES_MAX
            yield Piece(output, part, whole * count // batch.num_rows if fits else part.nbytes)
            first += count

    def _cut(self, piece: Piece) -> Iterator[Piece]:
        for each in cut(*piece, self._rows_max):
            if each.size_bytes > _ROW_SENT_MAX and each.batch.num_rows == 1:
                raise self._failure(
                    f"a row of {each.size_bytes} bytes is above the {_ROW_SENT_MAX} bytes that a "
                    "frame can hold; drop or shorten its fields before the edge"
                )
            yield each

    def _check_kinds(self, batch: pa.RecordBatch) -> None:
        """A key column keeps the kind of its first value, or equal keys would part (G3)."""
        for name in self._plan.key_fields:
            column = key_column(batch, name)
            kind = key_kind(column)
            known = kind and self._kinds.setdefault(name, kind)
            if kind != known:
                raise KeyColumnError(
                    f"key field '{name}' is {kind} in this batch ({column.type}) and was {known} "
                    "before; equal keys would go to different places. Bring the field to one "
                    "type in a processor before the edge"
                )

    def _failure(self, cause: str) -> ProcessingError:
        return ProcessingError(
            self._operator, f"edge '{self._plan.output}': {cause}", error_class="OutletError"
        )


def owners_of_key_groups(parallelism: int, max_parallelism: int) -> Targets:
    """The subtask that owns each key group: the inverse of `graph.key_group_range` (G3).

    Raises `ValueError` if there are more subtasks than key groups.
    """
    if parallelism > max_parallelism:
        raise ValueError(f"{parallelism} subtasks cannot share {max_parallelism} key groups")
    firsts = np.arange(parallelism + 1) * max_parallelism // parallelism
    return np.repeat(np.arange(parallelism, dtype=np.uint16), np.diff(firsts))


__all__ = ["ChainOutlets", "OutletRouter", "owners_of_key_groups"]
