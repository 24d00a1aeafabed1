"""What a user is told of autoscaling: every decision with its reason, once, and what came of it
(K6)."""

import json
from dataclasses import replace
from typing import Any

import pytest

from arkflow_kernel.autoscale import AutoscaleMode, AutoscaleStatus, GroupFigures, ScaleDecision
from arkflow_kernel.ids import MonotonicMs, OperatorId, WallMs
from arkflow_ray.cli.autoscale_lines import autoscale_lines
from arkflow_ray.observability.autoscale_story import AutoscaleStory, autoscale_values
from arkflow_ray.runtime.autoscaling import AutoscaleTold, Decided

FIGURES = GroupFigures(
    (OperatorId("slow"), OperatorId("then")), 1, 2, 0.7, 0.95, 0.95, 1000.0, 1000.0, 1 / 0.00095
)
DECISION = ScaleDecision(
    MonotonicMs(7),
    {OperatorId("slow"): 2, OperatorId("then"): 2},
    (FIGURES,),
    FIGURES.sentence(),
    act=True,
)
SENTENCE = (
    "'slow' 1 -> 2: 95% busy at 1,000 rows/s; the sources offer it 1,000, one subtask can take "
    "1,053: 95% busy, the goal is 70%"
)


def told(outcome: str | None, error: str | None = None, number: int = 1) -> AutoscaleTold:
    """Autoscaling after a decision of which this came; None: before the first."""
    machine = AutoscaleStatus(AutoscaleMode.ON, "the next change may follow in 40 s", (FIGURES,))
    last = None if outcome is None else Decided(number, WallMs(2_000), DECISION, outcome, error)
    return AutoscaleTold(machine, last)


def test_a_decision_is_told_once_with_its_reason_and_again_only_if_it_comes_to_nothing() -> None:
    story = AutoscaleStory("shop")
    outcomes = [None, "under way", "under way", "done", "done"]
    lines = [[event.text for event in story.news(told(outcome))] for outcome in outcomes]
    assert lines == [[], [f"job shop: autoscale: {SENTENCE}; under way"], [], [], []]
    (event,) = story.news(told("failed", "no room\nfor it", number=2))
    assert event.text == f"job shop: autoscale: {SENTENCE}; it was not done: no room for it"
    assert event.warning
    assert event.fields == {
        "job": "shop",
        "decision": 2,
        "parallelism": {"slow": 2, "then": 2},
        "outcome": "failed",
        "error": "no room\nfor it",
    }
    (event,) = story.news(told("told", number=3))
    assert event.text.endswith("the goal is 70%; in mode `observe` nothing is done")
    assert not event.warning
    assert story.news(None) == []


def test_what_stays_as_it_is_and_a_fault_are_told_once() -> None:
    story = AutoscaleStory("shop")
    kept = replace(told(None), kept={"slow": "it has state"})
    assert [event.text for event in story.news(kept)] == [
        "job shop: autoscale: leaves 'slow' as it is: it has state"
    ]
    assert story.news(kept) == []
    (event,) = story.news(replace(kept, fault="KeyError: 'x'"))
    assert event.text == "job shop: autoscale: has ended: KeyError: 'x'"
    assert event.warning
    assert story.news(replace(kept, fault="KeyError: 'x'")) == []


def test_status_tells_the_figures_the_decision_and_its_age() -> None:
    values = autoscale_values(told("done"), WallMs(32_000))
    assert values is not None
    shown: dict[str, Any] = json.loads(json.dumps(values))
    (group,) = shown.pop("groups")
    assert shown == {
        "mode": "on",
        "text": "the next change may follow in 40 s",
        "kept": {},
        "decision": {
            "number": 1,
            "parallelism": {"slow": 2, "then": 2},
            "age_ms": 30_000,
            "outcome": "done",
            "error": None,
            "text": f"{SENTENCE}; done",
        },
    }
    assert group == {
        "operators": ["slow", "then"],
        "parallelism": 1,
        "wanted": 2,
        "target_busy": 0.7,
        "busy": 0.95,
        "load": 0.95,
        "rate": 1000.0,
        "target_rate": 1000.0,
        "true_rate": 1052.632,
        "note": "",
        "text": SENTENCE,
    }


@pytest.mark.parametrize(
    ("scaling", "lines"),
    [
        (None, []),
        (told(None), ["  autoscale on: the next change may follow in 40 s"]),
        (
            replace(told("failed", "no room"), kept={"slow": "it has state"}),
            [
                "  autoscale on: the next change may follow in 40 s",
                "            'slow' stays as it is: it has state",
                f"  decided   30 s ago: {SENTENCE}; it was not done: no room",
            ],
        ),
        (
            replace(told(None), fault="KeyError: 'x'"),
            ["  autoscale on: it has ended: KeyError: 'x'"],
        ),
    ],
)
def test_status_for_a_person(scaling: AutoscaleTold | None, lines: list[str]) -> None:
    values = autoscale_values(scaling, WallMs(32_000))
    assert list(autoscale_lines({"autoscale": values})) == lines
