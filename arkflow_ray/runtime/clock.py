"""The real clocks of the drivers: the system's, and one of the time in which a process ran."""

import threading
import time

from arkflow_kernel.ids import MonotonicMs, WallMs
from arkflow_kernel.ports import Moment


class SystemClock:
    """`Clock` over the system's clocks. `wake` works from any thread or signal handler."""

    def __init__(self) -> None:
        self._woken = threading.Event()

    def moment(self) -> Moment:
        """Both clocks, now."""
        now_ms = MonotonicMs(time.monotonic_ns() // 1_000_000)
        return Moment(now_ms, WallMs(time.time_ns() // 1_000_000))

    def wait_until(self, deadline_ms: MonotonicMs | None) -> None:
        """Wait for the deadline or a `wake`, whichever is first."""
        wait_s = None
        if deadline_ms is not None:
            wait_s = max(0.0, (deadline_ms - time.monotonic_ns() / 1_000_000) / 1000)
        self._woken.wait(wait_s)
        self._woken.clear()

    def wake(self) -> None:
        """End the wait in progress, or the next one."""
        self._woken.set()


class RunningClock(SystemClock):
    """A `SystemClock` without the time in which its own process stood still (D2).

    A coordinator that was stopped or starved heard nobody, which is no one's silence.
    """

    def __init__(self) -> None:
        super().__init__()
        self._left_out_ms = 0

    def moment(self) -> Moment:
        """Both clocks, now."""
        moment = super().moment()
        return Moment(MonotonicMs(moment.now_ms - self._left_out_ms), moment.wall_ms)

    def leave_out(self, late_ms: int) -> None:
        """Something that was due came so late, because the process did not run."""
        self._left_out_ms += late_ms


__all__ = ["RunningClock", "SystemClock"]
