"""Savepoints as files: written whole, found, read, and their objects brought into a job (X4, M6).

A savepoint is `record.json` and `objects/` in a folder of its own: below the job's `savepoints/`
under its name, or anywhere else under a URL. Its record is created last, so a folder without one is
no savepoint.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from arkflow_kernel.checkpoint_ports import LogFiles
from arkflow_kernel.errors import RestoreError, StoreError
from arkflow_kernel.ids import Generation
from arkflow_kernel.job_record import CheckpointEntry, Unreadable, decode, encode
from arkflow_kernel.slot_log import write_once
from arkflow_kernel.snapshot import ChainSnapshot

SAVEPOINT_FOLDER: Final = "savepoints"
OBJECT_FOLDER: Final = "objects"
RECORD_NAME: Final = "record.json"

OpenFiles = Callable[[str], LogFiles]
"""The files below a URL: those of a savepoint that lies outside of the job's folder."""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A savepoint that was read. `name` is how users know it; `prefix` is its folder in `files`."""

    name: str
    entry: CheckpointEntry
    files: LogFiles
    prefix: str

    def missing(self) -> str | None:
        """Which of its objects is not there as it was written, or None."""
        sizes = self.files.sizes(f"{self.prefix}{OBJECT_FOLDER}")
        return missing_object(self.entry.objects, sizes)


def missing_object(listed: dict[str, int], sizes: dict[str, int]) -> str | None:
    """Which listed object is not there with its size, or None (M2)."""
    for name, size in listed.items():
        if name not in sizes:
            return f"its object {name} is missing"
        if sizes[name] != size:
            return f"its object {name} has {sizes[name]} bytes instead of {size}"
    return None


class SavepointFiles:
    """The savepoints of one job, and those that a user names by URL."""

    def __init__(self, files: LogFiles, open_files: OpenFiles | None) -> None:
        self._files = files
        self._open_files = open_files

    def names(self) -> tuple[str, ...]:
        """The folders of the job's savepoints, whole or not."""
        return self._files.folders(SAVEPOINT_FOLDER)

    def read(self, where: str) -> Savepoint:
        """A savepoint by its name in the job's folder, or by URL. Raises `RestoreError`."""
        files, prefix = self._place(where)
        data = files.read(f"{prefix}{RECORD_NAME}")
        if data is None:
            raise RestoreError(
                f"there is no savepoint '{where}': its {RECORD_NAME} is missing; `arkflow-ray "
                "checkpoints` lists the savepoints of a job"
            )
        entry = decode(data)
        if isinstance(entry, CheckpointEntry):
            return Savepoint(where, entry, files, prefix)
        why = entry.why if isinstance(entry, Unreadable) else "it is a claim, not a savepoint"
        raise RestoreError(
            f"savepoint '{where}' cannot be read ({RECORD_NAME}): {why}; choose another one"
        )

    def newest(self) -> Savepoint | None:
        """The newest whole savepoint of the job's folder. Raises `RestoreError` if one is broken:
        it might be the newest.
        """
        found = []
        for name in self.names():
            path = f"{SAVEPOINT_FOLDER}/{name}/{RECORD_NAME}"
            if self._files.read(path) is not None:
                found.append(self.read(name))
        return max(
            found,
            key=lambda s: (s.entry.record.generation, s.entry.record.checkpoint),
            default=None,
        )

    def write(self, name: str, entry: CheckpointEntry) -> None:
        """Copy every object that a record lists, then create the record. Raises `StoreError`."""
        prefix = f"{SAVEPOINT_FOLDER}/{name}/"
        data = encode(entry)
        path = f"{prefix}{RECORD_NAME}"
        there = self._files.read(path)
        if there is None:
            for each in entry.objects:
                target = f"{prefix}{OBJECT_FOLDER}/{each}"
                self._files.copy(f"{OBJECT_FOLDER}/{each}", target)
            taken = write_once(self._files, path, data)
            there = data if taken is None else taken.data
        if there != data and not _same_round(there, entry):
            raise StoreError(f"there is a savepoint '{name}' already; choose another name")

    def bring_in(self, savepoint: Savepoint, generation: Generation) -> None:
        """Copy a savepoint's objects among those of the job, under names of their own.

        The names carry the generation that chose the savepoint, so no job's object is ever met.
        Raises `StoreError`, or `RestoreError` for an object that is gone.
        """
        there = self._files.sizes(OBJECT_FOLDER)
        for name, size in savepoint.entry.objects.items():
            own = brought_name(generation, name)
            if there.get(own) == size:
                continue
            source, target = f"{savepoint.prefix}{OBJECT_FOLDER}/{name}", f"{OBJECT_FOLDER}/{own}"
            if savepoint.files is self._files:
                self._files.copy(source, target)
                continue
            data = savepoint.files.read(source)
            if data is None or len(data) != size:
                raise RestoreError(
                    f"savepoint '{savepoint.name}' cannot be restored: its object {name} is not "
                    "there as it was written"
                )
            write_once(self._files, target, data)

    def _place(self, where: str) -> tuple[LogFiles, str]:
        if "/" not in where and ":" not in where:
            return self._files, f"{SAVEPOINT_FOLDER}/{where}/"
        if "@" in where.partition("://")[2].partition("/")[0]:
            raise RestoreError(
                "the URL of a savepoint must not hold credentials: leave out what stands before "
                "its '@', and configure them for the store"
            )
        if self._open_files is None:
            raise RestoreError(
                f"savepoint '{where}' is a URL, and only savepoints in the job's own folder can be "
                "read here: give its name"
            )
        return self._open_files(where), ""


def brought_name(generation: Generation, name: str) -> str:
    """What an object of a savepoint is called in a job that starts from it."""
    return f"{generation}-savepoint.{name}"


def with_brought_objects(
    chains: tuple[ChainSnapshot, ...], generation: Generation
) -> tuple[ChainSnapshot, ...]:
    """The same chains with the names that `bring_in` gives."""
    return tuple(_renamed(chain, generation) for chain in chains)


def _renamed(chain: ChainSnapshot, generation: Generation) -> ChainSnapshot:
    return replace(
        chain,
        objects=tuple(
            replace(ref, name=brought_name(generation, ref.name)) for ref in chain.objects
        ),
        states=tuple(
            replace(
                state,
                runs=tuple(
                    replace(run, object=brought_name(generation, run.object)) for run in state.runs
                ),
            )
            for state in chain.states
        ),
        lanes=tuple(replace(lane, tokens=()) for lane in chain.lanes),
    )


def _same_round(data: bytes, entry: CheckpointEntry) -> bool:
    there = decode(data)
    return isinstance(there, CheckpointEntry) and there.record == entry.record


__all__ = [
    "OBJECT_FOLDER",
    "SAVEPOINT_FOLDER",
    "OpenFiles",
    "Savepoint",
    "SavepointFiles",
    "brought_name",
    "missing_object",
    "with_brought_objects",
]
