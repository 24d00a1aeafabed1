"""Input `file`: its files one after the other, each a split with its own exact position.

Reading is bounded: memory does not grow with a file. What a file holds is the business of its
split reader (`file_lines`, `file_parquet`); here is the order of the files, and where each
continues.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
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
    SplitPosition,
)
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.inputs.file_store import FileStore, file_store

if TYPE_CHECKING:
    from arkflow_ray.components.inputs.file_config import FileInputConfig


class SplitReader(Protocol):
    """One open file. The last batch has `split_ended`."""

    def read(self) -> SourceBatch | None:
        """The next batch, or None if work is going on that gives none yet. Raises OSError."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class OpenSplit(Protocol):
    """How a file of one format is opened."""

    def __call__(self, store: FileStore, split: SplitId, position: Position) -> SplitReader:
        """Continue at `position`, at the beginning if it is empty. SourceError if impossible."""
        ...


class FileReader:
    """Reads files in the order of their names. Files that were ended when restored stay so."""

    def __init__(self, operator: str, store: FileStore, open_split: OpenSplit) -> None:
        self._operator = operator
        self._store = store
        self._open_split = open_split
        self._waiting: list[tuple[SplitId, Position]] = []
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

    def open(self, restored: Seq[SplitPosition]) -> None:
        """List the files. SourceError if one with a restored position is gone, or another now."""
        known = {s.split: s for s in restored}
        present = [SplitId(name) for name in self._store.names()]
        self._check_present(known, present)
        for split in present:
            place = known.get(split)
            if place is None or not place.ended:
                self._waiting.append((split, {} if place is None else place.position))
        for split, position in self._waiting:
            if position:
                self._check_position(split, position)
        self._waiting.reverse()

    def splits(self) -> Seq[SplitId]:
        """Files that are not read to their end, in the order of their names."""
        return tuple(split for split, _ in reversed(self._waiting))

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
        self._split, position = self._waiting.pop()
        self._current = self._open_split(self._store, self._split, position)
        return self._current

    def _check_position(self, split: SplitId, position: Position) -> None:
        """Before anything is read: a job that cannot go on should not look as if it ran."""
        try:
            self._open_split(self._store, split, position).close()
        except OSError as error:
            raise self._unreadable(split, error) from error

    def _unreadable(self, split: SplitId, error: OSError) -> SourceError:
        return SourceError(
            f"input '{self._operator}': cannot read '{split}': {error.strerror or error}; the job "
            "can go on from its position once it can"
        )

    def _close_current(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None

    def _check_present(
        self, known: Mapping[SplitId, SplitPosition], present: list[SplitId]
    ) -> None:
        gone = sorted(s for s, place in known.items() if not place.ended and s not in set(present))
        if gone:
            raise SourceError(
                f"input '{self._operator}': '{gone[0]}' is gone, and was read only in part "
                f"({len(gone)} such files); put it back, or start the job without its positions"
            )


def build(config: "FileInputConfig", context: BuildContext) -> FileReader:
    """Make the reader of the configured format; its module is imported here."""
    store = file_store(context.operator, config.input_type.path)
    return FileReader(context.operator, store, _format(config, context.operator))


def _format(config: "FileInputConfig", operator: str) -> OpenSplit:
    if config.input_type.type == "parquet":
        from arkflow_ray.components.inputs.file_parquet import ParquetFiles

        return ParquetFiles(operator, config.batch_rows)
    from arkflow_ray.components.inputs.file_lines import LineFiles

    return LineFiles(operator, config)


__all__ = ["FileReader", "OpenSplit", "SplitReader", "build"]
