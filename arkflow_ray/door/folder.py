"""Where doors lie: private folders of the user, and how a socket there is called.

A folder counts only if it is a real folder of this user that nobody else can look into: whoever
can make it in `/tmp` first must gain nothing. A caller looks into all of them, because its
environment may differ from that of the run (a cron job has no `XDG_RUNTIME_DIR`).
"""

import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOCKET_PATH_BYTES_MAX: Final = 107
"""Linux takes no longer path for a Unix socket."""

STEM_CHARS_MAX: Final = 48
"""A job's id that is longer is cut and told apart by its checksum."""

SUFFIX: Final = ".sock"
_NAME_BYTES_MAX: Final = STEM_CHARS_MAX + len(".4294967295") + len(SUFFIX)
_CHECKSUM_CHARS: Final = 12


class UnsafeFolderError(Exception):
    """A folder that somebody else could look into or has made."""


@dataclass(frozen=True, slots=True)
class DoorName:
    """A socket of a job; `pid` is set if another run of the job was there before."""

    stem: str
    pid: int | None = None

    @property
    def file(self) -> str:
        """The name of the socket's file; a job's id has no dot, so it can be read back."""
        return self.stem + ("" if self.pid is None else f".{self.pid}") + SUFFIX


def door_stem(job: str) -> str:
    """How a job is called in the names of its sockets."""
    if len(job) <= STEM_CHARS_MAX:
        return job
    checksum = hashlib.sha256(job.encode()).hexdigest()[:_CHECKSUM_CHARS]
    return f"{job[: STEM_CHARS_MAX - _CHECKSUM_CHARS - 1]}~{checksum}"


def parse_name(file: str) -> DoorName | None:
    """The door that a file of the folder is, or None."""
    if not file.endswith(SUFFIX) or file.startswith("."):
        return None
    stem, dot, pid = file.removesuffix(SUFFIX).partition(".")
    if dot and not pid.isdecimal():
        return None
    return DoorName(stem, int(pid) if dot else None)


def possible_folders(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Where this user's doors may lie, best first. None of them need be there."""
    uid = os.getuid()
    places = []
    if environment.get("XDG_RUNTIME_DIR"):
        places.append(Path(environment["XDG_RUNTIME_DIR"], "arkflow_ray"))
    places.append(Path(f"/run/user/{uid}/arkflow_ray"))
    places += [Path(base, f"arkflow_ray-{uid}") for base in (tempfile.gettempdir(), "/tmp")]
    room = SOCKET_PATH_BYTES_MAX - _NAME_BYTES_MAX - 1
    short = [place for place in places if len(os.fsencode(place)) <= room]
    return list(dict.fromkeys(short))


def usable_folders(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """The folders that are there and are ours."""
    found = []
    for place in possible_folders(environment):
        try:
            check_private(place)
        except (OSError, UnsafeFolderError):
            continue
        found.append(place)
    return found


def make_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder for a new door; made if it must be.

    Raises `UnsafeFolderError` if no place can be used, with the reason of each.
    """
    reasons = []
    for place in possible_folders(environment):
        try:
            place.mkdir(mode=0o700, exist_ok=True)
            check_private(place)
        except (OSError, UnsafeFolderError) as error:
            reasons.append(f"{place}: {getattr(error, 'strerror', None) or error}")
            continue
        return place
    raise UnsafeFolderError("; ".join(reasons))


def check_private(place: Path) -> None:
    """Raise unless this is a folder of this user with mode 0700 (`OSError` if it is not there)."""
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeFolderError("is no folder")
    if found.st_uid != os.getuid():
        raise UnsafeFolderError(f"belongs to user {found.st_uid}")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise UnsafeFolderError(f"others may look into it (mode {stat.S_IMODE(found.st_mode):o})")


__all__ = [
    "SOCKET_PATH_BYTES_MAX",
    "DoorName",
    "UnsafeFolderError",
    "check_private",
    "door_stem",
    "make_folder",
    "parse_name",
    "possible_folders",
    "usable_folders",
]
