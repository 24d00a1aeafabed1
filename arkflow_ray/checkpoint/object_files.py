"""The files of a job's log in a bucket: exclusive by the store, and read back after writing.

A store that confirms what it does not keep is found out here, not at the next restore.
"""

import secrets

from arkflow_ray.checkpoint.bucket import Bucket, Listing
from arkflow_ray.checkpoint.retries import Retrier
from arkflow_ray.checkpoint.roots import checked_path


class BucketFiles:
    """See `LogFiles`. `folder` is the job's, as the bucket's keys begin."""

    def __init__(self, bucket: Bucket, folder: str, retrier: Retrier) -> None:
        self._bucket, self._folder, self._retrier = bucket, folder, retrier

    def sizes(self, folder: str) -> dict[str, int]:
        """See `LogFiles`."""
        return self._list(folder).files

    def folders(self, folder: str) -> tuple[str, ...]:
        """See `LogFiles`."""
        return self._list(folder).folders

    def read(self, path: str) -> bytes | None:
        """See `LogFiles`."""
        key = self._key(path)
        found = self._retrier.run(f"read {path}", lambda: self._bucket.get(key))
        return None if found is None else found.data

    def create(self, path: str, data: bytes) -> bool:
        """See `LogFiles`."""
        key = self._key(path)
        writer = secrets.token_hex(16)
        made = self._retrier.create(
            f"create {path}", lambda: self._bucket.create(key, [memoryview(data)], writer)
        )
        if made and self.read(path) != data:
            raise self._retrier.unknown(
                f"create {path}", "it confirmed the write, and does not have what was written"
            )
        return made

    def copy(self, source: str, target: str) -> None:
        """See `LogFiles`."""
        of, to = self._key(source), self._key(target)
        self._retrier.run(f"copy {source} to {target}", lambda: self._bucket.copy(of, to))

    def delete(self, path: str) -> None:
        """See `LogFiles`."""
        key = self._key(path)
        self._retrier.run(f"delete {path}", lambda: self._bucket.delete(key))

    def pause(self, attempt: int) -> None:
        """See `LogFiles`."""
        self._retrier.pause(attempt)

    def close(self) -> None:
        """See `LogFiles`."""
        self._retrier.close()
        self._bucket.close()

    def _list(self, folder: str) -> Listing:
        key = self._key(folder)
        return self._retrier.run(f"list {folder}", lambda: self._bucket.list(key))

    def _key(self, path: str) -> str:
        return f"{self._folder}/{checked_path(path)}"


__all__ = ["BucketFiles"]
