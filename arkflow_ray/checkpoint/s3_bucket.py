"""S3 and what speaks its protocol, through the client of s3fs: exclusive PUTs by `If-None-Match`.

The requests are made by hand, not by s3fs's file calls: those retry by themselves, and a create
whose first try was done unseen would then be told as refused. The HTTP client below repeats a PUT
once when the connection breaks, so a file carries who created it, and a refusal looks there.
"""

import asyncio
import contextlib
import functools
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from arkflow_kernel.errors import StoreError
from arkflow_kernel.limits import MIB
from arkflow_ray.checkpoint.bucket import Listing, Part
from arkflow_ray.checkpoint.retries import Patience
from arkflow_ray.checkpoint.troubles import error_code, http_status

T = TypeVar("T")

PART_BYTES: Final = 64 * MIB
"""Objects above this are uploaded in parts of this size: S3 takes 10,000 parts."""

COPY_BYTES_MAX: Final = 5 * 1024 * MIB
"""A larger object is copied in parts of this size: the most that S3 copies at once."""

CONNECTIONS_MAX: Final = 32
"""Requests of one process at the same time; more of them wait."""

INSTALL: Final = "pip install 'arkflow-ray[s3]'"
_WRITER: Final = "arkflow-writer"
"""Name of the metadata that says who created a file."""

_RANGE_NOT_SATISFIABLE: Final = 416


class S3Bucket:
    """See `Bucket`. Keys begin with the bucket's name.

    Credentials, region and endpoint come from the environment, as every AWS client reads them, and
    from the `s3` section of fsspec's configuration.
    """

    def __init__(
        self, patience: Patience, part_bytes: int = PART_BYTES, copy_bytes: int = COPY_BYTES_MAX
    ) -> None:
        self._patience, self._part_bytes, self._copy_bytes = patience, part_bytes, copy_bytes
        self._fs = _shared_client(patience)

    def create(self, key: str, parts: Sequence[memoryview], writer: str) -> bool:
        """See `Bucket`."""
        size = sum(part.nbytes for part in parts)
        if size > self._part_bytes:
            return self._create_large(key, b"".join(parts))
        body = b"".join(parts)
        asked = {**_place(key), "IfNoneMatch": "*", "Metadata": {_WRITER: writer}}
        try:
            self._call(lambda s3: s3.put_object(**asked, Body=body), size)
        except Exception as error:  # botocore makes its classes at run time
            if _is_there(error):
                found = self._head(key)
                return found is not None and found.get("Metadata", {}).get(_WRITER) == writer
            raise
        return True

    def get(self, key: str, first: int = 0, length: int | None = None) -> Part | None:
        """See `Bucket`."""
        whole = first == 0 and length is None
        if length == 0:
            total = self.size(key)
            return None if total is None else Part(b"", total)
        last = "" if length is None else str(first + length - 1)
        ranged = {} if whole else {"Range": f"bytes={first}-{last}"}

        async def read(s3: Any) -> Part:
            answer = await s3.get_object(**_place(key), **ranged)
            async with answer["Body"] as stream:
                data: bytes = await stream.read()
            told = str(answer.get("ContentRange", "")).rpartition("/")[2]
            return Part(data, int(told) if told.isdecimal() else len(data))

        try:
            # The size of a whole object is not known before: a large one is read in ranges.
            return self._call(read, length or self._part_bytes)
        except Exception as error:  # botocore makes its classes at run time
            if error_code(error) == "NoSuchKey":
                return None
            if http_status(error) == _RANGE_NOT_SATISFIABLE:
                total = self.size(key)
                return None if total is None else Part(b"", total)
            raise

    def size(self, key: str) -> int | None:
        """See `Bucket`."""
        found = self._head(key)
        return None if found is None else int(found["ContentLength"])

    def list(self, folder: str) -> Listing:
        """See `Bucket`."""
        bucket, _, path = folder.partition("/")
        prefix = f"{path}/"
        files: dict[str, int] = {}
        folders: list[str] = []
        more: dict[str, str] = {}
        while True:
            asked = {"Bucket": bucket, "Prefix": prefix, "Delimiter": "/", **more}
            answer = self._call(functools.partial(_list, asked))
            for found in answer.get("Contents", ()):
                if name := found["Key"].removeprefix(prefix):
                    files[name] = int(found["Size"])
            for found in answer.get("CommonPrefixes", ()):
                folders.append(found["Prefix"].removeprefix(prefix).rstrip("/"))
            if not answer.get("IsTruncated"):
                return Listing(files, tuple(sorted(folders)))
            more = {"ContinuationToken": answer["NextContinuationToken"]}

    def copy(self, source: str, target: str) -> None:
        """See `Bucket`."""
        size = self.size(source)
        if size is None:
            raise FileNotFoundError(source)
        of = _place(source)
        if size <= self._copy_bytes:
            self._call(lambda s3: s3.copy_object(**_place(target), CopySource=of), size)
            return
        ranges = range(0, size, self._copy_bytes)

        def sent(number: int, upload: str, s3: Any) -> Awaitable[Any]:
            first = ranges[number - 1]
            last = min(first + self._copy_bytes, size) - 1
            part: Awaitable[Any] = s3.upload_part_copy(
                **_place(target),
                UploadId=upload,
                PartNumber=number,
                CopySource=of,
                CopySourceRange=f"bytes={first}-{last}",
            )
            return part

        self._in_parts(target, len(ranges), self._copy_bytes, sent, {})

    def delete(self, key: str) -> None:
        """See `Bucket`."""
        self._call(lambda s3: s3.delete_object(**_place(key)))

    def close(self) -> None:
        """See `Bucket`. The client is shared, and ends with the process."""

    def _head(self, key: str) -> dict[str, Any] | None:
        """What is known of a key; None if it is not there."""
        try:
            found: dict[str, Any] = self._call(lambda s3: s3.head_object(**_place(key)))
        except Exception as error:  # botocore makes its classes at run time
            if http_status(error) == 404 and error_code(error) != "NoSuchBucket":
                return None
            raise
        return found

    def _create_large(self, key: str, body: bytes) -> bool:
        step = self._part_bytes
        ranges = range(0, len(body), step)

        def sent(number: int, upload: str, s3: Any) -> Awaitable[Any]:
            piece = memoryview(body)[ranges[number - 1] : ranges[number - 1] + step]
            part: Awaitable[Any] = s3.upload_part(
                **_place(key), UploadId=upload, PartNumber=number, Body=bytes(piece)
            )
            return part

        try:
            self._in_parts(key, len(ranges), step, sent, {"IfNoneMatch": "*"})
        except Exception as error:  # botocore makes its classes at run time
            if _is_there(error):
                return False
            raise
        return True

    def _in_parts(
        self,
        key: str,
        count: int,
        part_bytes: int,
        sent: Callable[[int, str, Any], Awaitable[Any]],
        condition: dict[str, str],
    ) -> None:
        """One upload of numbered parts, whole or not at all; what a failure leaves is given up."""
        place = _place(key)
        begun = self._call(lambda s3: s3.create_multipart_upload(**place))
        upload = str(begun["UploadId"])
        try:
            done = []
            for number in range(1, count + 1):
                answer = self._call(functools.partial(sent, number, upload), part_bytes)
                # A part that is copied answers with a result of its own.
                facts = answer.get("CopyPartResult", answer)
                sums = {n: v for n, v in facts.items() if n == "ETag" or n.startswith("Checksum")}
                sums.pop("ChecksumType", None)
                done.append({"PartNumber": number, **sums})
            self._call(
                lambda s3: s3.complete_multipart_upload(
                    **place, UploadId=upload, MultipartUpload={"Parts": done}, **condition
                ),
                part_bytes,
            )
        except BaseException:
            # The first failure is the one to tell; a bucket's own rule clears what stays.
            with contextlib.suppress(Exception):
                self._call(lambda s3: s3.abort_multipart_upload(**place, UploadId=upload))
            raise

    def _call(self, request: Callable[[Any], Awaitable[T]], size: int = 0) -> T:
        """Send one request from fsspec's loop, and wait for its answer."""
        from fsspec.asyn import sync  # type: ignore[import-untyped]

        limit_s = self._patience.of_bytes(size)

        async def bounded() -> T:
            async with asyncio.timeout(limit_s):
                await self._fs.set_session()
                return await request(await self._fs.get_s3())

        found: T = sync(self._fs.loop, bounded)
        return found


def _shared_client(patience: Patience) -> Any:
    """The client of this process for what the environment says now; one costs 0.4 s of CPU."""
    said = tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_")))
    return _open(patience, said, os.getpid())


@functools.lru_cache(maxsize=8)
def _open(patience: Patience, _environment: object, _process: int) -> Any:
    """A client with no retries of its own, and with our time-outs."""
    import fsspec  # type: ignore[import-untyped]
    from fsspec.config import conf  # type: ignore[import-untyped]

    said = conf.get("s3", {})
    settings = {
        **said.get("config_kwargs", {}),
        "connect_timeout": patience.connect_s,
        "read_timeout": patience.call_s,
        "max_pool_connections": CONNECTIONS_MAX,
        "retries": {"mode": "standard", "total_max_attempts": 1},
    }
    client = dict(said.get("client_kwargs", {}))
    region = os.environ.get("AWS_REGION")  # botocore reads AWS_DEFAULT_REGION alone
    if region and "AWS_DEFAULT_REGION" not in os.environ:
        client.setdefault("region_name", region)
    try:
        return fsspec.filesystem(
            "s3",
            config_kwargs=settings,
            client_kwargs=client,
            skip_instance_cache=True,
            use_listings_cache=False,
        )
    except ImportError as error:
        raise StoreError(
            f"checkpoint root `s3://` needs s3fs, which is not installed: {INSTALL}"
        ) from error


def _list(asked: dict[str, str], s3: Any) -> Awaitable[Any]:
    found: Awaitable[Any] = s3.list_objects_v2(**asked)
    return found


def _place(key: str) -> dict[str, str]:
    bucket, _, name = key.partition("/")
    return {"Bucket": bucket, "Key": name}


def _is_there(error: BaseException) -> bool:
    """A refused `If-None-Match`."""
    return http_status(error) == 412 or error_code(error) == "PreconditionFailed"


__all__ = ["COPY_BYTES_MAX", "INSTALL", "PART_BYTES", "S3Bucket"]
