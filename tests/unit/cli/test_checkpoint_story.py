"""What a run tells of its checkpoints, once each: restores, failed rounds, savepoints."""

from dataclasses import replace
from typing import Any

from arkflow_kernel.errors import StoreError
from arkflow_kernel.ids import Generation, MonotonicMs, WallMs
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import CheckpointStatus, JobState, JobStatus, Transition
from arkflow_ray.observability.story import JobStory

NOW = Moment(MonotonicMs(0), WallMs(0))


def status(state: JobState, generation: int = 1, **fields: Any) -> JobStatus:
    told = CheckpointStatus(**fields)
    return JobStatus(state, "", NOW, generation=Generation(generation), checkpoints=told)


def texts(story: JobStory, seen: JobStatus) -> list[str]:
    return [event.text for event in story.news(seen)]


def test_what_the_log_said_is_told_once() -> None:
    story = JobStory("shop")
    said = "continues from checkpoint 12; operator 'count' is new and starts empty"
    asked = Transition(1, NOW, JobState.CREATED, JobState.DEPLOYING, "begin: the log is asked")
    answer = Transition(2, NOW, JobState.DEPLOYING, JobState.DEPLOYING, said)
    seen = replace(status(JobState.DEPLOYING), transitions=(asked, answer))
    assert texts(story, seen) == [f"job shop: {said}"]
    assert texts(story, seen) == []


def test_a_job_that_was_finished_says_so() -> None:
    story = JobStory("shop")
    said = "already finished at checkpoint 12"
    end = Transition(2, NOW, JobState.DEPLOYING, JobState.FINISHED, said)
    seen = replace(status(JobState.FINISHED), transitions=(end,))
    assert texts(story, seen) == [f"job shop: {said}"]


def test_each_failed_round_is_told_and_a_new_row_of_them_too() -> None:
    story = JobStory("shop")
    state = JobState.DEPLOYING
    assert texts(story, status(state, failures=1, error="no space")) == [
        "job shop: a checkpoint failed: no space; data go on"
    ]
    assert texts(story, status(state, failures=1, error="no space")) == []
    assert texts(story, status(state, failures=2, error="no space")) == [
        "job shop: a checkpoint failed, 2 in a row: no space; data go on"
    ]
    assert texts(story, status(state)) == []
    assert len(texts(story, status(state, failures=1, error="no space"))) == 1


def test_savepoints_are_told_with_their_place_or_their_error() -> None:
    story = JobStory("shop")
    seen = status(JobState.DEPLOYING, savepoints={"a": "file:///a", "b": StoreError("full")})
    assert texts(story, seen) == [
        "job shop: savepoint 'a' is complete: file:///a",
        "job shop: savepoint 'b' failed: full",
    ]
    assert texts(story, seen) == []


def test_a_job_without_checkpoints_tells_nothing_of_them() -> None:
    story = JobStory("shop")
    assert texts(story, JobStatus(JobState.RUNNING, "", NOW)) == []
