"""Entries of a state apart from its table, as columns: what a seal gathers and a run holds (S6)."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from arkflow_kernel.state.arrow_numpy import AnyArray, taken
from arkflow_kernel.state.growing import Mask, Slots, Words
from arkflow_kernel.state.key_form import KeyPart, parts_equal, parts_joined
from arkflow_kernel.state.key_rows import KeyRows, key_sizes
from arkflow_kernel.state.key_types import widened
from arkflow_kernel.state.value_columns import encoded_sizes

NEVER = np.int64(2**63 - 1)
"""Deadline of an entry that stays."""


@dataclass(frozen=True, slots=True)
class RunRows:
    """Entries, each key once. `deleted` ones are tombstones; their values are null.

    `types` is the type ledger when they were gathered (S10). `deadlines` are wall-clock
    milliseconds, None without TTL (S7).
    """

    types: tuple[pa.DataType, ...]
    groups: npt.NDArray[np.int32]
    hashes: Words
    parts: tuple[KeyPart, ...]
    values: AnyArray
    deadlines: npt.NDArray[np.int64] | None
    deleted: Mask

    def __len__(self) -> int:
        return len(self.groups)

    def take(self, rows: Slots) -> "RunRows":
        """The entries at these places, in this order."""
        return RunRows(
            self.types,
            self.groups[rows],
            self.hashes[rows],
            tuple(part.take(rows) for part in self.parts),
            taken(self.values, rows),
            None if self.deadlines is None else self.deadlines[rows],
            self.deleted[rows],
        )

    def where(self, mask: Mask) -> "RunRows":
        """The entries that the mask marks."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def in_order(self) -> "RunRows":
        """Sorted by (key group, hash)."""
        return self.take(np.lexsort((self.hashes, self.groups)))

    def keys(self) -> KeyRows:
        """Their keys, one a row."""
        rows = np.arange(len(self))
        sizes = key_sizes(self.parts)
        return KeyRows(rows, rows, self.parts, self.hashes, sizes, self.types)

    def size_bytes(self) -> int:
        """Encoded bytes of keys and values (S4)."""
        return int(key_sizes(self.parts).sum()) + int(encoded_sizes(self.values).sum())


def joined(pieces: Seq[RunRows]) -> RunRows:
    """The entries of all pieces, one after the other; the caller knows that no key stands twice."""
    if len(pieces) == 1:
        return pieces[0]
    timed = any(piece.deadlines is not None for piece in pieces)
    deadlines = [
        np.full(len(piece), NEVER) if piece.deadlines is None else piece.deadlines
        for piece in pieces
    ]
    return RunRows(
        widest([piece.types for piece in pieces]),
        np.concatenate([piece.groups for piece in pieces]),
        np.concatenate([piece.hashes for piece in pieces]),
        tuple(parts_joined(parts) for parts in zip(*(p.parts for p in pieces), strict=True)),
        pa.concat_arrays([piece.values for piece in pieces]),
        np.concatenate(deadlines) if timed else None,
        np.concatenate([piece.deleted for piece in pieces]),
    )


def widest(ledgers: Seq[tuple[pa.DataType, ...]]) -> tuple[pa.DataType, ...]:
    """The ledger that all of these go into. Raises `KeyTypeError` if there is none."""
    types = ledgers[0]
    for ledger in ledgers[1:]:
        types = tuple(widened(known, found) for known, found in zip(types, ledger, strict=True))
    return types


@dataclass(frozen=True, slots=True)
class Wanted:
    """Keys to look for: their groups, hashes and canonical parts."""

    groups: npt.NDArray[np.int32]
    hashes: Words
    parts: tuple[KeyPart, ...]

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, rows: Slots) -> "Wanted":
        """The keys of these numbers."""
        parts = tuple(part.take(rows) for part in self.parts)
        return Wanted(self.groups[rows], self.hashes[rows], parts)

    def equal(self, rows: Slots, others: tuple[KeyPart, ...]) -> Mask:
        """Which of these keys are the ones beside them."""
        same: Mask = np.ones(len(rows), np.bool_)
        for mine, other in zip(self.parts, others, strict=True):
            same &= parts_equal(mine.take(rows), other)
        return same


__all__ = ["NEVER", "RunRows", "Wanted", "joined", "widest"]
