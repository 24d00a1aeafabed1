"""What is dropped and what never is (M5); savepoints, and starts from them (X4)."""

from dataclasses import replace

import pytest

from arkflow_kernel.checkpoint_ports import LogFiles
from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import RestoreError, StoreError
from arkflow_kernel.ids import CheckpointId
from arkflow_kernel.job_log import JobLog
from arkflow_kernel.log_view import read_log
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.snapshot import CheckpointRecord, Claim, RestoreChoice, RestoreKind
from arkflow_kernel.testing.log_world import LogWorld, graph_of, record_of
from arkflow_kernel.testing.sim_files import SimFiles

NEWEST = RestoreChoice()
GRAPH = graph_of(retention=2)
ONCE = graph_of(retention=2, sinks=("files",))


def objects(world: LogWorld) -> set[str]:
    return {p.removeprefix("objects/") for p in world.store.files if p.startswith("objects/")}


def growing(record: CheckpointRecord, before: CheckpointRecord) -> CheckpointRecord:
    """The record with the runs of an earlier one below its own, as incremental state has them."""
    chains = []
    for chain, old in zip(record.chains, before.chains, strict=True):
        states = tuple(
            replace(state, runs=earlier.runs + state.runs)
            for state, earlier in zip(chain.states, old.states, strict=True)
        )
        chains.append(replace(chain, states=states, objects=old.objects + chain.objects))
    return replace(record, chains=tuple(chains))


def savepoint(world: LogWorld, graph: ExecutionGraph, name: str) -> tuple[JobLog, Claim, str]:
    """One round, then a savepoint; the log, its claim, the URL."""
    log, claim = world.run(graph)
    number = claim.last_checkpoint + 1
    record = record_of(graph, claim.generation, number, kind=RoundKind.SAVEPOINT, savepoint=name)
    log.append(world.upload(record))
    url = log.save(record)
    return log, replace(claim, last_checkpoint=CheckpointId(number)), url


def start_from(where: str, *, accept_duplicates: bool = False) -> RestoreChoice:
    kind = RestoreKind.SAVEPOINT
    return RestoreChoice(kind, savepoint=where, accept_duplicates=accept_duplicates)


def test_the_newest_records_are_kept_and_what_only_older_ones_list_goes(world: LogWorld) -> None:
    """M5 (a)"""
    log, _ = world.run(GRAPH, rounds=4)
    world.store.files["objects/1-count-0-9.arrow"] = b"an upload that is under way"
    world.store.files["objects/notes.txt"] = b"not ours"
    log.collect()
    assert world.slots() == [1, 4, 5]
    assert objects(world) == {
        *(f"1-count-{i}-{n}.arrow" for i in (0, 1) for n in (3, 4)),
        "1-count-0-9.arrow",
        "notes.txt",
    }


def test_an_object_that_a_kept_record_lists_stays(world: LogWorld) -> None:
    """M5"""
    graph = graph_of(retention=1)
    log, claim = world.run(graph)
    first = record_of(graph, claim.generation, 1)
    log.append(world.upload(growing(record_of(graph, claim.generation, 2), first)))
    log.collect()
    assert world.slots() == [1, 3]
    assert "1-count-0-1.arrow" in objects(world)
    log.append(world.upload(record_of(graph, claim.generation, 3)))
    log.collect()
    assert objects(world) == {"1-count-0-3.arrow", "1-count-1-3.arrow"}


def test_after_a_claim_what_older_generations_left_unlisted_goes(world: LogWorld) -> None:
    """M5 (b)"""
    world.run(GRAPH)
    world.store.files["objects/1-count-0-8.arrow"] = b"of a round that failed"
    world.store.files["objects/2-count-0-8.arrow"] = b"of the next generation"
    log = world.log(GRAPH)
    log.claim(NEWEST, {})
    log.collect()
    assert objects(world) == {"1-count-0-1.arrow", "1-count-1-1.arrow", "2-count-0-8.arrow"}


def test_claims_and_burnt_slots_are_never_deleted(world: LogWorld) -> None:
    """M1"""
    world.run(GRAPH, rounds=3)
    world.damage(2, lambda data: data[:-5])
    log, _ = world.run(GRAPH, rounds=3)
    log.collect()
    assert world.slots() == [1, 2, 5, 7, 8]


def test_the_record_that_a_run_began_from_is_kept_until_the_next_one(world: LogWorld) -> None:
    world.run(GRAPH, rounds=4)
    log = world.log(graph_of(retention=1))
    claim = log.claim(RestoreChoice(RestoreKind.CHECKPOINT, CheckpointId(2)), {})
    log.collect()
    assert world.slots() == [1, 3, 5, 6]
    assert "1-count-0-2.arrow" in objects(world)
    world.checkpoint(log, graph_of(retention=1), claim)
    log.collect()
    assert world.slots() == [1, 6, 7]


def test_a_savepoints_record_is_kept_until_it_is_copied(world: LogWorld) -> None:
    graph = graph_of(retention=1)
    log, claim = world.run(graph)
    record = record_of(graph, 1, 2, kind=RoundKind.SAVEPOINT, savepoint="s")
    log.append(world.upload(record))
    world.checkpoint(log, graph, claim, number=3)
    log.collect()
    assert world.slots() == [1, 3, 4]
    log.save(record)
    log.collect()
    assert world.slots() == [1, 4]


def test_a_savepoint_is_self_contained_lists_no_token_and_outlives_the_job(
    world: LogWorld,
) -> None:
    """X4"""
    _, _, url = savepoint(world, ONCE, "before")
    assert url == "memory://root/orders/savepoints/before"
    for path in [p for p in world.store.files if not p.startswith("savepoints/")]:
        del world.store.files[path]
    claim = world.log(ONCE).claim(start_from("before"), {})
    assert claim.restored is not None
    assert claim.restored.source == "savepoint 'before'"
    assert claim.restored.tokens == 0
    listed = {ref.name for chain in claim.restored.chains for ref in chain.objects}
    assert listed <= objects(world)
    assert {run.object for c in claim.restored.chains for s in c.states for run in s.runs} == listed


def test_a_savepoint_of_another_job_can_be_started_from(world: LogWorld) -> None:
    """X4: under names of their own, so that no object of this job is met."""
    savepoint(world, ONCE, "before")
    other, bills = LogWorld(), graph_of(job="bills", sinks=("files",))
    asked: list[str] = []

    def open_files(url: str) -> LogFiles:
        asked.append(url)
        return SimFiles(world.store, root="savepoints/before/")

    url = "s3://bucket/orders/savepoints/before"
    log = other.log(bills, open_files=open_files)
    claim = log.claim(start_from(url), {})
    assert asked == [url]
    assert claim.generation == 2, "above every generation that the savepoint's names carry"
    assert claim.last_checkpoint == 2
    assert objects(other) == {f"2-savepoint.1-count-{i}-2.arrow" for i in (0, 1)}
    assert claim.notes == (
        f"savepoint '{url}' is of job 'orders': the exactly-once sinks 'files' will publish again "
        "what that job published after the savepoint",
    )
    assert claim.restored is not None
    assert all(chain.lanes == () for chain in claim.restored.chains)
    again = log.claim(NEWEST, {})
    assert again.restored is not None
    assert again.restored.chains == claim.restored.chains
    log.collect()
    assert len(objects(other)) == 2, "what it began from is live"
    other.checkpoint(log, bills, again)
    log.collect()
    assert not any("savepoint" in name for name in objects(other))


def test_a_savepoint_with_published_epochs_after_it_asks_for_consent(world: LogWorld) -> None:
    """X4"""
    log, claim, _ = savepoint(world, ONCE, "before")
    world.checkpoint(log, ONCE, claim)
    with pytest.raises(RestoreError, match="savepoint 'before' is older than what was published"):
        world.log(ONCE).claim(start_from("before"), {})
    found = world.log(ONCE).claim(start_from("before", accept_duplicates=True), {})
    assert found.restored is not None
    assert found.last_checkpoint == 3


@pytest.mark.parametrize("counts", [1, 2])
def test_lanes_that_are_gone_may_have_published_after_a_savepoint(
    world: LogWorld, counts: int
) -> None:
    """X4, X5: with as many subtasks as before, the records show every lane that ever published."""
    savepoint(world, graph_of(retention=1, sinks=("files",)), "s")
    graph = graph_of(retention=1, counts=counts, sinks=("files",))
    log = world.log(graph)
    claim = log.claim(NEWEST, {})
    for number in (3, 4):
        record = record_of(graph, claim.generation, number)
        chains = tuple(replace(chain, lanes=()) for chain in record.chains)
        log.append(world.upload(replace(record, chains=chains)))
    log.collect()
    assert [slot for slot in world.slots() if slot not in (1, 4)] == [6], "no record before 4"
    again = world.log(graph)
    if counts == 1:
        with pytest.raises(RestoreError, match="savepoint 's' is older than what was published"):
            again.claim(start_from("s"), {})
    assert again.claim(start_from("s", accept_duplicates=counts == 1), {}).restored is not None


def test_recovery_latest_savepoint_takes_the_newest_one(world: LogWorld) -> None:
    """M3"""
    latest = graph_of(recovery="latest_savepoint")
    world.run(GRAPH)
    with pytest.raises(RestoreError, match="has none, but it has checkpoints"):
        world.log(latest).claim(NEWEST, {})
    savepoint(world, GRAPH, "z-first")
    savepoint(world, GRAPH, "a-second")
    world.store.files["savepoints/half/objects/x"] = b""
    claim = world.log(latest).claim(NEWEST, {})
    assert claim.restored is not None
    assert claim.restored.source == "savepoint 'a-second'"


def test_a_savepoint_that_is_not_whole_is_refused_by_name(world: LogWorld) -> None:
    _, _, _ = savepoint(world, GRAPH, "s")
    with pytest.raises(RestoreError, match="there is no savepoint 't'"):
        world.log(GRAPH).claim(start_from("t"), {})
    with pytest.raises(RestoreError, match="must not hold credentials") as caught:
        world.log(GRAPH).claim(start_from("s3://me:secret@host/x"), {})
    assert "secret" not in str(caught.value)
    del world.store.files["savepoints/s/objects/1-count-0-2.arrow"]
    with pytest.raises(RestoreError, match="savepoint 's' cannot be restored: its object"):
        world.log(GRAPH).claim(start_from("s"), {})
    world.store.files["savepoints/s/record.json"] = b"{}"
    with pytest.raises(RestoreError, match="not written by arkflow_ray"):
        world.log(GRAPH).claim(start_from("s"), {})


def test_a_name_of_a_savepoint_is_used_once(world: LogWorld) -> None:
    log, claim, url = savepoint(world, GRAPH, "s")
    record = record_of(GRAPH, claim.generation, 2, kind=RoundKind.SAVEPOINT, savepoint="s")
    assert log.save(record) == url
    later = replace(record, checkpoint=CheckpointId(3))
    with pytest.raises(StoreError, match="there is a savepoint 's' already"):
        log.save(later)
    with pytest.raises(StoreError, match=r"cannot be called '\.\./x'"):
        log.save(replace(record, savepoint="../x"))


def test_a_view_shows_every_slot_and_what_would_be_restored(world: LogWorld) -> None:
    assert read_log(SimFiles(world.store)).restores is None
    savepoint(world, ONCE, "before")
    view = read_log(SimFiles(world.store))
    assert (view.job, view.restores, view.refused) == ("orders", "checkpoint 2", None)
    claim, first, second = view.slots
    assert claim.claim is not None
    assert (claim.claim.generation, claim.claim.coordinator) == (1, "host:1")
    assert first.record is not None
    assert second.record is not None
    assert (second.record.kind, second.record.savepoint) == ("savepoint", "before")
    figures = first.record.total_bytes, first.record.new_bytes, first.record.phases.acknowledged_ms
    assert figures == (100, 100, 7)
    assert first.record.tokens == 2
    assert [each.savepoint for each in view.savepoints] == ["before"]
    assert view.savepoints[0].tokens == 0
    del world.store.files["objects/1-count-0-2.arrow"]
    world.store.files["log/0000000004.json"] = b"?"
    view = read_log(SimFiles(world.store))
    assert view.restores is None
    assert view.refused is not None
    assert (
        "checkpoint 2 cannot be restored: its object 1-count-0-2.arrow is missing" in view.refused
    )
    assert view.slots[3].unreadable == "it was not written by arkflow_ray"
