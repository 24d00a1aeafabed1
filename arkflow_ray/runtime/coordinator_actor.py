"""The Ray actor around the coordinator machine: performs its commands with chain actors (D1).

The machine decides; here are only calls. Each command starts a task of the loop, and what comes of
it is an event in the mailbox. The death of a chain actor is seen by its `run` call, that of a
process that only hangs by the reports that it does not give (D2). Actors are kept over the
generations and replaced when they are lost (P1); `chain_pool` says which chain each hosts. The log
of a job in checkpoint mode has a thread.
"""

import asyncio
import logging
import secrets
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Final

import ray

from arkflow_kernel.checkpoint_ports import CheckpointLog
from arkflow_kernel.coordinator import JobCoordinator
from arkflow_kernel.errors import ActorLostError, ArkflowError, FencedError
from arkflow_kernel.ids import ChainId, Generation
from arkflow_kernel.job_runner_adapter import NEWEST
from arkflow_kernel.limits import REPORT_INTERVAL_MS
from arkflow_kernel.plan import ChainPlan, ExecutionGraph
from arkflow_kernel.protocol import (
    AppendRecord,
    Begin,
    CancelRequested,
    ChainConnected,
    ChainEnded,
    ChainOutcome,
    ChainReady,
    ChainReport,
    ChainsPrepared,
    ClaimGeneration,
    CollectGarbage,
    ConnectChain,
    CoordinatorCommand,
    CoordinatorEvent,
    DeployChain,
    EndJob,
    JobOutcome,
    KillChain,
    OutcomeKind,
    PrepareChains,
    ReleaseChains,
    RescaleRequested,
    SavepointRequested,
    SaveSavepoint,
    SendControl,
    StopRequested,
    Tick,
)
from arkflow_kernel.snapshot import RestoreChoice
from arkflow_ray.runtime.arrivals import Arrivals, starts_at_once
from arkflow_ray.runtime.chain_actor import ActorPlace
from arkflow_ray.runtime.chain_pool import ChainPool
from arkflow_ray.runtime.chain_process import ChainProcess
from arkflow_ray.runtime.channel_folder import remove_channel_folder
from arkflow_ray.runtime.channels.addresses import Address
from arkflow_ray.runtime.channels.handshake import SECRET_BYTES
from arkflow_ray.runtime.clock import RunningClock
from arkflow_ray.runtime.coordinator_log import CoordinatorLog
from arkflow_ray.runtime.deployments import Deployments, nodes_alive, own_handle
from arkflow_ray.runtime.job_settings import (
    FIRST,
    CoordinatorView,
    JobSettings,
    StdoutActors,
    Succession,
)
from arkflow_ray.runtime.log_thread import open_job_log
from arkflow_ray.runtime.mailbox import Mailbox
from arkflow_ray.runtime.os_process import this_process
from arkflow_ray.runtime.placement import open_placement
from arkflow_ray.runtime.printers import prints
from arkflow_ray.runtime.split_listing import SplitListing

STOOD_STILL_MS: Final = 1_000
"""A heartbeat that comes so late means that this process itself stood still."""

NO_GENERATION: Final = Generation(0)

_log = logging.getLogger("arkflow_ray.coordinator")


@dataclass(slots=True)
class _Attempt:
    """What the chains of one generation share: the secret of their channels, and who is where.

    `heard` holds the number of the newest report of each chain (P3).
    """

    generation: Generation
    plans: dict[ChainId, ChainPlan] = field(default_factory=dict)
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(SECRET_BYTES), repr=False)
    addresses: dict[ChainId, Address] = field(default_factory=dict)
    killed: set[ChainId] = field(default_factory=set)
    heard: dict[ChainId, int] = field(default_factory=dict)


class CoordinatorActor:
    """Coordinator of one job; `coordinator_process` makes a Ray actor of it, with `num_cpus=0`.

    `choice` says where a job in checkpoint mode begins (M2). One that takes the place of another
    goes on from the newest record.
    """

    def __init__(
        self, graph: ExecutionGraph, choice: RestoreChoice = NEWEST, before: Succession = FIRST
    ) -> None:
        self._graph = graph
        self._continued = before.continued
        self._clock = RunningClock()
        self._machine = JobCoordinator(graph, choice=choice, started=before.started)
        self._mailbox: Mailbox[CoordinatorEvent] = Mailbox()
        self._made_deployments: Deployments | None = None
        self._attempt = _Attempt(NO_GENERATION)
        self._pool = ChainPool(self._create)
        self._splits = SplitListing(graph.job)
        self._process_count = 0
        self._arrivals = Arrivals()
        self._place: ActorPlace | None = None
        self._log = CoordinatorLog(self._open_log, self._clock, self._mailbox.post, self._failed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._outcome: JobOutcome | None = None
        self._fault: BaseException | None = None

    async def run(self, settings: JobSettings, hold_ms: int = 0) -> JobOutcome:
        """Deploy the job and run it to its end. One call.

        In checkpoint mode nothing is deployed for `hold_ms`: so long the chains of another
        coordinator may write, whose end could not be confirmed (D6).
        """
        graph = self._graph
        handle = own_handle()
        self._made_deployments = Deployments(graph.job, settings, handle, graph.by_calls)
        if handle is not None:
            self._arrivals = Arrivals(starts_at_once(nodes_alive()))
        self._placement = open_placement(self._graph, settings)
        self._mailbox.attach()
        self._log.hold(hold_ms)
        self._mailbox.post(Begin(self._clock.moment()))
        heartbeat = asyncio.create_task(self._heartbeat())
        try:
            while self._outcome is None:
                await self._step()
        finally:
            heartbeat.cancel()
            for task in list(self._tasks):
                task.cancel()
            self._log.close()
            self._mailbox.detach()
            await asyncio.gather(*(process.leave() for process in self._pool.processes))
            await self._placement.close()
            remove_channel_folder(settings.channel_folder)
        if isinstance(self._outcome.error, FencedError):
            # Perhaps nobody waits for the outcome: the driver has given this coordinator up (D7).
            _log.error("job %s: this coordinator ends: %s", self._graph.job, self._outcome.error)
        return self._outcome

    async def stop(self, drain: bool = False, savepoint: str | None = None) -> None:
        """A user wants the job stopped in order (D5)."""
        event = StopRequested(self._clock.moment(), drain, savepoint)
        self._mailbox.post(event, control=True)

    async def savepoint(self, name: str) -> None:
        """A user wants a savepoint (X4)."""
        self._mailbox.post(SavepointRequested(self._clock.moment(), name), control=True)

    async def rescale(self, graph: ExecutionGraph) -> None:
        """A user wants the job to go on with this plan (K2, K3)."""
        self._mailbox.post(RescaleRequested(self._clock.moment(), graph), control=True)

    async def cancel(self) -> None:
        """A user wants the job gone (D5)."""
        self._mailbox.post(CancelRequested(self._clock.moment()), control=True)

    async def tell(self, report: ChainReport) -> None:
        """A chain has something to say that cannot wait; may be late, lost or repeated (P3)."""
        self._heard(report)

    async def view(self) -> CoordinatorView:
        """The status, made only when somebody asks (K8), and whom to look for when this is gone."""
        processes = self._pool.processes
        chains = tuple(each.identity for each in processes if each.identity is not None)
        deployed = self._attempt.generation != NO_GENERATION
        return CoordinatorView(self._machine.status(), self._where(), chains, deployed)

    async def stdout_actors(self) -> StdoutActors:
        """Whose rows are to be printed now (P9)."""
        plans = self._attempt.plans
        hosts = {chain: self._pool.host(chain) for chain, plan in plans.items() if prints(plan)}
        return StdoutActors(
            self._attempt.generation,
            {chain: host.actor for chain, host in hosts.items() if host and host.usable},
            frozenset(hosts),
            tuple(process.actor for process in self._pool.processes if process.usable),
        )

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
        commands = self._machine.handle(event)
        deployed = [command for command in commands if isinstance(command, DeployChain)]
        if deployed:
            self._begin_attempt(deployed)
        for command in commands:
            self._perform(command)

    def _begin_attempt(self, deployed: list[DeployChain]) -> None:
        """All chains of an attempt are deployed at once: the plan at work is theirs (K2)."""
        plans = {command.plan.chain: command.plan for command in deployed}
        self._attempt = _Attempt(deployed[0].generation, plans)
        self._pool.assign(deployed)

    def _perform(self, command: CoordinatorCommand) -> None:
        match command:
            case DeployChain():
                self._start(self._deploy(command, self._attempt))
            case PrepareChains():
                self._start(self._prepare(command))
            case ReleaseChains():
                self._pool.release()
            case ConnectChain():
                self._start(self._connect(command, self._attempt))
            case SendControl():
                process = self._pool.host(command.chain)
                assert process is not None, "control follows the chain's answer"
                self._start(process.control(command.state))
            case KillChain():
                self._start(self._kill(command, self._attempt))
            case ClaimGeneration() | AppendRecord() | SaveSavepoint() | CollectGarbage():
                self._log.put(command)
            case EndJob():
                self._outcome = command.outcome

    def _open_log(self) -> CheckpointLog:
        settings = self._deployments.settings
        root = settings.checkpoint_root
        assert root is not None, "a job in checkpoint mode has a checkpoint root (F0)"
        return open_job_log(self._graph, root, continued=self._continued, run=settings.run)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        """A fault in a command's work ends the job: the answer that it owes would never come."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)

    def _failed(self, fault: BaseException) -> None:
        self._fault = fault
        self._mailbox.post(Tick(self._clock.moment()), control=True)

    # --- commands ------------------------------------------------------------------------------

    async def _deploy(self, command: DeployChain, attempt: _Attempt) -> None:
        chain = command.plan.chain
        try:
            process = await self._pool.taken(command.plan, lambda: _not_killed(chain, attempt))
            command = await self._splits.dealt(command, self._deployments.settings.secrets)
            deployed = await process.deploy(
                self._deployments.of(
                    command.plan, process, attempt.generation, attempt.secret, command.restored
                )
            )
        except ArkflowError as error:
            if f"'{chain}'" not in error.message:
                error.add_note(f"(chain '{chain}' could not be deployed)")
            self._ended(chain, attempt, ChainOutcome(OutcomeKind.FAILED, error))
            return
        if deployed.address is not None:
            attempt.addresses[chain] = deployed.address
        self._start(self._run(chain, process, attempt))
        moment, token = self._clock.moment(), command.token
        self._mailbox.post(ChainReady(moment, token, chain, deployed.replay, deployed.commits))

    async def _prepare(self, command: PrepareChains) -> None:
        """Have processes ready for chains of the next plan, as warm as those at work (K2)."""
        error = None

        async def warm(process: ChainProcess) -> None:
            await process.warm(self._deployments.of(process.plan, process, NO_GENERATION))

        try:
            await self._pool.prepare(command.plans, warm)
        except ArkflowError as failed:
            error = failed
        self._mailbox.post(ChainsPrepared(self._clock.moment(), command.token, error))

    def _create(self, plan: ChainPlan) -> ChainProcess:
        self._process_count += 1
        seat = self._placement.seat(plan)
        return ChainProcess(plan, self._process_count, seat, self._where(), self._arrivals)

    @property
    def _deployments(self) -> Deployments:
        assert self._made_deployments is not None, "`run` comes first"
        return self._made_deployments

    def _where(self) -> ActorPlace:
        """The process that calls."""
        if self._place is None:
            node_id: str = ray.get_runtime_context().get_node_id()
            self._place = ActorPlace(node_id, this_process())
        return self._place

    async def _connect(self, command: ConnectChain, attempt: _Attempt) -> None:
        """Tell the chain where those behind it listen. If it fails, its `run` tells the end."""
        chain = command.chain
        targets = {channel.target for channel in attempt.plans[chain].channels}
        peers = {target: attempt.addresses[target] for target in targets}
        process = self._pool.host(chain)
        assert process is not None, "it has been deployed"
        actors = self._pool.elsewhere(chain, peers) if self._graph.by_calls else None
        if peers and not await process.connect(attempt.generation, peers, actors):
            return
        self._mailbox.post(ChainConnected(self._clock.moment(), command.token, chain))

    async def _run(self, chain: ChainId, process: ChainProcess, attempt: _Attempt) -> None:
        end = await process.run(attempt.generation)
        if end.report is not None:
            self._heard(end.report)
        self._ended(chain, attempt, end.outcome)

    async def _kill(self, command: KillChain, attempt: _Attempt) -> None:
        chain = command.chain
        attempt.killed.add(chain)
        killed = ActorLostError(f"the process of chain '{chain}' was killed")
        process = self._pool.host(chain)
        if process is not None:
            await process.kill(killed)
        self._ended(chain, attempt, ChainOutcome(OutcomeKind.FAILED, killed))

    async def _heartbeat(self) -> None:
        """Ask every process how its chain is, each second; each has one question at a time (D2).

        Also those whose chain does not run: a process that is not asked ends itself (D6).
        """
        while True:
            due_ms = self._clock.moment().now_ms + REPORT_INTERVAL_MS
            await asyncio.sleep(REPORT_INTERVAL_MS / 1000)
            late_ms = self._clock.moment().now_ms - due_ms
            if late_ms > STOOD_STILL_MS:
                self._clock.leave_out(late_ms)
            for process in self._pool.processes:
                if process.usable and not process.reporting:
                    self._start(self._ask(process, self._attempt))

    async def _ask(self, process: ChainProcess, attempt: _Attempt) -> None:
        report = await process.report(attempt.generation)
        if report is not None:
            self._heard(report)

    def _heard(self, report: ChainReport) -> None:
        """By this process's clock: that of the chain's may be another node's. Calls arrive in any
        order (P3), so a report that is older than one that was heard is dropped."""
        attempt = self._attempt
        if report.generation == attempt.generation:
            if report.number < attempt.heard.get(report.chain, 0):
                return
            attempt.heard[report.chain] = report.number
        self._mailbox.post(replace(report, at=self._clock.moment()))

    def _ended(self, chain: ChainId, attempt: _Attempt, outcome: ChainOutcome) -> None:
        moment = self._clock.moment()
        self._mailbox.post(ChainEnded(moment, chain, attempt.generation, outcome))


def _not_killed(chain: ChainId, attempt: _Attempt) -> None:
    if chain in attempt.killed:
        raise ActorLostError(f"chain '{chain}' was killed while it was deployed")


__all__ = ["CoordinatorActor"]
