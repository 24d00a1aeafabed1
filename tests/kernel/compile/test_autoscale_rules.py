"""`autoscale:` of a job and its operators: what it means, what is refused (K6, C6)."""

from collections.abc import Callable
from typing import Any

import pytest

from arkflow_kernel.autoscale_rules import asks_for_autoscale, autoscale_bounds
from arkflow_kernel.autoscale_stages import ScaleBounds
from arkflow_kernel.job import JobSpec
from arkflow_kernel.job_validation import unavailable, validate_job
from arkflow_kernel.topology import Topology

Jobs = Callable[..., JobSpec]
Change = Callable[[dict[str, Any]], None]


def _change(
    job: dict[str, Any] | None, own: dict[int, dict[str, Any]] | None = None, **keys: Any
) -> Change:
    """The job's block, the blocks of operators by their index, other keys of the job."""

    def change(entry: dict[str, Any]) -> None:
        if job is not None:
            entry["autoscale"] = job
        for index, block in (own or {}).items():
            entry["operators"][index]["autoscale"] = block
        entry.update(keys)

    return change


@pytest.mark.parametrize(
    ("change", "bounds"),
    [
        (_change(None), {}),
        (_change({"mode": "off", "max": 4}, {1: {"max": 2}}), {}),
        (_change({"max": 4}), {"text": ScaleBounds(1, 4, 0.7)}),
        (_change({}, max_parallelism=9), {"text": ScaleBounds(1, 9, 0.7)}),
        (_change({"max": 4}, {1: {"mode": "off"}}), {}),
        (
            _change({"max": 4, "target_busy": 0.5}, {2: {"max": 2, "target_busy": 0.9}}),
            {"text": ScaleBounds(1, 4, 0.5), "totals": ScaleBounds(1, 2, 0.9)},
        ),
        (_change(None, {0: {"max": 3}}), {"gates": ScaleBounds(1, 3, 0.7)}),
    ],
)
def test_who_may_change_and_within_what(
    job: Jobs, change: Change, bounds: dict[str, ScaleBounds]
) -> None:
    assert autoscale_bounds(Topology(job(change))) == bounds


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        (_change({"min": 5, "max": 4}), "autoscale.min", "`autoscale.min` is 5, above"),
        (_change({"max": 200}), "autoscale.max", "above max_parallelism (128)"),
        (_change({"min": 2, "max": 4}), "autoscale", "'text' starts with 1 subtasks"),
        (_change({}, {1: {"min": 3, "max": 2}}), "operators[1].autoscale", "min` of operator"),
        (_change({}, {1: {"max": 129}}), "operators[1].autoscale", "above max_parallelism (128)"),
        (_change(None, {0: {"min": 2}}), "operators[0].autoscale", "'gates' starts with 1"),
    ],
)
def test_bounds_that_cannot_hold_are_refused(
    job: Jobs, change: Change, path: str, message: str
) -> None:
    [issue] = validate_job(job(change))
    assert issue.path == path
    assert message in issue.message


def test_every_mode_but_off_asks_for_it_and_is_there(job: Jobs) -> None:
    def places(change: Change) -> list[str]:
        spec = job(change)
        assert unavailable(spec) == []
        return list(asks_for_autoscale(Topology(spec)))

    for mode in ("on", "observe"):
        assert places(_change({"mode": mode, "max": 4})) == ["autoscale"]
    assert places(_change(None, {1: {"max": 4}})) == ["operators[1].autoscale"]
    assert places(_change({"mode": "off"}, {1: {"max": 4}})) == []
    assert places(_change(None)) == []
