"""Objects that S3 takes and copies only in parts."""

import os
from typing import TYPE_CHECKING

import pytest

from arkflow_kernel.errors import StoreError
from arkflow_kernel.limits import MIB
from arkflow_kernel.snapshot import ObjectRef
from arkflow_ray.checkpoint.bucket_objects import BucketObjects
from arkflow_ray.checkpoint.retries import Patience, Retrier
from arkflow_ray.checkpoint.s3_bucket import S3Bucket
from arkflow_ray.checkpoint.spool import Spool
from tests.servers.fault_proxy import Fault
from tests.servers.s3_server import S3Root

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

FAST = Patience(tries=4, first_s=0.01, longest_s=0.05)
PART = 5 * MIB
"""The least that S3 takes."""

NAME = "1-count-0-1.arrow"
DATA = os.urandom(11 * MIB)


@pytest.fixture
def bucket(s3_root: S3Root) -> S3Bucket:
    return S3Bucket(FAST, part_bytes=PART, copy_bytes=PART)


@pytest.fixture
def objects(s3_root: S3Root, bucket: S3Bucket, tmp_path: "Path") -> BucketObjects:
    folder = s3_root.url.partition("://")[2] + "/orders"
    retrier = Retrier(f"{s3_root.url}/orders", FAST)
    return BucketObjects(bucket, folder, retrier, Spool(tmp_path), read_bytes=3 * MIB)


def test_a_large_object_is_uploaded_in_parts_and_read_in_ranges(
    objects: BucketObjects, s3_root: S3Root
) -> None:
    ref = objects.put(NAME, [DATA[: 4 * MIB], DATA[4 * MIB :]])
    assert s3_root.proxy.count("PUT", "partNumber=") == 3
    assert objects.read(ref).to_pybytes() == DATA
    assert objects.read(ref, MIB, 7 * MIB).to_pybytes() == DATA[MIB : 8 * MIB]
    assert s3_root.proxy.count("GET", NAME) == 4 + 3


@pytest.mark.parametrize("fault", [Fault.NO_REQUEST, Fault.NO_ANSWER, Fault.BUSY, Fault.LOST])
def test_a_part_that_fails_is_uploaded_again(
    objects: BucketObjects, s3_root: S3Root, fault: Fault
) -> None:
    rule = s3_root.proxy.spoil(fault, "PUT", "partNumber=2")
    ref = objects.put(NAME, [DATA])
    assert rule.hits == 1
    assert objects.read(ref).to_pybytes() == DATA


def test_an_upload_that_never_ends_well_leaves_no_object_and_no_parts(
    objects: BucketObjects, s3_root: S3Root
) -> None:
    s3_root.proxy.spoil(Fault.DENIED, "PUT", "partNumber=2")
    with pytest.raises(StoreError, match="AccessDenied"):
        objects.put(NAME, [DATA])
    assert s3_root.proxy.count("DELETE", "uploadId=") == 1
    status, uploads = s3_root.request("GET", f"{s3_root.bucket}?uploads")
    assert status == 200
    assert b"<UploadId>" not in uploads


def test_a_large_object_is_not_replaced(objects: BucketObjects, s3_root: S3Root) -> None:
    ref = objects.put(NAME, [DATA])
    assert objects.put(NAME, [DATA]) == ref
    with pytest.raises(StoreError, match="other bytes"):
        objects.put(NAME, [DATA[::-1]])
    assert objects.read(ref).to_pybytes() == DATA


def test_a_large_object_is_copied_in_parts(
    objects: BucketObjects, bucket: S3Bucket, s3_root: S3Root
) -> None:
    ref = objects.put(NAME, [DATA])
    assert isinstance(ref, ObjectRef)
    source = f"{s3_root.bucket}/checkpoints/orders/objects/{NAME}"
    bucket.copy(source, f"{s3_root.bucket}/copy")
    found = bucket.get(f"{s3_root.bucket}/copy")
    assert found is not None
    assert found.data == DATA
