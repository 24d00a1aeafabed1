"""Paths in configurations: local ones made absolute (C8), URLs shown without credentials (M8).

For file components. Nothing here touches the file system.
"""

import os
import re

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_CHAINED = "::"
_CREDENTIALS = re.compile(r"(?<=://)[^/@]*@|(?<=[?&])[^=&]*=[^&]*")


def absolute_path(text: str) -> str:
    """`text` against the working directory of this process (C8); URLs are left as they stand.

    A URL has a scheme and `://` (`s3://bucket/key`, `file:///tmp/x`), or is chained by `::`
    (`zip://*.json::s3://bucket/a.zip`). A leading `~` is the user's home folder. A glob stays a
    glob, a trailing separator (a folder) stays.
    """
    if _SCHEME.match(text) or _CHAINED in text or not text:
        return text
    path = os.path.abspath(os.path.expanduser(text))
    return path + os.sep if text.endswith("/") and not path.endswith(os.sep) else path


def is_url(text: str) -> bool:
    """Whether `absolute_path` leaves `text` alone because it is a URL."""
    return bool(_SCHEME.match(text)) or _CHAINED in text


def shown(path: str) -> str:
    """The path without user, password and query values, for messages."""
    return _CREDENTIALS.sub("***", path)


__all__ = ["absolute_path", "is_url", "shown"]
