"""Which process hosts which chain of the next plan (K2)."""

import pytest

from arkflow_kernel.chain_hosts import hosts, parallelism_of
from arkflow_kernel.graph import key_group_range
from arkflow_kernel.ids import ChainId
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.testing.plans import job_plan, stage_plans

GROUPS = 128


def _graph(count: int, read: int = 1) -> ExecutionGraph:
    return job_plan(
        *stage_plans("read", read, sinks=()), *stage_plans("count", count, operators=("sum",))
    )


def _placed(before: int, after: int) -> list[str]:
    """The processes of `count`'s subtasks, in order."""
    found = hosts(_graph(before), _graph(after))
    assert found[ChainId("read-0")] == "read-0"
    return [str(found[ChainId(f"count-{i}")]) for i in range(after)]


@pytest.mark.parametrize(
    ("before", "after", "placed"),
    [
        (1, 1, ["count-0"]),
        (1, 2, ["count-0", "count-1"]),
        (2, 4, ["count-0", "count-2", "count-1", "count-3"]),
        (2, 3, ["count-0", "count-2", "count-1"]),
        (4, 2, ["count-0", "count-2"]),
        (4, 1, ["count-0"]),
        (3, 2, ["count-0", "count-2"]),
    ],
)
def test_a_subtask_lives_where_most_of_its_key_groups_are_and_others_in_additional_processes(
    before: int, after: int, placed: list[str]
) -> None:
    assert _placed(before, after) == placed


@pytest.mark.parametrize("before", [1, 2, 3, 5, 8, 13, 64])
@pytest.mark.parametrize("after", [1, 2, 4, 7, 16, 100])
def test_every_process_is_used_once_and_as_few_as_possible_are_added(
    before: int, after: int
) -> None:
    placed = _placed(before, after)
    assert len(set(placed)) == after
    known = {f"count-{i}" for i in range(before)}
    kept = [name for name in placed if name in known]
    assert len(kept) == min(before, after), "nobody is added while one is free"
    added = {f"count-{i}" for i in range(before, after)}
    assert set(placed) - known <= added, "who is added is a chain of the new plan"


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 5), (5, 3), (8, 6), (1, 4), (7, 2)])
def test_no_exchange_of_two_subtasks_would_leave_more_where_it_is(before: int, after: int) -> None:
    placed = _placed(before, after)

    def share(subtask: int, host: str) -> int:
        index = int(host.rpartition("-")[2])
        if index >= before:
            return 0
        own = key_group_range(subtask, after, GROUPS)
        there = key_group_range(index, before, GROUPS)
        return len(set(own) & set(there))

    now = [share(i, host) for i, host in enumerate(placed)]
    for i in range(after):
        for j in range(i):
            assert share(i, placed[j]) + share(j, placed[i]) <= now[i] + now[j]


def test_a_chain_whose_name_changes_with_its_operators_goes_to_the_process_that_had_them() -> None:
    """Operators that were fused are apart in the new plan, because one of them has two subtasks."""
    fused = job_plan(*stage_plans("read", 1, operators=("sum",), sinks=("out",)))
    apart = job_plan(
        *stage_plans("read", 1, sinks=()),
        *stage_plans("sum", 2, operators=("sum",), sinks=("out",)),
    )
    found = hosts(fused, apart)
    assert found == {"read-0": "read-0", "sum-0": "sum-0", "sum-1": "sum-1"}
    back = hosts(apart, fused)
    assert back == {"read-0": "read-0"}


def test_the_parallelism_of_a_plan_is_told_by_operator() -> None:
    assert parallelism_of(_graph(3)) == {"read": 1, "count": 3, "sum": 3, "sink": 3}
