"""Tells a coordinator the reports of a chain that cannot wait, from a thread of its own.

A call of Ray may take a while (it finds the actor first), and the chain's loop must never wait.
Reports are level-triggered: the newest one says what those before it said, so only it is kept.
"""

import threading
from collections.abc import Callable

from arkflow_kernel.protocol import ChainReport


class ReportPusher:
    """Calls `tell` with the newest report. Callable from the chain's loop; returns at once."""

    def __init__(self, tell: Callable[[ChainReport], object]) -> None:
        self._tell = tell
        self._changed = threading.Condition()
        self._newest: ChainReport | None = None
        self._closed = False
        threading.Thread(target=self._run, name="report-pusher", daemon=True).start()

    def __call__(self, report: ChainReport) -> None:
        """Have it told; one that was not told yet is dropped."""
        with self._changed:
            self._newest = report
            self._changed.notify()

    def close(self) -> None:
        """Tell no more; does not wait."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while (report := self._next()) is not None:
            self._tell(report)

    def _next(self) -> ChainReport | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._newest is not None)
            report, self._newest = self._newest, None
            return None if self._closed else report


__all__ = ["ReportPusher"]
