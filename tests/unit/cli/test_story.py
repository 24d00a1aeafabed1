"""What a run tells of its jobs, once each: restarts, and waits that stall (D3, E5)."""

import io
import logging
from dataclasses import replace

import pytest

from arkflow_kernel.ids import ChainId, Generation, MonotonicMs, WallMs
from arkflow_kernel.metrics import Wait
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import JobState, JobStatus, Transition
from arkflow_ray.observability.display import LiveDisplay, LogDisplay
from arkflow_ray.observability.figures import JobFigures
from arkflow_ray.observability.screen import Screen
from arkflow_ray.observability.story import JobStory

NOW = Moment(MonotonicMs(0), WallMs(0))
FAILED = "chain 'sink-0' failed: disk full"
AGAIN = "restart 1: source 'in' continues at the positions that it reported 0.4 s before"

Changes = list[tuple[JobState, JobState, str]]

RESTART: Changes = [
    (JobState.CREATED, JobState.DEPLOYING, "begin"),
    (JobState.DEPLOYING, JobState.RUNNING, "all 2 chains are ready"),
    (JobState.RUNNING, JobState.RESTARTING, FAILED),
    (JobState.RESTARTING, JobState.RESTARTING, f"{FAILED}; the next attempt starts at once"),
    (JobState.RESTARTING, JobState.DEPLOYING, AGAIN),
    (JobState.DEPLOYING, JobState.RUNNING, "all 2 chains are ready"),
]


def status(changes: Changes, generation: int = 1, *waits: Wait) -> JobStatus:
    transitions = tuple(
        Transition(number + 1, NOW, *change) for number, change in enumerate(changes)
    )
    return JobStatus(
        transitions[-1].after if transitions else JobState.CREATED,
        "",
        NOW,
        generation=Generation(generation),
        restarts=generation - 1,
        waits={ChainId("sink-0"): waits} if waits else {},
        transitions=transitions,
    )


def texts(story: JobStory, seen: JobStatus) -> list[str]:
    return [event.text for event in story.news(seen)]


def test_a_restart_is_told_once_with_its_cause_and_where_sources_continue() -> None:
    story = JobStory("orders")
    told = [texts(story, status(RESTART[:count], 1 + (count > 4))) for count in range(7)]
    assert told == [
        *([[]] * 3),
        [f"job orders: {FAILED}; this attempt ends"],
        [],
        [f"job orders: {AGAIN}"],
        [],
    ]
    assert texts(story, status(RESTART, 2)) == []


def test_everything_is_told_in_order_to_one_who_looks_late() -> None:
    found = texts(JobStory("orders"), status(RESTART, 2))
    assert found == [f"job orders: {FAILED}; this attempt ends", f"job orders: {AGAIN}"]


def test_a_cause_that_was_only_the_consequence_of_another_is_corrected() -> None:
    broken = "chain 'in-0' failed: channel e[0-0]: it closed the connection"
    changes = list(RESTART)
    changes[2] = (JobState.RUNNING, JobState.RESTARTING, broken)
    assert texts(JobStory("orders"), status(changes, 2)) == [
        f"job orders: {broken}; this attempt ends",
        f"job orders: {FAILED}; the next attempt starts at once",
        f"job orders: {AGAIN}",
    ]


def test_a_cause_of_several_lines_is_told_in_one() -> None:
    changes = [(JobState.RUNNING, JobState.RESTARTING, "chain 'a' failed: x\n  line 2\n")]
    assert texts(JobStory("orders"), status(changes)) == [
        "job orders: chain 'a' failed: x line 2; this attempt ends"
    ]


def test_a_restart_that_waits_says_how_long() -> None:
    waits = "chain 'a' failed: x; the next attempt starts in 2 s"
    changes = [*RESTART[:3], (JobState.RESTARTING, JobState.RESTARTING, waits)]
    assert texts(JobStory("orders"), status(changes))[-1] == f"job orders: {waits}"


def test_a_stop_that_finds_a_failed_attempt_is_told_with_the_failure() -> None:
    cause = f"{FAILED}; it is not restarted: a stop was requested"
    changes = [*RESTART[:3], (JobState.RESTARTING, JobState.STOPPED, cause)]
    assert texts(JobStory("orders"), status(changes))[-1] == f"job orders: {cause}"


def test_a_stall_is_told_once_and_again_when_it_is_over() -> None:
    story = JobStory("orders")
    wait = Wait("sink 'out'", "a write has not returned", 30_400)
    seen = [status([], 1, wait), status([], 1, replace(wait, waited_ms=31_400)), status([], 1)]
    assert [texts(story, each) for each in seen] == [
        [
            "job orders: chain 'sink-0' has waited 30 s for sink 'out': a write has not returned; "
            "it goes on waiting"
        ],
        [],
        ["job orders: chain 'sink-0' waits no longer for sink 'out'"],
    ]


def test_a_stall_that_ends_with_its_attempt_does_not_go_on() -> None:
    story = JobStory("orders")
    assert texts(story, status([], 1, Wait("sink 'out'", "x", 30_000)))
    assert texts(story, status([], 2)) == []


def test_events_are_log_lines_with_fields(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "arkflow_ray")
    display = LogDisplay()
    for event in JobStory("orders").news(status(RESTART, 2)):
        display.event(event)
    first, _ = caplog.records
    assert first.levelname == "WARNING"
    assert vars(first)["fields"] == {
        "job": "orders",
        "state": "restarting",
        "cause": FAILED,
        "generation": 2,
        "restarts": 1,
    }


def test_a_job_that_restarts_has_no_line_beside_its_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "arkflow_ray")
    LogDisplay().update([JobFigures("orders", JobState.RESTARTING, FAILED, 2, restarts=1)])
    assert caplog.messages == []


def test_the_live_display_keeps_events_above_its_table_and_counts_restarts() -> None:
    stderr = io.StringIO()
    display = LiveDisplay(Screen(stderr, live=True, shared=False))
    for event in JobStory("orders").news(status(RESTART, 2)):
        display.event(event)
    display.update([JobFigures("orders", JobState.RUNNING, "", 2, 2, restarts=1)])
    assert any("running, 1 restart" in line for line in display.frame(100, 24))
    display.close()
    assert f"job orders: {AGAIN}\n" in stderr.getvalue()
