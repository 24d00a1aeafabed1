"""Savepoints and upgrades from end to end: what is kept, what is repeated, what is refused (M2, M3,
M6, X4). Without Ray, but for the last one."""

import json
from pathlib import Path

import pytest

from arkflow_kernel.errors import RestoreError
from arkflow_kernel.ids import CheckpointId
from arkflow_kernel.inline import InlineJob
from arkflow_kernel.protocol import OutcomeKind
from arkflow_kernel.snapshot import RestoreChoice, RestoreKind
from tests.integration.running_jobs import Start, causes
from tests.integration.stored_jobs import Point, Ran, run, when_recorded
from tests.integration.upgrades import KEYS, ROWS, Versions, from_savepoint

pytestmark = pytest.mark.timeout(300)

FAST = 1_000_000


@pytest.fixture
def versions(tmp_path: Path) -> Versions:
    return Versions(tmp_path)


def assert_ended(ran: Ran, kind: OutcomeKind = OutcomeKind.FINISHED) -> None:
    assert ran.outcome is not None, ran.story
    assert ran.outcome.kind is kind, (ran.outcome, ran.story)


def assert_refused(ran: Ran, *told: str) -> None:
    assert_ended(ran, OutcomeKind.FAILED)
    assert isinstance(ran.error, RestoreError), ran.error
    for each in told:
        assert each in str(ran.error)


def stops_at(checkpoint: int, savepoint: str | None = None) -> Point:
    """The job is told to stop when a record is in the log, once."""
    there = when_recorded(checkpoint)
    asked: list[InlineJob] = []

    def asks(job: InlineJob, event: object) -> bool:
        if not asked and there(job, event):
            asked.append(job)
            job.stop(savepoint=savepoint)
        return False

    return asks


def saves_at(checkpoint: int, name: str) -> Point:
    """A savepoint is asked for when a record is in the log, once."""
    there = when_recorded(checkpoint)
    asked: list[InlineJob] = []

    def asks(job: InlineJob, event: object) -> bool:
        if not asked and there(job, event):
            asked.append(job)
            job.savepoint(name)
        return False

    return asks


def url_of(ran: Ran, name: str) -> str:
    told = ran.status.checkpoints
    assert told is not None
    url = told.savepoints[name]
    assert isinstance(url, str), url
    return url


def stopped(versions: Versions, *counts: str, name: str = "v1") -> Ran:
    """A run of the first version, stopped with a savepoint before the end of its data."""
    ran = run(versions.plan(*counts), dies=stops_at(3, name))
    assert_ended(ran, OutcomeKind.STOPPED)
    assert 0 < len(versions.written()) < ROWS
    return ran


def test_a_savepoint_of_a_running_job_is_whole_by_itself_and_the_job_goes_on(
    versions: Versions,
) -> None:
    """X4."""
    ran = run(versions.plan("places"), dies=saves_at(3, "under-way"))
    assert_ended(ran)
    versions.assert_once()
    url = url_of(ran, "under-way")
    assert url == f"file://{versions.folder}/store/shop/savepoints/under-way"
    found = {path.name: path for path in Path(url.removeprefix("file://")).rglob("*.*")}
    (record,) = (json.loads(path.read_bytes()) for path in found.values() if path.suffix == ".json")
    objects = {
        each["object"]: each["size"] for chain in record["chains"] for each in chain["objects"]
    }
    assert objects
    assert {name: found[name].stat().st_size for name in objects} == objects
    assert [sink["tokens"] for chain in record["chains"] for sink in chain["sinks"]] == [[]]
    assert record["kind"] == "savepoint"


def test_a_savepoint_before_published_rows_asks_for_consent_and_repeats_just_those(
    versions: Versions,
) -> None:
    """X4."""
    assert_ended(run(versions.plan("places"), dies=saves_at(3, "early")))
    again = versions.plan("places", rate=FAST)
    assert_refused(
        run(again, choice=from_savepoint("early")),
        "savepoint 'early' is older than what was published",
        "the exactly-once sinks 'kept' would repeat up to",
        "`--accept-duplicates`",
    )
    versions.assert_once()
    ran = run(again, choice=from_savepoint("early", accept_duplicates=True))
    assert_ended(ran)
    assert ran.restored == "savepoint 'early'"
    times = versions.assert_right()
    first = times.index(2)
    assert 0 < first < ROWS
    assert times == [1] * first + [2] * (ROWS - first)


def test_a_stop_with_a_savepoint_and_a_new_version_cost_and_repeat_nothing(
    versions: Versions,
) -> None:
    """M6: state of unchanged operators is kept; new ones start empty and are listed."""
    assert url_of(stopped(versions, "places"), "v1").endswith("/savepoints/v1")
    before = len(versions.written())
    newer = versions.plan("places", "since", version=2, alike=True, rate=FAST)
    ran = run(newer, choice=from_savepoint("v1"))
    assert_ended(ran)
    assert ran.restored == "savepoint 'v1'"
    assert "operator 'since' is new and starts empty" in ran.story
    assert "operator 'alike' is new" in ran.story
    versions.assert_once()
    rows = versions.written()
    assert all("since" not in row and "twice" not in row for row in rows[:before])
    seen = [0] * KEYS
    for row in rows[before:]:
        seen[row["k"]] += 1
        assert (row["since"], row["twice"]) == (seen[row["k"]], row["n"] * 2)
    log = sorted((versions.folder / "store/shop/log").glob("*.json"))
    assert json.loads(log[-1].read_bytes())["job_version"] == 2


def test_a_removed_operator_that_keeps_state_is_refused_unless_that_may_be_dropped(
    versions: Versions,
) -> None:
    """M6."""
    stopped(versions, "places", "more")
    before = versions.written()
    fewer = versions.plan("places", version=2, rate=FAST)
    for choice in (RestoreChoice(), from_savepoint("v1")):
        assert_refused(
            run(fewer, choice=choice),
            "does not fit job 'shop': operator 'more' is not in the job any more; its state would "
            "be lost",
            "--allow-dropped-state",
        )
    assert versions.written() == before
    ran = run(fewer, choice=from_savepoint("v1", allow_dropped_state=True))
    assert_ended(ran)
    assert "operator 'more' is not in the job any more; its state: dropped" in ran.story
    versions.assert_once()


def test_an_upgrade_needs_no_savepoint(versions: Versions) -> None:
    """The last checkpoint of a stop does as well."""
    assert_ended(run(versions.plan("places"), dies=stops_at(3)), OutcomeKind.STOPPED)
    ran = run(versions.plan("places", version=2, alike=True, rate=FAST))
    assert_ended(ran)
    versions.assert_once()


def test_an_older_checkpoint_asks_for_consent_and_is_the_base_of_later_starts(
    versions: Versions,
) -> None:
    """X4, M2."""
    assert run(versions.plan("places"), dies=when_recorded(6)).outcome is None
    ahead = len(versions.written())
    older = RestoreChoice(RestoreKind.CHECKPOINT, CheckpointId(2))
    fast = versions.plan("places", rate=FAST)
    assert_refused(
        run(fast, choice=older), "checkpoint 2 is older than what was published",
        "would repeat up to 4 epochs", "`--accept-duplicates`",
    )  # fmt: skip
    assert_refused(
        run(fast, choice=RestoreChoice(RestoreKind.CHECKPOINT, CheckpointId(99))),
        "job 'shop' has no checkpoint 99; it has: 6, 5, 4, 3, 2, 1",
    )
    assert len(versions.written()) == ahead
    accepted = RestoreChoice(RestoreKind.CHECKPOINT, CheckpointId(2), accept_duplicates=True)
    ran = run(versions.plan("places"), choice=accepted, dies=when_recorded(9))
    assert (ran.restored, ran.outcome) == ("checkpoint 2", None)
    ran = run(fast)
    assert_ended(ran)
    assert ran.restored in ("checkpoint 9", "checkpoint 10")
    times = versions.assert_right()
    assert max(times) == 2
    assert times[-1] == 1


def test_a_start_from_scratch_counts_from_one_and_later_starts_go_on_from_there(
    versions: Versions,
) -> None:
    """M3."""
    assert run(versions.plan("places"), dies=when_recorded(4)).outcome is None
    published = len(versions.written())
    scratch = RestoreChoice(RestoreKind.SCRATCH)
    point = when_recorded(6)
    ran = run(versions.plan("places"), choice=scratch, dies=point)
    assert (ran.restored, ran.outcome) == (None, None)
    assert "the exactly-once sinks 'kept' will repeat what was published" in ran.story
    ran = run(versions.plan("places", rate=FAST))
    assert_ended(ran)
    assert ran.restored in ("checkpoint 6", "checkpoint 7")
    times = versions.assert_right()
    assert times == [2] * published + [1] * (ROWS - published)


def test_a_job_without_a_record_cannot_be_resumed(versions: Versions) -> None:
    """M3."""
    plan = versions.plan("places", rate=FAST)
    resumed = RestoreChoice(must_exist=True)
    assert_refused(
        run(plan, choice=resumed), "there is nothing to resume: job 'shop' has no checkpoint"
    )
    assert versions.written() == []
    assert_ended(run(plan))
    assert_ended(run(plan, choice=resumed))  # it had finished: nothing is left to do
    versions.assert_once()


def test_recovery_fail_starts_once_and_never_over_a_record(versions: Versions) -> None:
    """M3."""
    plan = versions.plan("places", recovery="fail")
    assert run(plan, dies=when_recorded(3)).outcome is None
    assert_refused(run(plan), "job 'shop' has a checkpoint already (checkpoint 3)", "resume")
    ran = run(versions.plan("places", rate=FAST))
    assert_ended(ran)
    assert ran.restored == "checkpoint 3"
    versions.assert_once()


def test_recovery_latest_savepoint_passes_over_checkpoints(versions: Versions) -> None:
    """M3, X4."""
    plan = versions.plan("places", recovery="latest_savepoint")
    assert run(plan, dies=when_recorded(3)).outcome is None
    assert_refused(
        run(plan), "to start from its latest savepoint", "and has none", "--from-scratch"
    )
    stopped(versions, "places", name="one")
    assert_ended(run(versions.plan("places"), dies=stops_at(6, "two")), OutcomeKind.STOPPED)
    ran = run(versions.plan("places", recovery="latest_savepoint", rate=FAST))
    assert_ended(ran)
    assert ran.restored == "savepoint 'two'"
    versions.assert_once()


def test_another_job_begins_at_a_savepoint_with_lanes_of_its_own(versions: Versions) -> None:
    """X4."""
    url = url_of(stopped(versions, "places"), "v1")
    before = len(versions.written())
    other = versions.plan("places", job="fork", out="forked", rate=FAST)
    ran = run(other, choice=from_savepoint(url))
    assert_ended(ran)
    assert f"savepoint '{url}' is of job 'shop': the exactly-once sinks 'kept' will" in ran.story
    rows = versions.written("forked")
    assert [row["n"] for row in rows] == list(range(before, ROWS))
    assert all(row["places"] == row["n"] // KEYS + 1 for row in rows)
    assert_ended(run(versions.plan("places", rate=FAST)))  # the first one goes on as if alone
    versions.assert_once()


def test_a_savepoint_that_is_not_there_or_whose_name_is_taken_is_told(versions: Versions) -> None:
    stopped(versions, "places")
    assert_refused(
        run(versions.plan("places"), choice=from_savepoint("nowhere")), "savepoint 'nowhere'"
    )
    ran = run(versions.plan("places"), dies=saves_at(6, "v1"))
    assert_ended(ran)
    told = ran.status.checkpoints
    assert told is not None
    error = told.savepoints["v1"]
    assert not isinstance(error, str)
    assert "v1" in error.message
    versions.assert_once()


@pytest.mark.usefixtures("shared_ray")
def test_an_upgrade_on_ray(start: Start, versions: Versions) -> None:
    running = start(versions.text("places", rate=300))

    def published() -> bool:
        told = running.status.checkpoints
        return told is not None and told.last > 2 and len(versions.written()) > 0

    running.job.savepoint("under-way")
    running.until(published)
    running.job.stop(savepoint="v1")
    job = running.ended(OutcomeKind.STOPPED)
    told = job.status().checkpoints
    assert told is not None
    assert all(isinstance(url, str) for url in told.savepoints.values()), told.savepoints
    assert set(told.savepoints) == {"under-way", "v1"}
    before = len(versions.written())
    assert 0 < before < ROWS
    newer = versions.text("places", "since", version=2, alike=True, rate=FAST)
    again = start(newer, choice=from_savepoint("v1"))
    job = again.ended(OutcomeKind.FINISHED)
    assert "operator 'since' is new and starts empty" in causes(job.status())
    versions.assert_once()
    assert versions.written()[before]["since"] == 1
