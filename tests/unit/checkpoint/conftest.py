"""The same tests over every store that runs here: in memory, on the local disk, S3 over HTTP."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

from arkflow_kernel.checkpoint_ports import LogFiles
from arkflow_ray.checkpoint.memory_bucket import MemoryBucket
from arkflow_ray.checkpoint.open import StoreObjects, open_files, open_objects
from arkflow_ray.checkpoint.retries import Patience
from tests.servers.s3_server import S3Root, s3_proxy, s3_root, s3_server

__all__ = ["FAST", "JOB", "Store", "s3_proxy", "s3_root", "s3_server"]

JOB = "orders"
FAST = Patience(tries=4, first_s=0.01, longest_s=0.05, connect_s=5.0, call_s=20.0)


class Meddler(Protocol):
    """Access to what is stored, around the store's own code. Paths are below the job's folder."""

    def replace(self, path: str, data: bytes) -> None:
        """Put other bytes there."""
        ...

    def remove(self, path: str) -> None:
        """Take it away."""
        ...


@dataclass(frozen=True)
class InMemory:
    folder: str

    def replace(self, path: str, data: bytes) -> None:
        MemoryBucket().overwrite(f"{self.folder}/{path}", data)

    def remove(self, path: str) -> None:
        MemoryBucket().delete(f"{self.folder}/{path}")


@dataclass(frozen=True)
class OnDisk:
    folder: Path

    def replace(self, path: str, data: bytes) -> None:
        (self.folder / path).write_bytes(data)

    def remove(self, path: str) -> None:
        (self.folder / path).unlink()


@dataclass(frozen=True)
class InS3:
    s3: S3Root

    def replace(self, path: str, data: bytes) -> None:
        status, _ = self.s3.request("PUT", f"{self.s3.bucket}/checkpoints/{JOB}/{path}", data)
        assert status == 200

    def remove(self, path: str) -> None:
        status, _ = self.s3.request("DELETE", f"{self.s3.bucket}/checkpoints/{JOB}/{path}")
        assert status == 204


@dataclass
class Store:
    """A fresh root, and what is opened in it."""

    root: str
    meddler: Meddler
    opened: list[Any] = field(default_factory=list)

    def files(self, patience: Patience = FAST, job: str = JOB) -> LogFiles:
        """The files of a job; closed by the fixture."""
        files = open_files(self.root, job, patience)
        self.opened.append(files)
        return files

    def objects(self, patience: Patience = FAST, job: str = JOB) -> StoreObjects:
        """The objects of a job; closed by the fixture."""
        objects = open_objects(self.root, job, patience)
        self.opened.append(objects)
        return objects

    def close(self) -> None:
        for opened in self.opened:
            opened.close()


@pytest.fixture(params=["memory", "file", pytest.param("s3", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """One store after the other."""
    if request.param == "s3":
        s3: S3Root = request.getfixturevalue("s3_root")
        store = Store(s3.url, InS3(s3))
    elif request.param == "file":
        store = Store(f"file://{tmp_path}/root", OnDisk(tmp_path / "root" / JOB))
    else:
        name = f"{tmp_path.name}-{id(tmp_path)}"
        store = Store(f"memory://{name}", InMemory(f"{name}/{JOB}"))
    yield store
    store.close()


@pytest.fixture
def local_store(tmp_path: Path) -> Iterator[Store]:
    """A store on the local disk."""
    store = Store(str(tmp_path / "root"), OnDisk(tmp_path / "root" / JOB))
    yield store
    store.close()


@pytest.fixture
def s3_store(s3_root: S3Root) -> Iterator[Store]:
    """A store in S3."""
    store = Store(s3_root.url, InS3(s3_root))
    yield store
    store.close()
