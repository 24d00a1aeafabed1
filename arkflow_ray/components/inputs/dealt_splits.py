"""What inputs have in common that make their rows: `splits: n` deals them to n splits (K5).

Split k has the parts k, k + n, k + 2n and so on of all that there is, so the rows of the input as a
whole do not depend on the number of subtasks that share its splits.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, TypeVar

from pydantic import Field

from arkflow_kernel.ids import MonotonicMs, SplitId
from arkflow_kernel.ports import ReadResult, ReplayKind, Split, SplitPosition

SPLITS_MAX: Final = 1_024

SplitCount = Annotated[
    int,
    Field(ge=1, le=SPLITS_MAX, description="Parts that subtasks share; most that can be busy."),
]
"""`splits` of a configuration."""


def split_names(base: str, splits: int) -> tuple[SplitId, ...]:
    """Splits by number. They are other ones with another number of them."""
    if splits == 1:
        return (SplitId(base),)
    return tuple(SplitId(f"{base}-{k}-of-{splits}") for k in range(splits))


def subtasks_max(config: Mapping[str, Any]) -> int | None:
    """As many as there are splits."""
    splits = config.get("splits", 1)
    return splits if isinstance(splits, int) else None


@dataclass(slots=True)
class DealtSplit:
    """One split. `rows`: at most so many in all, None for no end; `made`: so many are behind it."""

    split: SplitId
    number: int
    rows: int | None
    made: int = 0


S = TypeVar("S", bound=DealtSplit)


class DealtReader(ABC, Generic[S]):
    """A `SourceReader` and `SplitLister` of rows that can be made again; `parts` are its splits."""

    def __init__(self, parts: list[S]) -> None:
        self._parts = parts

    @property
    def replay(self) -> ReplayKind:
        """Any row can be made again."""
        return ReplayKind.POSITION

    @property
    def commits(self) -> bool:
        """There is nobody to tell."""
        return False

    def list_splits(self, restored: Seq[SplitPosition]) -> Seq[Split]:
        """All of the configuration; a size is a number of rows."""
        self._check(restored)
        return tuple(Split(p.split, 1 if p.rows is None else p.rows) for p in self._parts)

    def open(self, restored: Seq[SplitPosition], assigned: Seq[SplitId] | None = None) -> None:
        """Continue behind the rows that were made. SourceError for a foreign position."""
        known = self._check(restored)
        if assigned is not None:
            self._parts = [part for part in self._parts if part.split in assigned]
        for part in self._parts:
            part.made = known.get(part.split, 0)

    def splits(self) -> Seq[SplitId]:
        """Those that have something left."""
        return tuple(part.split for part in self._open_parts())

    @abstractmethod
    def read(self, now_ms: MonotonicMs) -> ReadResult:
        """See `SourceReader.read`."""

    def commit(self, positions: Seq[SplitPosition]) -> None:
        """Never called: `commits` is False."""

    def close(self) -> None:
        """Nothing to release."""

    def _open_parts(self) -> list[S]:
        return [part for part in self._parts if not self._ended(part)]

    @abstractmethod
    def _ended(self, part: S) -> bool:
        """Whether nothing is left of a split."""

    @abstractmethod
    def _check(self, restored: Seq[SplitPosition]) -> dict[SplitId, int]:
        """Rows made so far, by split. SourceError for a position of something else."""


__all__ = [
    "SPLITS_MAX",
    "DealtReader",
    "DealtSplit",
    "SplitCount",
    "split_names",
    "subtasks_max",
]
