"""`LogFiles` over every store (M1): exclusive, whole, listed, gone when deleted."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from arkflow_kernel.errors import StoreError

if TYPE_CHECKING:
    from tests.unit.checkpoint.conftest import Store

THREADS = 8
SLOTS = 5


def test_a_file_is_created_once_and_then_refused_unchanged(store: "Store") -> None:
    """M1: slots are created exclusively, never rewritten."""
    files = store.files()
    assert files.create("log/1.json", b"first")
    assert not files.create("log/1.json", b"second")
    assert not files.create("log/1.json", b"first")
    assert files.read("log/1.json") == b"first"


def test_of_many_that_create_one_file_at_once_exactly_one_does(store: "Store") -> None:
    """M1. Each has a client of its own; the bytes are the winner's."""
    clients = [store.files() for _ in range(THREADS)]
    for number, client in enumerate(clients):
        assert client.create(f"ready/{number}", b"")  # each has proved the store
    start = threading.Barrier(THREADS)

    def create(number: int, slot: int) -> bool:
        start.wait(30)
        return clients[number].create(f"log/{slot}.json", b"%d" % number * 1000)

    with ThreadPoolExecutor(THREADS) as pool:
        for slot in range(SLOTS):
            made = list(pool.map(create, range(THREADS), [slot] * THREADS))
            assert made.count(True) == 1
            assert clients[0].read(f"log/{slot}.json") == b"%d" % made.index(True) * 1000


def test_what_one_wrote_another_sees_at_once(store: "Store") -> None:
    one, other = store.files(), store.files()
    assert other.read("log/1.json") is None
    assert other.sizes("log") == {}
    one.create("log/1.json", b"abc")
    assert other.read("log/1.json") == b"abc"
    assert other.sizes("log") == {"1.json": 3}
    one.delete("log/1.json")
    assert other.read("log/1.json") is None
    assert other.sizes("log") == {}


def test_a_listing_holds_files_and_folders_directly_below(store: "Store") -> None:
    files = store.files()
    files.create("log/1.json", b"1")
    files.create("log/10.json", b"")
    files.create("savepoints/b/record.json", b"12")
    files.create("savepoints/a/objects/x.arrow", b"123")
    assert files.sizes("log") == {"1.json": 1, "10.json": 0}
    assert files.folders("log") == ()
    assert files.sizes("savepoints") == {}
    assert files.folders("savepoints") == ("a", "b")
    assert files.sizes("nothing") == {}
    assert files.folders("nothing") == ()


def test_jobs_of_one_root_do_not_see_each_other(store: "Store") -> None:
    one, other = store.files(), store.files(job="orders-2")
    assert one.create("log/1.json", b"one")
    assert other.create("log/1.json", b"other")
    one.delete("log/1.json")
    assert other.read("log/1.json") == b"other"


def test_a_copy_is_whole_and_replaces_what_was_there(store: "Store") -> None:
    files = store.files()
    files.create("objects/x.arrow", b"new bytes")
    files.create("savepoints/s/x.arrow", b"old")
    files.copy("objects/x.arrow", "savepoints/s/x.arrow")
    files.copy("objects/x.arrow", "savepoints/t/x.arrow")
    assert files.read("savepoints/s/x.arrow") == b"new bytes"
    assert files.read("savepoints/t/x.arrow") == b"new bytes"
    files.delete("objects/x.arrow")
    assert files.read("savepoints/s/x.arrow") == b"new bytes"
    with pytest.raises(StoreError, match=r"cannot copy objects/x\.arrow"):
        files.copy("objects/x.arrow", "savepoints/t/x.arrow")
    assert files.read("savepoints/t/x.arrow") == b"new bytes"


def test_deleting_what_is_not_there_is_no_error(store: "Store") -> None:
    files = store.files()
    files.delete("log/1.json")
    files.create("log/1.json", b"")
    files.delete("log/1.json")
    files.delete("log/1.json")
    assert files.create("log/1.json", b"again")


@pytest.mark.parametrize("path", ["../other/log/1.json", "/etc/passwd", "log//1.json", "", "log/."])
def test_a_path_cannot_lead_out_of_the_job(store: "Store", path: str) -> None:
    with pytest.raises(StoreError, match="no path below a job's folder"):
        store.files().read(path)


def test_a_pause_ends_when_the_files_are_closed(store: "Store") -> None:
    from arkflow_ray.checkpoint.retries import Patience

    files = store.files(Patience(first_s=3600.0, longest_s=3600.0))
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            files.pause(1)
        except StoreError as error:
            ended.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    files.close()
    waiting.join(30)
    assert not waiting.is_alive()
    assert "closed" in str(ended[0])
    with pytest.raises(StoreError, match="closed"):
        files.pause(1)


def test_nothing_but_the_files_is_left_in_the_job_s_folder(store: "Store") -> None:
    files = store.files()
    files.create("log/1.json", b"x")
    files.create("log/1.json", b"y")
    files.copy("log/1.json", "log/2.json")
    assert files.sizes("probe") == {}
    files.close()
    assert store.files().sizes("spool") == {}
    assert store.files().folders("spool") == ()
    assert store.files().sizes("log") == {"1.json": 1, "2.json": 1}
