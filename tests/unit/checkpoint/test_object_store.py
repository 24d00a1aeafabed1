"""`ObjectStore` over every store (M1, M2): what is read is what was written, or an error."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from arkflow_kernel.errors import CorruptObjectError, StoreError
from arkflow_kernel.snapshot import ObjectRef

if TYPE_CHECKING:
    from tests.unit.checkpoint.conftest import Store

NAME = "1-count-0-1.arrow"
DATA = bytes(range(256)) * 40


def test_an_object_is_read_as_it_was_written(store: "Store") -> None:
    objects = store.objects()
    ref = objects.put(NAME, [DATA[:7], pa.py_buffer(DATA[7:5000]), b"", DATA[5000:]])
    assert ref == ObjectRef(NAME, len(DATA), hashlib.sha256(DATA).hexdigest())
    assert objects.read(ref).to_pybytes() == DATA
    assert store.objects().read(ref).to_pybytes() == DATA


def test_an_object_may_be_empty(store: "Store") -> None:
    objects = store.objects()
    ref = objects.put(NAME, [])
    assert ref.size == 0
    assert objects.read(ref).to_pybytes() == b""
    store.meddler.remove(f"objects/{NAME}")
    with pytest.raises(CorruptObjectError, match="missing"):
        objects.read(ref)


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 1), (17, 100), (len(DATA) - 3, 3), (9000, None), (5, 0)]
)
def test_a_range_of_an_object_is_read(store: "Store", offset: int, length: int | None) -> None:
    objects = store.objects()
    ref = objects.put(NAME, [DATA])
    end = len(DATA) if length is None else offset + length
    assert objects.read(ref, offset, length).to_pybytes() == DATA[offset:end]


def test_a_range_beyond_the_object_is_corrupt(store: "Store") -> None:
    objects = store.objects()
    ref = objects.put(NAME, [DATA])
    for offset, length in ((0, len(DATA) + 1), (len(DATA), 1), (-1, 4), (len(DATA) + 1, None)):
        with pytest.raises(CorruptObjectError, match=NAME):
            objects.read(ref, offset, length)


def test_a_flipped_bit_is_found_by_a_read_of_the_whole(store: "Store") -> None:
    objects = store.objects()
    ref = objects.put(NAME, [DATA])
    store.meddler.replace(f"objects/{NAME}", bytes([DATA[0] ^ 1]) + DATA[1:])
    with pytest.raises(CorruptObjectError, match=rf"{NAME}.*SHA-256") as failure:
        objects.read(ref)
    assert store.root.partition("://")[2] in str(failure.value)


@pytest.mark.parametrize("size", [0, 1, len(DATA) - 1, len(DATA) + 1])
def test_another_size_is_found_by_every_read(store: "Store", size: int) -> None:
    objects = store.objects()
    ref = objects.put(NAME, [DATA])
    store.meddler.replace(f"objects/{NAME}", (DATA + b"x")[:size])
    for offset, length in ((0, None), (0, 1), (5000, 10), (7, 0)):
        with pytest.raises(CorruptObjectError, match=NAME):
            objects.read(ref, offset, length)


def test_a_missing_object_is_found_by_every_read(store: "Store") -> None:
    objects = store.objects()
    ref = objects.put(NAME, [DATA])
    store.meddler.remove(f"objects/{NAME}")
    for offset, length in ((0, None), (0, 1), (7, 0)):
        with pytest.raises(CorruptObjectError, match=f"{NAME}.*missing"):
            objects.read(ref, offset, length)


def test_the_same_object_may_be_written_again_but_no_other_of_its_name(store: "Store") -> None:
    objects = store.objects()
    ref = objects.put(NAME, [DATA])
    assert objects.put(NAME, [DATA[:9], DATA[9:]]) == ref
    for other in (b"other", DATA[::-1]):
        with pytest.raises(StoreError, match=f"{NAME} is there with other bytes"):
            objects.put(NAME, [other])
    assert objects.read(ref).to_pybytes() == DATA


def test_a_file_of_the_spool_becomes_an_object_and_is_gone(store: "Store") -> None:
    objects = store.objects()
    path = objects.spool / "part"
    path.write_bytes(DATA)
    ref = objects.put_file("1-out-1.sink", path)
    assert ref == ObjectRef("1-out-1.sink", len(DATA), hashlib.sha256(DATA).hexdigest())
    assert not path.exists()
    assert objects.read(ref).to_pybytes() == DATA


def test_a_file_from_elsewhere_becomes_an_object(store: "Store", tmp_path: Path) -> None:
    objects = store.objects()
    empty = tmp_path / "empty"
    empty.touch()
    ref = objects.put_file("1-out-1.sink", empty)
    assert (ref.size, empty.exists()) == (0, False)
    assert objects.read(ref).to_pybytes() == b""


def test_a_file_whose_name_is_taken_stays(store: "Store") -> None:
    objects = store.objects()
    objects.put("1-out-1.sink", [b"other"])
    path = objects.spool / "part"
    path.write_bytes(DATA)
    with pytest.raises(StoreError, match="other bytes"):
        objects.put_file("1-out-1.sink", path)
    assert path.read_bytes() == DATA


def test_a_file_that_is_not_there_is_a_store_error(store: "Store", tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot"):
        store.objects().put_file("1-out-1.sink", tmp_path / "nothing")


def test_an_object_on_the_local_disk_is_a_file_that_can_be_opened(local_store: "Store") -> None:
    objects = local_store.objects()
    ref = objects.put(NAME, [DATA])
    path = objects.local_path(NAME)
    assert path is not None
    assert path.read_bytes() == DATA
    assert objects.is_copy(ref, path)


def test_a_copy_is_told_by_its_bytes(store: "Store", tmp_path: Path) -> None:
    objects = store.objects()
    ref = objects.put(NAME, [DATA])
    copy = tmp_path / "copy"
    for data, same in ((DATA, True), (DATA[::-1], False), (DATA[:-1], False), (b"", False)):
        copy.write_bytes(data)
        assert objects.is_copy(ref, copy) is same
    copy.unlink()
    with pytest.raises(OSError, match="No such file"):
        objects.is_copy(ref, copy)


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "x" * 300])
def test_a_name_that_is_no_file_s_is_refused(store: "Store", name: str) -> None:
    objects = store.objects()
    with pytest.raises(StoreError, match="cannot be an object's name"):
        objects.put(name, [b""])
    with pytest.raises(StoreError, match="cannot be an object's name"):
        objects.read(ObjectRef(name, 0, ""))


def test_objects_are_written_and_read_by_many_threads_at_once(store: "Store") -> None:
    objects = store.objects()

    def there_and_back(number: int) -> bool:
        data = os.urandom(1000 + number)
        ref = objects.put(f"1-count-0-{number}.arrow", [data])
        return objects.read(ref).to_pybytes() == data

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(there_and_back, range(40)))


def test_a_spool_folder_ends_with_its_store(store: "Store") -> None:
    objects = store.objects()
    spool = objects.spool
    (spool / "part").write_bytes(b"x")
    assert spool == objects.spool
    objects.close()
    assert not spool.exists()
    with pytest.raises(StoreError, match="closed"):
        _ = objects.spool
