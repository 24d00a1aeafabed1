"""The checksum of an object: SHA-256 in hex, of all its bytes, as `sha256sum` prints it."""

import hashlib
import mmap
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa


def checksum(parts: Iterable[memoryview]) -> str:
    """The checksum of these bytes, one part after the other."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def views(parts: Iterable[pa.Buffer | bytes]) -> tuple[memoryview, ...]:
    """The bytes of buffers, without a copy."""
    return tuple(memoryview(part).cast("B") for part in parts)


def mapped(path: Path) -> memoryview:
    """The bytes of a local file, read when they are looked at. Nobody may cut it meanwhile."""
    with open(path, "rb") as stream:
        if not path.stat().st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))


__all__ = ["checksum", "mapped", "views"]
