"""Runs of states that a process has written or read already: local files, so that the next
generation on the same process does not fetch them again (P1, K2).

Content of an object never changes, so what is kept under its name is good for ever. Kept files are
a convenience: one that is gone or damaged is fetched again, and a disk that takes none is no error.
"""

import threading
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from arkflow_kernel.limits import MIB
from arkflow_kernel.snapshot import ObjectRef
from arkflow_ray.checkpoint.checksums import mapped, views
from arkflow_ray.checkpoint.spool import Spool

if TYPE_CHECKING:
    from arkflow_ray.checkpoint.open import StoreObjects

KEPT_BYTES_MAX: Final = 1024 * MIB
"""Of one process. Beyond it, what was not asked for the longest goes."""

RUNS: Final = ".arrow"
"""Suffix of the objects that hold runs of states; others are read once."""


@dataclass(frozen=True, slots=True)
class _Kept:
    path: Path
    size: int
    crc: int


class KeptObjects:
    """Parts of objects as local files of this process, at most `most_bytes`. Thread-safe."""

    def __init__(self, spool: Spool, most_bytes: int = KEPT_BYTES_MAX) -> None:
        self._spool, self._most_bytes = spool, most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, int, int], _Kept] = OrderedDict()

    def keep(self, name: str, offset: int, parts: Sequence[pa.Buffer | bytes]) -> None:
        """Keep bytes of an object from an offset on."""
        data = views(parts)
        size = sum(part.nbytes for part in data)
        if size > self._most_bytes or self.find(name, offset, size) is not None:
            return
        crc = 0
        for part in data:
            crc = zlib.crc32(part, crc)
        try:
            path = self._spool.temporary()
            with open(path, "wb") as file:
                file.writelines(data)
        except OSError:  # no room, say: it is fetched when it is needed
            return
        with self._lock:
            self._kept[name, offset, size] = _Kept(path, size, crc)
            while sum(each.size for each in self._kept.values()) > self._most_bytes:
                _, oldest = self._kept.popitem(last=False)
                oldest.path.unlink(missing_ok=True)

    def find(self, name: str, offset: int, length: int) -> pa.Buffer | None:
        """These bytes of an object, read where they are used; None if they are not here."""
        with self._lock:
            key = next((each for each in self._kept if _holds(each, name, offset, length)), None)
            if key is None:
                return None
            self._kept.move_to_end(key)
            kept = self._kept[key]
        try:
            data = mapped(kept.path)
        except OSError:
            data = memoryview(b"")
        if data.nbytes != kept.size or zlib.crc32(data) != kept.crc:
            with self._lock:
                self._kept.pop(key, None)
            return None
        return pa.py_buffer(data).slice(offset - key[1], length)

    def close(self) -> None:
        """Remove all files."""
        with self._lock:
            self._kept.clear()
        self._spool.close()


def _holds(key: tuple[str, int, int], name: str, offset: int, length: int) -> bool:
    held, first, size = key
    return held == name and first <= offset and offset + length <= first + size


class CountedObjects:
    """The objects of a job for one chain of one generation: what its states read is counted, and
    found in `kept` if it is there. See `StoreObjects`.

    `fetched_bytes` came out of the store, `reused_bytes` were on this process already.
    """

    def __init__(self, objects: "StoreObjects", kept: KeptObjects | None = None) -> None:
        self._objects, self._kept = objects, kept
        self.fetched_bytes = 0
        self.reused_bytes = 0

    def put(self, name: str, parts: Sequence[pa.Buffer | bytes]) -> ObjectRef:
        """See `ObjectStore`."""
        ref = self._objects.put(name, parts)
        if self._kept is not None and name.endswith(RUNS):
            self._kept.keep(name, 0, parts)
        return ref

    def put_file(self, name: str, path: Path) -> ObjectRef:
        """See `ObjectStore`."""
        return self._objects.put_file(name, path)

    def read(self, ref: ObjectRef, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """See `ObjectStore`."""
        if not ref.name.endswith(RUNS):
            return self._objects.read(ref, offset, length)
        wanted = ref.size - offset if length is None else length
        found = None if self._kept is None else self._kept.find(ref.name, offset, wanted)
        if found is not None:
            self.reused_bytes += wanted
            return found
        data = self._objects.read(ref, offset, length)
        self.fetched_bytes += data.size
        if self._kept is not None:
            self._kept.keep(ref.name, offset, [data])
        return data

    def local_path(self, name: str) -> Path | None:
        """See `ObjectStore`."""
        return self._objects.local_path(name)

    def is_copy(self, ref: ObjectRef, path: Path) -> bool:
        """See `ObjectStore`."""
        return self._objects.is_copy(ref, path)

    @property
    def spool(self) -> Path:
        """See `ObjectStore`."""
        return self._objects.spool

    def close(self) -> None:
        """See `StoreObjects`. What is kept stays."""
        self._objects.close()


__all__ = ["KEPT_BYTES_MAX", "RUNS", "CountedObjects", "KeptObjects"]
