"""The objects of a job on a local file system: moved in, never copied where that can be helped."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from arkflow_kernel.errors import StoreError
from arkflow_kernel.snapshot import ObjectRef
from arkflow_ray.checkpoint.checksums import checksum, mapped, views
from arkflow_ray.checkpoint.local_disk import link_new, read_into, sync_file, write_aside
from arkflow_ray.checkpoint.objects import FOLDER, Objects, is_copy
from arkflow_ray.checkpoint.retries import Retrier
from arkflow_ray.checkpoint.spool import Spool


class LocalObjects:
    """See `ObjectStore`. `folder` is the job's."""

    def __init__(self, folder: Path, retrier: Retrier) -> None:
        self._folder, self._retrier = folder / FOLDER, retrier
        self._objects = Objects(retrier.place)
        self._spool = Spool(folder / "spool")

    def put(self, name: str, parts: Sequence[pa.Buffer | bytes]) -> ObjectRef:
        """See `ObjectStore`."""
        self._objects.checked(name)
        data = views(parts)
        ref = ObjectRef(name, sum(part.nbytes for part in data), checksum(data))
        self._retrier.run(f"write object {name}", lambda: self._write(ref, data))
        return ref

    def put_file(self, name: str, path: Path) -> ObjectRef:
        """See `ObjectStore`."""
        self._objects.checked(name)
        return self._retrier.run(f"write object {name}", lambda: self._move(name, path))

    def read(self, ref: ObjectRef, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """See `ObjectStore`."""
        self._objects.checked(ref.name)
        wanted = self._objects.bounds(ref, offset, length)
        data = self._retrier.run(f"read object {ref.name}", lambda: self._read(ref, offset, wanted))
        if wanted == ref.size:
            self._objects.prove(ref, data)
        return data

    def local_path(self, name: str) -> Path | None:
        """See `ObjectStore`."""
        return self._folder / self._objects.checked(name)

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

    def _write(self, ref: ObjectRef, data: Sequence[memoryview]) -> None:
        aside = write_aside(self._spool, data)
        try:
            self._link(ref, aside)
        finally:
            aside.unlink(missing_ok=True)

    def _move(self, name: str, path: Path) -> ObjectRef:
        sync_file(path)
        data = mapped(path)
        ref = ObjectRef(name, data.nbytes, checksum([data]))
        try:
            self._link(ref, path)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM):
                raise
            self._write(ref, [data])  # another file system, or a file of another user
        path.unlink(missing_ok=True)
        return ref

    def _link(self, ref: ObjectRef, source: Path) -> None:
        """Give the finished file its name. A try before may have done it: then it is the same."""
        target = self._folder / ref.name
        if os.stat(source).st_size != ref.size:
            raise StoreError(
                f"checkpoint store {self._retrier.place}: object {ref.name} was cut short while "
                "it was written; check the disk"
            )
        if not link_new(source, target) and not is_copy(ref, target):
            raise self._objects.taken(ref.name)

    def _read(self, ref: ObjectRef, offset: int, wanted: int) -> pa.Buffer:
        try:
            descriptor = os.open(self._folder / ref.name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise self._objects.corrupt(ref, "it is missing") from None
        try:
            self._objects.prove_size(ref, os.fstat(descriptor).st_size)
            buffer = pa.allocate_buffer(wanted)
            if read_into(descriptor, memoryview(buffer), offset) != wanted:
                raise self._objects.corrupt(ref, "it became shorter while it was read")
            return buffer
        finally:
            os.close(descriptor)


__all__ = ["LocalObjects"]
