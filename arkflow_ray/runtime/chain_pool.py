"""The processes of a job's chains over its generations: who hosts which chain (P1, K2).

A process hosts one chain at a time, and need not host the same one in the next generation: a
rescale leaves chains where most of their state is. Those that host nothing are spare: processes
that were prepared for the next plan, and those that it no longer needs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from collections.abc import Sequence as Seq
from typing import Any

from arkflow_kernel.errors import ArkflowError
from arkflow_kernel.ids import ChainId
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.protocol import DeployChain
from arkflow_ray.runtime.chain_process import ChainProcess


class ChainPool:
    """Of one coordinator. `make` creates a process for a chain; it need not be up yet."""

    def __init__(self, make: Callable[[ChainPlan], ChainProcess]) -> None:
        self._make = make
        self._hosts: dict[ChainId, ChainProcess] = {}
        self._spare: list[ChainProcess] = []

    def host(self, chain: ChainId) -> ChainProcess | None:
        """The process of a chain of the generation at work; None before it was made."""
        return self._hosts.get(chain)

    def elsewhere(self, chain: ChainId, others: Iterable[ChainId]) -> dict[ChainId, Any]:
        """The actors of those of the other chains that are on another node than this one (H6)."""
        here = self._node(chain)
        return {other: self._hosts[other].actor for other in others if self._node(other) != here}

    def _node(self, chain: ChainId) -> str:
        identity = self._hosts[chain].identity
        assert identity is not None, "it has been deployed"
        return identity.node_id

    @property
    def processes(self) -> tuple[ChainProcess, ...]:
        """All that there are, also those that host nothing."""
        return (*self._hosts.values(), *self._spare)

    def assign(self, deployed: Seq[DeployChain]) -> None:
        """Give the chains of a new generation their processes, as far as there are any.

        In this order: that of its `host`, its own, a spare one that was made for a chain of the
        same operators. Each has one chain. Chains that get none have one made by `taken`.
        """
        left = [process for process in self.processes if not process.killed]
        known = {process.plan.chain: process for process in self._spare} | self._hosts
        self._hosts = {}
        for asked in deployed:
            if asked.host is not None:
                self._give(asked.plan, known.get(asked.host), left)
        for asked in deployed:
            self._give(asked.plan, known.get(asked.plan.chain), left)
        for asked in deployed:
            alike = (each for each in left if each.usable and _alike(each.plan, asked.plan))
            self._give(asked.plan, next(alike, None), left)
        self._spare = left

    def _give(
        self, plan: ChainPlan, process: ChainProcess | None, left: list[ChainProcess]
    ) -> None:
        if process is None or plan.chain in self._hosts:
            return
        if process.usable and process in left:
            left.remove(process)
            process.plan = plan
            self._hosts[plan.chain] = process

    async def taken(self, plan: ChainPlan, may_make: Callable[[], None]) -> ChainProcess:
        """The process of a chain, which has answered; a new one if that which it had does not.

        `may_make` raises if none shall be made any more. Raises `ArkflowError`.
        """
        known = self._hosts.get(plan.chain)
        if known is not None and known.usable:
            try:
                await known.handshake()
            except ArkflowError:
                pass  # it has been killed: a new one takes its place
            else:
                return known
        may_make()
        made = self._hosts[plan.chain] = self._make(plan)
        try:
            await made.handshake()
        except ArkflowError:
            if not made.killed:  # there was no place for it
                made.release()
            raise
        return made

    async def prepare(
        self, plans: Iterable[ChainPlan], warm: Callable[[ChainProcess], Awaitable[None]]
    ) -> None:
        """Have a spare process for each of these chains, all made at once, and `warm` them (K2).

        Raises the first `ArkflowError`; then none of the new ones is left.
        """
        made = [self._make(plan) for plan in plans]
        self._spare += made

        async def ready(process: ChainProcess) -> None:
            await process.handshake()
            await warm(process)

        try:
            await asyncio.gather(*(ready(process) for process in made))
        except BaseException:
            self._end(made)
            raise

    def release(self) -> None:
        """End the processes that host nothing."""
        self._end(list(self._spare))

    def _end(self, processes: list[ChainProcess]) -> None:
        for process in processes:
            if process in self._spare:
                self._spare.remove(process)
                process.release()


def _alike(one: ChainPlan, other: ChainPlan) -> bool:
    """Whether a process for the one has what the other needs: subtasks of the same operators."""
    return _operators(one) == _operators(other) and one.resources == other.resources


def _operators(plan: ChainPlan) -> list[str]:
    return [task.rpartition("-")[0] for task in plan.tasks]


__all__ = ["ChainPool"]
