"""What lies in a job's log and is not one of its records: told apart, and never restored (M1, M6,
S9)."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arkflow_kernel.errors import RestoreError
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.protocol import OutcomeKind
from arkflow_kernel.snapshot import RestoreChoice, RestoreKind
from tests.integration.damage import EXPECTED, GOING_ON, Damage, Scene, planned
from tests.integration.stored_jobs import Ran, graph_of, run

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", params=[True, False], ids=["exactly-once", "at-least-once"])
def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """A job of each kind that died with four checkpoints."""
    scene = Scene(tmp_path_factory.mktemp("foreign"), exactly_once=request.param)
    yield scene
    scene.close()


def whole(scene: Scene) -> Damage:
    return Damage(scene.record, "as it was", scene.bytes[scene.record])


def sealed(entry: dict[str, Any], **changed: Any) -> bytes:
    """An entry with other values, as whoever wrote those would have written it."""
    body = {**entry, **changed}
    body.pop("checksum")
    plain = json.dumps(body, sort_keys=True, separators=(",", ":"))
    body["checksum"] = hashlib.sha256(plain.encode()).hexdigest()
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def changed(graph: ExecutionGraph, folder: Path, old: str, new: str) -> ExecutionGraph:
    """The plan of the file in which one text is another."""
    text = (folder / "job.yaml").read_text()
    assert text.count(old) == 1, text
    path = folder / "changed.yaml"
    path.write_text(text.replace(old, new))
    return graph_of(path)


def assert_refused(ran: Ran, told: str) -> None:
    assert ran.outcome is not None
    assert ran.outcome.kind is OutcomeKind.FAILED, ran.story
    assert isinstance(ran.error, RestoreError), ran.error
    assert told in str(ran.error)


FOREIGN = {
    "text": b"hello\n",
    "another schema": b'{"version": 3, "tasks": []}\n',
    "a list": b"[1, 2, 3]\n",
    "bytes": bytes(range(256)),
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_that_is_no_record_takes_its_slot_and_is_not_restored(
    scene: Scene, name: str
) -> None:
    scene.put_back(Damage(scene.record, name, FOREIGN[name]))
    ran = run(scene.graph)
    if scene.exactly_once:
        assert_refused(ran, "it was not written by arkflow_ray")
        assert scene.record.removeprefix("store/numbered/") in str(ran.error)
        assert "`--from-checkpoint 3 --accept-duplicates`" in str(ran.error)
        return
    assert ran.outcome is not None
    assert ran.outcome.kind is OutcomeKind.FINISHED, ran.story
    assert set(scene.written()) == EXPECTED
    assert (scene.live / scene.record).read_bytes() == FOREIGN[name]


def test_a_record_of_a_newer_release_stops_every_start(scene: Scene) -> None:
    """S9: what it says cannot be known, so nothing older may be taken, not even by force."""
    entry = json.loads(scene.bytes[scene.record])
    newer = sealed(entry, format_version=2, news={"of": "a later release"})
    for choice in (
        RestoreChoice(),
        RestoreChoice(RestoreKind.CHECKPOINT, entry["checkpoint_id"] - 1, accept_duplicates=True),
        RestoreChoice(RestoreKind.SCRATCH),
    ):
        scene.put_back(Damage(scene.record, "newer", newer))
        before = scene.written()
        ran = run(scene.graph, choice=choice)
        assert_refused(ran, "was written by a newer release")
        assert "its format version is 2, this release reads up to 1" in str(ran.error)
        assert scene.record.removeprefix("store/numbered/") in str(ran.error)
        assert scene.written() == before


def test_another_max_parallelism_is_refused_with_both_numbers(scene: Scene) -> None:
    """M6."""
    scene.put_back(whole(scene))
    folder = scene.live.parent
    graph = changed(scene.graph, folder, "version: 1\n", "version: 1\n    max_parallelism: 64\n")
    assert_refused(
        run(graph),
        "checkpoint 4 does not fit job 'numbered': its max_parallelism is 128, the job's is now 64",
    )
    assert run(scene.graph).outcome is not None
    assert set(scene.written()) == EXPECTED


def test_the_log_of_another_job_in_the_jobs_folder_is_refused(scene: Scene) -> None:
    """M6: a folder that was copied or renamed."""
    scene.put_back(whole(scene))
    (scene.live / "store/numbered").rename(scene.live / "store/other")
    graph = changed(scene.graph, scene.live.parent, "id: numbered\n", "id: other\n")
    assert_refused(
        run(graph), "the log in the job's folder is of job 'numbered', this is job 'other'"
    )


def test_a_record_of_another_job_among_the_jobs_own_is_refused(scene: Scene) -> None:
    """M6."""
    entry = json.loads(scene.bytes[scene.record])
    scene.put_back(Damage(scene.record, "another job's", sealed(entry, job_id="other")))
    assert_refused(run(scene.graph), "of job 'other', this is job 'numbered'")


def test_a_record_whose_tasks_are_not_those_of_its_claim_is_no_cut(scene: Scene) -> None:
    """M2."""
    entry = json.loads(scene.bytes[scene.record])
    fewer = sealed(entry, chains=entry["chains"][:-1])
    scene.put_back(Damage(scene.record, "a chain less", fewer))
    ran = run(scene.graph)
    if scene.exactly_once:
        assert_refused(ran, "checkpoint 4 cannot be restored: it lacks the planned tasks")
        return
    assert ran.outcome is not None
    assert ran.outcome.kind is OutcomeKind.FINISHED, ran.story
    assert set(scene.written()) == EXPECTED


def test_a_whole_log_goes_on(scene: Scene) -> None:
    """The same folder without a change: what the tests above compare with."""
    scene.put_back(whole(scene))
    ran = run(planned(scene.live.parent, GOING_ON, exactly_once=scene.exactly_once))
    assert ran.outcome is not None
    assert ran.outcome.kind is OutcomeKind.FINISHED, ran.story
    assert ran.restored == "checkpoint 4"
    assert set(scene.written()) == EXPECTED
    assert not scene.exactly_once or len(scene.written()) == len(EXPECTED)
