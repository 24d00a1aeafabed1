"""The driver's half of a job's log: each command is done and answered (M1, M5)."""

from dataclasses import replace

import pytest

from arkflow_kernel.errors import FencedError, RestoreError, StoreError
from arkflow_kernel.ids import CheckpointId, RequestToken
from arkflow_kernel.log_work import perform_log
from arkflow_kernel.protocol import (
    AppendRecord,
    Claimed,
    ClaimGeneration,
    CollectGarbage,
    LogFailed,
    RecordAppended,
    SavepointSaved,
    SaveSavepoint,
)
from arkflow_kernel.snapshot import NEWEST, RestoreChoice
from arkflow_kernel.testing.log_world import LogWorld, graph_of, record_of
from arkflow_kernel.testing.sim_files import FileFault, SimFiles
from arkflow_kernel.testing.virtual_clock import VirtualClock

T = RequestToken(5)
CLOCK = VirtualClock(77)


def test_claims_records_and_savepoints_are_done_and_answered() -> None:
    world, graph = LogWorld(), graph_of()
    log = world.log(graph)
    claimed = perform_log(log, ClaimGeneration(T, NEWEST), CLOCK)
    assert isinstance(claimed, Claimed)
    assert (claimed.token, claimed.at.now_ms) == (T, 77)
    record = world.upload(record_of(graph, claimed.claim.generation, CheckpointId(1)))
    record = replace(record, savepoint="before")
    assert perform_log(log, AppendRecord(T, record), CLOCK) == RecordAppended(CLOCK.moment(), T)
    saved = perform_log(log, SaveSavepoint(T, record), CLOCK)
    assert isinstance(saved, SavepointSaved)
    assert saved.url.endswith("before")
    again = perform_log(world.log(graph), ClaimGeneration(T, NEWEST), CLOCK)
    assert isinstance(again, Claimed)
    assert again.claim.restored is not None
    assert again.claim.restored.checkpoint == 1


def test_what_the_log_refuses_is_an_answer() -> None:
    world, graph = LogWorld(), graph_of()
    log = world.log(graph)
    claimed = perform_log(log, ClaimGeneration(T, NEWEST), CLOCK)
    assert isinstance(claimed, Claimed)
    perform_log(world.log(graph), ClaimGeneration(T, NEWEST), CLOCK)
    record = world.upload(record_of(graph, claimed.claim.generation, CheckpointId(1)))
    fenced = perform_log(log, AppendRecord(T, record), CLOCK)
    assert isinstance(fenced, LogFailed)
    assert (fenced.token, type(fenced.error)) == (T, FencedError)
    refused = perform_log(
        world.log(graph), ClaimGeneration(T, RestoreChoice(must_exist=True)), CLOCK
    )
    assert isinstance(refused, LogFailed)
    assert isinstance(refused.error, RestoreError)


def test_a_driver_hears_of_garbage_that_cannot_be_collected_now() -> None:
    world, calls = LogWorld(), list[str]()

    def before(call: str) -> FileFault | None:
        calls.append(call)
        return FileFault.REFUSED if broken else None

    broken = False
    log = world.log(files=SimFiles(world.store, before=before))
    perform_log(log, ClaimGeneration(T, NEWEST), CLOCK)
    broken = True
    calls.clear()
    with pytest.raises(StoreError):
        perform_log(log, CollectGarbage(), CLOCK)
    assert calls, "it was tried"
    broken = False
    assert perform_log(log, CollectGarbage(), CLOCK) is None


def test_a_store_that_is_not_there_is_an_answer_to_a_claim() -> None:
    world = LogWorld()
    log = world.log(files=SimFiles(world.store, before=lambda _call: FileFault.REFUSED))
    failed = perform_log(log, ClaimGeneration(T, NEWEST), CLOCK)
    assert isinstance(failed, LogFailed)
    assert isinstance(failed.error, StoreError)
