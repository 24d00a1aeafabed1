"""The table of a kept plan: one batch, replaced before each run.

DataFusion plans over a `pyarrow.dataset.Dataset` and asks it for rows each time that the plan
runs. This one answers with whatever batch its slot holds, so a plan that was made once runs over
every batch of the schema. It never filters: pushing filters down is switched off by its user.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds


@dataclass(slots=True)
class BatchSlot:
    """Holds the batch of the run at hand; empty between runs, so no batch outlives its run."""

    batch: pa.RecordBatch | None = None


@dataclass(frozen=True, slots=True)
class _Scan:
    """What DataFusion expects of a scanner: a schema, and the batches of one run."""

    projected_schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...]

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self.batches)


@dataclass(frozen=True, slots=True)
class _Fragment:
    """The only partition. Its scanner is made anew by each run of a plan."""

    slot: BatchSlot

    def scanner(self, schema: pa.Schema, **options: Any) -> _Scan:  # noqa: ARG002
        batch = self.slot.batch
        if batch is None:
            raise RuntimeError("a plan ran without a batch in its slot")
        columns = options.get("columns")
        picked = batch if columns is None else batch.select(columns)
        return _Scan(picked.schema, (picked,))


class SlotDataset(ds.Dataset):
    """A dataset with a schema and one fragment, the slot's batch."""

    def __init__(self, schema: pa.Schema, slot: BatchSlot) -> None:
        self._own_schema = schema
        self._slot = slot

    @property
    def schema(self) -> pa.Schema:
        """The columns, without metadata."""
        return self._own_schema

    def scanner(self, *arguments: Any, **options: Any) -> Any:  # noqa: ARG002
        """The planner's look at a projection: its schema, no rows."""
        if options.get("filter") is not None:
            raise RuntimeError("a filter was pushed down into a batch's table")
        columns = options.get("columns")
        schema = self._own_schema
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        return _Scan(schema, ())

    def get_fragments(self, filter: Any = None) -> Any:  # noqa: ARG002
        """The one fragment."""
        return iter([_Fragment(self._slot)])


__all__ = ["BatchSlot", "SlotDataset"]
