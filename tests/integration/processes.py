"""What runs on this machine, as /proc tells it."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Seen(NamedTuple):
    """A process that was there a moment ago."""

    pid: int
    state: str
    parent: int
    session: int


def processes() -> Iterator[Seen]:
    """All of them."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The second field, in brackets, may hold spaces and brackets.
            state, parent, _, session = stat.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        yield Seen(int(stat.parent.name), state, int(parent), int(session))


def family(pid: int) -> list[int]:
    """A process and all that came of it."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for each in processes():
        children[each.parent].append(each.pid)
    found = [pid]
    for each_pid in found:
        found += children[each_pid]
    return found


def parent_of(pid: int) -> int | None:
    """The parent of a process; None if it is gone."""
    return next((each.parent for each in processes() if each.pid == pid), None)


def in_session(leader: int) -> list[int]:
    """The processes of a session that have not ended."""
    return [each.pid for each in processes() if each.session == leader and each.state != "Z"]


def command_line(pid: int) -> str | None:
    """What was started, or the title that it gave itself; None if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return None


__all__ = ["Seen", "command_line", "family", "in_session", "parent_of", "processes"]
