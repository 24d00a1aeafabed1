"""Where the chain actors of one job go: seats in placement groups (P6, K7).

Seats that are asked for in one pass of the loop are one group: those of a first deployment, and
those of a rescale's additional actors. A group is there as a whole or not at all. If its slots
find no node in time, its chains are tried one by one, and if they find none either, the error says
what the cluster lacks. A seat outlives its process: the one that takes its place sits there too.

Ray removes a group when the job's driver and its coordinator are both gone. Otherwise the
coordinator does, and the driver removes what a coordinator that died left behind.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from ray.exceptions import RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from arkflow_kernel.chain_slots import Amounts, Slot, singles, slots, total
from arkflow_kernel.errors import ResourceError
from arkflow_kernel.ids import ChainId, JobId
from arkflow_kernel.placement_plan import ANYWHERE, PlacementPlan, Placing
from arkflow_kernel.plan import ChainPlan, ExecutionGraph
from arkflow_ray.runtime.demands import Node, actor_options, demand, lacking
from arkflow_ray.runtime.job_settings import JobSettings
from arkflow_ray.runtime.placement_groups import RayCluster
from arkflow_ray.runtime.ray_errors import first_line

PLACEMENT_TIMEOUT_S: Final = 20.0
"""After so long without a place, the cluster is asked whether it lacks something (P6)."""

SLOTS_TIMEOUT_S: Final = 8.0
"""After so long without a place for slots, their chains are tried one by one."""

LOOKS_MAX, LOOK_S = 40, 2.0
"""So often, for so long, a group is waited for that Ray is still at work on."""

_STRATEGY: Final = {
    Placing.COLOCATED: "SPREAD",
    Placing.PACK: "PACK",
    Placing.SPREAD: "SPREAD",
    Placing.STRICT_SPREAD: "STRICT_SPREAD",
}


class Cluster(Protocol):
    """What placement asks of Ray. All calls block."""

    def nodes(self) -> list[Node]:
        """The nodes that are up."""
        ...

    def free(self) -> Amounts:
        """What all nodes together have left."""
        ...

    def reserve(self, bundles: Sequence[Amounts], strategy: str, labels: Mapping[str, str]) -> Any:
        """Ask for a group; it need not be there yet."""
        ...

    def is_ready(self, group: Any, timeout_s: float) -> bool:
        """Whether it is there in time."""
        ...

    def is_at_work_on(self, group: Any) -> bool:
        """Whether it has not been found yet that something is missing for it."""
        ...

    def is_there(self, group: Any) -> bool:
        """Whether all of it has its place; not any more once one of its nodes is lost."""
        ...

    def remove(self, group: Any) -> None:
        """Give it back."""
        ...

    def remove_left(self) -> None:
        """Give back what an earlier coordinator of the same run left."""
        ...


class Seat:
    """Where one chain actor goes. Made by `Placement.seat`.

    `group` and `bundle` say where in which group, once it is there; without groups they say
    nothing.
    """

    def __init__(self, placement: "Placement", plan: ChainPlan, asked: Amounts) -> None:
        self.plan = plan
        self.asked = asked
        self.group: Any = None
        self.bundle = 0
        self.taken = True
        self.wanted = True
        self.forming: asyncio.Future[None] | None = None
        self._placement = placement

    async def options(self) -> dict[str, Any]:
        """Ray's options for the actor, once there is a place. Raises `ResourceError`."""
        await self._placement.placed(self)
        options = actor_options(self.asked)
        if self.group is not None:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                placement_group=self.group, placement_group_bundle_index=self.bundle
            )
        return options

    async def lacking(self) -> str | None:
        """What the cluster lacks for this actor; None if nothing."""
        return await self._placement.lacking(self)

    def leave(self, *, for_good: bool = False) -> None:
        """Its process is gone; another one may sit here. `for_good`: the job needs it no more."""
        self.taken = False
        if for_good:
            self.wanted = False
            self._placement.given_up(self)


class Placement:
    """The seats of one job, as its coordinator holds them. Called from one loop.

    `grouped`: they are in groups; without, Ray places each actor by what it asks for.
    """

    def __init__(
        self,
        job: JobId,
        wanted: PlacementPlan,
        default_cpus: float,
        cluster: Cluster,
        *,
        grouped: bool,
    ) -> None:
        self._job = job
        self._wanted = wanted
        self._default_cpus = default_cpus
        self._cluster = cluster
        self._grouped = grouped
        self._fresh = True
        self._seats: list[Seat] = []
        self._waiting: list[Seat] = []
        self._next: asyncio.Task[None] | None = None
        self._forming: set[asyncio.Task[None]] = set()
        self._groups: list[Any] = []

    def seat(self, plan: ChainPlan) -> Seat:
        """A seat for a process that is made for this chain: one that is free, else a new one."""
        asked = demand(plan.resources, self._default_cpus)
        seat = self._free(plan, asked)
        if seat is None:
            seat = Seat(self, plan, asked)
            if self._grouped:
                self._waiting.append(seat)
        seat.plan, seat.taken = plan, True
        return seat

    async def placed(self, seat: Seat) -> None:
        """Wait until the seat is in a group, if groups are made. Raises `ResourceError`."""
        if not self._grouped or seat.group is not None:
            return
        if seat.forming is None:
            if self._next is None:
                self._next = asyncio.create_task(self._form())
                self._forming.add(self._next)
                self._next.add_done_callback(self._formed)
            seat.forming = self._next
        try:
            await asyncio.shield(seat.forming)
        except ResourceError as error:
            raise ResourceError(error.message) from None  # each chain has an error of its own
        except RayError as error:
            text = f"job '{self._job}' cannot be placed: Ray does not answer: {first_line(error)}"
            raise ResourceError(text) from error

    async def lacking(self, seat: Seat) -> str | None:
        """What the cluster lacks for a seat's process; None if nothing."""
        if seat.group is None:
            return await self._lack([seat.asked])
        group = [each for each in self._seats if each.group is seat.group]
        if await asyncio.to_thread(self._cluster.is_there, seat.group):
            return None  # where dozens of workers start, a process takes its time
        return await self._lack(_bundles(group))

    def given_up(self, seat: Seat) -> None:
        """A seat is no more needed: its group goes when none of its seats is."""
        group = seat.group
        if group is None:
            return
        members = [each for each in self._seats if each.group is group]
        if any(each.wanted for each in members):
            return
        self._seats = [each for each in self._seats if each.group is not group]
        self._groups.remove(group)
        self._cluster.remove(group)

    async def close(self) -> None:
        """Give all groups back; the job is over."""
        for task in list(self._forming):
            task.cancel()
        groups, self._groups = self._groups, []
        for group in groups:
            await asyncio.to_thread(self._cluster.remove, group)

    # --- groups --------------------------------------------------------------------------------

    def _free(self, plan: ChainPlan, asked: Amounts) -> Seat | None:
        """A seat whose process is gone: best that of the same chain, else of the same operator."""
        alike = [each for each in self._seats if not each.taken and each.asked == asked]
        operator = plan.chain.rpartition("-")[0]
        ranked = sorted(
            alike,
            key=lambda each: (
                each.plan.chain != plan.chain,
                each.plan.chain.rpartition("-")[0] != operator,
            ),
        )
        if not ranked:
            return None
        ranked[0].wanted = True
        return ranked[0]

    def _formed(self, task: asyncio.Task[None]) -> None:
        """Perhaps nobody waits for it any more, so its error is taken here, too."""
        self._forming.discard(task)
        if not task.cancelled():
            task.exception()

    async def _form(self) -> None:
        """Make a group of all seats that wait. Raises `ResourceError`."""
        self._next = None
        batch, self._waiting = self._waiting, []
        for seat in batch:
            seat.forming = seat.forming or asyncio.current_task()
        demands = {seat.plan.chain: seat.asked for seat in batch}
        plans = [seat.plan for seat in batch]
        if self._fresh:
            self._fresh = False
            await asyncio.to_thread(self._cluster.remove_left)
        tries = await self._tries(plans, demands)
        for members, timeout_s in tries:
            group = await self._reserved(members, demands, timeout_s)
            if group is not None:
                break
        else:
            raise await self._refusal([total(demands, members) for members in tries[-1][0]])
        at = {chain: index for index, members in enumerate(members) for chain in members}
        for seat in batch:
            seat.group, seat.bundle = group, at[seat.plan.chain]
        self._seats += batch

    async def _tries(
        self, plans: list[ChainPlan], demands: Mapping[ChainId, Amounts]
    ) -> list[tuple[tuple[Slot, ...], float]]:
        """Slots to try, one after the other, and how long."""
        apart = singles(plans)
        if self._wanted.placing is Placing.SPREAD:
            return [(apart, PLACEMENT_TIMEOUT_S)]
        nodes = await asyncio.to_thread(self._cluster.nodes)
        rooms = [node.resources for node in nodes if node.labelled(self._wanted.labels)]
        together = slots(plans, demands, rooms)
        if len(together) == len(apart) or self._wanted.placing is Placing.STRICT_SPREAD:
            return [(together, PLACEMENT_TIMEOUT_S)]
        return [(together, SLOTS_TIMEOUT_S), (apart, PLACEMENT_TIMEOUT_S - SLOTS_TIMEOUT_S)]

    async def _reserved(
        self, members: Sequence[Slot], demands: Mapping[ChainId, Amounts], timeout_s: float
    ) -> Any:
        """A group with a bundle for each slot; None if it was not there in time."""
        bundles = [total(demands, chains) for chains in members]
        strategy = _STRATEGY[self._wanted.placing]
        cluster, labels = self._cluster, self._wanted.labels
        group = await asyncio.to_thread(cluster.reserve, bundles, strategy, labels)
        self._groups.append(group)
        ready = await asyncio.to_thread(cluster.is_ready, group, timeout_s)
        for _ in range(LOOKS_MAX):  # where dozens of workers start, it is slow, and lacks nothing
            if ready or not await asyncio.to_thread(cluster.is_at_work_on, group):
                break
            ready = await asyncio.to_thread(cluster.is_ready, group, LOOK_S)
        if ready:
            return group
        self._groups.remove(group)
        await asyncio.to_thread(cluster.remove, group)
        return None

    async def _refusal(self, bundles: Sequence[Amounts]) -> ResourceError:
        lack = await self._lack(bundles)
        reason = lack or "its resources are free, but not where they are needed; see `ray status`"
        return ResourceError(f"job '{self._job}' cannot be placed: {reason}")

    async def _lack(self, bundles: Sequence[Amounts]) -> str | None:
        nodes = await asyncio.to_thread(self._cluster.nodes)
        free = await asyncio.to_thread(self._cluster.free)
        return lacking(bundles, nodes, free, self._wanted)


def _bundles(seats: Sequence[Seat]) -> list[dict[str, float]]:
    """What the seats of one group ask for, by bundle."""
    found: dict[int, dict[str, float]] = {}
    for seat in seats:
        bundle = found.setdefault(seat.bundle, {})
        for name, amount in seat.asked.items():
            bundle[name] = bundle.get(name, 0.0) + amount
    return list(found.values())


def open_placement(graph: ExecutionGraph, settings: JobSettings) -> Placement:
    """The placement of a job on the Ray that this process is connected to."""
    cluster = RayCluster(settings.run)
    grouped = needs_groups(graph, settings)
    return Placement(graph.job, graph.placement, settings.num_cpus, cluster, grouped=grouped)


def needs_groups(graph: ExecutionGraph, settings: JobSettings) -> bool:
    """Whether the chains of a job sit in groups.

    They do unless the Ray is one that we started and the job asks for nothing: on its one node
    there is nothing to choose.
    """
    asks = graph.placement != ANYWHERE or any(plan.resources for plan in graph.chains)
    return asks or not settings.ours


__all__ = [
    "PLACEMENT_TIMEOUT_S",
    "Cluster",
    "Placement",
    "Seat",
    "needs_groups",
    "open_placement",
]
