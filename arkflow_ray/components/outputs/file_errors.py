"""Operating-system trouble of the `file` output made `SinkError`: what, where, what to do."""

import errno
import os
from typing import Final

from arkflow_kernel.errors import SinkError
from arkflow_ray.components.paths import shown

CREATE_FOLDER: Final = "create the folder"
"""What is done first: here a missing name is no folder that went away."""

OTHER_PATH: Final = "set another `path`"


def os_failure(
    operator: str, folder: str, doing: str, error: OSError, remedy: str = OTHER_PATH
) -> SinkError:
    """A `SinkError` for a failed system call on a local folder. `remedy`: how to use another."""
    reason = error.strerror or str(error)
    return SinkError(
        f"output '{operator}': cannot {doing} in '{shown(folder)}': {reason}; "
        f"{_advice(folder, doing, error, remedy)}"
    )


def remote_failure(operator: str, url: str, doing: str, error: Exception) -> SinkError:
    """A `SinkError` for a failed call of a remote file system; its text may hold the URL."""
    told = str(error).replace(url, shown(url)) or type(error).__name__
    return SinkError(
        f"output '{operator}': cannot {doing} in '{shown(url)}': {type(error).__name__}: {told}; "
        "check the address, the credentials and that the store answers"
    )


def _advice(folder: str, doing: str, error: OSError, remedy: str) -> str:
    code = error.errno
    if code in (errno.ENOSPC, errno.EDQUOT):
        return f"{_free(folder)}; free space, or {remedy}"
    if code in (errno.EACCES, errno.EPERM):
        return f"let user id {os.geteuid()} write there, or {remedy}"
    if code == errno.EROFS:
        return f"the file system is read-only; {remedy}"
    if code in (errno.ENOTDIR, errno.EEXIST):
        return "`path` must name a folder, but a file stands there; set another `path` or move it"
    if code == errno.ENOENT and doing == CREATE_FOLDER:
        return f"no folder can be made there; {remedy}"
    if code == errno.ENOENT:
        return "the folder is gone; do not delete or move it while the job runs, then start again"
    return f"check the disk, or {remedy}"


def _free(folder: str) -> str:
    try:
        facts = os.statvfs(folder)
    except OSError:
        return "free space unknown"
    free, size = facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize
    return f"{free / 2**20:.1f} MiB of {size / 2**20:.1f} MiB are free"


__all__ = ["CREATE_FOLDER", "os_failure", "remote_failure"]
