"""A source has no more subtasks than can share its input (K5)."""

from collections.abc import Callable
from typing import Any

import pytest

from arkflow_kernel.job import JobSpec
from arkflow_kernel.source_rules import any_number, source_issues

Jobs = Callable[..., JobSpec]


def inherited(entry: dict[str, Any]) -> None:
    entry["parallelism"] = 4


def own(entry: dict[str, Any]) -> None:
    entry["operators"][0]["parallelism"] = 4


@pytest.mark.parametrize(
    ("change", "most", "told"),
    [
        (
            own,
            1,
            "source 'gates' has parallelism 4, and input 'memory', as it is configured, can only "
            "be read by one subtask: set `parallelism: 1` here; ",
        ),
        (
            inherited,
            1,
            "source 'gates' gets from the job parallelism 4, and input 'memory', as it is "
            "configured, can only be read by one subtask: set `parallelism: 1` here; ",
        ),
        (
            own,
            3,
            "source 'gates' has parallelism 4, and its input can be shared by 3: set it to 3 at "
            "most, or give the input more splits; ",
        ),
    ],
)
def test_a_source_that_has_more_subtasks_than_splits_is_refused_with_what_to_do(
    job: Jobs, change: Callable[[dict[str, Any]], None], most: int, told: str
) -> None:
    (issue,) = source_issues(job(change), lambda _: most)
    assert issue.path == "operators[0].parallelism"
    edges = "a forward edge behind it becomes `type: rebalance` or `partitioned: true`"
    assert issue.message == told + edges


@pytest.mark.parametrize("change", [None, own, inherited])
def test_a_source_is_right_as_long_as_its_input_can_be_shared(
    job: Jobs, change: Callable[[dict[str, Any]], None] | None
) -> None:
    assert list(source_issues(job(change), any_number)) == []
    assert list(source_issues(job(change), lambda _: 4)) == []
