"""Which process hosts which chain, over the generations (P1, K2). Processes are scripted."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from arkflow_kernel.errors import ActorLostError, ResourceError
from arkflow_kernel.ids import ChainId, Generation, RequestToken, TaskId
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.protocol import DeployChain
from arkflow_ray.runtime.chain_pool import ChainPool


def plan(chain: str) -> ChainPlan:
    return ChainPlan(ChainId(chain), None, (), (), (), tasks=(TaskId(chain),))


def deploy(chain: str, host: str | None = None) -> DeployChain:
    at = None if host is None else ChainId(host)
    return DeployChain(RequestToken(1), plan(chain), Generation(1), host=at)


class Process:
    """A chain actor that is up at once, or fails with `trouble`."""

    def __init__(self, chain: ChainPlan, number: int, trouble: Exception | None = None) -> None:
        self.plan, self.number, self._trouble = chain, number, trouble
        self.up = self.killed = self.released = self.dead = False
        self.identity: Any = None
        self.actor: Any = None

    @property
    def usable(self) -> bool:
        return self.up and not self.killed

    async def handshake(self) -> None:
        await asyncio.sleep(0)
        if self._trouble is not None:
            raise self._trouble
        if self.dead:
            self.killed = True
            raise ActorLostError("gone")
        self.up = True

    def release(self) -> None:
        self.killed = self.released = True


class Pool:
    """A pool and what it made, numbered from 1 in that order."""

    def __init__(self) -> None:
        self.made: list[Process] = []
        self.trouble: dict[str, Exception] = {}
        self.pool = ChainPool(self._make)

    def _make(self, chain: ChainPlan) -> Any:
        process = Process(chain, len(self.made) + 1, self.trouble.get(chain.chain))
        self.made.append(process)
        return process

    def runs(self, *deployed: DeployChain) -> dict[str, int]:
        """The number of each chain's process, once a generation is deployed."""
        self.pool.assign(deployed)

        async def take() -> list[Any]:
            calls = (self.pool.taken(each.plan, lambda: None) for each in deployed)
            return await asyncio.gather(*calls)

        taken = asyncio.run(take())
        pairs = zip(deployed, taken, strict=True)
        return {str(each.plan.chain): process.number for each, process in pairs}

    def prepare(self, *chains: str) -> list[str]:
        """What was warmed."""
        warmed: list[str] = []

        async def warm(process: Any) -> None:
            warmed.append(process.plan.chain)

        asyncio.run(self.pool.prepare([plan(chain) for chain in chains], warm))
        return warmed

    @property
    def alive(self) -> set[int]:
        return {process.number for process in self.made if not process.killed}


def test_a_chain_keeps_its_process_over_the_generations_and_gets_another_when_that_is_lost() -> (
    None
):
    pool = Pool()
    assert pool.runs(deploy("a-0"), deploy("b-0")) == {"a-0": 1, "b-0": 2}
    assert pool.runs(deploy("a-0"), deploy("b-0")) == {"a-0": 1, "b-0": 2}
    pool.made[0].dead = True
    assert pool.runs(deploy("a-0"), deploy("b-0")) == {"a-0": 3, "b-0": 2}


def test_chains_go_where_most_of_their_state_is_and_new_ones_to_prepared_processes() -> None:
    """From two subtasks to four, as the machine asks for it."""
    pool = Pool()
    pool.runs(deploy("k-0"), deploy("k-1"))
    assert sorted(pool.prepare("k-2", "k-3")) == ["k-2", "k-3"]
    hosts = pool.runs(deploy("k-0", "k-0"), deploy("k-1"), deploy("k-2", "k-1"), deploy("k-3"))
    assert hosts == {"k-0": 1, "k-1": 3, "k-2": 2, "k-3": 4}
    assert len(pool.made) == 4
    pool.pool.release()
    assert pool.alive == {1, 2, 3, 4}


def test_chains_of_other_nodes_are_told_by_their_actors() -> None:
    """H6."""
    pool = Pool()
    pool.runs(deploy("a-0"), deploy("b-0"), deploy("c-0"))
    for process, node in zip(pool.made, ("x", "y", "x"), strict=True):
        process.identity, process.actor = SimpleNamespace(node_id=node), f"actor {process.number}"
    a, b, c = map(ChainId, ("a-0", "b-0", "c-0"))
    assert pool.pool.elsewhere(a, [b, c]) == {b: "actor 2"}
    assert pool.pool.elsewhere(b, [c]) == {c: "actor 3"}


def test_processes_that_the_next_plan_does_not_need_are_spare_until_they_are_released() -> None:
    pool = Pool()
    pool.runs(*(deploy(f"k-{n}") for n in range(4)))
    assert pool.runs(deploy("k-0", "k-0"), deploy("k-1", "k-2")) == {"k-0": 1, "k-1": 3}
    assert len(pool.pool.processes) == 4, "they are asked how they are, or their lease ends"
    pool.pool.release()
    assert pool.alive == {1, 3}
    assert len(pool.pool.processes) == 2
    assert pool.runs(deploy("k-0"), deploy("k-1")) == {"k-0": 1, "k-1": 3}


def test_no_process_hosts_two_chains() -> None:
    pool = Pool()
    pool.runs(deploy("k-0"))
    hosts = pool.runs(deploy("k-0", "k-0"), deploy("k-1", "k-0"))
    assert hosts == {"k-0": 1, "k-1": 2}


def test_a_spare_process_is_only_given_to_a_chain_of_the_same_operators() -> None:
    pool = Pool()
    pool.runs(deploy("a-0"))
    pool.prepare("b-1")
    assert pool.runs(deploy("a-0"), deploy("c-0")) == {"a-0": 1, "c-0": 3}
    assert pool.runs(deploy("a-0"), deploy("b-0")) == {"a-0": 1, "b-0": 2}


def test_a_host_that_died_is_replaced_like_any_other() -> None:
    pool = Pool()
    pool.runs(deploy("k-0"), deploy("k-1"))
    pool.made[1].dead = True
    assert pool.runs(deploy("k-0", "k-0"), deploy("k-2", "k-1")) == {"k-0": 1, "k-2": 3}


def test_of_processes_that_cannot_all_be_had_none_is_left() -> None:
    pool = Pool()
    pool.runs(deploy("k-0"))
    pool.trouble["k-2"] = ResourceError("it needs 1 CPU")
    with pytest.raises(ResourceError, match="it needs 1 CPU"):
        pool.prepare("k-1", "k-2", "k-3")
    assert [process.released for process in pool.made] == [False, True, True, True]
    assert len(pool.pool.processes) == 1


def test_a_process_that_finds_no_place_is_not_kept() -> None:
    pool = Pool()
    pool.trouble["k-0"] = ResourceError("it needs 1 CPU")
    with pytest.raises(ResourceError):
        pool.runs(deploy("k-0"))
    assert pool.alive == set()


def test_a_chain_that_was_killed_meanwhile_gets_no_new_process() -> None:
    pool = Pool()

    def refuse() -> None:
        raise ActorLostError("killed")

    pool.pool.assign([deploy("k-0")])
    with pytest.raises(ActorLostError, match="killed"):
        asyncio.run(pool.pool.taken(plan("k-0"), refuse))
    assert pool.made == []
