"""The objects of a job in a bucket: uploaded whole, and looked at after every upload (M1)."""

import secrets
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from arkflow_kernel.limits import MIB
from arkflow_kernel.snapshot import ObjectRef
from arkflow_ray.checkpoint.bucket import Bucket
from arkflow_ray.checkpoint.checksums import checksum, mapped, views
from arkflow_ray.checkpoint.objects import FOLDER, Objects, is_copy
from arkflow_ray.checkpoint.retries import Retrier
from arkflow_ray.checkpoint.spool import Spool

READ_BYTES = 64 * MIB
"""Bytes of one request; a larger read is several, each tried again by itself."""


class LostWriteError(ConnectionError):
    """The store confirmed a write and does not have it."""


class BucketObjects:
    """See `ObjectStore`. `folder` is the job's, as the bucket's keys begin; `spool` a local one."""

    def __init__(
        self,
        bucket: Bucket,
        folder: str,
        retrier: Retrier,
        spool: Spool,
        read_bytes: int = READ_BYTES,
    ) -> None:
        self._bucket, self._folder, self._retrier = bucket, f"{folder}/{FOLDER}", retrier
        self._objects = Objects(retrier.place)
        self._spool, self._read_bytes = spool, read_bytes

    def put(self, name: str, parts: Sequence[pa.Buffer | bytes]) -> ObjectRef:
        """See `ObjectStore`."""
        return self._put(name, views(parts))

    def put_file(self, name: str, path: Path) -> ObjectRef:
        """See `ObjectStore`."""
        data = self._retrier.run(f"read {path.name} from the spool folder", lambda: mapped(path))
        ref = self._put(name, (data,))
        path.unlink(missing_ok=True)
        return ref

    def read(self, ref: ObjectRef, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """See `ObjectStore`."""
        wanted = self._objects.bounds(ref, offset, length)
        if wanted <= self._read_bytes:
            data = pa.py_buffer(self._read(ref, offset, wanted))
        else:
            data = pa.allocate_buffer(wanted)
            view = memoryview(data).cast("B")
            for first in range(0, wanted, self._read_bytes):
                size = min(self._read_bytes, wanted - first)
                view[first : first + size] = self._read(ref, offset + first, size)
        if wanted == ref.size:
            self._objects.prove(ref, data)
        return data

    def local_path(self, name: str) -> Path | None:
        """See `ObjectStore`."""
        self._objects.checked(name)
        return None

    def is_copy(self, ref: ObjectRef, path: Path) -> bool:
        """See `ObjectStore`."""
        return is_copy(ref, path)

    @property
    def spool(self) -> Path:
        """See `ObjectStore`."""
        return self._retrier.run("make a spool folder", lambda: self._spool.path)

    def close(self) -> None:
        """See `StoreObjects`."""
        self._retrier.close()
        self._spool.close()
        self._bucket.close()

    def _put(self, name: str, data: tuple[memoryview, ...]) -> ObjectRef:
        key = self._key(name)
        ref = ObjectRef(name, sum(part.nbytes for part in data), checksum(data))

        writer = secrets.token_hex(16)

        def write() -> None:
            made = self._bucket.create(key, data, writer)
            if self._bucket.size(key) != ref.size:
                if made:
                    raise LostWriteError("it confirmed the write, and does not have it")
                raise self._objects.taken(name)
            if not made and not self._is(ref, key):
                raise self._objects.taken(name)

        self._retrier.run(f"write object {name}", write)
        return ref

    def _is(self, ref: ObjectRef, key: str) -> bool:
        """A try before may have done it: then it is the same."""
        ranges = range(0, ref.size, self._read_bytes)
        found = (self._bucket.get(key, first, self._read_bytes) for first in ranges)
        return checksum(memoryview(part.data) for part in found if part) == ref.checksum

    def _read(self, ref: ObjectRef, offset: int, wanted: int) -> bytes:
        key = self._key(ref.name)
        found = self._retrier.run(
            f"read object {ref.name}", lambda: self._bucket.get(key, offset, wanted)
        )
        self._objects.prove_size(ref, None if found is None else found.total)
        data = b"" if found is None else found.data
        if len(data) != wanted:
            raise self._objects.corrupt(ref, f"{len(data)} bytes came instead of {wanted}")
        return data

    def _key(self, name: str) -> str:
        return f"{self._folder}/{self._objects.checked(name)}"


__all__ = ["READ_BYTES", "BucketObjects", "LostWriteError"]
