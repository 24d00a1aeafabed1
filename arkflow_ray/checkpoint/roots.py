"""Checkpoint roots: which URLs name a store that can be trusted, and paths below them (M1).

Nothing here touches a store. A root holds no credentials, so it may stand in logs (M8).
"""

import os
import re
from dataclasses import dataclass
from typing import Final

from arkflow_kernel.errors import StoreError
from arkflow_ray.components.paths import shown

SCHEMES: Final = ("file", "memory", "s3", "gs", "az")
"""Stores whose exclusive create is known."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://(.*)", re.DOTALL)
_HALF = re.compile(r"(?:file|memory|s3|gs|az):(?!//)", re.IGNORECASE)
_FOLDER = re.compile(r"(?!\.)[^/\x00-\x1f]{1,255}")
_SUPPORTED: Final = "a folder, `file://`, `s3://`, `gs://` or `az://`"
_SPELLINGS: Final = {"local": "file", "s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "az"}
"""What users write, and how it is spelt here."""


@dataclass(frozen=True, slots=True)
class Root:
    """A parsed root. `path` is an absolute local path, or `<bucket>/<prefix>` without slashes at
    its ends.
    """

    scheme: str
    path: str

    @property
    def is_local(self) -> bool:
        """It is a folder of this machine's file systems."""
        return self.scheme == "file"

    @property
    def url(self) -> str:
        """The root as a URL."""
        return f"{self.scheme}://{self.path}"

    def job_path(self, job: str) -> str:
        """The path of a job's folder, or a savepoint's. `StoreError` if it cannot be a folder."""
        if not _FOLDER.fullmatch(job):
            raise StoreError(
                f"'{job}' cannot be a folder of the checkpoint store {self.url}; use letters, "
                "digits, `_` and `-`"
            )
        return f"{self.path.rstrip('/')}/{job}"


def parse_root(text: str) -> Root:
    """The root that a user means. `StoreError` says what is wrong with any other text (M1)."""
    match = _URL.fullmatch(text)
    if "::" in text:
        raise _refused(text, f"chained URLs are no checkpoint stores; use {_SUPPORTED}")
    if match is None:
        if not text.strip():
            raise _refused(text, f"it is empty; use {_SUPPORTED}")
        if _HALF.match(text):
            raise _refused(text, "the `//` after the `:` is missing")
        return Root("file", os.path.abspath(os.path.expanduser(text)))
    scheme, rest = match.group(1).lower(), match.group(2)
    if scheme in _SPELLINGS:
        raise _refused(text, f"write `{_SPELLINGS[scheme]}://` instead of `{scheme}://`")
    if scheme not in SCHEMES:
        raise _refused(
            text, f"`{scheme}://` has no exclusive create that can be trusted; use {_SUPPORTED}"
        )
    if scheme == "file":
        return _local(text, rest)
    if "@" in rest.partition("/")[0] or "?" in rest or "#" in rest:
        raise _refused(
            text,
            "credentials and options do not belong into a root; set the environment variables of "
            "the store's client",
        )
    path = rest.strip("/")
    if not path or any(part in ("", ".", "..") for part in path.split("/")):
        raise _refused(text, "it names no bucket, or holds an empty, `.` or `..` part")
    return Root(scheme, path)


def checked_path(path: str) -> str:
    """A path below a job's folder as it stands. `StoreError` if it could lead out of it."""
    if path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
        raise StoreError(f"'{path}' is no path below a job's folder of the checkpoint store")
    return path


def _local(text: str, rest: str) -> Root:
    path = rest.removeprefix("localhost") if rest.startswith("localhost/") else rest
    if not path:
        raise _refused(text, "its path is missing: `file:///var/checkpoints`")
    return Root("file", os.path.abspath(path))


def _refused(text: str, why: str) -> StoreError:
    return StoreError(f"checkpoint root '{shown(text)}' is refused: {why}")


__all__ = ["SCHEMES", "Root", "checked_path", "parse_root"]
