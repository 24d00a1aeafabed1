"""The local disk (M1): link(2) of a finished file, and what its errors mean."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from arkflow_kernel.errors import StoreError, UnknownOutcomeError
from arkflow_ray.checkpoint import local_disk

if TYPE_CHECKING:
    from tests.unit.checkpoint.conftest import Store

SLOT = "log/1.json"


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Let a system call fail as a disk or a network file system lets it: `number` is the error,
    `after` whether it was done all the same, `times` how often.
    """

    def arm(name: str, number: int, *, after: bool = False, times: int = 1) -> list[int]:
        real = getattr(os, name)
        hits: list[int] = []

        def call(*args: Any, **kwargs: Any) -> Any:
            if len(hits) >= times:
                return real(*args, **kwargs)
            hits.append(number)
            if after:
                real(*args, **kwargs)
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, name, call)
        return hits

    return arm


def test_a_link_that_was_done_though_it_failed_is_told_as_done(
    local_store: "Store", failing: Callable[..., list[int]]
) -> None:
    """NFS sends a request again whose answer was lost, and finds its own file."""
    files = local_store.files()
    files.create("ready", b"")
    hits = failing("link", errno.EEXIST, after=True)
    assert files.create(SLOT, b"mine")
    assert hits
    assert files.read(SLOT) == b"mine"


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EOPNOTSUPP, "lacks hard links"),
        (errno.EACCES, "give this user the right"),
        (errno.EROFS, "read-only"),
    ],
)
def test_a_link_that_was_not_done_is_a_failure_that_says_what_to_do(
    local_store: "Store", failing: Callable[..., list[int]], number: int, advice: str
) -> None:
    files = local_store.files()
    files.create("ready", b"")
    failing("link", number)
    with pytest.raises(StoreError, match=rf"create log/1\.json: .*{advice}") as failure:
        files.create(SLOT, b"mine")
    assert not isinstance(failure.value, UnknownOutcomeError)
    assert files.read(SLOT) is None
    assert files.create(SLOT, b"mine")


def test_a_file_whose_name_may_not_survive_is_told_as_unknown(
    local_store: "Store", monkeypatch: pytest.MonkeyPatch
) -> None:
    files = local_store.files()
    files.create("log/0.json", b"")

    def broken(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(local_disk, "sync_folder", broken)
        with pytest.raises(UnknownOutcomeError, match="Input/output error"):
            files.create(SLOT, b"mine")
    assert not files.create(SLOT, b"mine")


def test_bytes_are_durable_before_they_have_a_name(
    local_store: "Store", failing: Callable[..., list[int]]
) -> None:
    files, objects = local_store.files(), local_store.objects()
    files.create("ready", b"")
    failing("fsync", errno.EIO)
    with pytest.raises(StoreError, match="Input/output error"):
        files.create(SLOT, b"mine")
    assert files.read(SLOT) is None
    failing("fsync", errno.EIO)
    with pytest.raises(StoreError, match="Input/output error"):
        objects.put("1-a-1.arrow", [b"data"])
    assert files.sizes("objects") == {}


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EAGAIN, errno.ETIMEDOUT])
def test_a_network_file_system_that_stumbles_is_asked_again(
    local_store: "Store", failing: Callable[..., list[int]], number: int
) -> None:
    """M4."""
    objects = local_store.objects()
    hits = failing("fsync", number, times=2)
    ref = objects.put("1-a-1.arrow", [b"data"])
    assert len(hits) == 2
    assert objects.read(ref).to_pybytes() == b"data"


def test_a_file_of_another_file_system_is_copied(
    local_store: "Store", failing: Callable[..., list[int]], tmp_path: Path
) -> None:
    objects = local_store.objects()
    path = tmp_path / "elsewhere"
    path.write_bytes(b"data")
    failing("link", errno.EXDEV)
    ref = objects.put_file("1-a-1.sink", path)
    assert not path.exists()
    assert objects.read(ref).to_pybytes() == b"data"


def test_a_root_that_is_a_file_is_told(local_store: "Store", tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file")
    files = local_store.files()
    for call in (lambda: files.read(SLOT), lambda: files.create(SLOT, b"")):
        with pytest.raises(StoreError, match="a file stands where a folder has to be"):
            call()
