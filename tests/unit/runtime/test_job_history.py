"""A job's status over several coordinators is one story (P8)."""

from arkflow_kernel.errors import StoreError
from arkflow_kernel.ids import CheckpointId, MonotonicMs, OperatorId, WallMs
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import (
    CheckpointStatus,
    JobState,
    JobStatus,
    RescaleStatus,
    Transition,
)
from arkflow_ray.observability.story import JobStory
from arkflow_ray.runtime.job_history import JobHistory

NOW = Moment(MonotonicMs(5), WallMs(6))
DEPLOYED = (
    Transition(1, NOW, JobState.CREATED, JobState.DEPLOYING, "begin"),
    Transition(2, NOW, JobState.DEPLOYING, JobState.RUNNING, "all 2 chains are ready"),
)


def status(**fields: object) -> JobStatus:
    return JobStatus(JobState.RUNNING, "", NOW, transitions=DEPLOYED, **fields)  # type: ignore[arg-type]


def test_the_status_of_the_first_coordinator_is_told_as_it_is() -> None:
    assert JobHistory().joined(status()) == status()


def test_transitions_and_restarts_are_counted_on() -> None:
    history = JobHistory()
    first = history.lost(history.joined(status(restarts=2)), "it died", NOW)
    assert (first.state, first.cause, first.restarts) == (JobState.RESTARTING, "it died", 3)
    joined = history.joined(status(restarts=1))
    assert joined.restarts == 4
    assert [change.number for change in joined.transitions] == [1, 2, 3, 4, 5]
    changes = [(change.before, change.after) for change in joined.transitions[2:]]
    assert changes == [
        (JobState.RUNNING, JobState.RESTARTING),
        (JobState.RESTARTING, JobState.DEPLOYING),
        (JobState.DEPLOYING, JobState.RUNNING),
    ]
    again = history.lost(joined, "it died too", NOW)
    assert (again.transitions[-1].number, again.restarts) == (6, 5)
    assert history.joined(status()).transitions[-1].number == 8


def test_the_story_tells_the_loss_of_a_coordinator_and_what_its_successor_begins_from() -> None:
    history, story = JobHistory(), JobStory("orders")
    assert story.news(history.joined(status())) == []
    lost = history.lost(history.joined(status()), "the coordinator died; another one", NOW)
    begun = [event.text for event in story.news(lost)]
    assert begun == ["job orders: the coordinator died; another one; this attempt ends"]
    begun = [event.text for event in story.news(history.joined(status()))]
    assert begun == ["job orders: begin"]


def test_what_was_said_of_checkpoints_stays_until_there_is_something_newer() -> None:
    history, failed = JobHistory(), StoreError("full")
    before = CheckpointStatus(CheckpointId(7), NOW, savepoints={"a": "file:///a", "b": "file:///b"})
    history.lost(history.joined(status(checkpoints=before)), "it died", NOW)
    fresh = CheckpointStatus(restored="checkpoint 7", savepoints={"b": failed})
    joined = history.joined(status(checkpoints=fresh)).checkpoints
    assert joined is not None
    assert (joined.last, joined.at, joined.restored) == (7, NOW, "checkpoint 7")
    assert joined.savepoints == {"a": "file:///a", "b": failed}
    newer = CheckpointStatus(CheckpointId(8), NOW)
    joined = history.joined(status(checkpoints=newer)).checkpoints
    assert joined is not None
    assert joined.last == 8


def rescale(number: int, phase: str) -> RescaleStatus:
    return RescaleStatus(number, {OperatorId("count"): 2}, phase, NOW)


def test_rescales_are_counted_on_and_the_last_one_that_was_over_is_still_told() -> None:
    history = JobHistory()
    history.lost(history.joined(status(rescale=rescale(2, "done"))), "it died", NOW)
    assert history.joined(status()).rescale == rescale(2, "done")
    assert history.joined(status(rescale=rescale(1, "round"))).rescale == rescale(3, "round")


def test_a_rescale_that_was_under_way_is_lost_with_its_coordinator() -> None:
    history = JobHistory()
    history.lost(history.joined(status(rescale=rescale(2, "round"))), "it died", NOW)
    nothing = history.joined(status())
    assert nothing.rescale is None
    history.lost(nothing, "it died too", NOW)
    assert history.joined(status(rescale=rescale(1, "done"))).rescale == rescale(3, "done")
