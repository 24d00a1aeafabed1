"""Fixtures for outputs: a file sink over a temporary folder, and readers of what it published."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from arkflow_kernel.checkpoint_ports import ObjectStore, Staging
from arkflow_kernel.errors import CorruptObjectError, StoreError
from arkflow_kernel.ids import Generation
from arkflow_kernel.snapshot import ObjectRef
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.outputs.epoch_file import EpochFileSink
from arkflow_ray.components.outputs.file import FileSink, build
from arkflow_ray.components.outputs.file_config import FileOutputConfig
from tests.servers.s3_server import s3_proxy, s3_root, s3_server

__all__ = ["s3_proxy", "s3_root", "s3_server"]

OpenSink = Callable[..., FileSink]


class Mortal:
    """Lets system calls pass until the last one, and none after it: the process is gone."""

    CALLS = ("open", "write", "fsync", "link", "rename", "unlink")

    class Died(BaseException):
        """It makes no further system call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, calls_left: int) -> None:
        self.left = calls_left
        for name in self.CALLS:
            monkeypatch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **given: Any) -> Any:
            if self.left == 0:
                raise self.Died
            self.left -= 1
            return real(*args, **given)

        return call


@pytest.fixture
def mortal() -> type[Mortal]:
    """See `Mortal`."""
    return Mortal


class SmallStore:
    """An `ObjectStore` of a folder, as simple as one can be.

    `links`: whether objects can be seen as files. `fail_at`: which `put_file` fails next, from 1.
    """

    def __init__(self, root: Path, *, links: bool = True) -> None:
        self._objects = root / "objects"
        self._spool = root / "spool"
        self._links = links
        self.fail_at = 0
        for folder in (self._objects, self._spool):
            folder.mkdir(parents=True, exist_ok=True)

    def put(self, name: str, parts: Sequence[pa.Buffer | bytes]) -> ObjectRef:
        path = self._spool / name
        path.write_bytes(b"".join(bytes(part) for part in parts))
        return self.put_file(name, path)

    def put_file(self, name: str, path: Path) -> ObjectRef:
        self.fail_at -= 1
        if self.fail_at == 0:
            raise StoreError("the store is away")
        with path.open("rb") as file:
            os.fsync(file.fileno())
        os.link(path, self._objects / name)
        path.unlink()
        data = (self._objects / name).read_bytes()
        return ObjectRef(name, len(data), hashlib.sha256(data).hexdigest())

    def read(self, ref: ObjectRef, offset: int = 0, length: int | None = None) -> pa.Buffer:
        path = self._objects / ref.name
        if not path.exists() or path.stat().st_size != ref.size:
            raise CorruptObjectError(f"object '{ref.name}' is missing or damaged")
        end = ref.size if length is None else offset + length
        return pa.py_buffer(path.read_bytes()[offset:end])

    def local_path(self, name: str) -> Path | None:
        return self._objects / name if self._links else None

    def is_copy(self, ref: ObjectRef, path: Path) -> bool:
        data = path.read_bytes()
        return len(data) == ref.size and hashlib.sha256(data).hexdigest() == ref.checksum

    @property
    def spool(self) -> Path:
        return self._spool

    def names(self) -> list[str]:
        """Of all objects."""
        return sorted(entry.name for entry in self._objects.iterdir())


def epoch_sink(
    folder: Path, objects: ObjectStore, generation: int = 1, lane: int = 0, **config: Any
) -> EpochFileSink:
    """An exactly-once sink of operator `sink` in job `job`, not opened."""
    given = {"format": "json", **config, "path": str(folder)}
    staging = Staging(objects, Generation(generation), lane, f"{generation:010d}-c-0-sink")
    context = BuildContext(operator="sink", staging=staging, job="job")
    sink = build(FileOutputConfig.model_validate(given), context)
    assert isinstance(sink, EpochFileSink)
    return sink


@pytest.fixture
def make_epoch_sink() -> Callable[..., EpochFileSink]:
    """See `epoch_sink`."""
    return epoch_sink


@pytest.fixture
def small_store() -> type[SmallStore]:
    """See `SmallStore`."""
    return SmallStore


def _read(part: Path) -> list[dict[str, Any]]:
    if part.suffix == ".parquet":
        return pq.read_table(part).to_pylist()
    if part.suffix == ".arrow":
        return pa.ipc.open_file(str(part)).read_all().to_pylist()
    with pa.input_stream(part, compression="detect") as stream:
        if ".csv" in part.suffixes:
            # The stub knows no Arrow streams.
            return csv.read_csv(stream).to_pylist()  # type: ignore[arg-type]
        return [json.loads(line) for line in stream.read().splitlines()]


@pytest.fixture
def parts() -> Callable[[Path], list[Path]]:
    """What a reader of the folder sees, in the order of the names."""
    return lambda folder: sorted(
        entry for entry in folder.iterdir() if not entry.name.startswith((".", "_"))
    )


@pytest.fixture
def rows(parts: Callable[[Path], list[Path]]) -> Callable[[Path], list[dict[str, Any]]]:
    """Every published row of the folder, in order."""
    return lambda folder: [row for part in parts(folder) for row in _read(part)]


@pytest.fixture
def open_sink() -> Iterator[OpenSink]:
    """Open sinks by configuration; whatever a test leaves open is closed."""
    opened: list[FileSink] = []

    def start(path: object, **config: Any) -> FileSink:
        given = {"format": "json", **config, "path": str(path)}
        sink = build(FileOutputConfig.model_validate(given), BuildContext(operator="sink"))
        assert isinstance(sink, FileSink)
        opened.append(sink)
        sink.open()
        return sink

    yield start
    for sink in opened:
        sink.close()
