"""The S3 server behind the proxy keeps the promise that the store's tests stand on."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.servers.fault_proxy import Fault
from tests.servers.s3_server import S3Root, send

pytestmark = pytest.mark.slow

ONLY_NEW = {"If-None-Match": "*"}


def _put(root: S3Root, key: str, data: bytes) -> int:
    return send("PUT", f"{root.proxy.url}/{root.bucket}/{key}", data, ONLY_NEW)[0]


def test_a_put_of_a_key_that_is_there_is_refused(s3_root: S3Root) -> None:
    assert _put(s3_root, "key", b"first") == 200
    assert _put(s3_root, "key", b"second") == 412
    assert s3_root.request("GET", f"{s3_root.bucket}/key") == (200, b"first")


def test_of_many_puts_of_a_key_at_once_one_is_done(s3_root: S3Root) -> None:
    with ThreadPoolExecutor(16) as pool:
        for key in ("a", "b", "c"):
            said = list(pool.map(lambda n, key=key: _put(s3_root, key, b"%d" % n), range(16)))
            assert sorted(said) == [200] + [412] * 15
            winner = b"%d" % said.index(200)
            assert s3_root.request("GET", f"{s3_root.bucket}/{key}") == (200, winner)


@pytest.mark.parametrize(
    ("fault", "status", "stored"),
    [
        (Fault.BUSY, 503, 404),
        (Fault.CONFLICT, 409, 404),
        (Fault.DENIED, 403, 404),
        (Fault.LOST, 200, 404),
        (Fault.BROKEN, 500, 200),
        (Fault.UNCONDITIONAL, 200, 200),
    ],
)
def test_a_fault_spoils_one_request_and_no_other(
    s3_root: S3Root, fault: Fault, status: int, stored: int
) -> None:
    rule = s3_root.proxy.spoil(fault, "PUT", "/key$")
    assert _put(s3_root, "other", b"x") == 200
    assert rule.hits == 0
    assert _put(s3_root, "key", b"x") == status
    assert s3_root.request("GET", f"{s3_root.bucket}/key")[0] == stored
    assert rule.hits == 1


@pytest.mark.parametrize(("fault", "stored"), [(Fault.NO_REQUEST, 404), (Fault.NO_ANSWER, 200)])
def test_a_broken_connection_tells_nothing(s3_root: S3Root, fault: Fault, stored: int) -> None:
    s3_root.proxy.spoil(fault, "PUT", "/key$")
    with pytest.raises(OSError, match=r"closed|reset"):
        _put(s3_root, "key", b"x")
    assert s3_root.request("GET", f"{s3_root.bucket}/key")[0] == stored
