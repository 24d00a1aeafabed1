"""Claims with another plan of the same job, and the records that are made under it (K2, M1, M6)."""

import pytest

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import FencedError, ProtocolError, RestoreError
from arkflow_kernel.ids import CheckpointId, RequestToken
from arkflow_kernel.job_plan_record import plan_of
from arkflow_kernel.job_record import CheckpointEntry, ClaimEntry, Entry, decode
from arkflow_kernel.log_work import perform_log
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.protocol import Claimed, ClaimGeneration, LogFailed
from arkflow_kernel.snapshot import Claim, RestoreChoice
from arkflow_kernel.testing.log_world import LogWorld, graph_of, record_of
from arkflow_kernel.testing.sim_files import FileFault, SimFiles
from arkflow_kernel.testing.virtual_clock import VirtualClock

NEWEST = RestoreChoice()
ONE, TWO, FIVE = (graph_of(counts=n, sinks=("files",)) for n in (1, 2, 5))


def groups(claim: Claim) -> dict[str, list[tuple[int, int]]]:
    """By chain, the key groups of the runs that a claim restores."""
    assert claim.restored is not None
    return {
        chain.chain: [
            (run.first_group, run.last_group) for state in chain.states for run in state.runs
        ]
        for chain in claim.restored.chains
    }


def lanes(claim: Claim) -> dict[str, list[int]]:
    """By chain, the sink lanes that it restores."""
    assert claim.restored is not None
    held = {c.chain: [lane.lane for lane in c.lanes] for c in claim.restored.chains}
    return {chain: found for chain, found in held.items() if found}


def entry(world: LogWorld, slot: int) -> Entry:
    """What lies in a slot."""
    found = decode(world.store.files[f"log/{slot:010}.json"])
    assert isinstance(found, ClaimEntry | CheckpointEntry)
    return found


@pytest.mark.parametrize(("before", "after"), [(TWO, FIVE), (FIVE, TWO), (TWO, ONE), (ONE, FIVE)])
def test_a_claim_of_another_plan_gives_every_key_group_and_lane_to_one_chain_of_it(
    world: LogWorld, before: ExecutionGraph, after: ExecutionGraph
) -> None:
    log, claim = world.run(before, rounds=0)
    world.checkpoint(log, before, claim, kind=RoundKind.RESCALE)
    again = log.claim(NEWEST, {}, after)
    assert set(groups(again)) <= {plan.chain for plan in after.chains}
    ranges = [range(a, b + 1) for runs in groups(again).values() for a, b in runs]
    held = [group for found in ranges for group in found]
    assert sorted(held) == list(range(128))
    assert sorted(lane for found in lanes(again).values() for lane in found) == [
        plan.subtask for plan in before.chains if plan.sinks
    ]
    assert entry(world, 3).plan == plan_of(after)


def test_records_after_a_claim_of_another_plan_are_of_that_plan(world: LogWorld) -> None:
    log, _ = world.run(TWO)
    again = log.claim(NEWEST, {}, FIVE)
    with pytest.raises(ProtocolError, match="every planned chain"):
        log.append(record_of(TWO, again.generation, 2))
    assert world.checkpoint(log, FIVE, again) == 2
    assert [entry(world, slot).plan for slot in (1, 2, 3, 4)] == [
        *[plan_of(TWO)] * 2,
        *[plan_of(FIVE)] * 2,
    ]
    _, later = world.run(FIVE, rounds=0)
    assert later.restored is not None
    assert later.restored.chains == record_of(FIVE, 2, 2).chains


def test_a_claim_without_a_plan_is_of_the_plan_of_the_claim_before(world: LogWorld) -> None:
    log, _ = world.run(TWO)
    log.claim(NEWEST, {}, FIVE)
    again = log.claim(NEWEST, {})
    world.checkpoint(log, FIVE, again)
    assert entry(world, 4).plan == plan_of(FIVE)


def test_a_claim_of_the_old_plan_takes_the_new_one_back(world: LogWorld) -> None:
    """K2: before the new plan has a record, from that of the old one; after it, from its own."""
    log, _ = world.run(TWO)
    log.claim(NEWEST, {}, FIVE)
    back = log.claim(NEWEST, {}, TWO)
    assert back.restored is not None
    assert back.restored.chains == record_of(TWO, 1, 1).chains
    again = log.claim(NEWEST, {}, FIVE)
    world.checkpoint(log, FIVE, again)
    mapped = log.claim(NEWEST, {}, TWO)
    assert groups(mapped) == {
        "in-0": [],
        "count-0": [(0, 24), (25, 50), (51, 63)],
        "count-1": [(64, 75), (76, 101), (102, 127)],
    }
    assert lanes(mapped) == {"count-0": [0, 2, 4], "count-1": [1, 3]}
    world.checkpoint(log, TWO, mapped)


def test_a_coordinator_that_was_fenced_between_claims_no_other_plan(world: LogWorld) -> None:
    """M1: neither when it claims the new plan, nor when it appends the first record of it."""
    old, _ = world.run(TWO)
    world.run(TWO, rounds=0)
    with pytest.raises(FencedError, match="host:2"):
        old.claim(NEWEST, {}, FIVE)
    rescaled, _ = world.run(TWO)
    claim = rescaled.claim(NEWEST, {}, FIVE)
    world.run(FIVE, rounds=0)
    before = dict(world.store.files)
    with pytest.raises(FencedError, match="host:4"):
        rescaled.append(record_of(FIVE, claim.generation, claim.last_checkpoint + 1))
    with pytest.raises(FencedError):
        rescaled.claim(NEWEST, {}, TWO)
    assert world.store.files == before


def test_a_rival_that_claims_another_plan_first_is_met_in_the_same_slot() -> None:
    world = LogWorld()
    rivals: list[Claim] = []

    def before(call: str) -> None:
        if call == "create log/0000000003.json" and not rivals:
            rivals.append(world.log(FIVE).claim(NEWEST, {}))

    log = world.log(TWO, files=SimFiles(world.store, before=before))
    claim = log.claim(NEWEST, {})
    world.checkpoint(log, TWO, claim)
    with pytest.raises(FencedError, match="generation 2 was claimed by host:2"):
        log.claim(NEWEST, {}, ONE)
    assert world.slots() == [1, 2, 3]
    assert entry(world, 3).plan == plan_of(FIVE)


def test_a_plan_that_the_newest_record_does_not_fit_is_refused_and_the_old_one_is_not(
    world: LogWorld,
) -> None:
    log, _ = world.run(TWO)
    with pytest.raises(RestoreError, match="max_parallelism"):
        log.claim(NEWEST, {}, graph_of(counts=2, sinks=("files",), max_parallelism=64))
    assert world.slots() == [1, 2]
    again = log.claim(NEWEST, {}, TWO)
    assert (again.generation, again.last_checkpoint) == (2, 1)
    world.checkpoint(log, TWO, again)


def test_a_plan_of_another_job_is_no_plan_of_the_log(world: LogWorld) -> None:
    log, _ = world.run(TWO)
    with pytest.raises(ProtocolError, match="a plan of job 'bills' in the log of 'orders'"):
        log.claim(NEWEST, {}, graph_of(job="bills"))


def test_what_the_restored_record_lists_stays_until_the_new_plan_has_a_record() -> None:
    """M5: objects of chains that the new plan has no more, too."""
    world = LogWorld()
    five, two = (graph_of(counts=n, sinks=("files",), retention=1) for n in (5, 2))
    log, _ = world.run(five)
    listed = {name for name in world.store.files if name.startswith("objects/")}
    claim = log.claim(NEWEST, {}, two)
    log.collect()
    assert listed <= set(world.store.files)
    world.checkpoint(log, two, claim)
    log.collect()
    assert not listed & set(world.store.files)
    assert log.claim(NEWEST, {}, five).last_checkpoint == 2


def test_a_claim_whose_outcome_is_unknown_is_settled_with_its_plan() -> None:
    faults = [FileFault.DONE]

    def before(call: str) -> FileFault | None:
        return faults.pop() if call == "create log/0000000003.json" and faults else None

    world = LogWorld()
    log = world.log(TWO, files=SimFiles(world.store, before=before))
    claim = log.claim(NEWEST, {})
    world.checkpoint(log, TWO, claim)
    again = log.claim(NEWEST, {}, FIVE)
    assert not faults
    assert (again.generation, entry(world, 3).plan) == (2, plan_of(FIVE))


def test_a_driver_hands_the_plan_of_a_claim_to_the_log(world: LogWorld) -> None:
    log, _ = world.run(TWO)
    clock = VirtualClock()
    answer = perform_log(log, ClaimGeneration(RequestToken(7), NEWEST, {}, FIVE), clock)
    assert isinstance(answer, Claimed)
    assert (answer.token, answer.claim.last_checkpoint) == (7, CheckpointId(1))
    assert entry(world, 3).plan == plan_of(FIVE)
    other = ClaimGeneration(RequestToken(8), NEWEST, {}, graph_of(job="bills"))
    failed = perform_log(log, other, clock)
    assert isinstance(failed, LogFailed)
