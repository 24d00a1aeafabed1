"""Stores behind fsspec's own calls (gs, az), shown over fsspec's file system in memory, which takes
the same `mode="create"`.
"""

import inspect
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

from arkflow_kernel.errors import CorruptObjectError, StoreError
from arkflow_ray.checkpoint.bucket_objects import BucketObjects
from arkflow_ray.checkpoint.fsspec_bucket import FsspecBucket
from arkflow_ray.checkpoint.object_files import BucketFiles
from arkflow_ray.checkpoint.probe import probe
from arkflow_ray.checkpoint.retries import Patience, Retrier
from arkflow_ray.checkpoint.spool import Spool

FAST = Patience(tries=2, first_s=0.01, longest_s=0.05)


@pytest.fixture
def folder() -> Iterator[str]:
    name = f"/bucket-{secrets.token_hex(4)}"
    MemoryFileSystem().mkdir(name)
    yield name
    MemoryFileSystem().rm(name, recursive=True)


@pytest.fixture
def bucket() -> FsspecBucket:
    if "mode" not in inspect.signature(MemoryFileSystem.pipe_file).parameters:
        pytest.skip("this fsspec cannot create exclusively: pip install --upgrade fsspec")
    return FsspecBucket(MemoryFileSystem())


def test_files_of_a_log_are_created_once_listed_copied_and_deleted(
    bucket: FsspecBucket, folder: str
) -> None:
    """M1."""
    files = BucketFiles(bucket, folder, Retrier("memory", FAST))
    probe(files, "memory")
    assert files.create("log/1.json", b"first")
    assert not files.create("log/1.json", b"second")
    assert files.read("log/1.json") == b"first"
    assert files.read("log/2.json") is None
    assert files.sizes("log") == {"1.json": 5}
    files.copy("log/1.json", "savepoints/a/1.json")
    assert files.folders("savepoints") == ("a",)
    files.delete("log/1.json")
    files.delete("log/1.json")
    assert files.sizes("log") == {}
    assert files.sizes("nothing") == {}


def test_objects_are_read_whole_in_part_or_not_at_all(
    bucket: FsspecBucket, folder: str, tmp_path: Path
) -> None:
    objects = BucketObjects(bucket, folder, Retrier("memory", FAST), Spool(tmp_path))
    ref = objects.put("1-a-1.arrow", [b"hello ", b"world"])
    empty = objects.put("1-a-2.arrow", [])
    assert objects.put("1-a-1.arrow", [b"hello world"]) == ref
    assert objects.read(ref).to_pybytes() == b"hello world"
    assert objects.read(ref, 6, 3).to_pybytes() == b"wor"
    assert objects.read(ref, 11, 0).to_pybytes() == b""
    assert objects.read(empty).to_pybytes() == b""
    MemoryFileSystem().pipe_file(f"{folder}/objects/1-a-1.arrow", b"hello World")
    with pytest.raises(CorruptObjectError, match="SHA-256"):
        objects.read(ref)
    MemoryFileSystem().rm_file(f"{folder}/objects/1-a-1.arrow")
    with pytest.raises(CorruptObjectError, match="missing"):
        objects.read(ref)


def test_a_client_that_cannot_create_exclusively_is_refused() -> None:
    """M1: it would silently overwrite."""

    class OldClient(LocalFileSystem):  # type: ignore[misc]
        """Before `mode` was there."""

        def pipe_file(self, path: str, value: bytes) -> None:
            raise AssertionError("nothing may be written")

    with pytest.raises(StoreError, match="cannot create a file exclusively"):
        FsspecBucket(OldClient())
