"""Runs of keyed values, made and judged apart from the table that they come from (S6, S9, M7)."""

from collections.abc import Sequence as Seq

import pyarrow as pa

from arkflow_kernel.errors import RestoreError
from arkflow_kernel.state.api import Sealed, StateLayout
from arkflow_kernel.state.run_format import (
    FORMAT_VERSION,
    RunOwner,
    knows,
    to_batch,
    unknown_version,
)
from arkflow_kernel.state.run_rows import RunRows
from arkflow_kernel.state.sorted_run import SortedRun, merged


def run_of(sealed: Seq[Sealed], owner: RunOwner) -> pa.RecordBatch | None:
    """One run of all changes, oldest first; None if there are none."""
    runs = [
        SortedRun.of(changes, owner) if isinstance(changes, RunRows) else changes
        for each in sealed
        for changes in each.changes
    ]
    if len(runs) <= 1:
        return runs[0].batch if runs else None
    return to_batch(merged(runs, keep_deleted=True).in_order(), owner)


def merged_run(
    batches: Seq[pa.RecordBatch], owner: RunOwner, *, keep_deleted: bool, wall_ms: int
) -> pa.RecordBatch | None:
    """The newest entry of each key of some runs, oldest first, as one; None if none is left."""
    runs = [SortedRun(batch) for batch in batches]
    rows = merged(runs, keep_deleted=keep_deleted, wall_ms=wall_ms)
    return to_batch(rows.in_order(), owner) if len(rows) else None


def layout_of(owner: RunOwner, types: tuple[pa.DataType, ...]) -> StateLayout:
    """What a snapshot says of a state with this type ledger (S10)."""
    return StateLayout(
        owner.namespace,
        owner.name,
        owner.key_fields,
        tuple(map(str, types)),
        str(owner.value_type),
        FORMAT_VERSION,
    )


def check_fits(layout: StateLayout, owner: RunOwner) -> None:
    """Raise `RestoreError` if a state cannot hold what a snapshot of this layout has."""
    if not knows(layout.format_version):
        version = unknown_version(layout.format_version)
        raise RestoreError(f"operator '{owner.operator}': {version}")
    if layout.key_fields != owner.key_fields:
        raise RestoreError(
            f"operator '{owner.operator}': its state '{owner.name}' has keys of "
            f"{', '.join(layout.key_fields)}, and the job now keys by "
            f"{', '.join(owner.key_fields)}; give the operator another id to start without it"
        )
    if layout.value_type != str(owner.value_type):
        raise RestoreError(
            f"operator '{owner.operator}': its state '{owner.name}' has values of type "
            f"{layout.value_type}, and this release keeps {owner.value_type}"
        )


__all__ = ["check_fits", "layout_of", "merged_run", "run_of"]
