"""A store in the memory of this process, for tests: gone with the process, not seen by others."""

import threading
from collections.abc import Sequence
from typing import Final

from arkflow_ray.checkpoint.bucket import Listing, Part


class MemoryBucket:
    """See `Bucket`. All of a process share the keys."""

    _keys: Final[dict[str, bytes]] = {}
    _lock: Final = threading.Lock()

    def create(self, key: str, parts: Sequence[memoryview], writer: str) -> bool:  # noqa: ARG002
        """See `Bucket`."""
        data = b"".join(parts)
        with self._lock:
            if key in self._keys:
                return False
            self._keys[key] = data
            return True

    def get(self, key: str, first: int = 0, length: int | None = None) -> Part | None:
        """See `Bucket`."""
        data = self._keys.get(key)
        if data is None:
            return None
        return Part(data[first : None if length is None else first + length], len(data))

    def size(self, key: str) -> int | None:
        """See `Bucket`."""
        data = self._keys.get(key)
        return None if data is None else len(data)

    def list(self, folder: str) -> Listing:
        """See `Bucket`."""
        prefix = f"{folder}/"
        with self._lock:
            below = {
                k[len(prefix) :]: len(v) for k, v in self._keys.items() if k.startswith(prefix)
            }
        files = {name: size for name, size in below.items() if "/" not in name}
        folders = {name.partition("/")[0] for name in below if "/" in name}
        return Listing(files, tuple(sorted(folders)))

    def copy(self, source: str, target: str) -> None:
        """See `Bucket`."""
        with self._lock:
            if source not in self._keys:
                raise FileNotFoundError(source)
            self._keys[target] = self._keys[source]

    def delete(self, key: str) -> None:
        """See `Bucket`."""
        with self._lock:
            self._keys.pop(key, None)

    def close(self) -> None:
        """See `Bucket`."""

    def overwrite(self, key: str, data: bytes) -> None:
        """Put other bytes under a key, as a broken store would. For tests."""
        with self._lock:
            self._keys[key] = data


__all__ = ["MemoryBucket"]
