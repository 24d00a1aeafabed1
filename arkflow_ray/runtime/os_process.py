"""A process of this node, told apart from any later one with the same number; its certain end.

Ray calls an actor dead as soon as it gave the order; a process that is stopped or busy is there
for seconds longer and could still write. Attempts must not overlap (D4), so it is looked at here.
"""

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class OsProcess:
    """A process and when it began, in ticks since the node's start: numbers are given again."""

    pid: int
    started: int

    def is_alive(self) -> bool:
        """Whether it runs or could run again (a stopped one can, a zombie cannot)."""
        return _stat(self.pid) == (self.started, True)

    async def end(self, timeout_s: float) -> bool:
        """Kill it without asking, and wait until it is gone; False if it is still there."""
        if self.is_alive():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)
        for _ in range(int(timeout_s / LOOK_S)):
            if not self.is_alive():
                return True
            await asyncio.sleep(LOOK_S)
        return not self.is_alive()


def this_process() -> OsProcess:
    """The process that calls."""
    pid = os.getpid()
    return OsProcess(pid, started_ticks(pid))


def started_ticks(pid: int) -> int:
    """When a process began; 0 if there is none."""
    found = _stat(pid)
    return 0 if found is None else found[0]


def _stat(pid: int) -> tuple[int, bool] | None:
    """When the process began, and whether it can run; None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(fields[19]), fields[0] not in "ZX"


__all__ = ["OsProcess", "started_ticks", "this_process"]
