"""The private folder of a job's Unix sockets, one on each node that it runs on (H1, K7).

Its name is chosen once per job; each node makes it below its own folder for temporary files, with
mode 0700, when a chain listens there first. It is taken away when the job is over.
"""

import os
import secrets
import shutil
import tempfile
from typing import Final

SHORT_PATH_CHARS: Final = 30
"""A folder for sockets may have so many: the path of a Unix socket has at most 107 bytes."""


def short_folder() -> str:
    """This node's folder for temporary files, if sockets can lie below it; else `/tmp`."""
    folder = tempfile.gettempdir()
    return folder if len(folder) <= SHORT_PATH_CHARS else "/tmp"


def new_channel_folder() -> str:
    """A name that no other job has."""
    return f"afc-{secrets.token_hex(6)}"


def channel_folder_path(name: str) -> str:
    """Where the folder of that name is on this node; it need not be there."""
    return os.path.join(short_folder(), name)


def remove_channel_folder(name: str) -> None:
    """Take this node's folder away with what is left in it."""
    shutil.rmtree(channel_folder_path(name), ignore_errors=True)


__all__ = ["channel_folder_path", "new_channel_folder", "remove_channel_folder", "short_folder"]
