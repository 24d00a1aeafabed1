"""Where input files are: listing and opening, on the local disk or by any fsspec URL.

The local disk is read without fsspec. Every failure is a `SourceError`; URLs in messages and in
split names carry no credentials.
"""

import glob
import os
import re
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol, cast

from arkflow_kernel.errors import SourceError
from arkflow_ray.components.paths import is_url, shown

_GLOB = re.compile(r"[*?\[]")
_WEB = re.compile(r"https?://")
_ANY_DEPTH = re.compile(r"(?:^|(?<=/))\*\*(?:/+|$)")
_HIDDEN = (".", "_")


class FileStore(Protocol):
    """Lists and opens the files of one path."""

    def names(self) -> list[str]:
        """Names of the files, sorted. SourceError if there is none."""
        ...

    def size(self, name: str) -> int | None:
        """Length of one of `names` in bytes; None if the store does not say. SourceError."""
        ...

    def open(self, name: str) -> BinaryIO:
        """A file for reading, unbuffered. SourceError if it cannot be opened."""
        ...


def file_store(operator: str, path: str) -> FileStore:
    """The store of a path as users write it. Connects to nothing."""
    if path.startswith("file://"):
        path = path.removeprefix("file://")
    return RemoteFiles(operator, path) if is_url(path) else LocalFiles(operator, path)


class LocalFiles:
    """Files of this machine."""

    def __init__(self, operator: str, path: str) -> None:
        self._operator = operator
        self._path = path

    def names(self) -> list[str]:
        """See `FileStore.names`. A folder is read with its sub-folders."""
        try:
            names = self._found()
        except OSError as error:
            raise self._failure("list", self._path, error) from error
        if not names:
            raise SourceError(
                f"input '{self._operator}': no file at '{self._path}'; check the path (names that "
                "begin with '.' or '_' in a folder are left out)"
            )
        return sorted(names)

    def size(self, name: str) -> int:
        """See `FileStore.size`."""
        try:
            return os.stat(name).st_size
        except OSError as error:
            raise self._failure("look at", name, error) from error

    def open(self, name: str) -> BinaryIO:
        """See `FileStore.open`. What is no file is refused: a pipe would block, and has no place
        to continue at."""
        try:
            regular = stat.S_ISREG(os.stat(name).st_mode)
            if regular:
                return cast("BinaryIO", open(name, "rb", buffering=0))
        except OSError as error:
            raise self._failure("open", name, error) from error
        raise SourceError(
            f"input '{self._operator}': '{name}' is a pipe, a socket or a device; this input needs "
            "files, which can be read again: write the data to a file first"
        )

    def _found(self) -> list[str]:
        if os.path.isdir(self._path):
            return _files_below(self._path)
        if os.path.lexists(self._path) or not _GLOB.search(self._path):
            os.stat(self._path)
            return [self._path]
        return [name for name in set(_globbed(self._path)) if os.path.isfile(name)]

    def _failure(self, doing: str, name: str, error: OSError) -> SourceError:
        return SourceError(
            f"input '{self._operator}': cannot {doing} '{name}': {error.strerror or error}; check "
            "the path, and that this machine and this user may read it"
        )


class RemoteFiles:
    """Files of an fsspec URL. Names are URLs without credentials."""

    def __init__(self, operator: str, url: str) -> None:
        self._operator = operator
        self._url = url
        self._system: Any = None
        self._inner: dict[str, str] = {}

    def names(self) -> list[str]:
        """See `FileStore.names`."""
        try:
            system, path = self._connect()
            found = self._paths(system, path)
            self._inner = {shown(system.unstrip_protocol(p)): p for p in found}
        except Exception as error:  # each file system of fsspec has its own errors
            raise self._failure("list", self._url, error) from error
        if not self._inner:
            raise SourceError(
                f"input '{self._operator}': no file at '{shown(self._url)}'; check the URL"
            )
        return sorted(self._inner)

    def size(self, name: str) -> int | None:
        """See `FileStore.size`."""
        try:
            found = self._system.info(self._inner[name]).get("size")
        except Exception as error:  # as above
            raise self._failure("look at", name, error) from error
        return None if found is None else int(found)

    def open(self, name: str) -> BinaryIO:
        """See `FileStore.open`. Lists first if nobody has: names lack what URLs keep secret."""
        if name not in self._inner:
            self.names()
        try:
            return cast("BinaryIO", self._system.open(self._inner[name], "rb"))
        except Exception as error:  # as above
            raise self._failure("open", name, error) from error

    def _connect(self) -> tuple[Any, str]:
        import fsspec  # type: ignore[import-untyped]  # it ships no types

        self._system, path = fsspec.core.url_to_fs(self._url)
        return self._system, path

    def _paths(self, system: Any, path: str) -> list[str]:
        # A URL of the web has its query behind the `?`, such as the signature of a signed one.
        if _GLOB.search(path.partition("?")[0] if _WEB.match(path) else path):
            return [p for p in system.glob(path) if system.isfile(p)]
        if not system.isdir(path):
            system.info(path)
            return [path]
        root = path.rstrip("/") + "/"
        return [p for p in system.find(path) if not _is_hidden(p.removeprefix(root))]

    def _failure(self, doing: str, url: str, error: Exception) -> SourceError:
        told = str(error).replace(self._url, shown(self._url)) or "no reason given"
        return SourceError(
            f"input '{self._operator}': cannot {doing} '{shown(url)}': {type(error).__name__}: "
            f"{told}; check the URL, the credentials and that the store answers"
        )


def _globbed(pattern: str) -> Iterator[str]:
    """As `glob.glob`, but `**` follows no links to folders: those that lead back up would multiply
    files, or never end."""
    head, *tails = _ANY_DEPTH.split(pattern, maxsplit=1)
    if not tails:
        yield from glob.glob(pattern)
        return
    for top in glob.glob(head) if head else ["."]:
        for folder, folders, _ in os.walk(top):
            folders[:] = [name for name in folders if not name.startswith(".")]
            yield from _globbed(os.path.join(glob.escape(folder), tails[0] or "*"))


def _files_below(folder: str) -> list[str]:
    names: list[str] = []
    for base, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [f for f in folders if not f.startswith(_HIDDEN)]
        names += [os.path.join(base, f) for f in files if not f.startswith(_HIDDEN)]
    return names


def _raise(error: OSError) -> None:
    raise error


def _is_hidden(path: str) -> bool:
    return any(part.startswith(_HIDDEN) for part in path.split("/"))


__all__ = ["FileStore", "file_store"]
