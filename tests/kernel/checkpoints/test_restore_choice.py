"""What a claim restores, and when a start is refused (M2, M3, M6, X4)."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from arkflow_kernel.errors import RestoreError
from arkflow_kernel.ids import CheckpointId
from arkflow_kernel.job_record import CheckpointEntry, decode, encode
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.snapshot import Claim, RestoreChoice, RestoreKind
from arkflow_kernel.testing.log_world import LogWorld, graph_of

NEWEST = RestoreChoice()
SCRATCH = RestoreChoice(RestoreKind.SCRATCH)
GRAPH = graph_of()
ONCE = graph_of(sinks=("files",))


def from_checkpoint(number: int, **more: Any) -> RestoreChoice:
    return RestoreChoice(RestoreKind.CHECKPOINT, CheckpointId(number), **more)


def start(
    world: LogWorld,
    graph: ExecutionGraph = GRAPH,
    choice: RestoreChoice = NEWEST,
    unusable: dict[CheckpointId, str] | None = None,
) -> Claim:
    return world.log(graph).claim(choice, unusable or {})


def source(claim: Claim) -> str | None:
    return None if claim.restored is None else claim.restored.source


def refusal(world: LogWorld, *args: Any, **more: Any) -> str:
    before = world.slots()
    with pytest.raises(RestoreError) as caught:
        start(world, *args, **more)
    assert world.slots() == before, "a refused start claims nothing"
    return str(caught.value)


def drop_objects(world: LogWorld, checkpoint: int) -> None:
    for name in [n for n in world.store.files if n.endswith(f"-{checkpoint}.arrow")]:
        del world.store.files[name]


def test_a_record_whose_object_is_missing_is_passed_over_and_named(world: LogWorld) -> None:
    """M2"""
    world.run(GRAPH, rounds=3)
    drop_objects(world, 3)
    world.store.files["objects/1-count-0-2.arrow"] = b"short"
    claim = start(world)
    assert source(claim) == "checkpoint 1"
    assert claim.last_checkpoint == 3
    assert claim.notes == (
        "checkpoint 3 cannot be restored: its object 1-count-0-3.arrow is missing; checkpoint 1 is "
        "restored instead",
        "checkpoint 2 cannot be restored: its object 1-count-0-2.arrow has 5 bytes instead of 40; "
        "checkpoint 1 is restored instead",
    )


def test_a_record_that_a_chain_could_not_restore_is_passed_over(world: LogWorld) -> None:
    log, _ = world.run(GRAPH, rounds=2)
    claim = log.claim(NEWEST, {CheckpointId(2): "object 1-x.arrow has another checksum"})
    assert source(claim) == "checkpoint 1"
    assert "object 1-x.arrow has another checksum" in claim.notes[0]


def test_a_record_whose_tasks_are_not_those_of_its_claim_is_passed_over(world: LogWorld) -> None:
    world.run(GRAPH, rounds=2)

    def without_a_chain(data: bytes) -> bytes:
        entry = decode(data)
        assert isinstance(entry, CheckpointEntry)
        record = replace(entry.record, chains=entry.record.chains[:-1])
        plan = replace(entry.plan, chains=entry.plan.chains[:-1])
        return encode(replace(entry, record=record, plan=plan))

    world.damage(3, without_a_chain)
    claim = start(world)
    assert source(claim) == "checkpoint 1"
    assert "it lacks the planned tasks of the chains 'count-1'" in claim.notes[0]


def test_with_an_exactly_once_sink_an_older_record_is_never_taken_by_itself(
    world: LogWorld,
) -> None:
    """M2"""
    world.run(ONCE, rounds=3)
    drop_objects(world, 3)
    told = refusal(world, ONCE)
    assert told == (
        "checkpoint 3 cannot be restored: its object 1-count-0-3.arrow is missing. To start from "
        "checkpoint 2 would repeat up to 1 epochs in the exactly-once sinks 'files'; to do so, "
        "start with `--from-checkpoint 2 --accept-duplicates`"
    )
    dropping = RestoreChoice(allow_dropped_state=True)
    assert refusal(world, GRAPH, dropping) == told, "the sink that the record wrote to counts too"
    claim = start(world, ONCE, from_checkpoint(2, accept_duplicates=True))
    assert source(claim) == "checkpoint 2"


def test_a_burnt_slot_may_have_been_the_newest_record(world: LogWorld) -> None:
    world.run(ONCE, rounds=2)
    world.damage(3, lambda data: data[:-9])
    assert "log/0000000003.json cannot be restored: it is cut off" in refusal(world, ONCE)


def test_with_records_and_none_usable_the_start_fails_unless_from_scratch(world: LogWorld) -> None:
    """M3"""
    world.run(GRAPH)
    drop_objects(world, 1)
    told = refusal(world)
    assert "none of them can be restored: checkpoint 1 cannot be restored: its object" in told
    assert "--from-scratch" in told
    claim = start(world, choice=SCRATCH)
    assert claim.restored is None
    assert claim.last_checkpoint == 1, "numbers go on"


def test_a_restart_after_a_start_from_scratch_never_picks_an_older_record(world: LogWorld) -> None:
    world.run(GRAPH, rounds=2)
    assert start(world, choice=SCRATCH).restored is None
    assert start(world).restored is None
    world.run(GRAPH)
    assert source(start(world)) == "checkpoint 3"


def test_a_restart_after_a_start_from_an_older_record_begins_there_again(world: LogWorld) -> None:
    world.run(GRAPH, rounds=3)
    assert source(start(world, choice=from_checkpoint(2))) == "checkpoint 2"
    assert source(start(world)) == "checkpoint 2"
    drop_objects(world, 2)
    assert source(start(world)) == "checkpoint 1", "3 is of another branch"


def test_a_choice_counts_once_in_a_run(world: LogWorld) -> None:
    world.run(GRAPH, rounds=2)
    log = world.log()
    claim = log.claim(SCRATCH, {})
    world.checkpoint(log, GRAPH, claim)
    assert source(log.claim(SCRATCH, {})) == "checkpoint 3"
    assert source(world.log(continued=True).claim(SCRATCH, {})) == "checkpoint 3"


def test_an_older_record_with_published_epochs_after_it_asks_for_consent(world: LogWorld) -> None:
    """X4"""
    world.run(ONCE, rounds=3)
    assert refusal(world, ONCE, from_checkpoint(1)) == (
        "checkpoint 1 is older than what was published: the exactly-once sinks 'files' would "
        "repeat up to 2 epochs; if that is acceptable, add `--accept-duplicates`"
    )
    assert source(start(world, ONCE, from_checkpoint(3))) == "checkpoint 3"


def test_an_unknown_checkpoint_is_answered_with_those_that_are_there(world: LogWorld) -> None:
    world.run(GRAPH, rounds=2)
    assert refusal(world, choice=from_checkpoint(9)) == (
        "job 'orders' has no checkpoint 9; it has: 2, 1"
    )


@pytest.mark.parametrize("how", ["choice", "recovery"])
def test_recovery_fail_refuses_when_a_record_exists(world: LogWorld, how: str) -> None:
    """M3"""
    graph = graph_of(recovery="fail") if how == "recovery" else GRAPH
    choice = NEWEST if how == "recovery" else RestoreChoice(must_not_exist=True)
    log = world.log(graph)
    claim = log.claim(choice, {})
    world.checkpoint(log, graph, claim)
    assert source(log.claim(choice, {})) == "checkpoint 1", "a restart is no new start"
    assert "has a checkpoint already (checkpoint 1)" in refusal(world, graph, choice)


def test_resume_refuses_to_start_from_nothing(world: LogWorld) -> None:
    assert "nothing to resume" in refusal(world, choice=RestoreChoice(must_exist=True))
    world.run(GRAPH)
    assert source(start(world, choice=RestoreChoice(must_exist=True))) == "checkpoint 1"


@pytest.mark.parametrize("choice", [NEWEST, SCRATCH, from_checkpoint(1)])
def test_a_newer_format_blocks_the_start(world: LogWorld, choice: RestoreChoice) -> None:
    """S9: whatever was asked for, for its numbers are not known."""
    world.run(GRAPH, rounds=2)
    world.damage(3, of_a_newer_release)
    assert "log/0000000003.json was written by a newer release" in refusal(world, choice=choice)


def of_a_newer_release(data: bytes) -> bytes:
    value = json.loads(data)
    del value["checksum"]
    value["format_version"] = 2
    text = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    value["checksum"] = hashlib.sha256(text).hexdigest()
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def test_a_foreign_jobs_log_is_refused(world: LogWorld) -> None:
    """M6"""
    world.run(GRAPH)
    told = refusal(world, graph_of(job="bills"))
    assert "the log in the job's folder is of job 'orders', this is job 'bills'" in told
    assert "of job 'orders'" in refusal(world, graph_of(job="bills"), SCRATCH)


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (graph_of(max_parallelism=64), "its max_parallelism is 128, the job's is now 64"),
        (graph_of(count="tally"), "operator 'count' is not in the job any more; its state would"),
        (graph_of(key_fields=("order",)), "kept its state in namespace 'default' by (user), now"),
        (
            graph_of(shape="sessions"),
            "'count' kept its state as a count of the rows of each key, now it is sessions: set it",
        ),
    ],
)
def test_an_incompatible_plan_is_a_refusal_and_no_reason_to_fall_back(
    world: LogWorld, graph: ExecutionGraph, why: str
) -> None:
    """M6"""
    world.run(GRAPH, rounds=2)
    told = refusal(world, graph)
    assert told.startswith("checkpoint 2 does not fit job 'orders': ")
    assert why in told


def test_dropped_state_needs_consent_and_is_told(world: LogWorld) -> None:
    """M6"""
    world.run(GRAPH)
    claim = start(world, graph_of(count="tally"), RestoreChoice(allow_dropped_state=True))
    assert claim.notes == (
        "operator 'count' is not in the job any more; its state: dropped, as "
        "--allow-dropped-state says",
        "operator 'tally' is new and starts empty",
    )


def test_a_new_operator_starts_empty_and_is_told(world: LogWorld) -> None:
    """M6; and a new version of the job with the same operators keeps everything."""
    world.run(GRAPH)
    claim = start(world, graph_of(extra="sums", version=7))
    assert claim.notes == ("operator 'sums' is new and starts empty",)
    assert claim.restored is not None
    assert [len(chain.states) for chain in claim.restored.chains] == [0, 1, 1]
