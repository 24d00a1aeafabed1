"""The coordinator actor around its machine: what it lets through, and when (P3, M1, D6). No Ray."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from arkflow_kernel.errors import FencedError
from arkflow_kernel.ids import (
    ChainId,
    Generation,
    JobId,
    MonotonicMs,
    OperatorId,
    OutputId,
    RequestToken,
    WallMs,
)
from arkflow_kernel.metrics import ChainStatistics
from arkflow_kernel.plan import (
    ChainPlan,
    CheckpointPlan,
    ComponentPlan,
    ExecutionGraph,
    Mode,
    SinkPlan,
    SourcePlan,
)
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import ChainReport, Claimed, OutcomeKind
from arkflow_kernel.snapshot import Claim
from arkflow_ray.runtime.coordinator_actor import CoordinatorActor, _Attempt
from arkflow_ray.runtime.job_settings import JobSettings
from arkflow_ray.runtime.log_thread import open_job_log

CHAIN = ChainId("source-0")
PLAN = ChainPlan(
    CHAIN,
    SourcePlan(OperatorId("source"), ComponentPlan("memory", {})),
    (),
    (SinkPlan(OperatorId("sink"), ComponentPlan("drop", {})),),
    (OutputId("sink"),),
    mode=Mode.CHECKPOINT,
)
GRAPH = ExecutionGraph(
    JobId("j"), 1, Mode.CHECKPOINT, (PLAN,), (), 1, checkpoint=CheckpointPlan("memory://x")
)
NOW = Moment(MonotonicMs(0), WallMs(0))
CLAIMED = Claimed(NOW, RequestToken(1), Claim(Generation(2)))


def report(number: int, generation: int = 2) -> ChainReport:
    return ChainReport(
        NOW, CHAIN, Generation(generation), ChainStatistics(CHAIN, rows_in=number), number=number
    )


def heard(coordinator: CoordinatorActor) -> list[int]:
    found = []
    while (event := coordinator._mailbox.take()) is not None:
        assert isinstance(event, ChainReport)
        found.append(event.number)
    return found


def test_a_report_that_is_overtaken_by_a_newer_one_is_dropped() -> None:
    """P3: reports are pushed and asked for, and arrive in any order."""

    async def tell() -> list[int]:
        coordinator = CoordinatorActor(GRAPH)
        coordinator._attempt = _Attempt(Generation(2))
        for each in (report(1), report(3), report(2), report(3), report(4)):
            await coordinator.tell(each)
        return heard(coordinator)

    assert asyncio.run(tell()) == [1, 3, 3, 4]


def test_reports_of_each_generation_are_counted_anew() -> None:
    async def tell() -> list[int]:
        coordinator = CoordinatorActor(GRAPH)
        coordinator._attempt = _Attempt(Generation(2))
        await coordinator.tell(report(7))
        coordinator._attempt = _Attempt(Generation(3))
        await coordinator.tell(report(1, generation=3))
        await coordinator.tell(report(8, generation=2))  # the machine drops it
        await coordinator.tell(report(2, generation=3))
        return heard(coordinator)

    assert asyncio.run(tell()) == [7, 1, 8, 2]


@pytest.mark.parametrize("hold_ms", [0, 20, 10**9])
def test_a_claim_is_held_back_while_chains_of_another_coordinator_may_write(hold_ms: int) -> None:
    """D6: the job is claimed at once, and deployed when their lease is over."""

    async def claimed() -> bool:
        coordinator = CoordinatorActor(GRAPH)
        coordinator._mailbox.attach()
        now_ms = coordinator._clock.moment().now_ms
        coordinator._log.hold(hold_ms)
        coordinator._log.answered(CLAIMED)
        if hold_ms > 1_000:
            await asyncio.sleep(0)
            assert coordinator._mailbox.take() is None
            return False
        await coordinator._mailbox.wait(30)
        event = coordinator._mailbox.take()
        assert isinstance(event, Claimed)
        if hold_ms:
            assert event.at.now_ms >= now_ms + hold_ms
        return replace(event, at=NOW) == CLAIMED

    assert asyncio.run(claimed()) is (hold_ms < 1_000)


def test_a_job_whose_claim_is_refused_ends_with_the_reason(tmp_path: Path) -> None:
    """M3: through the real log, without a chain having been made."""
    graph = replace(GRAPH, checkpoint=CheckpointPlan(str(tmp_path)))
    settings = JobSettings(0.01, 1, "/", {}, "afc-test", checkpoint_root=f"file://{tmp_path}")

    async def run() -> None:
        from arkflow_kernel.snapshot import RestoreChoice

        coordinator = CoordinatorActor(graph, RestoreChoice(must_exist=True))
        outcome = await asyncio.wait_for(coordinator.run(settings), 30)
        assert outcome.kind is OutcomeKind.FAILED
        assert outcome.error is not None
        assert "no checkpoint" in outcome.error.message
        assert coordinator._pool.processes == ()

    asyncio.run(run())


def test_a_savepoint_outside_of_the_jobs_folder_is_opened_by_its_url(tmp_path: Path) -> None:
    from arkflow_kernel.errors import RestoreError
    from arkflow_kernel.snapshot import RestoreChoice, RestoreKind

    graph = replace(GRAPH, checkpoint=CheckpointPlan(str(tmp_path)))
    log = open_job_log(graph, f"file://{tmp_path}")
    where = f"file://{tmp_path}/elsewhere/mine"
    with pytest.raises(RestoreError, match=f"no savepoint '{where}'"):
        log.claim(RestoreChoice(RestoreKind.SAVEPOINT, savepoint=where), {})
    log.close()


def test_two_logs_of_a_job_fence_each_other(tmp_path: Path) -> None:
    """D7."""
    from arkflow_kernel.snapshot import RestoreChoice

    graph = replace(GRAPH, checkpoint=CheckpointPlan(str(tmp_path)))
    earlier, later = (open_job_log(graph, f"file://{tmp_path}") for _ in range(2))
    assert earlier.claim(RestoreChoice(), {}).generation == 1
    assert later.claim(RestoreChoice(), {}).generation == 2
    with pytest.raises(FencedError, match="generation 2 was claimed by "):
        earlier.claim(RestoreChoice(), {})
    earlier.close()
    later.close()
