"""Claims, records and fencing of one job's log (M1)."""

import pytest

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import FencedError, ProtocolError, StoreError
from arkflow_kernel.ids import CheckpointId
from arkflow_kernel.snapshot import RestoreChoice
from arkflow_kernel.testing.log_world import LogWorld, graph_of, record_of
from arkflow_kernel.testing.sim_files import FileFault, SimFiles

NEWEST = RestoreChoice()
GRAPH = graph_of()


def refusing(world: LogWorld, failing: str) -> SimFiles:
    """Files that refuse one call, always."""

    def before(call: str) -> FileFault | None:
        return FileFault.REFUSED if call == failing else None

    return SimFiles(world.store, before=before)


def test_the_first_claim_is_generation_1_and_restores_nothing(world: LogWorld) -> None:
    claim = world.log().claim(NEWEST, {})
    assert (claim.generation, claim.restored, claim.last_checkpoint) == (1, None, 0)
    assert world.slots() == [1]


def test_each_claim_takes_the_next_generation_and_restores_the_newest_record(
    world: LogWorld,
) -> None:
    world.run(GRAPH, rounds=2)
    _, claim = world.run(GRAPH, rounds=0)
    assert claim.generation == 2
    assert claim.last_checkpoint == 2
    assert claim.restored is not None
    assert claim.restored.source == "checkpoint 2"
    assert claim.restored.chains == record_of(GRAPH, 1, 2).chains
    assert world.slots() == [1, 2, 3, 4]


def test_a_coordinator_is_fenced_by_a_later_claim_which_is_named(world: LogWorld) -> None:
    old, claim = world.run(GRAPH)
    world.run(GRAPH, rounds=0)
    with pytest.raises(FencedError) as caught:
        world.checkpoint(old, GRAPH, claim)
    assert "log/0000000003.json generation 2 was claimed by host:2" in str(caught.value)
    assert "generation 1, host:1" in str(caught.value)
    before = dict(world.store.files)
    for _ in range(2):
        with pytest.raises(FencedError):
            old.append(record_of(GRAPH, 1, 2))
        with pytest.raises(FencedError):
            old.claim(NEWEST, {})
        with pytest.raises(FencedError):
            old.collect()
    assert {name for name in world.store.files if name not in before} == set()


def test_a_later_claim_of_the_same_coordinator_does_not_pass_over_a_rival(world: LogWorld) -> None:
    """D7: two coordinators would take the job from each other for ever."""
    one, _ = world.run(GRAPH)
    world.run(GRAPH, rounds=0)
    with pytest.raises(FencedError, match="host:2"):
        one.claim(NEWEST, {})
    assert world.slots() == [1, 2, 3]


def test_a_successor_takes_the_job_from_its_own_run_only(world: LogWorld) -> None:
    """D7: another run that claimed the job since keeps it, however its coordinators come and go."""
    world.log(run="first").claim(NEWEST, {})
    again = world.log(run="first", continued=True)
    assert again.claim(NEWEST, {}).generation == 2
    world.log(run="second").claim(NEWEST, {})
    with pytest.raises(FencedError, match="generation 3 was claimed by host:3"):
        world.log(run="first", continued=True).claim(NEWEST, {})
    assert world.log(run="second", continued=True).claim(NEWEST, {}).generation == 4


def test_a_coordinator_claims_again_for_its_next_attempt(world: LogWorld) -> None:
    log, first = world.run(GRAPH)
    again = log.claim(NEWEST, {})
    assert (again.generation, again.last_checkpoint) == (2, 1)
    world.checkpoint(log, GRAPH, again)
    with pytest.raises(ProtocolError, match="generation 1"):
        log.append(record_of(GRAPH, first.generation, 3))


def test_a_slot_that_cannot_be_read_counts_as_taken(world: LogWorld) -> None:
    log, claim = world.run(GRAPH)
    world.store.files["log/0000000003.json"] = b"torn"
    with pytest.raises(FencedError, match="cannot be read: it was not written by arkflow_ray"):
        world.checkpoint(log, GRAPH, claim)
    assert world.store.files["log/0000000003.json"] == b"torn"
    _, later = world.run(GRAPH, rounds=0)
    assert world.slots() == [1, 2, 3, 4]
    assert later.generation == 3, "the burnt slot may have been a claim"


@pytest.mark.parametrize("fault", [FileFault.LOST, FileFault.DONE, FileFault.LATE])
@pytest.mark.parametrize("blind", [0, 1, 3])
def test_a_record_of_unknown_outcome_is_settled_at_the_same_slot(
    fault: FileFault, blind: int
) -> None:
    """The slot is read back, and the same bytes are tried again, for as long as it takes."""
    reads, creates = [FileFault.REFUSED] * blind, [fault, fault, FileFault.REFUSED, fault]

    def before(call: str) -> FileFault | None:
        if call == "create log/0000000002.json" and creates:
            return creates.pop(0)
        return reads.pop(0) if call == "read log/0000000002.json" and reads else None

    world = LogWorld()
    files = SimFiles(world.store, before=before)
    log = world.log(files=files)
    claim = log.claim(NEWEST, {})
    world.checkpoint(log, GRAPH, claim)
    world.checkpoint(log, GRAPH, claim, number=2)
    assert world.slots() == [1, 2, 3]
    written = [call for call in files.calls if call.startswith("create log")]
    assert set(written[1:-1]) == {"create log/0000000002.json"}
    assert world.run(GRAPH, rounds=0)[1].last_checkpoint == 2


def test_a_record_that_the_store_refuses_may_be_followed_by_another_at_its_slot() -> None:
    """`LogFailed`: it is certain that it is not there, and never will be."""
    refused = [FileFault.REFUSED]

    def before(call: str) -> FileFault | None:
        return refused.pop() if call == "create log/0000000002.json" and refused else None

    world = LogWorld()
    log = world.log(files=SimFiles(world.store, before=before))
    claim = log.claim(NEWEST, {})
    with pytest.raises(StoreError, match="refused"):
        world.checkpoint(log, GRAPH, claim)
    assert world.slots() == [1]
    world.checkpoint(log, GRAPH, claim, number=2)
    assert world.slots() == [1, 2]


def test_closing_ends_a_write_that_cannot_be_settled(world: LogWorld) -> None:
    def before(call: str) -> FileFault | None:
        if call.startswith("pause 5"):
            log.close()
        return FileFault.LOST if call == "create log/0000000002.json" else None

    log = world.log(files=SimFiles(world.store, before=before))
    claim = log.claim(NEWEST, {})
    with pytest.raises(StoreError, match="closed"):
        world.checkpoint(log, GRAPH, claim)


def test_a_claimer_that_slept_over_the_retention_does_not_claim_in_its_gap() -> None:
    """The slot that it found free was filled, and emptied again, by a coordinator that goes on."""
    world = LogWorld()
    graph = graph_of(retention=1)
    old, claim = world.run(graph)
    slept = False

    def before(call: str) -> None:
        nonlocal slept
        if call == "create log/0000000003.json" and not slept:
            slept = True
            for number in (2, 3, 4):
                world.checkpoint(old, graph, claim, number=number)
                old.collect()

    late = world.log(graph, files=SimFiles(world.store, before=before))
    found = late.claim(NEWEST, {})
    assert world.slots() == [1, 3, 5, 6], "the claim at 3 is void"
    assert (found.generation, found.last_checkpoint) == (3, 4)
    assert found.restored is not None
    assert found.restored.checkpoint == 4
    with pytest.raises(FencedError):
        world.checkpoint(old, graph, claim, number=5)


def test_a_claim_that_failed_after_it_was_written_does_not_fence_its_own_coordinator() -> None:
    world = LogWorld()
    broken = [False]

    def before(call: str) -> FileFault | None:
        return FileFault.REFUSED if broken[0] and call.startswith("sizes log") else None

    def after(call: str) -> None:
        broken[0] = call == "create log/0000000003.json"

    log = world.log(files=SimFiles(world.store, before=before, after=after))
    claim = log.claim(NEWEST, {})
    world.checkpoint(log, GRAPH, claim)
    with pytest.raises(StoreError):
        log.claim(NEWEST, {})
    broken[0] = False
    again = log.claim(NEWEST, {})
    assert again.generation == 3
    assert world.slots() == [1, 2, 3, 4]


def test_a_start_that_is_refused_does_not_fence_the_job_that_runs(world: LogWorld) -> None:
    running, claim = world.run(GRAPH)
    with pytest.raises(Exception, match="has a checkpoint already"):
        world.log().claim(RestoreChoice(must_not_exist=True), {})
    world.checkpoint(running, GRAPH, claim)


def test_records_are_of_the_claimed_generation_whole_and_ascending(world: LogWorld) -> None:
    log, _ = world.run(GRAPH)
    with pytest.raises(ProtocolError, match="checkpoint 1 after checkpoint 1"):
        log.append(record_of(GRAPH, 1, 1))
    with pytest.raises(ProtocolError, match="every planned chain"):
        log.append(record_of(graph_of(counts=1), 1, 2))
    assert world.slots() == [1, 2]


def test_the_kind_of_a_last_round_comes_back(world: LogWorld) -> None:
    log, claim = world.run(GRAPH)
    world.checkpoint(log, GRAPH, claim, kind=RoundKind.FINAL, tokens=False)
    _, later = world.run(GRAPH, rounds=0)
    assert later.restored is not None
    assert later.restored.kind is RoundKind.FINAL
    assert later.last_checkpoint == CheckpointId(2)


def test_an_error_of_the_store_fails_the_start_and_is_never_an_empty_log(world: LogWorld) -> None:
    """M2"""
    world.run(GRAPH)
    for failing in ("sizes log", "read log/0000000002.json", "sizes objects"):
        with pytest.raises(StoreError):
            world.log(files=refusing(world, failing)).claim(NEWEST, {})
    assert world.slots() == [1, 2]
