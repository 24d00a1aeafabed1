"""What an input `file` takes for a split: a file, or with `split_bytes` a range of its bytes (K5).

Ranges lie on a grid: of `split_bytes` bytes each, from the file's beginning, whatever its length
and however many subtasks there are. The format says what belongs to a range: a line that begins in
it, a row group that begins in it. So the end of the last range lies behind the end of its file.

A file may grow while it is read, up to the end of the last range that was listed; what lies behind
is listed with the next attempt. When its end was reached it is over, as it is without ranges: what
comes later is not read, also not after a restart.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from arkflow_kernel.errors import SourceError
from arkflow_kernel.ids import SplitId
from arkflow_kernel.ports import SplitPosition

FILE_END_KEY: Final = "file_end"
"""In the position of a range that was read to its end: whether the file ended there."""

_RANGE: Final = re.compile(r"(.*)\[(\d+)-(\d+)\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file, or what begins in its bytes from `start` to before `stop`; None: the whole file."""

    name: str
    start: int = 0
    stop: int | None = None

    @property
    def split(self) -> SplitId:
        """The name of the split."""
        return SplitId(self.name if self.stop is None else f"{self.name}[{self.start}-{self.stop}]")

    def size(self, length: int | None) -> int:
        """Its bytes in a file of this length; 1 if that is not known."""
        if length is None:
            return 1
        return max(0, (length if self.stop is None else min(self.stop, length)) - self.start)


class FileParts:
    """The splits of files. `split_bytes`: the size of their ranges; None: each is one split."""

    def __init__(self, operator: str, split_bytes: int | None) -> None:
        self._operator = operator
        self._split_bytes = split_bytes

    @property
    def in_ranges(self) -> bool:
        """Whether the length of a file says which splits it has."""
        return self._split_bytes is not None

    def of_split(self, split: SplitId) -> FilePart:
        """The part that a split is, by its name. SourceError for one that this input has not."""
        if self._split_bytes is None:
            return FilePart(split)
        found = _RANGE.fullmatch(split)
        if found is not None:
            part = FilePart(found[1], int(found[2]), int(found[3]))
            if part.start % self._split_bytes == 0 and part.stop == part.start + self._split_bytes:
                return part
        raise self.split_otherwise(split)

    def of_file(
        self, name: str, length: int | None, known: Mapping[SplitId, SplitPosition]
    ) -> list[FilePart]:
        """The parts of a file; none behind the place where it was found to end, and was over.

        `length` in bytes, None if it does not matter. An empty file has one part.
        """
        if self._split_bytes is None:
            return [FilePart(name)]
        if length is None:
            raise SourceError(
                f"input '{self._operator}': its store does not say how long '{name}' is, so it "
                "cannot be read in ranges; remove `split_bytes`"
            )
        step, parts = self._split_bytes, list[FilePart]()
        for start in range(0, max(length, 1), step):
            part = FilePart(name, start, start + step)
            parts.append(part)
            place = known.get(part.split)
            if place is not None and place.ended and place.position.get(FILE_END_KEY):
                break
        return parts

    def check_known(self, names: Iterable[str], known: Iterable[SplitId]) -> None:
        """No file that is there was split otherwise. SourceError: its rows would come twice."""
        present = set(names)
        for split in known:
            found = _RANGE.fullmatch(split)
            if self._split_bytes is None:
                if split not in present and found is not None and found[1] in present:
                    raise self.split_otherwise(split)
            elif split in present or (found is not None and found[1] in present):
                self.of_split(split)

    def split_otherwise(self, split: SplitId) -> SourceError:
        """A position is of a range of another size, or of a whole file."""
        return SourceError(
            f"input '{self._operator}': the position of '{split}' was made with another "
            "`split_bytes`; set it back, or start the job without its positions"
        )


__all__ = ["FILE_END_KEY", "FilePart", "FileParts"]
