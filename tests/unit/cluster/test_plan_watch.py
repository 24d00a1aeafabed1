"""The plan at work is noted for the next runner, also when the store is silent for a while (P8)."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from arkflow_kernel.errors import ClusterError
from arkflow_kernel.protocol import JobState
from arkflow_ray.cluster import job_runner


class Jobs:
    """One job at work, which is over after some looks."""

    def __init__(self, *plans: Mapping[str, int]) -> None:
        self._plans = iter(plans)
        self.jobs: dict[str, Any] = {"shop": SimpleNamespace(status=self._status)}
        self._left = len(plans)

    def _status(self) -> Any:
        return SimpleNamespace(state=JobState.RUNNING, parallelism=next(self._plans))

    def wait(self, _: float) -> bool:
        self._left -= 1
        return self._left < 0


def watched(jobs: Any, note: Any) -> None:
    job_runner._watch_plan(jobs, note).join(30)


def test_each_plan_is_noted_once() -> None:
    noted: list[Mapping[str, int]] = []
    watched(Jobs({"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}, {"a": 1}), noted.append)
    assert noted == [{"a": 1}, {"a": 2}, {"a": 1}]


def test_a_plan_that_the_store_did_not_take_is_noted_when_it_answers_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    noted: list[Mapping[str, int]] = []
    asked = 0

    def note(plan: Mapping[str, int]) -> None:
        nonlocal asked
        asked += 1
        if asked in (2, 3):
            raise ClusterError("the cluster's store does not answer: GCS is down")
        noted.append(plan)

    with caplog.at_level("WARNING", "arkflow_ray.runner"):
        watched(Jobs(*[{"a": 1}] * 2, *[{"a": 2}] * 4), note)
    assert noted == [{"a": 1}, {"a": 2}]
    assert asked == 4
    assert caplog.text.count("is not noted yet") == 1
