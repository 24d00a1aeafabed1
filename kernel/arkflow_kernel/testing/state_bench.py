"""A keyed state with its journal and a wall clock, for tests: one call is one lane item."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from arkflow_kernel.ids import OperatorId, WallMs
from arkflow_kernel.state.api import StateAddress, StateEntries
from arkflow_kernel.state.memory import MemoryState
from arkflow_kernel.state_journal import CommitOnAck

ADDRESS = StateAddress("default", OperatorId("op"), "count")
"""The state of an operator `op`."""


@dataclass
class Wall:
    """A wall clock that the test moves."""

    ms: int = 1_000

    def __call__(self) -> WallMs:
        return WallMs(self.ms)


@dataclass
class StateBench:
    """A state, its journal and its clock."""

    fields: tuple[str, ...] = ("k",)
    value_type: pa.DataType = field(default_factory=pa.int64)
    ttl_ms: int | None = None
    max_bytes: int | None = None
    wall: Wall = field(default_factory=Wall)

    def __post_init__(self) -> None:
        self.journal = CommitOnAck(self.wall)
        self.state = MemoryState(
            ADDRESS,
            self.fields,
            self.value_type,
            self.journal,
            ttl_ms=self.ttl_ms,
            max_bytes=self.max_bytes,
        )
        self.journal.joined(self.state)

    def batch(self, *columns: Any) -> pa.RecordBatch:
        """A batch of key columns."""
        return pa.RecordBatch.from_arrays([*columns], names=list(self.fields))

    def put(self, keys: Any, values: Seq[Any]) -> None:
        """One item that puts."""
        with self.journal.item():
            self.state.put(self.state.keys(self.batch(keys)), pa.array(values, self.value_type))

    def get(self, keys: Any) -> list[Any]:
        """Values, and the text "absent" for keys that are not there."""
        with self.journal.item():
            found = self.state.get(self.state.keys(self.batch(keys)))
        values = found.values.to_pylist()
        return [v if p else "absent" for v, p in zip(values, found.present, strict=True)]

    def count(self, keys: Any) -> list[int]:
        """One item that counts rows."""
        with self.journal.item():
            counts = self.state.increment(self.state.keys(self.batch(keys)))
        return [count or 0 for count in counts.to_pylist()]

    def contents(self) -> list[tuple[Any, ...]]:
        """Everything that the state says it holds, bit by bit."""
        held: list[tuple[Any, ...]] = []
        for piece in self.state.entries():
            deadlines = [None] * len(piece.groups) if piece.deadlines is None else piece.deadlines
            columns = [column.to_pylist() for column in (*piece.keys, piece.values)]
            types = [str(column.type) for column in piece.keys]
            for row in zip(piece.groups.tolist(), *columns, list(deadlines), strict=True):
                held.append((*map(repr, row), *types))
        return held

    def rows(self) -> list[tuple[Any, Any, int]]:
        """Key, value and deadline of every entry, of a state with one key field."""
        return [row for piece in self.state.entries() for row in rows_of_entries(piece)]


def rows_of_entries(piece: StateEntries) -> list[tuple[Any, Any, int]]:
    """Key, value and deadline of entries with one key field; 2^62 where there is no TTL."""
    deadlines = [2**62] * len(piece.groups) if piece.deadlines is None else piece.deadlines.tolist()
    keys, values = piece.keys[0].to_pylist(), piece.values.to_pylist()
    if piece.keys[0].type == pa.decimal128(20, 0):  # integers of both signs beyond Int64
        keys = [None if key is None else int(key) for key in keys]
    return list(zip(keys, values, deadlines, strict=True))


__all__ = ["ADDRESS", "StateBench", "Wall", "rows_of_entries"]
