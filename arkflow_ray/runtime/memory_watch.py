"""Compares the memory of a chain's process with its `memory_bytes` (R2).

Counted is what the process holds beyond what it took when its chain was built and held no row:
Python, Ray and the libraries of the components are not the job's. A process that was given to a
later generation keeps the least that it ever took.
"""

import os
from collections.abc import Callable
from typing import Final

from arkflow_kernel.errors import MemoryBudgetError
from arkflow_kernel.limits import MIB
from arkflow_kernel.plan import ChainPlan

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_STATM: Final = "/proc/self/statm"


class MemoryWatch:
    """Of one chain. Made when its components are built, before they are opened."""

    least_bytes: int | None = None
    """The least that this process ever took."""

    def __init__(self, plan: ChainPlan, budget_bytes: int, resident: Callable[[], int]) -> None:
        self._plan = plan
        self._budget_bytes = budget_bytes
        self._resident = resident
        now = resident()
        known = MemoryWatch.least_bytes
        MemoryWatch.least_bytes = now if known is None else min(known, now)
        self._own_bytes = MemoryWatch.least_bytes

    def sample(self) -> MemoryBudgetError | None:
        """The error if the process holds too much now."""
        held = self._resident() - self._own_bytes
        if held <= self._budget_bytes:
            return None
        tasks = ", ".join(self._plan.tasks) or self._plan.chain
        return MemoryBudgetError(
            f"chain '{self._plan.chain}' ({tasks}) holds {_mib(held)} of memory beside the "
            f"{_mib(self._own_bytes)} that its process takes by itself, more than the "
            f"{_mib(self._budget_bytes)} of `memory_bytes`; raise `resources.memory_bytes`, or "
            "lower what it holds: `state.memory_bytes`, `channel.chain_bytes`"
        )


def resident_bytes() -> int:
    """Resident memory of this process."""
    with open(_STATM, encoding="ascii") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES


def memory_watch(plan: ChainPlan) -> MemoryWatch | None:
    """That of a chain that has `memory_bytes`."""
    budget = plan.resources.get("memory_bytes")
    return None if budget is None else MemoryWatch(plan, int(budget), resident_bytes)


def _mib(size: int) -> str:
    return f"{size / MIB:,.0f} MiB"


__all__ = ["MemoryWatch", "memory_watch", "resident_bytes"]
