"""The start-up probe (M1): a store that does not refuse the second create is refused."""

from typing import TYPE_CHECKING

import pytest

from arkflow_kernel.errors import StoreError, UnknownOutcomeError
from tests.servers.fault_proxy import Fault
from tests.servers.s3_server import S3Root

if TYPE_CHECKING:
    from tests.unit.checkpoint.conftest import Store

pytestmark = pytest.mark.slow

SLOT = "log/1.json"
ALWAYS = 1000


def test_a_store_that_ignores_if_none_match_is_refused_before_anything_is_written(
    s3_store: "Store", s3_root: S3Root
) -> None:
    """M1: create twice, the second must be refused."""
    files = s3_store.files()
    s3_root.proxy.spoil(Fault.UNCONDITIONAL, "PUT", "/", times=ALWAYS)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"is refused.*If-None-Match"):
            files.create(SLOT, b"mine")
    assert files.read(SLOT) is None
    assert files.sizes("probe") == {}
    s3_root.proxy.heal()
    assert files.create(SLOT, b"mine")


def test_a_store_that_loses_what_it_confirms_is_refused(s3_store: "Store", s3_root: S3Root) -> None:
    files = s3_store.files()
    s3_root.proxy.spoil(Fault.LOST, "PUT", "/probe/", times=ALWAYS)
    with pytest.raises(StoreError, match="does not have what was written") as failure:
        files.create(SLOT, b"mine")
    assert not isinstance(failure.value, UnknownOutcomeError)  # nothing is unknown about the slot
    assert s3_root.proxy.count("PUT", "/log/") == 0


def test_a_store_that_does_not_delete_is_refused(s3_store: "Store", s3_root: S3Root) -> None:
    files = s3_store.files()
    s3_root.proxy.spoil(Fault.LOST, "DELETE", "/probe/")
    with pytest.raises(StoreError, match="is there after it was deleted"):
        files.create(SLOT, b"mine")


@pytest.mark.parametrize("fault", [Fault.NO_REQUEST, Fault.NO_ANSWER, Fault.BUSY])
def test_a_probe_on_a_bad_network_is_begun_again(
    s3_store: "Store", s3_root: S3Root, fault: Fault
) -> None:
    s3_root.proxy.spoil(fault, "PUT", "/probe/", times=2)
    assert s3_store.files().create(SLOT, b"mine")


def test_a_store_is_probed_once_and_only_by_who_writes(s3_store: "Store", s3_root: S3Root) -> None:
    reader, writer = s3_store.files(), s3_store.files()
    assert reader.read(SLOT) is None
    assert reader.sizes("log") == {}
    assert s3_root.proxy.count("PUT", "/") == 0
    writer.create(SLOT, b"mine")
    writer.create("log/2.json", b"mine")
    assert s3_root.proxy.count("PUT", "/probe/") == 2
