"""The Ray actor that hosts one chain (P1-P5): verbs in, events out, no logic of its own.

Every verb may be called again or after a failure (P3). Each answers with data: an error of the
user's job is a value here, so a raised exception means that the actor itself is lost.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from arkflow_kernel.errors import ArkflowError, ComponentError
from arkflow_kernel.ids import ChainId, Generation
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.protocol import ChainOutcome, ChainReport, ControlState
from arkflow_ray.runtime.chain_host import ChainHost
from arkflow_ray.runtime.clock import SystemClock
from arkflow_ray.runtime.components import RegistryComponents
from arkflow_ray.runtime.lines import LineBuffer, Lines

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the GIL while another wants it: control stays quick (T1)."""

CONCURRENCY_GROUPS = {"control": 8, "lines": 2, "run": 1}


@dataclass(frozen=True, slots=True)
class ActorIdentity:
    """Who answered the handshake (P2)."""

    chain: ChainId
    generation: Generation
    pid: int
    node_ip: str


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a chain actor needs to build its chain. Travels after the handshake only (M8).

    `secrets`: the values that the plan's references name; `folder`: where relative paths
    start (C8); `threads`: size of Arrow's pools in this process (R2).
    """

    plan: ChainPlan
    generation: Generation
    restored: tuple[SplitPosition, ...]
    secrets: Mapping[str, str]
    folder: str
    threads: int

    def __repr__(self) -> str:
        return f"Deployment({self.plan.chain}, generation {self.generation})"


class ChainActor:
    """One chain of one generation. `coordinator_actor` makes a Ray actor of it."""

    def __init__(self, chain: ChainId, generation: Generation) -> None:
        self._chain = chain
        self._generation = generation
        self._lines = LineBuffer()
        self._host: ChainHost | None = None
        self._outcome: ChainOutcome | None = None

    async def handshake(self) -> ActorIdentity:
        """Who this is. The first call (P2)."""
        import ray

        node_ip: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return ActorIdentity(self._chain, self._generation, os.getpid(), node_ip)

    async def deploy(self, deployment: Deployment) -> ArkflowError | None:
        """Build and open the chain's components; the error if that failed."""
        if self._host is not None:
            return None
        try:
            self._host = await asyncio.to_thread(self._open, deployment)
        except ArkflowError as error:
            return error
        return None

    async def run(self) -> ChainOutcome:
        """Run the chain to its end; its completion is how a death is seen (D2).

        Called again, which waits for the first call, it tells the same end (P3).
        """
        assert self._host is not None
        if self._outcome is None:
            self._outcome = await self._host.run()
        return self._outcome

    async def control(self, state: ControlState) -> None:
        """The coordinator's state (B2)."""
        if self._host is not None:
            self._host.control(state)

    async def report(self) -> ChainReport | None:
        """The heartbeat: counters and frontier."""
        return None if self._host is None else self._host.report()

    async def take_lines(self, printed_upto: int) -> Lines:
        """Rows of `stdout` sinks, for the driver; confirms those it has printed (P9)."""
        return await asyncio.to_thread(self._lines.take, printed_upto)

    async def close_lines(self) -> None:
        """Nobody prints any more: writes to stdout fail from now on."""
        self._lines.close()

    def _open(self, deployment: Deployment) -> ChainHost:
        _prepare_process(deployment)
        components = RegistryComponents(deployment.secrets, self._lines)
        host = ChainHost(deployment.plan, deployment.generation, components, SystemClock())
        host.open(deployment.restored)
        return host


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


__all__ = ["CONCURRENCY_GROUPS", "ActorIdentity", "ChainActor", "Deployment"]
