"""Local paths in configurations, made absolute (C8).

For the configuration models of file components. Nothing here touches the file system.
"""

import os
import re

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_CHAINED = "::"


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


__all__ = ["absolute_path", "is_url"]
