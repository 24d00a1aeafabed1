"""The Ray actor around the coordinator machine: performs its commands with chain actors (D1).

The machine decides; here are only calls. Each command starts a task of the loop, and what comes of
it is an event in the mailbox. The death of a chain actor is seen by its `run` call (D2).
"""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from arkflow_kernel.coordinator import JobCoordinator
from arkflow_kernel.errors import ActorLostError, ArkflowError
from arkflow_kernel.ids import ChainId, Generation
from arkflow_kernel.limits import REPORT_INTERVAL_MS
from arkflow_kernel.plan import ChainPlan, ExecutionGraph
from arkflow_kernel.protocol import (
    Begin,
    CancelRequested,
    ChainClosed,
    ChainEnded,
    ChainOutcome,
    ChainReady,
    CloseChain,
    CoordinatorCommand,
    CoordinatorEvent,
    DeployChain,
    EndJob,
    JobOutcome,
    JobStatus,
    OutcomeKind,
    SendControl,
    StopRequested,
    Tick,
)
from arkflow_ray.runtime.chain_actor import CONCURRENCY_GROUPS, ChainActor, Deployment
from arkflow_ray.runtime.clock import SystemClock
from arkflow_ray.runtime.mailbox import Mailbox
from arkflow_ray.runtime.ray_errors import first_line

HANDSHAKE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class JobSettings:
    """How a job's actors are placed and what they are given.

    `secrets` never appears in a repr; it goes to chain actors in their deploy call (M8).
    """

    num_cpus: float
    threads: int
    folder: str
    secrets: Mapping[str, str]

    def __repr__(self) -> str:
        return f"JobSettings(num_cpus={self.num_cpus}, threads={self.threads})"


class CoordinatorActor:
    """Coordinator of one job; `launch` makes a Ray actor of it, with `num_cpus=0`."""

    def __init__(self, graph: ExecutionGraph, generation: Generation) -> None:
        self._graph = graph
        self._generation = generation
        self._clock = SystemClock()
        self._machine = JobCoordinator(graph, generation)
        self._mailbox: Mailbox[CoordinatorEvent] = Mailbox()
        self._settings: JobSettings | None = None
        self._actors: dict[ChainId, Any] = {}
        self._runs: dict[ChainId, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._outcome: JobOutcome | None = None
        self._fault: BaseException | None = None
        self._status = self._machine.status()

    async def run(self, settings: JobSettings) -> JobOutcome:
        """Deploy the job and run it to its end. One call."""
        self._settings = settings
        self._mailbox.attach()
        self._mailbox.post(Begin(self._clock.moment()))
        heartbeat = asyncio.create_task(self._heartbeat())
        try:
            while self._outcome is None:
                await self._step()
        finally:
            heartbeat.cancel()
            for task in list(self._tasks):
                task.cancel()
            self._mailbox.detach()
        return self._outcome

    async def stop(self) -> None:
        """A user wants the job stopped in order (D5)."""
        self._mailbox.post(StopRequested(self._clock.moment()), control=True)

    async def cancel(self) -> None:
        """A user wants the job gone (D5)."""
        self._mailbox.post(CancelRequested(self._clock.moment()), control=True)

    async def status(self) -> JobStatus:
        """The machine's last snapshot."""
        return self._status

    async def chain_actors(self) -> dict[ChainId, Any]:
        """Handles of the chain actors that exist, for the driver's line printers (P9)."""
        return dict(self._actors)

    # --- the loop ------------------------------------------------------------------------------

    async def _step(self) -> None:
        event = self._mailbox.take()
        if event is None:
            due_ms = self._machine.next_deadline_ms()
            now_ms = self._clock.moment().now_ms
            await self._mailbox.wait(None if due_ms is None else max(0.0, (due_ms - now_ms) / 1000))
            event = self._mailbox.take()
            if event is None:
                event = Tick(self._clock.moment())
        if self._fault is not None:
            raise self._fault
        for command in self._machine.handle(event):
            self._perform(command)
        self._status = self._machine.status()

    def _perform(self, command: CoordinatorCommand) -> None:
        match command:
            case DeployChain():
                self._start(self._deploy(command))
            case SendControl():
                self._start(self._send(command))
            case CloseChain():
                self._start(self._close(command))
            case EndJob():
                self._outcome = command.outcome

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        """A fault in a command's work ends the job: the answer that it owes would never come."""
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._fault = task.exception()
            self._mailbox.post(Tick(self._clock.moment()), control=True)

    # --- commands ------------------------------------------------------------------------------

    async def _deploy(self, command: DeployChain) -> None:
        plan, settings = command.plan, self._settings
        assert settings is not None
        deployment = Deployment(
            plan,
            command.generation,
            command.restored,
            settings.secrets,
            settings.folder,
            settings.threads,
        )
        try:
            actor = self._create(plan, settings)
            identity = await asyncio.wait_for(actor.handshake.remote(), HANDSHAKE_TIMEOUT_S)
            if (identity.chain, identity.generation) != (plan.chain, command.generation):
                raise ActorLostError(f"another actor answered for chain '{plan.chain}'")
            error = await actor.deploy.remote(deployment)
        except TimeoutError:
            error = ActorLostError(
                f"no process for chain '{plan.chain}' within {HANDSHAKE_TIMEOUT_S:.0f} s: the "
                f"cluster may lack resources (it needs num_cpus={settings.num_cpus}); "
                f"see `ray status`"
            )
        except ArkflowError as lost:
            error = lost
        except RayError as lost:
            error = _lost(plan.chain, lost)
        if error is not None:
            self._ended(plan.chain, ChainOutcome(OutcomeKind.FAILED, error))
            return
        self._runs[plan.chain] = self._start(self._run(plan.chain))
        self._mailbox.post(ChainReady(self._clock.moment(), command.token, plan.chain))

    def _create(self, plan: ChainPlan, settings: JobSettings) -> Any:
        options: dict[str, Any] = {
            "num_cpus": settings.num_cpus,
            "max_restarts": 0,
            "max_task_retries": 0,
            "concurrency_groups": CONCURRENCY_GROUPS,
        }
        remote: Any = ray.remote(**options)(_grouped(ChainActor))
        actor = remote.remote(plan.chain, self._generation)
        self._actors[plan.chain] = actor
        return actor

    async def _run(self, chain: ChainId) -> None:
        try:
            outcome = await self._actors[chain].run.remote()
            report = await self._actors[chain].report.remote()
            self._mailbox.post(report)
        except RayError as lost:
            outcome = ChainOutcome(OutcomeKind.FAILED, _lost(chain, lost))
        self._ended(chain, outcome)

    async def _send(self, command: SendControl) -> None:
        try:
            await self._actors[command.chain].control.remote(command.state)
        except RayError:
            return  # the `run` call of the same actor reports its death

    async def _close(self, command: CloseChain) -> None:
        """The chain's components are closed when it ended; the process goes now (T4, D4)."""
        actor = self._actors.get(command.chain)
        if actor is not None:
            ray.kill(actor, no_restart=True)
        closed = ChainClosed(self._clock.moment(), command.token, command.chain)
        self._mailbox.post(closed)

    async def _heartbeat(self) -> None:
        """Ask every running chain how it is, each second (D2)."""
        while True:
            await asyncio.sleep(REPORT_INTERVAL_MS / 1000)
            for chain in list(self._runs):
                if not self._runs[chain].done():
                    self._start(self._ask(chain))

    async def _ask(self, chain: ChainId) -> None:
        try:
            report = await self._actors[chain].report.remote()
        except RayError:
            return  # the `run` call of the same actor reports its death
        if report is not None:
            self._mailbox.post(report)

    def _ended(self, chain: ChainId, outcome: ChainOutcome) -> None:
        self._mailbox.post(ChainEnded(self._clock.moment(), chain, outcome))


def _grouped(actor: type[ChainActor]) -> type[ChainActor]:
    """`actor` with each verb in its concurrency group, so that control stays answerable (P4)."""

    class Grouped(actor):  # type: ignore[valid-type,misc]
        run = ray.method(concurrency_group="run")(actor.run)
        control = ray.method(concurrency_group="control")(actor.control)
        report = ray.method(concurrency_group="control")(actor.report)
        take_lines = ray.method(concurrency_group="lines")(actor.take_lines)
        close_lines = ray.method(concurrency_group="lines")(actor.close_lines)

    Grouped.__name__ = Grouped.__qualname__ = actor.__name__
    return Grouped


def _lost(chain: ChainId, error: RayError) -> ActorLostError:
    told = f"{type(error).__name__}: {first_line(error)}"
    return ActorLostError(f"the process of chain '{chain}' died: {told}")


__all__ = ["CoordinatorActor", "JobSettings"]
