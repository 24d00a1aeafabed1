"""Entries of a state for whoever reads all of them, in pieces of the ledger's types (S10)."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from arkflow_kernel.limits import SLICE_ROWS_MAX
from arkflow_kernel.state.api import StateEntries
from arkflow_kernel.state.key_form import inexact, restored
from arkflow_kernel.state.run_rows import RunRows


def in_pieces(
    rows: RunRows, types: tuple[pa.DataType, ...], value_type: pa.DataType
) -> Iterator[StateEntries]:
    """Live entries by key group, at most `SLICE_ROWS_MAX` in one piece.

    Integers that a column of Float64 cannot hold come in pieces of their own, as integers.
    """
    apart = np.zeros(len(rows), np.bool_)
    for part, kind in zip(rows.parts, types, strict=True):
        if pa.types.is_floating(kind):
            apart |= inexact(part.tags, part.words)
    order = np.lexsort((np.arange(len(rows)), apart, rows.groups))
    apart = apart[order]
    cuts = np.flatnonzero(np.diff(apart)) + 1
    for run, wide in zip(np.split(order, cuts), np.split(apart, cuts), strict=True):
        for start in range(0, len(run), SLICE_ROWS_MAX):
            piece = rows.take(run[start : start + SLICE_ROWS_MAX])
            kinds = [pa.int64() if wide[0] and pa.types.is_floating(k) else k for k in types]
            keys = zip(piece.parts, kinds, strict=True)
            yield StateEntries(
                piece.groups,
                tuple(restored(part, kind) for part, kind in keys),
                piece.values.cast(value_type),
                piece.deadlines,
            )


__all__ = ["in_pieces"]
