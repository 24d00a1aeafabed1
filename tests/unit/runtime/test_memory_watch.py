"""The memory of a chain's process against its budget (R2)."""

from collections.abc import Iterator

import pytest

from arkflow_kernel.errors import MemoryBudgetError, ResourceError
from arkflow_kernel.ids import ChainId, TaskId
from arkflow_kernel.plan import ChainPlan
from arkflow_ray.runtime.memory_watch import MemoryWatch, memory_watch, resident_bytes

MIB = 1024 * 1024
TASKS = (TaskId("in-0"), TaskId("big-0"))
PLAN = ChainPlan(ChainId("in-0"), None, (), (), (), tasks=TASKS, resources={"memory_bytes": MIB})


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    """Whatever other tests of this process noted."""
    before, MemoryWatch.least_bytes = MemoryWatch.least_bytes, None
    yield
    MemoryWatch.least_bytes = before


def test_what_the_process_takes_by_itself_is_not_counted() -> None:
    resident = [300 * MIB, 300 * MIB + 10 * MIB, 300 * MIB + 11 * MIB]
    watch = MemoryWatch(PLAN, 10 * MIB, lambda: resident.pop(0))
    assert watch.sample() is None
    error = watch.sample()
    assert isinstance(error, ResourceError)
    assert error.message == (
        "chain 'in-0' (in-0, big-0) holds 11 MiB of memory beside the 300 MiB that its process "
        "takes by itself, more than the 10 MiB of `memory_bytes`; raise `resources.memory_bytes`, "
        "or lower what it holds: `state.memory_bytes`, `channel.chain_bytes`"
    )


def test_a_process_that_hosts_another_generation_keeps_the_least_that_it_took() -> None:
    """P1: what the generation before left in memory is no allowance of the next one."""
    MemoryWatch(PLAN, MIB, lambda: 100 * MIB)
    resident = [500 * MIB, 500 * MIB]
    assert MemoryWatch(PLAN, MIB, lambda: resident.pop(0)).sample() is not None


def test_the_sample_is_this_processs_own_memory() -> None:
    watch = memory_watch(PLAN)
    assert watch is not None
    held = bytearray(64 * MIB)
    held[::4096] = b"x" * len(held[::4096])
    assert isinstance(watch.sample(), MemoryBudgetError)
    assert resident_bytes() > len(held)


def test_only_a_chain_with_memory_bytes_is_watched() -> None:
    assert memory_watch(ChainPlan(ChainId("a-0"), None, (), (), ())) is None
