"""Output `file` on fsspec stores: one upload a part, exclusive, and no local file left (X3)."""

import inspect
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec  # type: ignore[import-untyped]  # it ships no types
import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

from arkflow_kernel.errors import SinkError
from arkflow_kernel.ids import MonotonicMs, Sequence
from arkflow_ray.components.outputs import part_store
from arkflow_ray.components.outputs.file import FileSink

OpenSink = Callable[..., FileSink]
NOW = MonotonicMs(0)

ROWS = pa.record_batch({"n": [1, 2]})


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MemoryFileSystem]:
    """An empty memory store, and a private folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    Path(tmp_path, "tmp").mkdir()
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    yield memory
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    assert os.listdir(tmp_path / "tmp") == []


def contents(store: MemoryFileSystem) -> list[list[int]]:
    return [
        [json.loads(line)["n"] for line in store.cat_file(path).splitlines()]
        for path in sorted(store.find("/bucket"))
    ]


def test_a_part_is_uploaded_when_it_rolls_and_then_confirmed(
    store: MemoryFileSystem, open_sink: OpenSink
) -> None:
    sink = open_sink("memory://bucket/out")
    assert sink.write(Sequence(1), ROWS, NOW).confirmed_upto == 0
    assert store.find("/bucket") == []
    assert sink.flush(NOW).confirmed_upto == 1
    assert contents(store) == [[1, 2]]


def test_two_writers_of_a_store_never_overwrite_each_other(
    store: MemoryFileSystem, open_sink: OpenSink
) -> None:
    sinks = [open_sink("memory://bucket/out") for _ in range(2)]
    for sink in sinks:
        sink.write(Sequence(1), ROWS, NOW)
        sink.flush(NOW)
    assert contents(store) == [[1, 2], [1, 2]]


@pytest.mark.skipif(
    "mode" not in inspect.signature(MemoryFileSystem.pipe_file).parameters,
    reason="this fsspec is older than exclusive creation; the check before the upload is all",
)
def test_a_name_that_another_takes_at_the_last_moment_is_left_to_it(
    store: MemoryFileSystem, open_sink: OpenSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = open_sink("memory://bucket/out")
    sink.write(Sequence(1), ROWS, NOW)
    theirs = "/bucket/out/part-0000000001-0000000000-0000000000-0000000001.jsonl"
    store.pipe_file(theirs, b'{"n":9}\n')
    looks = iter([False])  # the check comes too early; creation itself must refuse
    exists = type(store).exists

    def exists_but_first_not(fs: object, path: str, **given: object) -> bool:
        return next(looks, True) and exists(fs, path, **given)

    monkeypatch.setattr(type(store), "exists", exists_but_first_not)
    sink.flush(NOW)
    assert contents(store) == [[9], [1, 2]]


def test_numbers_go_on_in_a_store_that_holds_parts(
    store: MemoryFileSystem, open_sink: OpenSink
) -> None:
    for _ in range(2):
        sink = open_sink("memory://bucket/out")
        sink.write(Sequence(1), ROWS, NOW)
        sink.flush(NOW)
        sink.close()
    assert [path[-16:] for path in sorted(store.find("/bucket"))] == [
        "0000000001.jsonl",
        "0000000002.jsonl",
    ]


def test_closing_without_flush_uploads_nothing(
    store: MemoryFileSystem, open_sink: OpenSink
) -> None:
    sink = open_sink("memory://bucket/out")
    sink.write(Sequence(1), ROWS, NOW)
    sink.close()
    assert store.find("/bucket") == []


def test_a_store_that_refuses_is_a_sink_error_without_the_credentials(
    store: MemoryFileSystem, open_sink: OpenSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = open_sink("memory://user:hunter2@bucket/out")
    sink.write(Sequence(1), ROWS, NOW)

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("503 slow down")

    monkeypatch.setattr(type(store), "pipe_file", refuse)
    with pytest.raises(SinkError, match="cannot upload a part") as failed:
        sink.flush(NOW)
    assert "hunter2" not in str(failed.value)
    assert "503 slow down" in str(failed.value)


def test_a_store_that_cannot_be_listed_fails_at_opening(
    store: MemoryFileSystem, open_sink: OpenSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(type(store), "ls", refuse)
    with pytest.raises(SinkError, match=r"cannot open the folder in .*no route to host; check"):
        open_sink("memory://bucket/out")


class _Ftp(LocalFileSystem):  # type: ignore[misc]  # fsspec ships no types
    """Stands for a store whose upload a reader can see half done."""

    protocol = "halfway"


def test_where_an_upload_is_not_atomic_a_part_is_moved_into_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: list[tuple[str, str]] = []

    class Watched(_Ftp):
        def mv(self, source: str, target: str, **given: object) -> None:
            moves.append((source, target))
            super().mv(source, target, **given)

    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url: (Watched(), url.split("://")[1]))
    folder = part_store.RemoteFolder("sink", f"halfway://{tmp_path}/out", "part-1", ".jsonl")
    folder.open()
    stream = folder.begin()
    stream.write(b'{"n":1}\n')
    assert folder.finish(stream) == "part-1-0000000001.jsonl"
    assert os.listdir(tmp_path / "out") == ["part-1-0000000001.jsonl"]
    ((source, target),) = moves
    assert Path(source).name.startswith(".part-1-0000000001.jsonl-")
    assert Path(target).read_bytes() == b'{"n":1}\n'


@pytest.mark.parametrize(("knows", "given"), [(True, {"mode": "create"}), (False, {})])
def test_exclusive_creation_is_asked_of_clients_that_know_it(
    knows: bool, given: dict[str, str]
) -> None:
    def knowing(local: str, remote: str, mode: str = "overwrite") -> None: ...

    def unknowing(local: str, remote: str) -> None: ...

    assert part_store._exclusive(knowing if knows else unknowing) == given
