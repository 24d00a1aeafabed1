"""Faults of our own on the driver's side of a Ray job are told, not waited for (P3). No Ray."""

import asyncio
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from arkflow_kernel.errors import ActorLostError, ResourceError, SinkError
from arkflow_kernel.ids import (
    ChainId,
    ChannelId,
    EdgeId,
    Generation,
    JobId,
    MonotonicMs,
    OperatorId,
    OutputId,
    WallMs,
)
from arkflow_kernel.limits import LEASE_MS
from arkflow_kernel.metrics import ChainStatistics
from arkflow_kernel.plan import (
    ChainPlan,
    ChannelPlan,
    ComponentPlan,
    EdgeKind,
    ExecutionGraph,
    Mode,
    OutletPlan,
    SinkPlan,
    SourcePlan,
)
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import ChainReport
from arkflow_kernel.snapshot import RestoreChoice
from arkflow_ray.config.project import CheckedJob
from arkflow_ray.runtime import chain_process, coordinator_actor, printers, ray_job, ray_session
from arkflow_ray.runtime.arrivals import Arrivals
from arkflow_ray.runtime.chain_actor import ActorPlace
from arkflow_ray.runtime.chain_process import ChainProcess
from arkflow_ray.runtime.coordinator_actor import CoordinatorActor
from arkflow_ray.runtime.deployments import Deployments
from arkflow_ray.runtime.job_settings import JobSettings
from arkflow_ray.runtime.launch import RunSettings, launch
from arkflow_ray.runtime.lines import LineBuffer, Lines
from arkflow_ray.runtime.os_process import this_process
from arkflow_ray.runtime.placement import Seat

PLAN = ChainPlan(
    ChainId("source-0"),
    SourcePlan(OperatorId("source"), ComponentPlan("memory", {})),
    (),
    (SinkPlan(OperatorId("sink"), ComponentPlan("drop", {})),),
    (OutputId("sink"),),
)
HERE = ActorPlace("this-node", this_process())
GRAPH = ExecutionGraph(JobId("j"), 1, Mode.ACK, (PLAN,), (), 1)


class Unpicklable(CoordinatorActor):
    """Creating a chain actor fails in a way that no rule knows."""

    def _create(self, plan: ChainPlan) -> ChainProcess:
        raise TypeError("cannot pickle this")


def test_a_fault_in_a_command_ends_the_job_and_is_not_waited_for() -> None:
    async def run() -> None:
        settings = JobSettings(0.01, 1, "/", {}, "afc-test")
        await asyncio.wait_for(Unpicklable(GRAPH).run(settings), 30)

    with pytest.raises(TypeError, match="cannot pickle this"):
        asyncio.run(run())


def test_jobs_that_were_started_before_one_that_cannot_start_are_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []

    class Runner:
        def __init__(self, *_: object) -> None: ...

        def run_job(self, graph: ExecutionGraph, choice: RestoreChoice) -> Any:
            if graph.job == "second":
                raise ResourceError("no room")
            return SimpleNamespace(cancel=lambda: told.append("cancelled"))

    session = SimpleNamespace(num_cpus=1.0, started=False, close=lambda: told.append("closed"))
    monkeypatch.setattr(ray_session, "open_session", lambda *_: session)
    monkeypatch.setattr(ray_job, "RayRunner", Runner)
    graphs = [GRAPH, replace(GRAPH, job=JobId("second"))]
    jobs = [CheckedJob(g.job, "job", "jobs[0]", graph=g) for g in graphs]
    with pytest.raises(ResourceError, match="no room"):
        launch(jobs, RunSettings(), LineBuffer(), lambda _: None)
    assert told == ["cancelled", "closed"]


def test_a_report_is_dated_by_the_coordinators_own_clock() -> None:
    """D2: the monotonic clocks of two nodes have nothing in common."""
    elsewhere = Moment(MonotonicMs(10**15), WallMs(0))
    told = ChainReport(elsewhere, PLAN.chain, Generation(1), ChainStatistics(PLAN.chain))
    coordinator = CoordinatorActor(GRAPH)

    async def report(_: Generation) -> ChainReport:
        return told

    process: Any = SimpleNamespace(report=report)
    asyncio.run(coordinator._ask(process, coordinator._attempt))
    heard = coordinator._mailbox.take()
    assert isinstance(heard, ChainReport)
    assert heard.at.now_ms <= coordinator._clock.moment().now_ms
    assert replace(heard, at=elsewhere) == told


def test_time_in_which_the_coordinator_stood_still_is_nobodys_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D2."""
    ran_ms, still_ms = 5_000, 60_000
    now_ns = [0]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns[0])
    monkeypatch.setattr(coordinator_actor, "REPORT_INTERVAL_MS", 1)
    coordinator = CoordinatorActor(GRAPH)

    async def live() -> None:
        now_ns[0] = ran_ms * 1_000_000
        heartbeat = asyncio.create_task(coordinator._heartbeat())
        await asyncio.sleep(0)
        now_ns[0] += still_ms * 1_000_000
        while coordinator._clock.moment().now_ms > ran_ms + 1:
            await asyncio.sleep(0)
        heartbeat.cancel()

    asyncio.run(asyncio.wait_for(live(), 30))
    assert coordinator._clock.moment().now_ms == ran_ms + 1


def test_a_cluster_that_grows_lets_chains_listen_on_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H1: on one node nothing does."""
    ids = ChannelId("e[0-0]"), 0, EdgeId("e"), PLAN.chain, ChainId("sink-0")
    channel = ChannelPlan(*ids)
    outlet = OutletPlan(OutputId("e"), EdgeKind.FORWARD, (channel,))
    deployments = Deployments(GRAPH.job, JobSettings(0.01, 1, "/", {}, "afc-test"))
    process: Any = SimpleNamespace(identity=SimpleNamespace(node_ip="127.0.0.1"))

    def listens_on_tcp(plan: ChainPlan, *alive: bool) -> bool:
        monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": each} for each in alive])
        return deployments.of(plan, process, Generation(1)).tcp

    sends = replace(PLAN, outlets=(outlet,))
    assert not listens_on_tcp(sends, True)
    assert not listens_on_tcp(sends, True, False)
    assert listens_on_tcp(sends, True, True)
    assert not listens_on_tcp(PLAN, True, True)
    by_calls = replace(deployments, by_calls=True).of(sends, process, Generation(1))
    assert (by_calls.tcp, by_calls.tunnel) == (False, True), "H6: nothing listens there"


class Remote:
    """Stands for the remote class of chain actors: makes one actor."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def options(self, **_: Any) -> "Remote":
        return self

    def remote(self, *_: Any) -> Any:
        return self._actor


class Anywhere(Seat):
    """A seat on a cluster that has room."""

    def __init__(self) -> None: ...

    async def options(self) -> dict[str, Any]:
        return {}

    async def lacking(self) -> str | None:
        return None

    def leave(self, *, for_good: bool = False) -> None: ...


class Silent:
    """A chain actor none of whose verbs ever answers."""

    def __getattr__(self, verb: str) -> Any:
        return SimpleNamespace(remote=lambda *_: asyncio.get_running_loop().create_future())


@pytest.mark.parametrize("verb", ["handshake", "deploy", "connect"])
def test_an_actor_that_does_not_answer_while_it_is_deployed_is_killed(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1, D2: before all chains are connected nobody watches for silence but these deadlines."""
    killed: list[Any] = []
    actor = Silent()
    monkeypatch.setattr(ray, "kill", lambda each, **_: killed.append(each))
    monkeypatch.setattr(chain_process, "_remote", lambda: Remote(actor))
    for name in ("PLACEMENT", "OPEN", "CONNECT_ANSWER"):
        monkeypatch.setattr(chain_process, f"{name}_TIMEOUT_S", 0.01)
    monkeypatch.setattr(chain_process, "START_TIMEOUT_S", 0.02)

    async def deploy() -> None:
        process = ChainProcess(PLAN, 1, Anywhere(), HERE, Arrivals())
        process.actor = actor
        calls: dict[str, Any] = {
            "handshake": process.handshake,
            "deploy": lambda: process.deploy(None),  # type: ignore[arg-type]
            "connect": lambda: process.connect(Generation(1), {}),
        }
        if verb == "connect":  # its `run` call tells why not
            assert await calls[verb]() is False
        else:
            with pytest.raises(ActorLostError, match="'source-0'"):
                await calls[verb]()
        assert not process.usable

    asyncio.run(asyncio.wait_for(deploy(), 30))
    assert killed == [actor]


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
            printers._print_lines(actor, Lost(error), threading.Lock())
    else:
        printers._print_lines(actor, Lost(error), threading.Lock())
    assert closed == [True]


def test_a_killed_process_that_does_not_go_is_told_and_its_lease_waited_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D4, D6."""
    slept: list[float] = []

    async def stays(_: float) -> bool:
        return False

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(ray, "kill", lambda *_, **__: None)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    process = ChainProcess(PLAN, 1, Anywhere(), HERE, Arrivals())
    immortal: Any = SimpleNamespace(node_id=HERE.node_id, process=SimpleNamespace(pid=7, end=stays))
    process.identity = immortal
    with caplog.at_level("WARNING", "arkflow_ray.chains"):
        asyncio.run(process.kill(ActorLostError("it hangs")))
    assert slept == [LEASE_MS / 1000]
    assert "the process 7 of chain 'source-0' was killed and is still there" in caplog.text
