"""What the immutable objects of every store have in common: names, checks, errors (M1, M2)."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from arkflow_kernel.errors import CorruptObjectError, StoreError
from arkflow_kernel.snapshot import ObjectRef
from arkflow_ray.checkpoint.checksums import checksum, mapped

FOLDER: Final = "objects"
"""The folder of a job's objects, below the job's own."""

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,254}")


@dataclass(frozen=True, slots=True)
class Objects:
    """Checks on objects. `place` is the job's URL, which errors show."""

    place: str

    def checked(self, name: str) -> str:
        """A name as it stands. `StoreError` if it cannot be a file's."""
        if not _NAME.fullmatch(name):
            raise StoreError(f"checkpoint store {self.place}: '{name}' cannot be an object's name")
        return name

    def bounds(self, ref: ObjectRef, offset: int, length: int | None) -> int:
        """How many bytes are to be read. `CorruptObjectError` if the object never had them."""
        wanted = ref.size - offset if length is None else length
        if offset < 0 or wanted < 0 or offset + wanted > ref.size:
            raise self.corrupt(
                ref, f"bytes {offset} to {offset + wanted} are asked for, it has {ref.size}"
            )
        return wanted

    def prove(self, ref: ObjectRef, data: pa.Buffer) -> None:
        """`CorruptObjectError` if this is not the whole object as it was written."""
        found = checksum([memoryview(data)])
        if found != ref.checksum:
            raise self.corrupt(ref, f"its SHA-256 is {found}, it was written with {ref.checksum}")

    def prove_size(self, ref: ObjectRef, size: int | None) -> None:
        """`CorruptObjectError` if the object is not there or has another size."""
        if size is None:
            raise self.corrupt(ref, "it is missing")
        if size != ref.size:
            raise self.corrupt(ref, f"it has {size} bytes, {ref.size} were written")

    def corrupt(self, ref: ObjectRef, why: str) -> CorruptObjectError:
        """What is wrong with an object."""
        return CorruptObjectError(
            f"object {ref.name} of the checkpoint store {self.place} is not what was written: "
            f"{why}; restore an older checkpoint or a savepoint, or put the object back"
        )

    def taken(self, name: str) -> StoreError:
        """A name that other bytes have."""
        return StoreError(
            f"checkpoint store {self.place}: object {name} is there with other bytes; names are "
            "never used twice: do two jobs share this root and this name?"
        )


def is_copy(ref: ObjectRef, path: Path) -> bool:
    """Whether a local file holds the bytes of an object. Raises `OSError`."""
    return path.stat().st_size == ref.size and checksum([mapped(path)]) == ref.checksum


__all__ = ["FOLDER", "Objects", "is_copy"]
