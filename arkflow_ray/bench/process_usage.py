"""CPU, memory and place in a file of a program and all that descends from it, read from /proc."""

import os
import pathlib
from typing import Final

TICKS: Final = os.sysconf("SC_CLK_TCK")
_PROC: Final = pathlib.Path("/proc")
_GONE: Final = (FileNotFoundError, ProcessLookupError)


def processes(root: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for stat in _PROC.glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except _GONE:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of processes and of their children that have ended."""
    ticks = 0
    for pid in pids:
        try:
            fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except _GONE:
            continue
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / TICKS


def peak_bytes(pids: list[int], name: str) -> int:
    """The most memory that any of the processes of this name has had; 0 if there is none."""
    most = 0
    for pid in pids:
        try:
            status = (_PROC / str(pid) / "status").read_text()
        except _GONE:
            continue
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        if fields["Name"] == name and "VmHWM" in fields:
            most = max(most, int(fields["VmHWM"].split()[0]) * 1024)
    return most


def places_in(sources: list[pathlib.Path], pids: list[int]) -> dict[pathlib.Path, int]:
    """How far the processes have read the files that they have open: bytes by file."""
    wanted = {str(source): source for source in sources}
    found: dict[pathlib.Path, int] = {}
    for pid in pids:
        try:
            for link in (_PROC / str(pid) / "fd").iterdir():
                source = wanted.get(os.readlink(link))
                if source is not None:
                    info = (_PROC / str(pid) / "fdinfo" / link.name).read_text()
                    found[source] = max(found.get(source, 0), int(info.split()[1]))
        except (*_GONE, PermissionError):
            continue
    return found


__all__ = ["cpu_seconds", "peak_bytes", "places_in", "processes"]
