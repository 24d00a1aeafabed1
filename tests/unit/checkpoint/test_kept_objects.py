"""Runs of states that a process has already are not fetched again (P1, K2)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from arkflow_kernel.errors import CorruptObjectError
from arkflow_ray.checkpoint.kept_objects import CountedObjects, KeptObjects
from arkflow_ray.checkpoint.open import open_kept, open_objects
from arkflow_ray.checkpoint.spool import Spool

NAME = "1-counted-0-1.arrow"
DATA = bytes(range(200))


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[KeptObjects]:
    objects = KeptObjects(Spool(tmp_path / "kept"))
    yield objects
    objects.close()


@pytest.fixture
def root(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


def opened(root: str, kept: KeptObjects | None = None) -> CountedObjects:
    return CountedObjects(open_objects(root, "j"), kept)


def counted(objects: CountedObjects) -> tuple[int, int]:
    return objects.fetched_bytes, objects.reused_bytes


def test_what_a_process_wrote_it_does_not_fetch(root: str, kept: KeptObjects) -> None:
    before = opened(root, kept)
    ref = before.put(NAME, [DATA[:150], DATA[150:]])
    before.close()
    after = opened(root, kept)
    assert after.read(ref, 64, 100).to_pybytes() == DATA[64:164]
    assert after.read(ref).to_pybytes() == DATA
    assert counted(after) == (0, 300)


def test_what_a_process_fetched_it_does_not_fetch_again(root: str, kept: KeptObjects) -> None:
    ref = opened(root).put(NAME, [DATA])
    first, second = opened(root, kept), opened(root, kept)
    assert first.read(ref, 64, 100).to_pybytes() == DATA[64:164]
    assert counted(first) == (100, 0)
    assert second.read(ref, 64, 100).to_pybytes() == DATA[64:164]
    assert second.read(ref, 0, 100).to_pybytes() == DATA[:100]
    assert counted(second) == (100, 100)


def test_without_a_place_to_keep_them_all_bytes_are_fetched(root: str) -> None:
    objects = opened(root)
    ref = objects.put(NAME, [DATA])
    objects.read(ref)
    assert counted(objects) == (200, 0)


def test_what_is_not_a_run_is_neither_kept_nor_counted(root: str, kept: KeptObjects) -> None:
    objects = opened(root, kept)
    ref = objects.put("1-sink-0-1.sink", [DATA])
    assert objects.read(ref).to_pybytes() == DATA
    assert counted(objects) == (0, 0)
    assert kept.find(ref.name, 0, 1) is None


@pytest.mark.parametrize("damage", ["gone", "changed", "shorter"])
def test_a_kept_file_that_is_damaged_is_fetched_again(
    damage: str, root: str, kept: KeptObjects, tmp_path: Path
) -> None:
    objects = opened(root, kept)
    ref = objects.put(NAME, [DATA])
    (path,) = (each for each in (tmp_path / "kept").rglob("own/*") if each.is_file())
    if damage == "gone":
        path.unlink()
    elif damage == "changed":
        path.write_bytes(DATA[::-1])
    else:
        path.write_bytes(DATA[:10])
    assert objects.read(ref, 10, 20).to_pybytes() == DATA[10:30]
    assert counted(objects) == (20, 0)


def test_an_object_of_the_store_that_is_damaged_is_still_told(root: str, tmp_path: Path) -> None:
    objects = opened(root)
    ref = objects.put(NAME, [DATA])
    (tmp_path / "store/j/objects" / NAME).write_bytes(DATA[::-1])
    with pytest.raises(CorruptObjectError):
        objects.read(ref)


def test_beyond_the_bound_what_was_used_the_longest_ago_goes(tmp_path: Path) -> None:
    kept = KeptObjects(Spool(tmp_path / "kept"), most_bytes=500)
    for name in ("a", "b"):
        kept.keep(name, 0, [DATA])
    assert kept.find("a", 0, 200) is not None
    kept.keep("c", 0, [DATA])
    assert kept.find("b", 0, 200) is None
    assert kept.find("a", 0, 200) is not None
    kept.keep("d", 0, [bytes(501)])
    assert kept.find("d", 0, 1) is None
    files = [each for each in (tmp_path / "kept").rglob("own/*") if each.is_file()]
    assert sum(each.stat().st_size for each in files) <= 500
    kept.close()


def test_a_disk_that_takes_nothing_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file where the folder should be")
    kept = KeptObjects(Spool(tmp_path / "kept"))
    kept.keep("a", 0, [DATA])
    assert kept.find("a", 0, 1) is None


def test_runs_are_not_kept_beside_a_store_that_is_a_folder_of_this_machine(root: str) -> None:
    assert open_kept(root, "j") is None
    kept = open_kept("memory://bucket/root", "j")
    assert kept is not None
    kept.close()
