"""Where checkpoints lie: `checkpoint.object_store_uri` of every stream and job (C8, M1, M8).

Works on the plain data of a file. A local path is made an absolute `file:///…`; what no run could
use, or what would carry a secret into logs and records, is refused.
"""

import os
import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from arkflow_kernel.errors import Issue
from arkflow_ray.components.config_path import ConfigPath, render_path

SCHEMES: Final = ("file", "s3", "gs", "az")
"""Stores whose exclusive create can be trusted (M1)."""

_KEY: Final = "object_store_uri"
_FILE: Final = "file://"
_LOCALHOST: Final = "localhost/"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://(.*)", re.DOTALL)
_HALF: Final = re.compile(r"(?:file|memory|s3|gs|az):(?!//)", re.IGNORECASE)
_ALIASES: Final = {
    "s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "az", "abfss": "az", "azure": "az",
    "wasb": "az", "wasbs": "az", "local": "file",
}  # fmt: skip


def make_absolute(data: dict[str, Any]) -> None:
    """Local roots of a file's data against the working directory of this process, in place (C8).

    Two spellings of one folder become one text. What is wrong is left as it stands.
    """
    for _, block in _blocks(data):
        root = block[_KEY]
        found = _SCHEME.match(root)
        if root.strip() and found is None and "::" not in root and not _HALF.match(root):
            block[_KEY] = _FILE + os.path.abspath(os.path.expanduser(root))
        elif found is not None and found[1].lower() == "file":
            local = found[2].startswith(_LOCALHOST)
            path = found[2].removeprefix("localhost") if local else found[2]
            block[_KEY] = _FILE + os.path.abspath(path) if path else root


def root_issues(data: dict[str, Any]) -> list[Issue]:
    """One error for each root that cannot be used. No message holds the root itself (M8)."""
    found = []
    for path, block in _blocks(data):
        told = _wrong(block[_KEY])
        if told is not None:
            found.append(Issue(render_path((*path, _KEY)), told))
    return found


def _wrong(root: str) -> str | None:
    """Why a root is refused. An empty one is the rules of jobs' to refuse."""
    if "::" in root:
        return f"`::` chains file systems; checkpoints need one that they can trust: {_known()}"
    found = _SCHEME.match(root)
    if found is None:
        scheme = root.partition(":")[0]
        return f"the `//` is missing; write `{scheme}://…`" if _HALF.match(root) else None
    scheme, rest = found[1].lower(), found[2]
    if scheme == "memory":
        text = "`memory://` belongs to one process, and a job's processes do not share it"
        return f"{text}; use a folder: `file:///…`"
    if scheme in _ALIASES:
        return f"`{scheme}://` is not a name of a store here; write `{_ALIASES[scheme]}://…`"
    if scheme not in SCHEMES:
        return f"checkpoints cannot lie in `{scheme}://`; use {_known()}"
    if scheme == "file":
        return None if rest else "the path is missing; write `file:///…` or `file://./…`"
    return _wrong_remote(root, scheme, rest)


def _wrong_remote(root: str, scheme: str, rest: str) -> str | None:
    try:
        parts = urlsplit(root)
    except ValueError:
        return f"this is not a URL; write `{scheme}://bucket/folder`"
    if not parts.netloc:
        return f"the bucket is missing; write `{scheme}://bucket/folder`"
    if "@" in parts.netloc or parts.query or parts.fragment:
        text = "a root of checkpoints has no credentials and no `?…` or `#…`: it is shown in logs"
        advice = "and kept in records; give them by the environment of the processes"
        return f"{text} {advice}, and write `{scheme}://bucket/folder`"
    if any(part in ("", ".", "..") for part in rest.strip("/").split("/")):
        return f"it holds an empty, `.` or `..` part; write `{scheme}://bucket/folder`"
    return None


def _known() -> str:
    return ", ".join(f"`{scheme}://`" for scheme in SCHEMES) + ", or a local path"


def _blocks(data: dict[str, Any]) -> Iterator[tuple[ConfigPath, dict[str, Any]]]:
    """Every `checkpoint:` block with a root that is text, and where it stands."""
    for key in ("streams", "jobs"):
        entries = data.get(key)
        for index, entry in enumerate(entries if isinstance(entries, list) else []):
            block = entry.get("checkpoint") if isinstance(entry, dict) else None
            if isinstance(block, dict) and isinstance(block.get(_KEY), str):
                yield (key, index, "checkpoint"), block


__all__ = ["SCHEMES", "make_absolute", "root_issues"]
