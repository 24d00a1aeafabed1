"""What a driver and its sinks implement for checkpoints: objects, epochs, and the job's log.

Objects are called from a chain's lanes, the log from a thread of the coordinator. Both block, and
retry what is transient by themselves (M4).
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from arkflow_kernel.ids import CheckpointId, Generation, MonotonicMs, Sequence
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.ports import WriteReceipt
from arkflow_kernel.protocol import CommitPermit
from arkflow_kernel.snapshot import (
    CheckpointRecord,
    Claim,
    Epoch,
    ObjectRef,
    RestoreChoice,
    SinkToken,
)


class LogFiles(Protocol):
    """The files of one job below its checkpoint root, as the log's rules use them (M1, M5).

    Paths are relative to `<root>/<job>/`, with `/`. Every method raises `StoreError` if the store
    does not do it after the retries of one call (M4).
    """

    def sizes(self, folder: str) -> dict[str, int]:
        """Names of the files directly in a folder, and their bytes; {} if there is no folder."""
        ...

    def folders(self, folder: str) -> tuple[str, ...]:
        """Names of the folders directly in a folder, sorted; () if there is no such folder."""
        ...

    def read(self, path: str) -> bytes | None:
        """All bytes of a file, None if it is not there."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Create a file exclusively and whole. False: it was there before, unchanged.

        `UnknownOutcomeError` if it may or may not be there now.
        """
        ...

    def copy(self, source: str, target: str) -> None:
        """Copy a file; the target is whole or not there, and replaced if it was."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file; one that is not there is deleted."""
        ...

    def pause(self, attempt: int) -> None:
        """Wait before try number `attempt` (from 1), longer each time; `StoreError` once closed."""
        ...

    def close(self) -> None:
        """Let a `pause` in progress and every later one end with `StoreError`. From any thread."""
        ...


class ObjectStore(Protocol):
    """The immutable objects of one job (M1). Thread-safe.

    Names are unique for ever: `<generation>-<chain>-<n>.<suffix>`. Every method raises `StoreError`
    when the store cannot be reached or refuses, after its own retries.
    """

    def put(self, name: str, parts: Seq[pa.Buffer | bytes]) -> ObjectRef:
        """Write an object of these bytes; when it returns, the object is durable and verified."""
        ...

    def put_file(self, name: str, path: Path) -> ObjectRef:
        """Write an object from a local file, which is gone afterwards: moved where it can be.

        After an error the file is still there; the name may be used up.
        """
        ...

    def read(self, ref: ObjectRef, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """Bytes of an object. `CorruptObjectError` if it is missing or is not what was written.

        A read of the whole object proves its checksum; a read of a part proves the size, and the
        part's own checksum is the caller's to prove.
        """
        ...

    def local_path(self, name: str) -> Path | None:
        """Where the object lies as a local file, or None: then it has to be read."""
        ...

    def is_copy(self, ref: ObjectRef, path: Path) -> bool:
        """Whether a local file holds the bytes that `ref` names, by size and checksum. The object
        itself is not looked at. Raises `OSError` if the file cannot be read.
        """
        ...

    @property
    def spool(self) -> Path:
        """A local folder for files on their way: on the store's own file system where that is
        local. Names in it are the caller's; leftovers of dead processes are the store's to clear.
        """
        ...


class EpochSink(Protocol):
    """An exactly-once sink (X1). `open`, `write`, `roll`, `seal` in its write lane, `stage` in the
    chain's upload lane, `publish` in its publish lane, before `open` too; one call a lane.
    """

    def open(self) -> None:
        """Connect, create folders, probe that publishing will work."""
        ...

    def write(self, sequence: Sequence, batch: pa.RecordBatch, now_ms: MonotonicMs) -> WriteReceipt:
        """Spool a batch into the epoch at work. What the receipt confirms is not looked at."""
        ...

    def roll(self, now_ms: MonotonicMs) -> WriteReceipt:
        """The moment asked for by `roll_at_ms` has come."""
        ...

    def seal(self, epoch: Epoch) -> None:
        """What was written since the seal before is this epoch; what follows is of the next one.
        Quick: staging comes later.
        """
        ...

    def stage(self, upto: Epoch) -> tuple[SinkToken, ...]:
        """Make every sealed epoch up to `upto` durable; the tokens of those that were not before,
        in order. An epoch without rows has none. After a failure it may be called again.
        """
        ...

    def publish(self, token: SinkToken, permit: CommitPermit) -> None:
        """Show the rows of a token to readers. Idempotent; also tokens of earlier processes."""
        ...

    def close(self) -> None:
        """Release everything; what is not staged is discarded. Called once."""
        ...


@dataclass(frozen=True, slots=True)
class Staging:
    """What an exactly-once sink is built with: where it stages, and who it is (X5).

    Its objects are called `<name>-<n>.sink`, n from 1 in each generation. `logged_upto` says which
    checkpoint is the last that the log knew when the generation began: no later one of this job was
    ever published then. It is to be called at the sink's opening; None: it is not known.
    """

    objects: ObjectStore
    generation: Generation
    lane: int
    name: str
    logged_upto: Callable[[], CheckpointId | None] = lambda: None


class CheckpointLog(Protocol):
    """The log of one job, as its coordinator uses it (M1). One call at a time, but `close`."""

    def claim(
        self,
        choice: RestoreChoice,
        unusable: Mapping[CheckpointId, str],
        graph: ExecutionGraph | None = None,
    ) -> Claim:
        """Claim the next generation and decide what it restores. Blocks.

        `unusable`: records that a chain could not restore, and why. `graph`: the plan that is
        claimed from now on, of the same job (K2); None: that of the call before. Raises
        `RestoreError` if the job must not start so, `StoreError` if the store cannot be reached or
        trusted.
        """
        ...

    def append(self, record: CheckpointRecord) -> None:
        """Write a checkpoint record; returns when it is certain that it is there. Blocks as long
        as the store leaves that open. Raises `FencedError` if a later claim was made.
        """
        ...

    def save(self, record: CheckpointRecord) -> str:
        """Write the self-contained copy of a savepoint's record, without tokens; its URL (X4)."""
        ...

    def collect(self) -> None:
        """Drop records beyond the retention, and objects that nothing lists any more (M5)."""
        ...

    def close(self) -> None:
        """Let calls that block end with `StoreError`. From any thread."""
        ...


@dataclass(frozen=True, slots=True)
class JobStore:
    """Where a job in checkpoint mode keeps its log and its objects."""

    log: CheckpointLog
    objects: ObjectStore


__all__ = [
    "CheckpointLog",
    "EpochSink",
    "JobStore",
    "LogFiles",
    "ObjectStore",
    "Staging",
]
