"""Input `file`: its files one after the other, each a split or several with exact positions.

Reading is bounded: memory does not grow with a file. What a file holds is the business of its
split reader (`file_lines`, `file_parquet`); here is the order of the splits (`file_parts`), and
where each continues. A subtask that was assigned splits lists nothing itself (K5).
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from functools import cache
from typing import TYPE_CHECKING, Protocol

from arkflow_kernel.errors import SourceError
from arkflow_kernel.ids import MonotonicMs, SplitId
from arkflow_kernel.ports import (
    NothingYet,
    Position,
    ReadResult,
    ReplayKind,
    SourceBatch,
    SourceEnded,
    Split,
    SplitPosition,
)
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.inputs.file_parts import FilePart, FileParts
from arkflow_ray.components.inputs.file_store import FileStore, file_store

if TYPE_CHECKING:
    from arkflow_ray.components.inputs.file_config import FileInputConfig


class SplitReader(Protocol):
    """One open file, or a part of it. The last batch has `split_ended`."""

    def read(self) -> SourceBatch | None:
        """The next batch, or None if work is going on that gives none yet. Raises OSError."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class OpenSplit(Protocol):
    """How a file of one format is opened."""

    def __call__(self, store: FileStore, part: FilePart, position: Position) -> SplitReader:
        """Continue at `position`, at the beginning if it is empty. SourceError if impossible."""
        ...


class FileReader:
    """Reads files in the order of their names. Files that were ended when restored stay so.

    `split_bytes`: the size of the ranges that a file is read in; None: each is one split.
    """

    def __init__(
        self,
        operator: str,
        store: FileStore,
        open_split: OpenSplit,
        split_bytes: int | None = None,
    ) -> None:
        self._operator = operator
        self._store = store
        self._open_split = open_split
        self._parts = FileParts(operator, split_bytes)
        self._waiting: list[tuple[FilePart, Position]] = []
        self._current: SplitReader | None = None
        self._split = SplitId("")

    @property
    def replay(self) -> ReplayKind:
        """Files can be read again from any position."""
        return ReplayKind.POSITION

    @property
    def commits(self) -> bool:
        """A file keeps no offsets of its own."""
        return False

    def list_splits(self, restored: Seq[SplitPosition]) -> Seq[Split]:
        """The files, or their ranges, by the order of their names; sizes are bytes.

        SourceError if one with a restored position is gone, or was split otherwise.
        """
        length = cache(self._store.size)  # a store is asked once for each file
        found = self._listed(restored, length)
        return tuple(Split(part.split, part.size(length(part.name))) for part in found)

    def open(self, restored: Seq[SplitPosition], assigned: Seq[SplitId] | None = None) -> None:
        """SourceError if a file with a restored position is gone, or another now."""
        known = {s.split: s for s in restored}
        if assigned is None:
            parts = self._listed(restored, self._store.size)
        else:
            left = (split for split in assigned if split not in known or not known[split].ended)
            parts = [self._parts.of_split(split) for split in left]
        for part in parts:
            place = known.get(part.split)
            if place is None or not place.ended:
                self._waiting.append((part, {} if place is None else place.position))
        for part, position in self._waiting:
            if position:
                self._check_position(part, position)
        self._waiting.reverse()

    def splits(self) -> Seq[SplitId]:
        """What is not read to its end, in the order of reading."""
        return tuple(part.split for part, _ in reversed(self._waiting))

    def read(self, now_ms: MonotonicMs) -> ReadResult:  # noqa: ARG002
        """The next batch of the current file, or the first of the next."""
        if self._current is None and not self._waiting:
            return SourceEnded()
        try:
            current = self._current or self._opened()
            batch = current.read()
        except OSError as error:
            raise self._unreadable(self._split, error) from error
        if batch is None:  # there is something: no file is quiet (W2)
            return NothingYet(quiet=())
        if batch.split_ended:
            self._close_current()
        return batch

    def commit(self, positions: Seq[SplitPosition]) -> None:
        """Never called: `commits` is False."""

    def close(self) -> None:
        """Close the current file."""
        self._close_current()

    def _opened(self) -> SplitReader:
        part, position = self._waiting.pop()
        self._split = part.split
        self._current = self._open_split(self._store, part, position)
        return self._current

    def _check_position(self, part: FilePart, position: Position) -> None:
        """Before anything is read: a job that cannot go on should not look as if it ran."""
        try:
            self._open_split(self._store, part, position).close()
        except OSError as error:
            raise self._unreadable(part.split, error) from error

    def _unreadable(self, split: SplitId, error: OSError) -> SourceError:
        return SourceError(
            f"input '{self._operator}': cannot read '{split}': {error.strerror or error}; the job "
            "can go on from its position once it can"
        )

    def _close_current(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None

    def _listed(
        self, restored: Seq[SplitPosition], length: Callable[[str], int | None]
    ) -> list[FilePart]:
        """All parts of all files, in the order of reading. `length` of a file, in bytes."""
        known, names = {s.split: s for s in restored}, self._store.names()
        self._parts.check_known(names, known)
        parts: list[FilePart] = []
        for name in names:
            bytes_there = length(name) if self._parts.in_ranges else None
            parts += self._parts.of_file(name, bytes_there, known)
        present = {part.split for part in parts}
        gone = sorted(s for s, place in known.items() if not place.ended and s not in present)
        if gone:
            raise SourceError(
                f"input '{self._operator}': '{gone[0]}' is gone, and was read only in part "
                f"({len(gone)} such files); put it back, or start the job without its positions"
            )
        return parts


def build(config: "FileInputConfig", context: BuildContext) -> FileReader:
    """Make the reader of the configured format; its module is imported here."""
    store = file_store(context.operator, config.input_type.path)
    return FileReader(context.operator, store, _format(config, context), config.range_bytes)


def _format(config: "FileInputConfig", context: BuildContext) -> OpenSplit:
    if config.input_type.type == "parquet":
        from arkflow_ray.components.inputs.file_parquet import ParquetFiles

        return ParquetFiles(context.operator, config.batch_rows, context.columns)
    from arkflow_ray.components.inputs.file_lines import LineFiles

    return LineFiles(context.operator, config, context.columns, context.fields)


__all__ = ["FileReader", "OpenSplit", "SplitReader", "build"]
