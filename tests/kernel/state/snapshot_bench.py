"""A chain of counting states that takes snapshots into a store in memory, for tests."""

import hashlib
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

import pyarrow as pa

from arkflow_kernel.errors import CorruptObjectError, StoreError
from arkflow_kernel.ids import ChainId, CheckpointId, Generation, OperatorId
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.snapshot import Epoch, ObjectRef, StateSnapshot
from arkflow_kernel.state.api import StateAddress
from arkflow_kernel.state.memory import MemoryState
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from arkflow_kernel.testing.state_bench import Wall, rows_of_entries

PLAN = ChainPlan(ChainId("counts-0"), None, (), (), ())


class Objects:
    """An `ObjectStore` of bytes. `failures`: how many of the next puts and reads fail."""

    def __init__(self, spool: Path) -> None:
        self.spool = spool
        self.held: dict[str, bytes] = {}
        self.failures = 0
        self.written: list[ObjectRef] = []

    def put(self, name: str, parts: Seq[pa.Buffer | bytes]) -> ObjectRef:
        """Keep the bytes; a name is taken once."""
        self._fail()
        assert name not in self.held
        data = b"".join(bytes(part) for part in parts)
        self.held[name] = data
        self.written.append(ObjectRef(name, len(data), hashlib.sha256(data).hexdigest()))
        return self.written[-1]

    def put_file(self, name: str, path: Path) -> ObjectRef:
        """States are put from memory."""
        raise NotImplementedError

    def read(self, ref: ObjectRef, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """A part of the bytes; the size is proved."""
        self._fail()
        data = self.held.get(ref.name)
        if data is None or len(data) != ref.size:
            raise CorruptObjectError(f"object '{ref.name}' is missing or of another size")
        return pa.py_buffer(data).slice(offset, length)

    def local_path(self, name: str) -> Path | None:
        """They are no files."""
        return None

    def is_copy(self, ref: ObjectRef, path: Path) -> bool:
        """They are no files."""
        return False

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreError("the store is away")


class Taken:
    """What one upload answered, and all objects that were there."""

    def __init__(self, states: tuple[StateSnapshot, ...], objects: tuple[ObjectRef, ...]) -> None:
        self.states = states
        self.objects = objects

    def restored(self, chain: "Chain") -> "Chain":
        """A chain that begins here."""
        chain.states.restore(self.states, self.objects)
        return chain


def uploaded(states: ChainStates, epoch: Epoch, objects: Objects) -> Taken:
    """Upload what was sealed up to a checkpoint, then maintain, as a driver does."""
    snapshots, _ = states.upload(epoch)
    listed = {ref.object for state in snapshots for ref in state.runs}
    known = {ref.name: ref for ref in objects.written}
    taken = Taken(snapshots, tuple(known[name] for name in sorted(listed)))
    states.maintain()
    return taken


class Chain:
    """States of one chain, their journal and the calls that a driver makes."""

    def __init__(
        self,
        objects: Objects | None,
        *,
        generation: int = 1,
        names: tuple[str, ...] = ("count",),
        fields: tuple[str, ...] = ("k",),
        value_type: pa.DataType | None = None,
        ttl_ms: int | None = None,
        max_bytes: int | None = None,
        memory_bytes: int | None = None,
        wall: Wall | None = None,
        spool: Path | None = None,
    ) -> None:
        self.wall = wall or Wall()
        self.objects = objects
        self.generation = Generation(generation)
        self.fields = fields
        self.value_type = value_type or pa.int64()
        self.journal = CommitOnAck(self.wall)
        self.states = ChainStates(PLAN, self.generation, objects, spool)
        self.state = [
            MemoryState(
                StateAddress("default", OperatorId(name), name),
                fields,
                self.value_type,
                self.journal,
                ttl_ms=ttl_ms,
                max_bytes=max_bytes,
                memory_bytes=memory_bytes,
            )
            for name in names
        ]
        for state in self.state:
            self.journal.joined(state)
            self.states.joined(state)

    def batch(self, *columns: Any) -> pa.RecordBatch:
        """A batch of key columns."""
        return pa.RecordBatch.from_arrays([*columns], names=list(self.fields))

    def count(self, *keys: Any, part: int = 0) -> list[int | None]:
        """One item that counts the keys' rows."""
        state = self.state[part]
        columns = [each if isinstance(each, pa.Array) else pa.array(each) for each in keys]
        with self.journal.item():
            return state.increment(state.keys(self.batch(*columns))).to_pylist()

    def put(self, keys: Any, values: Any) -> None:
        """One item that puts."""
        with self.journal.item():
            self.state[0].put(self.state[0].keys(self.batch(keys)), values)

    def delete(self, keys: Any) -> None:
        """One item that deletes."""
        with self.journal.item():
            self.state[0].delete(self.state[0].keys(self.batch(pa.array(keys))))

    def take(self, checkpoint: int) -> Taken:
        """Seal and upload one checkpoint."""
        self.states.seal(CheckpointId(checkpoint))
        return self.upload(checkpoint)

    def upload(self, checkpoint: int) -> Taken:
        """Upload what was sealed up to a checkpoint."""
        assert self.objects is not None
        return uploaded(self.states, Epoch(self.generation, CheckpointId(checkpoint)), self.objects)

    def rows(self, part: int = 0) -> dict[Any, tuple[Any, int]]:
        """Value and deadline of every key."""
        found: dict[Any, tuple[Any, int]] = {}
        for piece in self.state[part].entries():
            for key, value, deadline in rows_of_entries(piece):
                assert repr(key) not in found, "a key stands twice"
                found[repr(key)] = (value, deadline)
        return found

    def held(self, part: int = 0) -> tuple[Any, ...]:
        """Everything that can be told of a state."""
        state = self.state[part]
        return self.rows(part), state.live_keys, state.live_bytes, tuple(map(str, state.types))


__all__ = ["PLAN", "Chain", "Objects", "Taken", "uploaded"]
