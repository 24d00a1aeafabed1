"""What a run tells of its checkpoints, once each: restores, failed rounds, savepoints."""

from typing import Any

from arkflow_kernel.errors import StoreError
from arkflow_kernel.ids import Generation, MonotonicMs, WallMs
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import CheckpointStatus, JobState, JobStatus
from arkflow_ray.observability.checkpoint_story import NOTHING_RESTORED
from arkflow_ray.observability.story import JobStory

NOW = Moment(MonotonicMs(0), WallMs(0))


def status(state: JobState, generation: int = 1, **fields: Any) -> JobStatus:
    told = CheckpointStatus(**fields)
    return JobStatus(state, "", NOW, generation=Generation(generation), checkpoints=told)


def texts(story: JobStory, seen: JobStatus) -> list[str]:
    return [event.text for event in story.news(seen)]


def test_what_an_attempt_began_from_is_told_once_when_it_runs() -> None:
    story = JobStory("shop", checkpoints=True)
    assert texts(story, status(JobState.DEPLOYING)) == []
    assert texts(story, status(JobState.RUNNING)) == [f"job shop: {NOTHING_RESTORED}"]
    assert texts(story, status(JobState.RUNNING)) == []
    again = status(JobState.RUNNING, 2, restored="checkpoint 12")
    assert texts(story, again) == ["job shop: restored from checkpoint 12"]


def test_the_notes_of_a_claim_are_told_before_the_job_runs() -> None:
    story = JobStory("shop", checkpoints=True)
    notes = ("operator 'count' is new and starts empty",)
    seen = status(JobState.DEPLOYING, notes=notes)
    assert texts(story, seen) == ["job shop: operator 'count' is new and starts empty"]
    assert texts(story, seen) == []


def test_each_failed_round_is_told_and_a_new_row_of_them_too() -> None:
    story = JobStory("shop", checkpoints=True)
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
    story = JobStory("shop", checkpoints=True)
    seen = status(JobState.DEPLOYING, savepoints={"a": "file:///a", "b": StoreError("full")})
    assert texts(story, seen) == [
        "job shop: savepoint 'a' is complete: file:///a",
        "job shop: savepoint 'b' failed: full",
    ]
    assert texts(story, seen) == []


def test_a_job_without_checkpoints_tells_nothing_of_them() -> None:
    story = JobStory("shop")
    assert texts(story, JobStatus(JobState.RUNNING, "", NOW)) == []
