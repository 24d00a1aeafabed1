"""What a chain may take of a CPU: a token bucket that may go into debt (R2). Pure.

Credit grows with the wall clock, `cpu_millicores` thousandths of it, up to a bounded burst. What
an item costs is known when it is done, so it is booked then, and the next item waits until the
debt is paid. Over any window the items that began in it cost at most the share of its length, the
burst and one item (one for each lane that works at the same time), and no item waits longer than
the debt takes.
"""

from typing import Final

CPU_BURST_NS: Final = 100_000_000
"""CPU time that may be saved up while nothing is done."""

_CORE: Final = 1_000
"""Millicores of a whole core; credit is counted in nanoseconds of a millicore, so it is exact."""


class CpuMeter:
    """Of one chain. All times are in nanoseconds; `now_ns` is of a monotonic clock."""

    def __init__(self, millicores: int, now_ns: int, burst_ns: int = CPU_BURST_NS) -> None:
        if millicores < 1 or burst_ns < 1:
            raise ValueError("a meter without budget would wait for ever")
        self._millicores = millicores
        self._most = burst_ns * _CORE
        self._credit = self._most
        self._at_ns = now_ns

    def used(self, now_ns: int, cpu_ns: int) -> None:
        """So much CPU time was used up to now."""
        self._grow(now_ns)
        self._credit -= cpu_ns * _CORE

    def wait_ns(self, now_ns: int) -> int:
        """How long from now on nothing may begin; 0: it may begin now."""
        self._grow(now_ns)
        return max(0, -(self._credit // self._millicores))

    def _grow(self, now_ns: int) -> None:
        passed = max(0, now_ns - self._at_ns)
        self._at_ns = max(self._at_ns, now_ns)
        self._credit = min(self._most, self._credit + passed * self._millicores)


__all__ = ["CPU_BURST_NS", "CpuMeter"]
