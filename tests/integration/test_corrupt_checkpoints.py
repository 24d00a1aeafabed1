"""Every record and object of a newest checkpoint is damaged in hundreds of ways, one at a time: a
start falls back where M2 lets it, or is refused with what is wrong and what to do. No start gives
wrong rows.
"""

import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from arkflow_kernel.errors import ArkflowError, CorruptObjectError, RestoreError
from arkflow_kernel.ids import CheckpointId
from arkflow_kernel.protocol import OutcomeKind
from arkflow_kernel.snapshot import RestoreChoice, RestoreKind
from tests.integration.damage import EXPECTED, NEWEST_CHECKPOINT, ROWS, Damage, Scene, cuts, flips
from tests.integration.stored_jobs import run

pytestmark = pytest.mark.timeout(300)

FULL_RUNS: Final = 4
"""Damages of each file whose start is run to its end."""


@pytest.fixture(scope="module", params=[True, False], ids=["exactly-once", "at-least-once"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A job of each kind, prepared once; in memory if it can be, for there are thousands of
    starts, and each waits for the disk.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="corrupt-", dir=memory) as folder:
        scene = Scene(Path(folder), exactly_once=request.param)
        yield scene
        scene.close()


def assert_refused(error: ArkflowError, damage: Damage, named: str) -> None:
    assert isinstance(error, RestoreError), (damage.what, error)
    told = str(error)
    assert named in told, (damage.what, told)
    assert "to do so, start with `--from-checkpoint 3 --accept-duplicates`" in told, told
    assert "the exactly-once sinks 'kept'" in told, told


def assert_decided(scene: Scene, damage: Damage, named: str) -> None:
    """The log alone sees the damage: it refuses, or takes the older record and says why."""
    if scene.exactly_once:
        with pytest.raises(RestoreError) as refused:
            scene.start()
        assert_refused(refused.value, damage, named)
        return
    claim = scene.start()
    assert claim.restored is not None
    assert claim.restored.checkpoint == NEWEST_CHECKPOINT - 1, damage
    assert any(named in note and "is restored instead" in note for note in claim.notes), claim


def test_a_damaged_newest_record_is_never_restored(scene: Scene) -> None:
    """M1, M2."""
    path = scene.record
    slot = path.removeprefix("store/numbered/")
    damages = [*flips(path, scene.bytes[path]), *cuts(path, scene.bytes[path])]
    scene.put_back(damages[0])
    for damage in damages:
        scene.put_log_back(damage)
        if damage.data is None:  # as if the round had not been completed
            claim = scene.start()
            assert claim.restored is not None
            assert claim.restored.checkpoint == NEWEST_CHECKPOINT - 1
        else:
            assert_decided(scene, damage, slot)
    scene.assert_saved_is_whole()


def test_a_damaged_claim_makes_the_records_of_its_generation_unusable(scene: Scene) -> None:
    """M2: a record is judged by the plan in its own claim. All are of one generation here."""
    path = scene.claim
    damages = [*flips(path, scene.bytes[path]), *cuts(path, scene.bytes[path])]
    scene.put_back(damages[0])
    for damage in damages:
        scene.put_log_back(damage)
        with pytest.raises(RestoreError, match="none of them can be restored") as refused:
            scene.start()
        told = str(refused.value)
        assert "checkpoint 4 cannot be restored: the claim of its generation 1" in told, damage
        assert "start with --from-scratch" in told
    scene.assert_saved_is_whole()


def test_an_object_of_another_size_or_none_is_seen_by_the_log(scene: Scene) -> None:
    """M2."""
    for path in scene.objects:
        for damage in cuts(path, scene.bytes[path]):
            scene.put_back(damage)
            name = path.rpartition("/")[2]
            try:
                claim = scene.start()
            except RestoreError as error:
                told = str(error)
                assert f"checkpoint {NEWEST_CHECKPOINT} cannot be restored" in told, damage
                assert name in told
                assert scene.exactly_once or "none of them can be restored" in told
                continue
            assert not scene.exactly_once, damage
            assert claim.restored is not None
            assert claim.restored.checkpoint < NEWEST_CHECKPOINT, damage
            assert any(name in note for note in claim.notes), damage
    scene.assert_saved_is_whole()


def test_any_changed_byte_of_an_object_is_seen_by_the_chain_that_reads_it(scene: Scene) -> None:
    """M2, X3."""
    whole = Damage(scene.record, "as it was", scene.bytes[scene.record])
    scene.put_back(whole)
    claim = scene.start()
    assert claim.restored is not None
    assert claim.restored.checkpoint == NEWEST_CHECKPOINT
    for path in scene.objects:
        published = scene.written()
        for damage in flips(path, scene.bytes[path]):
            scene.spoil(damage)
            error = scene.open_chain(claim, path)
            if not scene.counts(damage):
                assert error is None, (damage.path, damage.what, error)
                continue
            assert isinstance(error, CorruptObjectError), (damage.path, damage.what, error)
            assert path.rpartition("/")[2] in str(error), (damage.path, damage.what, error)
        assert scene.written() == published
        scene.heal(path)
        assert scene.open_chain(claim, path) is None
    scene.assert_saved_is_whole()


def test_what_a_chain_found_is_passed_over_by_the_next_claim_or_refused(scene: Scene) -> None:
    """M2."""
    scene.put_back(Damage(scene.record, "as it was", scene.bytes[scene.record]))
    why = {CheckpointId(NEWEST_CHECKPOINT): "an object is damaged"}
    if scene.exactly_once:
        with pytest.raises(RestoreError) as refused:
            scene.start(why)
        assert_refused(refused.value, Damage("", "", None), "checkpoint 4 cannot be restored: an")
    else:
        claim = scene.start(why)
        assert claim.restored is not None
        assert claim.restored.checkpoint == NEWEST_CHECKPOINT - 1


def test_a_start_over_a_damage_gives_right_rows_or_none_at_all(scene: Scene) -> None:
    """The whole way to the end, for some damages of each file."""
    dice = random.Random(1)
    for path in (scene.claim, scene.record, *scene.objects):
        data = scene.bytes[path]
        chosen = [*dice.sample([*flips(path, data)], FULL_RUNS - 2), *cuts(path, data)][-4:]
        chosen += dice.sample([*flips(path, data)], 2)
        for damage in chosen:
            scene.put_back(damage)
            before = scene.written()
            ran = run(scene.graph)
            assert ran.outcome is not None
            if ran.outcome.kind is OutcomeKind.FINISHED:
                assert damage.data is None or not scene.exactly_once, (damage.what, ran.story)
                assert set(scene.written()) == EXPECTED, (damage.path, damage.what, ran.story)
                assert not scene.exactly_once or len(scene.written()) == ROWS
                continue
            assert isinstance(ran.error, RestoreError), (damage.path, damage.what, ran.error)
            assert scene.exactly_once or path != scene.record, (damage.what, ran.error)
            # Sinks of chains that were whole have published what the record lists: that is right.
            after = scene.written()
            assert after[: len(before)] == before, (damage.path, damage.what)
            assert set(after) <= EXPECTED, (damage.path, damage.what)
            assert not scene.exactly_once or len(set(after)) == len(after)
            assert "checkpoint 4 cannot be restored" in str(ran.error) or path.endswith("json")
    scene.assert_saved_is_whole()


def test_what_a_refusal_tells_to_do_does_it(scene: Scene) -> None:
    """M2: the older record, and what is published after it once more."""
    path = scene.record
    for damage in (Damage(path, "garbage", b"garbage"), Damage(path, "empty", b"")):
        scene.put_back(damage)
        older = RestoreChoice(
            RestoreKind.CHECKPOINT, CheckpointId(NEWEST_CHECKPOINT - 1), accept_duplicates=True
        )
        ran = run(scene.graph, choice=older)
        assert ran.outcome is not None
        assert ran.outcome.kind is OutcomeKind.FINISHED, ran.story
        assert ran.restored == "checkpoint 3"
        assert set(scene.written()) == EXPECTED
        scene.put_back(damage)
        ran = run(scene.graph, choice=RestoreChoice(RestoreKind.SCRATCH))
        assert ran.outcome is not None
        assert ran.outcome.kind is OutcomeKind.FINISHED, ran.story
        assert set(scene.written()) == EXPECTED
