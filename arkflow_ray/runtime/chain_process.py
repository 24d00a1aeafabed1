"""One chain actor as its coordinator sees it: verbs that all have an end (P2, P3, D2, D4).

What goes wrong with the actor itself is an `ActorLostError` that names the chain that it hosts, or
is there for. An actor that does not answer in time is killed, so that its `run` call ends too and
nothing of it is left.
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final, TypeVar

import ray
from ray.exceptions import RayError

from arkflow_kernel.errors import ActorLostError, ArkflowError, ResourceError
from arkflow_kernel.ids import ChainId, Generation
from arkflow_kernel.limits import HEARTBEAT_TIMEOUT_MS, LEASE_MS
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.protocol import ChainOutcome, ChainReport, ControlState, OutcomeKind
from arkflow_ray.runtime.arrivals import Arrivals
from arkflow_ray.runtime.chain_actor import (
    CONCURRENCY_GROUPS,
    ActorIdentity,
    ActorPlace,
    ChainActor,
    Deployed,
    Deployment,
    RunEnd,
)
from arkflow_ray.runtime.channels.addresses import Address
from arkflow_ray.runtime.channels.exchange import CONNECT_TIMEOUT_S
from arkflow_ray.runtime.placement import PLACEMENT_TIMEOUT_S, Seat
from arkflow_ray.runtime.ray_errors import first_line

START_TIMEOUT_S: Final = 120.0
"""How long a new process may take to come up, counted from the last one of its job that did."""

ANSWER_TIMEOUT_S: Final = HEARTBEAT_TIMEOUT_MS / 1000
"""How long a process that is up may take for an answer that needs no work."""

OPEN_TIMEOUT_S: Final = 120.0
"""How long a chain's components may take to open."""

CONNECT_ANSWER_TIMEOUT_S: Final = CONNECT_TIMEOUT_S + ANSWER_TIMEOUT_S

END_TIMEOUT_S: Final = 10.0
"""How long a killed process of this node may take to vanish."""

RAY_KILL_S: Final = 6.0
"""After so long Ray has killed a process that did not follow; for those of other nodes."""

T = TypeVar("T")

_log = logging.getLogger("arkflow_ray.chains")


class ChainProcess:
    """A chain actor, from its creation to its end. `number` tells the actors of a job apart.

    `plan` is the chain that it hosts or was made for; a later generation may give it another one
    (K2). `seat` says where it goes: until there is a place, `actor` is None (P6). `coordinator` is
    where this process is: the actor ends when it hears no more of it (D6). `arrivals` are those of
    all processes of the job.
    """

    def __init__(
        self,
        plan: ChainPlan,
        number: int,
        seat: Seat,
        coordinator: ActorPlace,
        arrivals: Arrivals,
    ) -> None:
        self.plan = plan
        self.actor: Any = None
        self.identity: ActorIdentity | None = None
        self.reporting = False
        self._number = number
        self._seat = seat
        self._coordinator = coordinator
        self._arrivals = arrivals
        self._why: ArkflowError | None = None
        self._killed = False

    @property
    def chain(self) -> ChainId:
        """The chain that it hosts or was made for."""
        return self.plan.chain

    @property
    def usable(self) -> bool:
        """Whether the next generation may be given to it (P1)."""
        return self.identity is not None and not self._killed

    @property
    def killed(self) -> bool:
        """Whether its end was ordered; it is of no more use."""
        return self._killed

    async def handshake(self) -> ActorIdentity:
        """Make sure that it is there and is the one that was made (P2). Raises `ActorLostError`."""
        if self.identity is None:
            identity = await self._started()
        else:
            late = f"the process of chain '{self.chain}' does not answer any more"
            call = self.actor.handshake.remote(self._coordinator)
            identity = await self._answer(call, ANSWER_TIMEOUT_S, late)
        if identity.number != self._number:
            raise ActorLostError(f"another actor answered for chain '{self.chain}'")
        self.identity = identity
        return identity

    async def warm(self, deployment: Deployment) -> None:
        """Load all that the chain will need, and build it once (K2). Raises `ArkflowError`."""
        late = f"the process for chain '{self.chain}' was not ready within {OPEN_TIMEOUT_S:.0f} s"
        call = self.actor.warm.remote(deployment)
        error: ArkflowError | None = await self._answer(call, OPEN_TIMEOUT_S, late)
        if error is not None:
            raise error

    async def deploy(self, deployment: Deployment) -> Deployed:
        """Build and open the chain. Raises `ArkflowError` that says why not."""
        late = (
            f"chain '{self.chain}' was not opened within {OPEN_TIMEOUT_S:.0f} s: one of its "
            "components waits for something"
        )
        call = self.actor.deploy.remote(deployment)
        deployed: Deployed | ArkflowError = await self._answer(call, OPEN_TIMEOUT_S, late)
        if isinstance(deployed, ArkflowError):
            raise deployed
        return deployed

    async def connect(
        self,
        generation: Generation,
        peers: Mapping[ChainId, Address],
        actors: Mapping[ChainId, Any] | None = None,
    ) -> bool:
        """Open the chain's outgoing channels. False: its `run` tells why not.

        `actors`: those of the peers that it reaches by calls (H6).
        """
        seconds = CONNECT_ANSWER_TIMEOUT_S
        late = f"chain '{self.chain}' did not connect its channels within {seconds:.0f} s"
        call = self.actor.connect.remote(generation, peers, actors)
        try:
            error: ArkflowError | None = await self._answer(call, seconds, late)
        except ActorLostError:
            return False
        return error is None

    async def run(self, generation: Generation) -> RunEnd:
        """The end of the chain; a lost actor is one. After a hung one nothing is left of it."""
        try:
            end: RunEnd = await self.actor.run.remote(generation)
        except RayError as error:
            lost = self._why or self._lost(error)
            await self.kill(lost)
            return RunEnd(ChainOutcome(OutcomeKind.FAILED, lost))
        if end.hung:
            await self.kill(ActorLostError(f"a thread of chain '{self.chain}' hung"))
        return end

    async def control(self, state: ControlState) -> None:
        """Tell the state; may be lost (B2)."""
        with suppress(RayError, TimeoutError):  # the `run` call of the same actor tells its death
            await asyncio.wait_for(self.actor.control.remote(state), ANSWER_TIMEOUT_S)

    async def report(self, generation: Generation) -> ChainReport | None:
        """How the chain is; None if it did not say so in time. At most one call at a time."""
        self.reporting = True
        try:
            call = self.actor.report.remote(generation)
            report: ChainReport | None = await asyncio.wait_for(call, ANSWER_TIMEOUT_S)
        except (RayError, TimeoutError):
            return None  # the coordinator counts how long nothing was heard
        finally:
            self.reporting = False
        return report

    async def leave(self) -> None:
        """The job is over: whatever it left on its node goes; then it is killed."""
        if self.usable:
            with suppress(RayError, TimeoutError):
                await asyncio.wait_for(self.actor.leave.remote(), ANSWER_TIMEOUT_S)
        self.release()

    def release(self) -> None:
        """It hosts nothing and will not: end its process."""
        if not self._killed:
            self._seat.leave(for_good=True)
        self._end()

    async def kill(self, why: ArkflowError) -> None:
        """End the process without asking it; returns when it is gone or writes no more (D4, D6)."""
        self._why = self._why or why
        if not self._killed:  # or another one may sit there by now
            self._seat.leave()
        self._end()
        if self.identity is None:
            return  # it never began to work
        if self.identity.node_id != self._coordinator.node_id:
            await asyncio.sleep(RAY_KILL_S)
        elif not await self.identity.process.end(END_TIMEOUT_S):
            # It waits for a device, say. When it goes on, its lease is over.
            _log.warning(
                "the process %d of chain '%s' was killed and is still there after %.0f s; the job "
                "goes on when its lease is over, in %.0f s",
                *(self.identity.process.pid, self.chain, END_TIMEOUT_S, LEASE_MS / 1000),
            )
            await asyncio.sleep(LEASE_MS / 1000)

    def _end(self) -> None:
        self._killed = True
        if self.actor is not None:
            ray.kill(self.actor, no_restart=True)

    async def _started(self) -> ActorIdentity:
        """The first answer of a new process. `ResourceError` if it cannot be placed (P6)."""
        options = await self._seat.options()
        async with self._arrivals.turn():
            if self._killed:
                raise self._why or ActorLostError(f"chain '{self.chain}' was killed")
            self.actor = _remote().options(**options).remote(self._number)
            call = asyncio.ensure_future(self.actor.handshake.remote(self._coordinator))
            await asyncio.wait([call], timeout=PLACEMENT_TIMEOUT_S)
            lack = None if call.done() else await self._seat.lacking()
            if lack is not None:
                error = ResourceError(f"chain '{self.chain}' cannot be placed: {lack}")
                await self.kill(error)
                call.cancel()
                raise error
            late = (
                f"no process for chain '{self.chain}' within {START_TIMEOUT_S:.0f} s, in which no "
                "other one of the job came up either; see `ray status`"
            )
            limit_s = START_TIMEOUT_S - PLACEMENT_TIMEOUT_S
            answer = self._arrivals.first_answer(call, limit_s)
            identity: ActorIdentity = await self._answer(answer, None, late)
            return identity

    async def _answer(self, call: Awaitable[T], timeout_s: float | None, late: str) -> T:
        try:
            return await asyncio.wait_for(call, timeout_s)
        except TimeoutError:
            lost = ActorLostError(late)
            await self.kill(lost)
            raise lost from None
        except RayError as error:
            lost = self._lost(error)
            await self.kill(lost)
            raise self._why or lost from None

    def _lost(self, error: RayError) -> ActorLostError:
        told = f"{type(error).__name__}: {first_line(error)}"
        return ActorLostError(f"the process of chain '{self.chain}' died: {told}")


@cache
def _remote() -> Any:
    """The class for Ray; made once, because Ray sends every class that it meets to the workers."""
    options: dict[str, Any] = {
        "max_restarts": 0,
        "max_task_retries": 0,
        "concurrency_groups": CONCURRENCY_GROUPS,
    }
    return ray.remote(**options)(_grouped(ChainActor))


def _grouped(actor: type[ChainActor]) -> type[ChainActor]:
    """`actor` with each verb in its concurrency group, so that control stays answerable (P4)."""

    class Grouped(actor):  # type: ignore[valid-type,misc]
        run = ray.method(concurrency_group="run")(actor.run)
        control = ray.method(concurrency_group="control")(actor.control)
        report = ray.method(concurrency_group="control")(actor.report)
        take_lines = ray.method(concurrency_group="lines")(actor.take_lines)
        close_lines = ray.method(concurrency_group="lines")(actor.close_lines)
        tunnel_put = ray.method(concurrency_group="tunnel")(actor.tunnel_put)
        tunnel_take = ray.method(concurrency_group="tunnel")(actor.tunnel_take)

    Grouped.__name__ = Grouped.__qualname__ = actor.__name__
    return Grouped


__all__ = ["ChainProcess"]
