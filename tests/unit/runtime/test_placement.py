"""Seats and groups: who sits together, what is tried, and what is left of it (P6). No Ray."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from ray.exceptions import RayError

from arkflow_kernel.chain_slots import Amounts
from arkflow_kernel.errors import ResourceError
from arkflow_kernel.ids import ChainId, ChannelId, EdgeId, JobId, OutputId
from arkflow_kernel.placement_plan import PlacementPlan, Placing
from arkflow_kernel.plan import (
    ChainPlan,
    ChannelPlan,
    EdgeKind,
    ExecutionGraph,
    Mode,
    OutletPlan,
)
from arkflow_ray.runtime.demands import Node
from arkflow_ray.runtime.job_settings import JobSettings
from arkflow_ray.runtime.placement import Placement, Seat, needs_groups, open_placement


@dataclass(eq=False)
class Group:
    """What was asked for."""

    bundles: list[dict[str, float]]
    strategy: str
    labels: dict[str, str]
    removed: bool = False


@dataclass
class Nodes:
    """A cluster whose nodes have so many CPUs each; a group is there at once, or never.

    It does not say before so many looks whether one is.
    """

    cpus: list[float]
    slow: int = 0
    groups: list[Group] = field(default_factory=list)
    lost: list[Group] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def nodes(self) -> list[Node]:
        return [Node({"CPU": cpus}) for cpus in self.cpus]

    def free(self) -> Amounts:
        return {"CPU": sum(self.cpus)}

    def reserve(self, bundles: Sequence[Amounts], strategy: str, labels: Mapping[str, str]) -> Any:
        self.groups.append(Group([dict(each) for each in bundles], strategy, dict(labels)))
        return self.groups[-1]

    def is_ready(self, group: Group, timeout_s: float) -> bool:
        """Greatest bundles first, each on the node that has most left."""
        self.slow -= 1
        if self.slow >= 0:
            return False
        left = sorted(self.cpus)
        for bundle in sorted(group.bundles, key=lambda each: -each["CPU"]):
            left.sort()
            if not left or left[-1] < bundle["CPU"]:
                return False
            left[-1] -= bundle["CPU"]
            if group.strategy == "STRICT_SPREAD":
                left.pop()
        return True

    def is_at_work_on(self, group: Group) -> bool:
        return self.slow >= 0

    def is_there(self, group: Group) -> bool:
        return group not in self.lost

    def remove(self, group: Group) -> None:
        group.removed = True

    def remove_left(self) -> None:
        self.log.append("removed what was left")

    @property
    def standing(self) -> list[Group]:
        return [group for group in self.groups if not group.removed]


def chain(name: str, *targets: str, **resources: float) -> ChainPlan:
    """A chain that sends to others."""
    outlets = []
    for target in targets:
        ids = ChannelId(f"{name}>{target}"), 0, EdgeId("e"), ChainId(name), ChainId(target)
        outlets.append(OutletPlan(OutputId("e"), EdgeKind.FORWARD, (ChannelPlan(*ids),)))
    return ChainPlan(
        ChainId(name), None, (), (), (), resources=dict(resources), outlets=tuple(outlets)
    )


LINE = [chain("in-0", "map-0"), chain("map-0", "out-0"), chain("out-0")]


def placement(cluster: Nodes, placing: Placing = Placing.COLOCATED) -> Placement:
    return Placement(JobId("j"), PlacementPlan(placing), 1.0, cluster, grouped=True)


async def seated(placed: Placement, plans: Sequence[ChainPlan]) -> list[Seat]:
    """A seat for each, all asked for at once."""
    seats = [placed.seat(plan) for plan in plans]
    await asyncio.gather(*(seat.options() for seat in seats))
    return seats


def test_chains_that_are_placed_at_once_are_one_group_with_a_bundle_for_each_slot() -> None:
    cluster = Nodes([4.0, 4.0])

    async def run() -> None:
        seats = await seated(placement(cluster), LINE)
        assert [seat.bundle for seat in seats] == [0, 0, 0]

    asyncio.run(run())
    [group] = cluster.groups
    assert (group.bundles, group.strategy) == ([{"CPU": 3.0}], "SPREAD")
    assert cluster.log == ["removed what was left"]


def test_a_process_that_is_slow_to_start_lacks_nothing_while_its_group_is_there() -> None:
    """What the group itself holds is not free, and is not missing for that."""
    cluster = Nodes([4.0])

    async def run() -> None:
        [seat] = await seated(placement(cluster), LINE[:1])
        cluster.cpus = [0.0]
        cluster.slow = 100
        assert await seat.lacking() is None
        cluster.lost = cluster.groups
        assert "1 CPU" in (await seat.lacking() or "")

    asyncio.run(run())


def test_a_group_that_ray_is_still_at_work_on_is_waited_for() -> None:
    cluster = Nodes([4.0, 4.0], slow=5)
    asyncio.run(seated(placement(cluster), LINE))
    assert len(cluster.groups) == 1
    assert cluster.slow < 0


@pytest.mark.parametrize(
    ("placing", "strategy", "bundles"),
    [
        (Placing.COLOCATED, "SPREAD", 1),
        (Placing.PACK, "PACK", 1),
        (Placing.SPREAD, "SPREAD", 3),
        (Placing.STRICT_SPREAD, "STRICT_SPREAD", 1),
    ],
)
def test_the_strategy_says_what_shares_a_bundle_and_how_bundles_are_spread(
    placing: Placing, strategy: str, bundles: int
) -> None:
    cluster = Nodes([4.0, 4.0])
    asyncio.run(seated(placement(cluster, placing), LINE))
    [group] = cluster.groups
    assert (group.strategy, len(group.bundles)) == (strategy, bundles)


def test_what_is_asked_for_later_is_a_group_of_its_own() -> None:
    """K2: the additional actors of a rescale."""
    cluster = Nodes([8.0])

    async def run() -> None:
        placed = placement(cluster)
        first = await seated(placed, LINE)
        second = await seated(placed, [chain("map-1", "out-0"), chain("map-2", "out-0")])
        assert {seat.group for seat in first}.isdisjoint(seat.group for seat in second)

    asyncio.run(run())
    assert [len(group.bundles) for group in cluster.groups] == [1, 2]


def test_slots_that_find_no_node_are_taken_apart() -> None:
    class Used(Nodes):
        """Each node has four CPUs, of which two are in use."""

        def nodes(self) -> list[Node]:
            return [Node({"CPU": 4.0})] * 2

    cluster = Used([2.0, 2.0])
    seats = asyncio.run(seated(placement(cluster), LINE))
    assert [len(group.bundles) for group in cluster.groups] == [1, 3]
    assert cluster.standing == [cluster.groups[1]]
    assert [seat.bundle for seat in seats] == [0, 1, 2]


def test_a_job_that_finds_no_place_says_what_is_lacking_and_leaves_nothing() -> None:
    cluster = Nodes([1.0])

    async def run() -> list[Any]:
        placed = placement(cluster)
        seats = [placed.seat(plan) for plan in LINE]
        asked = [seat.options() for seat in seats]
        return [*await asyncio.gather(*asked, return_exceptions=True)]

    errors = asyncio.run(run())
    assert len({id(error) for error in errors}) == 3, "each chain may say more of its own"
    assert {type(error) for error in errors} == {ResourceError}
    assert str(errors[0]) == (
        "job 'j' cannot be placed: it needs 3 CPU, and of the 1 CPU of the cluster 1 is free"
    )
    assert cluster.standing == []


def test_a_ray_that_does_not_answer_is_told_and_not_a_fault_of_ours() -> None:
    class Gone(Nodes):
        """Its control service is down."""

        def reserve(
            self, bundles: Sequence[Amounts], strategy: str, labels: Mapping[str, str]
        ) -> Any:
            raise RayError("no connection")

    with pytest.raises(ResourceError, match="Ray does not answer: "):
        asyncio.run(seated(placement(Gone([8.0])), LINE))


def test_strict_spread_is_not_softened() -> None:
    cluster = Nodes([4.0])

    async def run() -> None:
        await seated(placement(cluster, Placing.STRICT_SPREAD), [chain("a-0"), chain("a-1")])

    with pytest.raises(ResourceError, match="`strict_spread` asks for 2 nodes"):
        asyncio.run(run())
    assert [len(group.bundles) for group in cluster.groups] == [2]


def test_a_process_that_takes_the_place_of_another_takes_its_seat() -> None:
    """P1: a seat outlives its process."""
    cluster = Nodes([4.0])

    async def run() -> None:
        placed = placement(cluster)
        seats = await seated(placed, LINE)
        seats[2].leave()
        seats[1].leave()
        assert placed.seat(LINE[1]) is seats[1], "that of the same chain"
        assert placed.seat(chain("out-1")) is seats[2], "that of the same operator"

    asyncio.run(run())
    assert len(cluster.groups) == 1


def test_a_seat_is_not_given_to_a_chain_that_asks_for_something_else() -> None:
    cluster = Nodes([8.0])

    async def run() -> None:
        placed = placement(cluster)
        (seat,) = await seated(placed, [LINE[0]])
        seat.leave()
        (other,) = await seated(placed, [chain("in-0", num_cpus=2.0)])
        assert other is not seat

    asyncio.run(run())
    assert [group.bundles for group in cluster.groups] == [[{"CPU": 1.0}], [{"CPU": 2.0}]]


def test_a_group_goes_when_none_of_its_seats_is_needed_and_all_go_in_the_end() -> None:
    cluster = Nodes([8.0])

    async def run() -> None:
        placed = placement(cluster)
        await seated(placed, LINE)
        one, other = await seated(placed, [chain("map-1"), chain("map-2")])
        one.leave(for_good=True)
        assert len(cluster.standing) == 2
        other.leave(for_good=True)
        assert cluster.standing == [cluster.groups[0]]
        await placed.close()

    asyncio.run(run())
    assert cluster.standing == []


def test_a_job_that_ends_while_it_waits_for_a_place_leaves_no_group() -> None:
    asked, over = threading.Event(), threading.Event()

    class Full(Nodes):
        """No group is there before the job has ended."""

        def is_ready(self, group: Group, timeout_s: float) -> bool:
            asked.set()
            return over.wait(timeout_s)

    cluster = Full([8.0])

    async def run() -> None:
        placed = placement(cluster)
        waiting = asyncio.create_task(placed.seat(LINE[0]).options())
        assert await asyncio.to_thread(asked.wait, 30)
        waiting.cancel()
        await placed.close()
        over.set()

    asyncio.run(run())
    assert cluster.standing == []


GRAPH = ExecutionGraph(JobId("j"), 1, Mode.ACK, tuple(LINE), (), 1)
OURS = JobSettings(0.01, 1, "/", {}, "afc-test", ours=True)
THEIRS = JobSettings(1.0, 1, "/", {}, "afc-test")


@pytest.mark.parametrize(
    ("graph", "settings", "expected"),
    [
        (GRAPH, OURS, False),
        (GRAPH, THEIRS, True),
        (ExecutionGraph(JobId("j"), 1, Mode.ACK, (chain("a-0", num_cpus=1.0),), (), 1), OURS, True),
        (
            ExecutionGraph(
                JobId("j"), 1, Mode.ACK, (), (), 1, placement=PlacementPlan(Placing.PACK)
            ),
            OURS,
            True,
        ),
    ],
)
def test_groups_are_made_unless_the_ray_is_ours_and_nothing_is_asked_for(
    graph: ExecutionGraph, settings: JobSettings, expected: bool
) -> None:
    """P6."""
    assert needs_groups(graph, settings) is expected


def test_without_groups_an_actor_only_says_what_it_needs() -> None:
    async def run() -> None:
        seat = open_placement(GRAPH, OURS).seat(LINE[0])
        assert await seat.options() == {"num_cpus": 0.01}

    asyncio.run(run())
