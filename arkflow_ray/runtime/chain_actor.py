"""The Ray actor that hosts one chain (P1-P5): verbs in, events out, no logic of its own.

It hosts one generation at a time and is reused for the next ones (P1): `deploy` of a later
generation is taken once the chain of the one before has ended, and starts with new machine,
threads and channels; it may be of another chain (K2). Runs of states that this process has written
or read stay in local files for the next ones. Calls carry their generation (P2); what an old one
still says is recognised and does nothing. Every verb may be called again or after a failure (P3).
Each answers with data: an error of the user's job is a value here, so a raised exception means that
the actor itself is lost. Every call of the coordinator renews the lease of this process (D6).
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arkflow_kernel.chain_work import ChainWork
from arkflow_kernel.errors import ActorLostError, ArkflowError, ComponentError
from arkflow_kernel.ids import ChainId, Generation, JobId
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import ReplayKind
from arkflow_kernel.protocol import ChainOutcome, ChainReport, ControlState, OutcomeKind
from arkflow_kernel.snapshot import RestoredChain
from arkflow_ray.runtime.chain_host import ChainHost, MakeExchange
from arkflow_ray.runtime.channel_folder import channel_folder_path, remove_channel_folder
from arkflow_ray.runtime.channels.addresses import Address
from arkflow_ray.runtime.channels.exchange import Exchange
from arkflow_ray.runtime.channels.traffic import Inbox
from arkflow_ray.runtime.channels.tunnel import Tunnel
from arkflow_ray.runtime.clock import SystemClock
from arkflow_ray.runtime.components import RegistryComponents
from arkflow_ray.runtime.lease import Lease, LeaseWatch, monotonic_ms
from arkflow_ray.runtime.lines import LineBuffer, Lines
from arkflow_ray.runtime.os_process import OsProcess, this_process
from arkflow_ray.runtime.report_pusher import ReportPusher
from arkflow_ray.runtime.tunnel_calls import actor_calls, answer_put, answer_take

if TYPE_CHECKING:  # fsspec is not for chains in ack mode
    from arkflow_ray.checkpoint.kept_objects import KeptObjects
    from arkflow_ray.checkpoint.open import StoreObjects

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the GIL while another wants it: control stays quick (T1)."""

CONCURRENCY_GROUPS = {"control": 8, "lines": 2, "run": 1, "tunnel": 10_000}
"""Of `tunnel` each connection has up to five calls that wait, and no other's may keep them out."""
NO_GENERATION = Generation(0)


@dataclass(frozen=True, slots=True)
class ActorPlace:
    """Which process an actor is, and on which node."""

    node_id: str
    process: OsProcess


@dataclass(frozen=True, slots=True)
class ActorIdentity:
    """Who answered the handshake (P2). `number` tells the actors of one coordinator apart."""

    number: int
    node_id: str
    node_ip: str
    process: OsProcess

    @property
    def place(self) -> ActorPlace:
        """Which process it is."""
        return ActorPlace(self.node_id, self.process)


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a chain actor needs to build its chain. Travels after the handshake only (M8).

    `secrets`: the values that the plan's references name; `folder`: where relative paths
    start (C8); `threads`: size of Arrow's pools in this process (R2). `channel_secret`: what
    the chains of this generation prove to each other (H2); `channel_folder`: where their Unix
    sockets are, by name; `tcp`: some chain may be on another node; `tunnel`: those of other nodes
    are reached by calls of their actors instead (H6). In checkpoint mode,
    `checkpoint_root` is the URL below which the job's objects lie. `coordinator` is the actor that
    takes reports which cannot wait; without one they wait for the next question.
    """

    job: JobId
    plan: ChainPlan
    generation: Generation
    restored: RestoredChain
    secrets: Mapping[str, str]
    folder: str
    threads: int
    node_ip: str
    channel_secret: bytes
    channel_folder: str
    tcp: bool = False
    tunnel: bool = False
    checkpoint_root: str | None = None
    coordinator: Any = None

    def __repr__(self) -> str:
        return f"Deployment({self.plan.chain}, generation {self.generation})"


@dataclass(frozen=True, slots=True)
class Deployed:
    """A chain that is built and opened: what its source can do, where its channels listen."""

    replay: ReplayKind | None
    commits: bool
    address: Address | None


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of a chain, and its last report. `hung`: the process is of no more use."""

    outcome: ChainOutcome
    report: ChainReport | None = None
    hung: bool = False


class ChainActor:
    """One chain, one generation at a time. `chain_process` makes a Ray actor of it."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._generation = NO_GENERATION
        self._lines = LineBuffer(NO_GENERATION)
        self._host: ChainHost | None = None
        self._tunnel: Tunnel | None = None
        self._opening: asyncio.Task[Deployed | ArkflowError] | None = None
        self._end: RunEnd | None = None
        self._channel_folder: str | None = None
        self._lease = Lease(monotonic_ms)
        self._watch: LeaseWatch | None = None
        self._pusher: ReportPusher | None = None
        self._kept: KeptObjects | None = None

    async def handshake(self, coordinator: ActorPlace) -> ActorIdentity:
        """Who this is. The first call (P2); from now on the process ends without calls (D6)."""
        import ray

        node_ip: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        node_id: str = ray.get_runtime_context().get_node_id()
        self._lease.heard()
        if self._watch is None:
            self._watch = LeaseWatch(self._lease)
        near = coordinator.node_id == node_id
        self._watch.coordinator_is(coordinator.process if near else None)
        return ActorIdentity(self._number, node_id, node_ip, this_process())

    async def warm(self, deployment: Deployment) -> ArkflowError | None:
        """Load what a chain needs and build it without opening it (K2); the error if that fails.

        For a process that is to host a chain of the next plan: its imports take longer than a
        rescale may. Hosts nothing.
        """
        self._lease.heard()
        return await asyncio.to_thread(_warm, deployment)

    async def deploy(self, deployment: Deployment) -> Deployed | ArkflowError:
        """Build and open the chain's components, and listen; the error if that failed.

        Once per generation: called again, it tells the same. An older generation is refused, and
        a later one while the chain of this one has not ended.
        """
        self._lease.heard()
        generation = deployment.generation
        if generation < self._generation:
            return self._refusal(f"generation {generation} is over")
        if generation > self._generation:
            if self._host is not None and self._end is None:
                return self._refusal(f"generation {self._generation} has not ended")
            if self._end is not None and self._end.hung:
                return self._refusal(f"a thread of generation {self._generation} hangs")
            self._start(deployment)
        assert self._opening is not None
        return await asyncio.shield(self._opening)

    async def connect(
        self,
        generation: Generation,
        peers: Mapping[ChainId, Address],
        actors: Mapping[ChainId, Any] | None = None,
    ) -> ArkflowError | None:
        """Open the outgoing channels (D1); the error, which also ends the chain's `run`.

        `actors`: those of the peers that are reached through the tunnel (H6).
        """
        self._lease.heard()
        host = self._hosted(generation)
        if host is None:
            return self._refusal(f"generation {generation} is not hosted here")
        calls = actor_calls(actors, generation) if actors else None
        return await asyncio.to_thread(host.connect, peers, calls)

    async def tunnel_put(
        self, generation: Generation, connection: str, number: int, data: bytes
    ) -> str | None:
        """See `Tunnel.put`; another generation is refused (P2)."""
        tunnel = self._tunnel if generation == self._generation else None
        return await answer_put(tunnel, connection, number, data)

    async def tunnel_take(self, generation: Generation, connection: str, number: int) -> bytes:
        """See `Tunnel.take`; for another generation there is nothing."""
        tunnel = self._tunnel if generation == self._generation else None
        return await answer_take(tunnel, connection, number)

    async def run(self, generation: Generation) -> RunEnd:
        """Run the chain to its end; its completion is how a death is seen (D2).

        Called again, which waits for the first call, it tells the same end (P3).
        """
        host = self._hosted(generation)
        if host is None:
            refusal = self._refusal(f"generation {generation} is not hosted here")
            return RunEnd(ChainOutcome(OutcomeKind.FAILED, refusal))
        if self._end is None:
            outcome = await host.run()
            report = await asyncio.wrap_future(host.report())
            self._end = RunEnd(outcome, report, host.hung)
        return self._end

    async def control(self, state: ControlState) -> None:
        """The coordinator's state (B2)."""
        self._lease.heard()
        host = self._hosted(state.generation)
        if host is not None:
            host.control(state)

    async def report(self, generation: Generation) -> ChainReport | None:
        """The heartbeat, told by the chain's own loop; None for a generation that is not here."""
        self._lease.heard()
        host = self._hosted(generation)
        if host is None:
            return None
        report: ChainReport = await asyncio.wrap_future(host.report())
        return report

    async def take_lines(self, generation: Generation, printed_upto: int) -> Lines:
        """Rows of `stdout` sinks, for the driver; confirms those of `generation` up to a number.

        A later generation numbers anew (P9).
        """
        lines = self._lines
        printed = printed_upto if lines.generation == generation else 0
        return await asyncio.to_thread(lines.take, printed)

    async def close_lines(self) -> None:
        """Nobody prints any more: writes to stdout fail from now on, in later generations too."""
        self._lines.close()

    async def leave(self) -> None:
        """The job is over: take away what it has on this node, sockets and kept runs."""
        if self._channel_folder is not None:
            await asyncio.to_thread(remove_channel_folder, self._channel_folder)
        if self._kept is not None:
            await asyncio.to_thread(self._kept.close)

    def _start(self, deployment: Deployment) -> None:
        # Ray calls each concurrency group in a thread of its own: the old chain goes first.
        self._host, self._tunnel, self._end = None, None, None
        if self._pusher is not None:
            self._pusher.close()
        self._generation = deployment.generation
        retired, self._lines = self._lines, LineBuffer(deployment.generation)
        if retired.closed:
            self._lines.close()
        retired.retire()
        opening = asyncio.to_thread(self._open, deployment, self._lines)
        self._opening = asyncio.create_task(opening)

    def _open(self, deployment: Deployment, lines: LineBuffer) -> Deployed | ArkflowError:
        plan = deployment.plan
        objects = None
        try:
            _prepare_process(deployment)
            if plan.inputs or plan.channels:
                self._channel_folder = deployment.channel_folder
            objects = _objects(deployment)
            if objects is not None and self._kept is None:
                self._kept = _kept(deployment)
            self._pusher = _pusher(deployment.coordinator)
            components = RegistryComponents(deployment.secrets, lines, deployment.job)
            tunnel = Tunnel(plan.chain) if deployment.tunnel else None
            host = ChainHost(
                plan,
                deployment.generation,
                components,
                SystemClock(),
                objects=objects,
                kept=self._kept,
                exchange=_exchange(deployment, tunnel),
                push=self._pusher,
            )
            address = host.open(deployment.restored, deployment.channel_secret)
        except ArkflowError as error:
            if objects is not None:
                objects.close()
            return error
        self._host, self._tunnel = host, tunnel
        return Deployed(host.replay, host.commits, address)

    def _hosted(self, generation: Generation) -> ChainHost | None:
        return self._host if generation == self._generation else None

    def _refusal(self, reason: str) -> ActorLostError:
        return ActorLostError(f"actor {self._number}: {reason}")


def _objects(deployment: Deployment) -> "StoreObjects | None":
    """The objects of the job's checkpoints, for a chain in checkpoint mode."""
    if deployment.checkpoint_root is None:
        return None
    from arkflow_ray.checkpoint.open import open_objects

    return open_objects(deployment.checkpoint_root, deployment.job)


def _kept(deployment: Deployment) -> "KeptObjects | None":
    """Where runs of the job's state are kept; None if the store is a folder of this node anyway."""
    assert deployment.checkpoint_root is not None
    from arkflow_ray.checkpoint.open import open_kept

    return open_kept(deployment.checkpoint_root, deployment.job)


def _warm(deployment: Deployment) -> ArkflowError | None:
    objects = None
    try:
        _prepare_process(deployment)
        objects = _objects(deployment)
        components = RegistryComponents(deployment.secrets, LineBuffer(), deployment.job)
        ChainWork(deployment.plan, components, SystemClock(), objects=objects)
    except ArkflowError as error:
        return error
    finally:
        if objects is not None:
            objects.close()
    return None


def _pusher(coordinator: Any) -> ReportPusher | None:
    """What tells the coordinator a report at once; it may be lost, and is told again (P3)."""
    if coordinator is None:
        return None
    return ReportPusher(coordinator.tell.options(num_returns=0).remote)


def _exchange(deployment: Deployment, tunnel: Tunnel | None) -> MakeExchange | None:
    """What makes the channels of a chain that has any."""
    plan = deployment.plan
    if not plan.inputs and not plan.channels:
        return None

    def make(inbox: Inbox) -> Exchange:
        return Exchange(
            deployment.job,
            plan,
            deployment.generation,
            inbox,
            folder=channel_folder_path(deployment.channel_folder),
            node_ip=deployment.node_ip,
            tcp=deployment.tcp,
            tunnel=tunnel,
        )

    return make


def _prepare_process(deployment: Deployment) -> None:
    """Working folder, thread pools and GIL interval of this actor's process (R2, C8)."""
    import pyarrow as pa

    try:
        os.chdir(deployment.folder)
    except OSError as error:
        raise ComponentError(
            f"chain '{deployment.plan.chain}': the folder {deployment.folder}, where relative "
            f"paths start, is not on this node: {error.strerror}"
        ) from error
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    pa.set_cpu_count(deployment.threads)
    pa.set_io_thread_count(deployment.threads)


__all__ = [
    "CONCURRENCY_GROUPS",
    "ActorIdentity",
    "ActorPlace",
    "ChainActor",
    "Deployed",
    "Deployment",
    "RunEnd",
]
