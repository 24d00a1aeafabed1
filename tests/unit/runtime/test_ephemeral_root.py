"""The folder for checkpoints of a run without a place of its own (F0)."""

import fcntl
import os
import pathlib
import tempfile

import pytest

from arkflow_kernel.errors import StoreError
from arkflow_ray.runtime.ephemeral_root import LOCK_NAME, PREFIX, EphemeralRoot


@pytest.fixture(autouse=True)
def temporary(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """This node's folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_folder_is_there_for_the_run_and_gone_after_it(temporary: pathlib.Path) -> None:
    root = EphemeralRoot()
    assert root.path.parent == temporary
    assert root.url == f"file://{root.path}"
    assert root.path.stat().st_mode & 0o777 == 0o700
    (root.path / "job").mkdir()
    root.close()
    root.close()
    assert list(temporary.iterdir()) == []


def test_folders_of_drivers_that_are_gone_are_cleared_away_and_no_others(
    temporary: pathlib.Path,
) -> None:
    living = EphemeralRoot()
    left = temporary / f"{PREFIX}left"
    left.mkdir()
    (left / LOCK_NAME).touch()
    unlocked_yet = temporary / f"{PREFIX}new"
    unlocked_yet.mkdir()
    held = temporary / f"{PREFIX}held"
    held.mkdir()
    (held / LOCK_NAME).touch()
    descriptor = os.open(held / LOCK_NAME, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    EphemeralRoot().close()
    os.close(descriptor)
    assert {path.name for path in temporary.iterdir()} == {
        living.path.name,
        unlocked_yet.name,
        held.name,
    }
    living.close()


def test_a_folder_that_cannot_be_made_says_where_and_what_to_do(
    temporary: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "none"))
    with pytest.raises(StoreError, match=r"/none: No such file.*TMPDIR.*object_store_uri"):
        EphemeralRoot()
