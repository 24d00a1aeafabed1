"""Parts on any fsspec file system: built in a local temporary file, uploaded when they roll.

Object stores get one PUT with exclusive creation where the client offers it. Stores whose upload
a reader could see half done (SFTP, HDFS …) get an upload under a hidden name and a move.
"""

import inspect
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from arkflow_kernel.errors import ConfigError, Issue, SinkError
from arkflow_ray.components.outputs.file_errors import os_failure, remote_failure
from arkflow_ray.components.outputs.hidden_files import discard_file
from arkflow_ray.components.outputs.part_folders import next_number, part_name
from arkflow_ray.components.outputs.part_stream import PartStream

_ATOMIC_PUT: Final = frozenset(
    ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "r2", "oci", "memory")
)
"""Protocols with which an object appears whole or not at all."""


def check_protocol(path: str) -> None:
    """Raise `ConfigError` if no client for this URL is installed. Connects nothing."""
    import fsspec  # type: ignore[import-untyped]

    protocol = path.partition("://")[0].split("::")[0]
    try:
        fsspec.get_filesystem_class(protocol)
    except (ValueError, ImportError) as error:
        raise ConfigError([Issue("path", f"cannot write to `{protocol}://`: {error}")]) from error


class RemoteFolder:
    """A folder of an fsspec file system. Clients raise what they like: each call is a boundary."""

    def __init__(self, operator: str, url: str, stem: str, extension: str) -> None:
        self._operator, self._url = operator, url
        self._stem, self._extension = stem, extension
        self._number = 1
        self._fs: Any = None
        self._root = ""
        self._local: Path | None = None
        self._stream: PartStream | None = None

    def open(self) -> None:
        """See `PartFolder`. Proves that the store can be listed, not that it can be written."""
        import fsspec

        try:
            self._fs, self._root = fsspec.core.url_to_fs(self._url)
            self._fs.makedirs(self._root, exist_ok=True)
            paths = self._listed()
        except Exception as error:  # any client failure becomes a SinkError
            raise remote_failure(self._operator, self._url, "open the folder", error) from error
        names = [str(path).rstrip("/").rpartition("/")[2] for path in paths]
        self._number = next_number(names, self._stem)

    def _listed(self) -> list[Any]:
        """What the folder holds; nothing where a folder is only the beginning of names (S3)."""
        try:
            return list(self._fs.ls(self._root, detail=False))
        except FileNotFoundError:
            return []

    def begin(self) -> PartStream:
        """See `PartPlace`."""
        try:
            descriptor, name = tempfile.mkstemp(prefix="arkflow-part-")
        except OSError as error:
            raise self.failure("create a temporary file", error) from error
        self._local, self._stream = Path(name), PartStream(descriptor)
        return self._stream

    def finish(self, stream: PartStream) -> str:
        """See `PartPlace`. The upload is durable when the store has answered."""
        local = self._local
        if local is None:
            raise SinkError(f"output '{self._operator}': there is no part to publish")
        try:
            stream.drain()
        except OSError as error:
            raise self.failure("write a part", error) from error
        try:
            name = self._upload(local)
        except Exception as error:  # any client failure becomes a SinkError
            raise remote_failure(self._operator, self._url, "upload a part", error) from error
        self.discard()
        return name

    def discard(self) -> None:
        """See `PartPlace`."""
        discard_file(self._stream, self._local)
        self._local = self._stream = None

    def failure(self, doing: str, error: OSError) -> SinkError:
        """The local temporary file is what failed."""
        return os_failure(self._operator, tempfile.tempdir or "the temporary folder", doing, error)

    def _upload(self, local: Path) -> str:
        while True:
            name = part_name(self._stem, self._number, self._extension)
            self._number += 1
            target = f"{self._root.rstrip('/')}/{name}"
            self._fs.invalidate_cache(self._root)
            if self._fs.exists(target):
                continue
            try:
                self._put(str(local), target)
            except FileExistsError:
                continue
            return name

    def _put(self, local: str, target: str) -> None:
        protocols = (
            {self._fs.protocol} if isinstance(self._fs.protocol, str) else set(self._fs.protocol)
        )
        if "memory" in protocols:
            upload = self._fs.pipe_file
            upload(target, Path(local).read_bytes(), **_exclusive(upload))
        elif protocols & _ATOMIC_PUT:
            upload = getattr(self._fs, "_put_file", self._fs.put_file)
            self._fs.put_file(local, target, **_exclusive(upload))
        else:
            folder, _, name = target.rpartition("/")
            hidden = f"{folder}/.{name}-{os.path.basename(local)}.tmp"
            self._fs.put_file(local, hidden)
            self._fs.mv(hidden, target)


def _exclusive(upload: Callable[..., Any]) -> dict[str, str]:
    """`mode="create"`, where this client's upload knows it."""
    return {"mode": "create"} if "mode" in inspect.signature(upload).parameters else {}


__all__ = ["RemoteFolder", "check_protocol"]
