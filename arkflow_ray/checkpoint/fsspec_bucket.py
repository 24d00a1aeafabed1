"""Google Cloud Storage and Azure through fsspec's clients: exclusive by generation 0 and by
`If-None-Match`, which both call `mode="create"`.

The clients repeat requests by themselves: a create that is told as refused may be our own. The
log reads who wrote a slot that is taken, so that is no more than a detour.
"""

import inspect
from collections.abc import Sequence
from typing import Any, Final

from arkflow_kernel.errors import StoreError
from arkflow_ray.checkpoint.bucket import Listing, Part
from arkflow_ray.checkpoint.retries import Patience

CLIENTS: Final = {"gs": "gcsfs", "az": "adlfs"}
"""The package that each scheme needs."""


class FsspecBucket:
    """See `Bucket`. Over any fsspec file system that creates exclusively in one request."""

    def __init__(self, file_system: Any) -> None:
        self._fs = file_system
        upload = getattr(file_system, "_pipe_file", file_system.pipe_file)
        taken = inspect.signature(upload).parameters
        if not {"mode", "overwrite"} & taken.keys():
            raise StoreError(
                f"this version of the client for `{file_system.protocol}` cannot create a file "
                "exclusively; install a newer one"
            )

    def create(self, key: str, parts: Sequence[memoryview], writer: str) -> bool:  # noqa: ARG002
        """See `Bucket`."""
        try:
            self._fs.pipe_file(key, b"".join(parts), mode="create")
        except FileExistsError:
            return False
        return True

    def get(self, key: str, first: int = 0, length: int | None = None) -> Part | None:
        """See `Bucket`."""
        total = self.size(key)
        if total is None:
            return None
        end = total if length is None else min(first + length, total)
        if first >= end:
            return Part(b"", total)
        return Part(self._fs.cat_file(key, start=first, end=end), total)

    def size(self, key: str) -> int | None:
        """See `Bucket`."""
        self._fs.invalidate_cache()
        try:
            return int(self._fs.info(key)["size"])
        except FileNotFoundError:
            return None

    def list(self, folder: str) -> Listing:
        """See `Bucket`."""
        self._fs.invalidate_cache()
        try:
            found = self._fs.ls(folder, detail=True)
        except FileNotFoundError:
            return Listing()
        named = [(str(entry["name"]).rstrip("/").rpartition("/")[2], entry) for entry in found]
        files = {name: int(e["size"]) for name, e in named if e["type"] == "file"}
        return Listing(files, tuple(sorted(name for name, e in named if e["type"] == "directory")))

    def copy(self, source: str, target: str) -> None:
        """See `Bucket`."""
        self._fs.cp_file(source, target)

    def delete(self, key: str) -> None:
        """See `Bucket`."""
        self._fs.invalidate_cache()
        try:
            self._fs.rm_file(key)
        except FileNotFoundError:
            return

    def close(self) -> None:
        """See `Bucket`. fsspec closes its clients with the process."""


def open_client(scheme: str, patience: Patience) -> Any:
    """The fsspec file system of `gs` or `az`. `StoreError` if its package is missing."""
    import fsspec  # type: ignore[import-untyped]

    timeouts = {"timeout": patience.call_s} if scheme == "gs" else {}
    try:
        return fsspec.filesystem(
            scheme, skip_instance_cache=True, use_listings_cache=False, **timeouts
        )
    except ImportError as error:
        package = CLIENTS[scheme]
        raise StoreError(
            f"checkpoint root `{scheme}://` needs {package}, which is not installed: "
            f"pip install {package}"
        ) from error
    except Exception as error:  # the clients look for credentials when they are made
        raise StoreError(
            f"checkpoint root `{scheme}://` cannot be opened: {type(error).__name__}; set the "
            "credentials of the store's client in the environment"
        ) from error


__all__ = ["CLIENTS", "FsspecBucket", "open_client"]
