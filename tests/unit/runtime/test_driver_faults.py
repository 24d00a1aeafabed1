"""Faults of our own on the driver's side of a Ray job are told, not waited for (P3). No Ray."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from arkflow_kernel.errors import ResourceError, SinkError
from arkflow_kernel.ids import ChainId, Generation, JobId, OperatorId, OutputId
from arkflow_kernel.plan import (
    ChainPlan,
    ComponentPlan,
    ExecutionGraph,
    Mode,
    SinkPlan,
    SourcePlan,
)
from arkflow_ray.config.project import CheckedJob
from arkflow_ray.runtime import ray_job, ray_session
from arkflow_ray.runtime.chain_process import ChainProcess
from arkflow_ray.runtime.coordinator_actor import CoordinatorActor, JobSettings
from arkflow_ray.runtime.launch import RunSettings, launch
from arkflow_ray.runtime.lines import LineBuffer, Lines

PLAN = ChainPlan(
    ChainId("source-0"),
    SourcePlan(OperatorId("source"), ComponentPlan("memory", {})),
    (),
    (SinkPlan(OperatorId("sink"), ComponentPlan("drop", {})),),
    (OutputId("sink"),),
)
GRAPH = ExecutionGraph(JobId("j"), 1, Mode.ACK, (PLAN,), (), 1)


class Unpicklable(CoordinatorActor):
    """Creating a chain actor fails in a way that no rule knows."""

    def _create(self, chain: ChainId) -> ChainProcess:
        raise TypeError("cannot pickle this")


def test_a_fault_in_a_command_ends_the_job_and_is_not_waited_for() -> None:
    async def run() -> None:
        settings = JobSettings(0.01, 1, "/", {}, "afc-test")
        await asyncio.wait_for(Unpicklable(GRAPH, Generation(1)).run(settings), 30)

    with pytest.raises(TypeError, match="cannot pickle this"):
        asyncio.run(run())


def test_jobs_that_were_started_before_one_that_cannot_start_are_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []

    class Runner:
        def __init__(self, *_: object) -> None: ...

        def run_job(self, graph: ExecutionGraph) -> Any:
            if graph.job == "second":
                raise ResourceError("no room")
            return SimpleNamespace(cancel=lambda: told.append("cancelled"))

    session = SimpleNamespace(num_cpus=1.0, close=lambda: told.append("closed"))
    monkeypatch.setattr(ray_session, "open_session", lambda *_: session)
    monkeypatch.setattr(ray_job, "RayRunner", Runner)
    graphs = [GRAPH, replace(GRAPH, job=JobId("second"))]
    jobs = [CheckedJob(g.job, "job", "jobs[0]", graph=g) for g in graphs]
    with pytest.raises(ResourceError, match="no room"):
        launch(jobs, RunSettings(), LineBuffer(), lambda _: None)
    assert told == ["cancelled", "closed"]


class Lost:
    """A driver's stdout that fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def put(self, lines: bytes) -> None:
        raise self._error


@pytest.mark.parametrize("error", [SinkError("closed"), ValueError("I/O operation on closed file")])
def test_a_printer_that_fails_tells_the_sink_that_nobody_prints(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []
    actor = SimpleNamespace(
        take_lines=SimpleNamespace(remote=lambda *_: Lines(Generation(1), 1, b"a\n")),
        close_lines=SimpleNamespace(remote=lambda: closed.append(True)),
    )
    monkeypatch.setattr(ray, "get", lambda reference: reference)
    expected = () if isinstance(error, SinkError) else (ValueError,)
    if expected:
        with pytest.raises(expected):
            ray_job._print_lines(actor, Lost(error))
    else:
        ray_job._print_lines(actor, Lost(error))
    assert closed == [True]
