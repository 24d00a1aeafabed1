"""The outlet of a chain: which rows of a batch go to which channel (G2, G3, E7).

Rows for one channel keep their order. Empty parts are dropped; they never mean anything. What
leaves is plain (`compaction.py`), so its size is what it takes on the wire (H5).
"""

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_kernel.compaction import Compactor
from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.ids import OutputId
from arkflow_kernel.key_encoding import KeyColumnError, key_kind
from arkflow_kernel.key_groups import key_column, key_groups
from arkflow_kernel.limits import SLICE_ROWS_MAX
from arkflow_kernel.plan import EdgeKind, OutletPlan

Targets = npt.NDArray[np.uint16]

Routed = list[tuple[OutputId, pa.RecordBatch]]
"""Batches with the `channel.output` that each leaves by, in order per channel."""


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
        self._compactor = Compactor()
        self._kinds: dict[str, str] = {}
        self._turns = itertools.count()
        self._owners = owners_of_key_groups(len(plan.channels), plan.max_parallelism)

    def route(self, batch: pa.RecordBatch) -> Routed:
        """Rows of the batch per channel; nothing for a batch without rows.

        Raises `ProcessingError` if a key column is missing, cannot be a key, or is of another
        kind than before (text against number): then nothing of the batch is routed.
        """
        if not batch.num_rows:
            return []
        try:
            return self._routed(batch)
        except KeyColumnError as error:
            raise self._failure(str(error)) from error
        except pa.ArrowException as error:  # a layout that Arrow itself cannot take rows of
            raise self._failure(f"{type(error).__name__}: {error}") from error

    def _routed(self, batch: pa.RecordBatch) -> Routed:
        outputs, kind = self._outputs, self._plan.kind
        if kind is EdgeKind.PARTITIONED:
            return self._partitioned(batch)
        if kind is EdgeKind.BROADCAST:
            parts = list(self._compactor.parts(batch))
            return [(output, part) for part in parts for output in outputs]
        if len(outputs) == 1:
            return [(outputs[0], part) for part in self._compactor.parts(batch)]
        return [(outputs[next(self._turns) % len(outputs)], part) for part in self._turn(batch)]

    def _turn(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """What goes to one channel in its turn: a batch, but never more rows than a slice holds.

        So one big batch is spread, and a small one is not torn into pieces that cost more to send.
        """
        for part in self._compactor.parts(batch):
            for start in range(0, part.num_rows, SLICE_ROWS_MAX):
                yield part.slice(start, SLICE_ROWS_MAX)

    def _partitioned(self, batch: pa.RecordBatch) -> Routed:
        outputs, fields = self._outputs, self._plan.key_fields
        if len(outputs) == 1 or not fields:
            return [(outputs[0], part) for part in self._compactor.parts(batch)]
        self._check_kinds(batch)
        groups = key_groups(batch, fields, self._plan.max_parallelism)
        targets, routed, first = self._owners[groups], [], 0
        for part in self._compactor.parts(batch):
            routed += self._split(part, targets[first : first + part.num_rows])
            first += part.num_rows
        return routed

    def _split(self, batch: pa.RecordBatch, targets: Targets) -> Routed:
        """One stable sort, one `take` for all targets, and a slice of it for each.

        From four targets on that is faster than one `take` per target.
        """
        counts = np.bincount(targets, minlength=len(self._outputs)).tolist()
        largest = max(range(len(counts)), key=counts.__getitem__)
        if counts[largest] == batch.num_rows:
            return [(self._outputs[largest], batch)]
        sorted_rows = batch.take(np.argsort(targets, kind="stable"))
        routed, first = [], 0
        for output, count in zip(self._outputs, counts, strict=True):
            if count:
                routed.append((output, self._compactor.compacted(sorted_rows.slice(first, count))))
            first += count
        return routed

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


__all__ = ["OutletRouter", "Routed", "owners_of_key_groups"]
