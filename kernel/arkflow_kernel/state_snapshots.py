"""Snapshots of the states of one chain: seals become runs, runs objects (S5, S6, M7).

`seal` is called in the chain's lane, `upload` and `maintain` in its upload lane, meanwhile. What
they share is a queue of seals a state, of frozen entries that nothing changes.
"""

import hashlib
from collections import Counter, deque
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from arkflow_kernel.checkpoint_ports import ObjectStore
from arkflow_kernel.errors import ComponentError, CorruptObjectError, ProtocolError, StoreError
from arkflow_kernel.ids import CheckpointId, Generation
from arkflow_kernel.object_names import object_stem
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.snapshot import Epoch, ObjectRef, RunPart, RunRef, StateSnapshot
from arkflow_kernel.state.api import RunState, Sealed, StateLayout
from arkflow_kernel.state.run_file import (
    RUN_BYTES,
    group_limits,
    limited,
    read_batch,
    written,
)
from arkflow_kernel.state.sorted_run import merge_due

_ALIGNMENT = 64
"""Runs of an object begin at multiples of it, so that Arrow reads them in place."""

_LARGE_ROWS = 2**62
"""More rows than any run has."""

_OBJECT_BYTES = 2 * RUN_BYTES
"""Runs of so many bytes are uploaded before more are made."""


@dataclass(frozen=True, slots=True)
class _Written:
    """A run that is not uploaded yet. It stands for `replaces`, or is the newest if that is ()."""

    run: str
    data: pa.Buffer
    rows: int
    groups: tuple[int, int]
    checksum: str
    replaces: tuple[RunPart, ...] = ()

    def at(self, name: str, offset: int) -> RunRef:
        """Its entry of a snapshot, once it lies in an object."""
        first, last = self.groups
        size = self.data.size
        return RunRef(self.run, name, offset, size, self.rows, self.checksum, first, last)


@dataclass(slots=True)
class _Part:
    """One state: what of it is sealed, written and uploaded. Runs are oldest first.

    `layout` is that of the last seal that is written, or was restored.
    """

    state: RunState
    layout: StateLayout
    shape: str
    sealed: "deque[tuple[CheckpointId, Sealed]]" = field(default_factory=deque)
    making: "deque[Iterator[pa.RecordBatch]]" = field(default_factory=deque)
    written: list[_Written] = field(default_factory=list)
    runs: list[RunRef] = field(default_factory=list)

    def sealed_upto(self, checkpoint: CheckpointId) -> list[Sealed]:
        """What was sealed for this checkpoint and before; later seals stay."""
        found = []
        while self.sealed and self.sealed[0][0] <= checkpoint:
            _, sealed = self.sealed.popleft()
            self.layout = sealed.layout
            if sealed.changes:
                found.append(sealed)
        return found

    def uploaded(self, refs: dict[RunPart, RunRef]) -> None:
        """What was written lies in the store, at these places."""
        for run in self.written:
            places = [n for n, ref in enumerate(self.runs) if ref.part in run.replaces]
            place = places[0] if places else len(self.runs)
            self.runs = [ref for ref in self.runs if ref.part not in run.replaces]
            self.runs.insert(place, refs[run.run, *run.groups])
        self.written = []

    def snapshot(self) -> StateSnapshot:
        """All runs that are uploaded."""
        layout = self.layout
        return StateSnapshot(
            self.state.operator,
            layout.namespace,
            layout.name,
            layout.key_fields,
            layout.key_types,
            layout.value_type,
            tuple(self.runs),
            layout.format_version,
            layout.watermark,
            self.shape,
            layout.low,
        )


def _layout(snapshot: StateSnapshot) -> StateLayout:
    return StateLayout(
        snapshot.namespace,
        snapshot.name,
        snapshot.key_fields,
        snapshot.key_types,
        snapshot.value_type,
        snapshot.format_version,
        snapshot.watermark,
        snapshot.low,
    )


class ChainStates:
    """The states of one chain in checkpoint mode; without `objects` (ack mode) nothing is kept.

    `spool` is a local folder for entries beyond the memory budget; that of `objects` by default.
    Without either all entries stay in memory.
    """

    def __init__(
        self,
        plan: ChainPlan,
        generation: Generation,
        objects: ObjectStore | None,
        spool: Path | None = None,
    ) -> None:
        self._prefix = object_stem(generation, plan.chain)
        self._objects = objects
        self._spool = spool
        self._parts: list[_Part] = []
        kept = {each.operator: each.state for each in plan.operators if each.state is not None}
        self._shapes = {operator: state.shape for operator, state in kept.items()}
        self._refs: dict[str, ObjectRef] = {}
        self._numbers = Counter[str]()
        self._untold: list[ObjectRef] = []
        self._corrupt: CorruptObjectError | None = None

    def joined(self, state: RunState) -> None:
        """A state of the chain, once it is made; before `restore` and the first item."""
        if self._objects is not None:
            state.track()
        if self._objects is not None or self._spool is not None:
            state.spill_to(self._folder, f"{self._prefix}-{len(self._parts)}")
        self._parts.append(_Part(state, state.layout, self._shapes.get(state.operator, "")))

    def _folder(self) -> Path:
        """Where spilled entries go; asked for when the first do."""
        if self._spool is None:
            assert self._objects is not None
            self._spool = self._objects.spool
        return self._spool

    def seal(self, checkpoint: CheckpointId) -> None:
        """Freeze what changed since the last seal, between two items. In the lane; quick."""
        if self._objects is not None:
            for part in self._parts:
                part.sealed.append((checkpoint, part.state.seal()))

    def upload(self, upto: Epoch) -> tuple[tuple[StateSnapshot, ...], tuple[ObjectRef, ...]]:
        """The snapshots of all states as sealed for this checkpoint, and the new objects, if any.

        All new runs go into one object, or several if they are large. After a `StoreError` it may
        be called again, also for a later checkpoint: nothing is lost, and what the store has is not
        uploaded again.
        """
        if self._objects is None:
            return (), ()
        if self._corrupt is not None:
            raise self._corrupt
        for part in self._parts:
            self._write(self._objects, part, upto.checkpoint)
        self._put(self._objects)
        objects, self._untold = tuple(self._untold), []
        listed = {ref.object for part in self._parts for ref in part.runs}
        self._refs = {name: ref for name, ref in self._refs.items() if name in listed}
        return tuple(part.snapshot() for part in self._parts), objects

    def _write(self, objects: ObjectStore, part: _Part, upto: CheckpointId) -> None:
        """Make runs of all changes up to a checkpoint; what an upload failed at goes on first."""
        sealed = part.sealed_upto(upto)
        if sealed:
            part.making.append(part.state.written(sealed))
        while part.making:
            batch = _made(part.making[0])
            if batch is None:
                part.making.popleft()
                continue
            part.written.append(self._run(batch))
            if sum(run.data.size for each in self._parts for run in each.written) >= _OBJECT_BYTES:
                self._put(objects)
                pa.default_memory_pool().release_unused()  # or what is freed counts as used

    def _run(self, batch: pa.RecordBatch, replaces: tuple[RunPart, ...] = ()) -> _Written:
        data = written(batch)
        limits = group_limits(batch)
        run = f"{self._prefix}-{self._number('run')}"
        return _Written(run, data, batch.num_rows, limits, _checksum(data), replaces)

    def _number(self, kind: str) -> int:
        self._numbers[kind] += 1
        return self._numbers[kind]

    def _put(self, objects: ObjectStore) -> None:
        """Upload all written runs as one object, of a name that was never tried before."""
        new = [run for part in self._parts for run in part.written]
        if not new:
            return
        name = f"{self._prefix}-{self._number('object')}.arrow"
        parts: list[pa.Buffer | bytes] = []
        refs: dict[RunPart, RunRef] = {}
        size = 0
        for run in new:
            gap = -size % _ALIGNMENT
            parts += [bytes(gap), run.data] if gap else [run.data]
            refs[run.run, *run.groups] = run.at(name, size + gap)
            size += gap + run.data.size
        ref = objects.put(name, parts)
        self._refs[name] = ref
        for part in self._parts:
            part.uploaded(refs)
        self._untold.append(ref)

    # --- merging (M7) --------------------------------------------------------------------------

    def maintain(self) -> None:
        """Merge runs and rewrite objects that are mostly dead, for the next upload.

        In the upload lane, once an upload has been answered. Reads the store; a store that cannot
        be reached just now only puts it off, and an object that is corrupt fails the next upload.
        """
        objects = self._objects
        if objects is None or any(part.written or part.making for part in self._parts):
            return
        try:
            for part in self._parts:
                self._merge(objects, part)
            self._rewrite(objects)
        except CorruptObjectError as error:
            self._corrupt = error
        except StoreError:  # nothing is lost: the runs stay as they are until the next time
            return

    def _merge(self, objects: ObjectStore, part: _Part) -> None:
        due = merge_due([ref.rows for ref in part.runs])
        if due is not None and _too_large(part, *due):
            self._drop_oldest(objects, part)
            due = _due_beside(part)
        if due is None:
            return
        first, end = due
        runs = part.runs[first:end]
        read = [self._read(objects, ref) for ref in runs]
        oldest, newest = first == 0, end == len(part.runs)
        batch = part.state.merged(read, part.layout, oldest=oldest, newest=newest)
        if batch is None:
            part.runs[first:end] = []
        else:
            part.written.append(self._run(batch, tuple(ref.part for ref in runs)))

    def _drop_oldest(self, objects: ObjectStore, part: _Part) -> None:
        """Of runs that are too large to merge, those go of which nothing is left, oldest first."""
        while part.runs:
            oldest = [self._read(objects, part.runs[0])]
            newest = len(part.runs) == 1
            if part.state.merged(oldest, part.layout, oldest=True, newest=newest) is not None:
                return
            del part.runs[0]

    def _rewrite(self, objects: ObjectStore) -> None:
        """Runs of objects less than half of whose bytes are live go into the next object."""
        live = Counter[str]()
        for _, ref in self._live():
            live[ref.object] += ref.length
        for part, ref in list(self._live()):
            if 2 * live[ref.object] < self._refs[ref.object].size:
                data = self._bytes(objects, ref)
                groups = (ref.first_group, ref.last_group)
                run = _Written(ref.run, data, ref.rows, groups, ref.checksum, (ref.part,))
                part.written.append(run)

    def _live(self) -> Iterator[tuple[_Part, RunRef]]:
        """Runs that the next snapshot lists too."""
        for part in self._parts:
            replaced = {each for run in part.written for each in run.replaces}
            yield from ((part, ref) for ref in part.runs if ref.part not in replaced)

    # --- restoring -----------------------------------------------------------------------------

    def restore(self, snapshots: Seq[StateSnapshot], objects: Seq[ObjectRef] = ()) -> None:
        """Let all states hold what these snapshots say; before the first item.

        `objects` are all that the snapshots list. Raises `CorruptObjectError`, which names the
        object, and `RestoreError` for a format or a state that does not fit (S9). Snapshots of
        states that the chain does not have are ignored: the start has judged them (M6).
        """
        if self._objects is None:
            return
        self._refs = {ref.name: ref for ref in objects}
        for part in self._parts:
            whose = (part.state.operator, part.layout.namespace, part.layout.name)
            mine = [s for s in snapshots if (s.operator, s.namespace, s.name) == whose]
            if not mine:
                continue
            part.runs = [ref for snapshot in mine for ref in snapshot.runs]
            runs = self._reading(self._objects, part)
            self._restore(part, [_layout(snapshot) for snapshot in mine], runs)

    def _restore(
        self, part: _Part, layouts: list[StateLayout], runs: Iterator[pa.RecordBatch]
    ) -> None:
        try:
            part.state.restore(layouts, runs)
        except (pa.ArrowException, ValueError) as error:
            listed = ", ".join(sorted({f"'{ref.object}'" for ref in part.runs}))
            raise CorruptObjectError(
                f"the runs of state '{part.layout.name}' of operator '{part.state.operator}' in "
                f"objects {listed} are none of it: {error}"
            ) from error
        part.layout = part.state.layout

    def _reading(self, objects: ObjectStore, part: _Part) -> Iterator[pa.RecordBatch]:
        """Each run is read once, though after a rescale several slices of it may count."""
        read: dict[str, pa.RecordBatch] = {}
        for number, ref in enumerate(part.runs, 1):
            whole = read.pop(ref.run, None) or self._whole(objects, ref)
            if any(ref.run == other.run for other in part.runs[number:]):
                read[ref.run] = whole
            yield limited(whole, ref.first_group, ref.last_group)

    def _read(self, objects: ObjectStore, ref: RunRef) -> pa.RecordBatch:
        return limited(self._whole(objects, ref), ref.first_group, ref.last_group)

    def _whole(self, objects: ObjectStore, ref: RunRef) -> pa.RecordBatch:
        data = self._bytes(objects, ref)
        try:
            return read_batch(data)
        except (pa.ArrowException, OSError) as error:
            raise CorruptObjectError(
                f"run '{ref.run}' in object '{ref.object}' is no run of a state: {error}"
            ) from error

    def _bytes(self, objects: ObjectStore, ref: RunRef) -> pa.Buffer:
        """A run's bytes, proved. Raises `CorruptObjectError`."""
        if ref.object not in self._refs:
            raise ProtocolError(f"a snapshot lists object '{ref.object}', which it does not have")
        data = objects.read(self._refs[ref.object], ref.offset, ref.length)
        if data.size != ref.length or _checksum(data) != ref.checksum:
            raise CorruptObjectError(
                f"object '{ref.object}' is not what was written: run '{ref.run}', its bytes "
                f"{ref.offset} to {ref.offset + ref.length}, has another checksum"
            )
        return data

    def close(self) -> None:
        """Release what is frozen and written."""
        self._parts, self._refs = [], {}


def _too_large(part: _Part, first: int, end: int) -> bool:
    """Whether some runs are too much to be merged in memory."""
    most = part.state.merge_bytes_max
    return most is not None and sum(ref.length for ref in part.runs[first:end]) > most


def _due_beside(part: _Part) -> tuple[int, int] | None:
    """What is to be merged where all runs together are too large: small ones of about one size."""
    due = merge_due([_LARGE_ROWS, *(ref.rows for ref in part.runs)])
    if due is None or due[0] == 0 or _too_large(part, due[0] - 1, due[1] - 1):
        return None
    return due[0] - 1, due[1] - 1


def _made(making: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    """The next run of a state; None after the last. An iterator that failed would seem to have
    ended, and what it had not made would be missing: so that ends the attempt.
    """
    try:
        return next(making, None)
    except StoreError as error:
        raise ComponentError(f"what was sealed cannot be read again: {error}") from error


def _checksum(data: pa.Buffer) -> str:
    return hashlib.blake2b(memoryview(data), digest_size=16).hexdigest()


__all__ = ["ChainStates"]
