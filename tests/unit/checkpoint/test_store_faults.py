"""S3 on a bad network: what certainly was not done is tried again, the rest is told as unknown
(M1, M4). What is written is verified, what is read is proved.
"""

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from arkflow_kernel.errors import StoreError, UnknownOutcomeError
from arkflow_ray.checkpoint.retries import Patience
from tests.servers.fault_proxy import Fault
from tests.servers.s3_server import S3Root

if TYPE_CHECKING:
    from tests.unit.checkpoint.conftest import Store

pytestmark = pytest.mark.slow

SLOT = "log/1.json"
KEY = r"/log/1\.json$"
NAME = "1-count-0-1.arrow"
OBJECT = r"/objects/1-count-0-1\.arrow$"
TRIES = 4
"""Of the fixture's patience."""

SHORT = Patience(tries=2, first_s=0.01, longest_s=0.05, connect_s=1.0, call_s=1.0)
ALWAYS = 1000


@pytest.mark.parametrize(
    ("fault", "times", "done"),
    [
        (Fault.NO_REQUEST, 2, False),  # the HTTP client repeats a request once
        (Fault.NO_ANSWER, 2, True),
        (Fault.BROKEN, 1, True),
        (Fault.LOST, 1, False),
    ],
)
def test_a_create_that_may_have_been_done_is_told_as_unknown(
    s3_store: "Store", s3_root: S3Root, fault: Fault, times: int, done: bool
) -> None:
    """M1: and is not tried again: its caller reads first what is there."""
    files = s3_store.files()
    s3_root.proxy.spoil(fault, "PUT", KEY, times)
    with pytest.raises(UnknownOutcomeError, match=r"create log/1\.json"):
        files.create(SLOT, b"mine")
    assert s3_root.proxy.count("PUT", KEY) == times
    assert files.read(SLOT) == (b"mine" if done else None)
    assert files.create(SLOT, b"mine") is not done
    assert files.read(SLOT) == b"mine"


def test_a_create_whose_answer_is_late_is_told_as_unknown(
    s3_store: "Store", s3_root: S3Root
) -> None:
    files = s3_store.files(SHORT)
    files.create("ready", b"")
    s3_root.proxy.spoil(Fault.DELAY, "PUT", KEY)
    with pytest.raises(UnknownOutcomeError, match=r"no answer in time|ReadTimeout"):
        files.create(SLOT, b"mine")
    assert files.read(SLOT) == b"mine"


@pytest.mark.parametrize("fault", [Fault.BUSY, Fault.CONFLICT])
def test_a_create_that_was_not_done_is_tried_again(
    s3_store: "Store", s3_root: S3Root, fault: Fault
) -> None:
    """M4."""
    files = s3_store.files()
    s3_root.proxy.spoil(fault, "PUT", KEY, times=TRIES - 1)
    assert files.create(SLOT, b"mine")
    assert files.read(SLOT) == b"mine"
    assert s3_root.proxy.count("PUT", KEY) == TRIES


@pytest.mark.parametrize(
    ("fault", "code"), [(Fault.BUSY, "SlowDown"), (Fault.CONFLICT, "Conflict")]
)
def test_a_create_that_is_never_done_fails_after_its_tries(
    s3_store: "Store", s3_root: S3Root, fault: Fault, code: str
) -> None:
    files = s3_store.files()
    s3_root.proxy.spoil(fault, "PUT", KEY, times=ALWAYS)
    with pytest.raises(StoreError, match=f"{code}.*tried {TRIES} times") as failure:
        files.create(SLOT, b"mine")
    assert not isinstance(failure.value, UnknownOutcomeError)
    assert s3_root.proxy.count("PUT", KEY) == TRIES
    assert files.read(SLOT) is None


def test_a_file_that_another_created_in_a_conflict_is_told_as_there(
    s3_store: "Store", s3_root: S3Root
) -> None:
    files = s3_store.files()
    s3_store.files().create(SLOT, b"theirs")
    s3_root.proxy.spoil(Fault.CONFLICT, "PUT", KEY)
    assert not files.create(SLOT, b"mine")
    assert files.read(SLOT) == b"theirs"


@pytest.mark.parametrize("fault", [Fault.NO_REQUEST, Fault.NO_ANSWER])
def test_a_create_that_the_http_client_repeats_is_told_as_what_it_is(
    s3_store: "Store", s3_root: S3Root, fault: Fault
) -> None:
    """M1: the second request finds the first one's file, and that it is our own."""
    files, others = s3_store.files(), s3_store.files()
    rule = s3_root.proxy.spoil(fault, "PUT", KEY)
    assert files.create(SLOT, b"the same")
    assert rule.hits == 1
    s3_root.proxy.spoil(fault, "PUT", KEY)
    assert not others.create(SLOT, b"the same")


def test_a_file_of_another_is_told_as_there_by_a_store_that_was_busy(
    s3_store: "Store", s3_root: S3Root
) -> None:
    files = s3_store.files()
    s3_store.files().create(SLOT, b"the same")
    s3_root.proxy.spoil(Fault.BUSY, "PUT", KEY)
    assert not files.create(SLOT, b"the same")


def test_a_refusal_is_told_at_once_with_what_to_do_and_no_secret(
    s3_store: "Store", s3_root: S3Root
) -> None:
    """M8."""
    files = s3_store.files()
    s3_root.proxy.spoil(Fault.DENIED, "PUT", KEY)
    with pytest.raises(StoreError, match=r"AccessDenied.*check the credentials") as failure:
        files.create(SLOT, b"mine")
    assert s3_root.proxy.count("PUT", KEY) == 1
    assert f"{s3_root.url}/orders" in str(failure.value)
    assert s3_root.environment["AWS_SECRET_ACCESS_KEY"] not in str(failure.value)


@pytest.mark.parametrize("fault", [Fault.NO_REQUEST, Fault.NO_ANSWER, Fault.BROKEN, Fault.BUSY])
def test_reads_listings_copies_and_deletions_are_tried_again(
    s3_store: "Store", s3_root: S3Root, fault: Fault
) -> None:
    """M4."""
    files = s3_store.files()
    files.create(SLOT, b"mine")
    s3_root.proxy.spoil(fault, "GET", KEY)
    assert files.read(SLOT) == b"mine"
    s3_root.proxy.spoil(fault, "GET", "list-type=2")
    assert files.sizes("log") == {"1.json": 4}
    s3_root.proxy.spoil(fault, "PUT", r"/savepoints/")
    files.copy(SLOT, "savepoints/a/1.json")
    assert files.read("savepoints/a/1.json") == b"mine"
    rule = s3_root.proxy.spoil(fault, "DELETE", KEY)
    files.delete(SLOT)
    assert rule.hits == 1
    assert files.read(SLOT) is None


def test_an_answer_that_is_cut_off_is_read_again(s3_store: "Store", s3_root: S3Root) -> None:
    files, objects = s3_store.files(), s3_store.objects()
    files.create(SLOT, b"mine" * 1000)
    ref = objects.put(NAME, [b"data" * 1000])
    for_files = s3_root.proxy.spoil(Fault.TORN_ANSWER, "GET", KEY)
    for_objects = s3_root.proxy.spoil(Fault.TORN_ANSWER, "GET", OBJECT, times=2)
    for_listing = s3_root.proxy.spoil(Fault.TORN_ANSWER, "GET", "list-type=2")
    assert files.read(SLOT) == b"mine" * 1000
    assert objects.read(ref).to_pybytes() == b"data" * 1000
    assert objects.read(ref, 4, 8).to_pybytes() == b"data" * 2
    assert files.sizes("log") == {"1.json": 4000}
    assert (for_files.hits, for_objects.hits, for_listing.hits) == (1, 2, 1)


@pytest.mark.parametrize(
    "fault", [Fault.NO_REQUEST, Fault.NO_ANSWER, Fault.BROKEN, Fault.BUSY, Fault.LOST]
)
def test_an_object_is_written_again_until_it_is_there(
    s3_store: "Store", s3_root: S3Root, fault: Fault
) -> None:
    """M1: state objects are verified before a record names them. M4."""
    objects = s3_store.objects()
    rule = s3_root.proxy.spoil(fault, "PUT", OBJECT, times=2)
    ref = objects.put(NAME, [b"data"])
    assert rule.hits == 2
    assert objects.read(ref).to_pybytes() == b"data"


def test_an_object_that_is_confirmed_and_never_there_is_an_error(
    s3_store: "Store", s3_root: S3Root
) -> None:
    objects = s3_store.objects()
    s3_root.proxy.spoil(Fault.LOST, "PUT", OBJECT, times=ALWAYS)
    with pytest.raises(StoreError, match="confirmed the write, and does not have it"):
        objects.put(NAME, [b"data"])


def test_a_bucket_that_is_not_there_is_told_and_is_not_an_empty_job(
    s3_store: "Store", s3_root: S3Root
) -> None:
    s3_store.root = f"{s3_root.url.replace(s3_root.bucket, s3_root.bucket + '-other')}"
    files, objects = s3_store.files(), s3_store.objects()
    for call in (
        lambda: files.sizes("log"),
        lambda: files.read(SLOT),
        lambda: files.create(SLOT, b""),
        lambda: objects.put(NAME, [b"data"]),
    ):
        with pytest.raises(StoreError, match="create the bucket"):
            call()


def test_a_store_that_cannot_be_reached_is_told_after_the_tries(
    s3_store: "Store", s3_root: S3Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    files = s3_store.files(SHORT)
    for call in (lambda: files.read(SLOT), lambda: files.create(SLOT, b"")):
        with pytest.raises(StoreError, match="tried 2 times; check that the store runs") as failure:
            call()
        assert not isinstance(failure.value, UnknownOutcomeError)


def test_a_listing_of_several_pages_is_whole(s3_store: "Store", s3_root: S3Root) -> None:
    """The server tells 7 keys at a time."""
    files = s3_store.files()
    for number in range(17):
        s3_store.meddler.replace(f"log/{number}.json", b"x" * number)
        s3_store.meddler.replace(f"savepoints/{number:02}/record.json", b"")
    s3_root.proxy.heal()
    assert files.sizes("log") == {f"{n}.json": n for n in range(17)}
    assert files.folders("savepoints") == tuple(f"{n:02}" for n in range(17))
    assert s3_root.proxy.count("GET", "continuation-token") >= 4


def test_another_process_needs_the_environment_and_the_root_alone(s3_root: S3Root) -> None:
    code = (
        "import sys; from arkflow_ray.checkpoint.open import open_files\n"
        "print(open_files(sys.argv[1], 'orders').create('log/1.json', b'x'))\n"
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    said = [
        subprocess.run(
            [sys.executable, "-c", code, s3_root.url],
            env={**kept, **s3_root.environment},
            capture_output=True,
            text=True,
            timeout=100,
        )
        for _ in range(2)
    ]
    assert [run.stdout for run in said] == ["True\n", "False\n"], said[0].stderr
