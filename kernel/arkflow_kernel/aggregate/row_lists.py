"""Several encoded rows as one binary: the value of a key that has a list of rows (S8, S11).

4 bytes   how many rows there are, then 4 bytes for the length of each
rows      as `row_codec.py` makes them, one after the other
"""

import numpy as np
import pyarrow as pa

from arkflow_kernel.aggregate.row_codec import memory_of, spread
from arkflow_kernel.state.arrow_numpy import AnyArray, assembled
from arkflow_kernel.state.growing import Slots

_NUMBER = np.dtype("<u4")
_BYTES = _NUMBER.itemsize


def packed(rows: AnyArray, counts: Slots) -> AnyArray:
    """Lists of rows, given all rows in order and how many each list has, at least one."""
    data, starts, sizes = memory_of(rows)
    firsts = np.cumsum(counts) - counts
    heads = np.zeros(len(counts) + len(sizes), _NUMBER)
    own = firsts + np.arange(len(counts))
    heads[own] = counts
    heads[spread(own + 1, counts)] = sizes
    head = _BYTES * (1 + counts)
    body = np.add.reduceat(sizes, firsts) if len(firsts) else sizes
    offsets = np.concatenate(([0], np.cumsum(head + body))).astype(np.int64)
    made = np.empty(int(offsets[-1]), np.uint8)
    made[spread(offsets[:-1], head)] = heads.view(np.uint8)
    made[spread(offsets[:-1] + head, body)] = data[spread(starts, sizes)]
    return assembled(pa.large_binary(), len(counts), [None, offsets, made])


def unpacked(lists: AnyArray) -> tuple[AnyArray, Slots]:
    """The rows of lists, in order, and of which list each is; a null list has none."""
    data, starts, held = memory_of(lists)
    there = np.flatnonzero(held)
    starts = starts[there]
    numbers = data[starts[:, None] + np.arange(_BYTES)].reshape(-1).view(_NUMBER)
    counts = numbers.astype(np.int64)
    sizes = data[spread(starts + _BYTES, _BYTES * counts)].view(_NUMBER).astype(np.int64)
    head = _BYTES * (1 + counts)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    made = data[spread(starts + head, held[there] - head)]
    rows = assembled(pa.large_binary(), len(sizes), [None, offsets, made])
    return rows, np.repeat(there, counts)


__all__ = ["packed", "unpacked"]
