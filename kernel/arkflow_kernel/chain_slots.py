"""Which chains of a job go to one node together (P6). Pure.

A slot holds the chains that talk most with each other, and of each operator one subtask at most:
slots on different nodes spread the subtasks of an operator. How much two chains talk is estimated
from the channels between them: what leaves a chain on one edge is divided among its channels.

A slot that no node has room for is none: it is divided, and a chain that no node has room for is
alone in its slot, where whoever places it finds out.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from arkflow_kernel.ids import ChainId
from arkflow_kernel.plan import ChainPlan

Amounts = Mapping[str, float]
"""Amounts of resources by name."""

Slot = tuple[ChainId, ...]


def slots(
    chains: Sequence[ChainPlan], demands: Mapping[ChainId, Amounts], rooms: Sequence[Amounts] = ()
) -> tuple[Slot, ...]:
    """The slots of these chains, each chain in exactly one.

    `demands` are what each chain asks for, `rooms` what each node has; without any, there is room
    for everything. The same arguments give the same slots.
    """
    packing = _Packing(demands, _greatest(rooms, demands))
    width = max((plan.parallelism for plan in chains), default=0)
    talk = _talk(chains)
    for plan in chains:
        packing.put(plan, talk[plan.chain], width)
    return tuple(tuple(members) for members in packing.members)


def singles(chains: Sequence[ChainPlan]) -> tuple[Slot, ...]:
    """A slot for each chain."""
    return tuple((plan.chain,) for plan in chains)


def total(demands: Mapping[ChainId, Amounts], members: Sequence[ChainId]) -> dict[str, float]:
    """What some chains ask for together."""
    found: dict[str, float] = {}
    for chain in members:
        for name, amount in demands[chain].items():
            found[name] = found.get(name, 0.0) + amount
    return found


def has_room(room: Amounts, wanted: Amounts) -> bool:
    """Whether a node that has `room` can take what is wanted."""
    return all(room.get(name, 0.0) >= amount for name, amount in wanted.items())


class _Packing:
    """Slots while they are filled."""

    def __init__(self, demands: Mapping[ChainId, Amounts], rooms: list[Amounts]) -> None:
        self.members: list[list[ChainId]] = []
        self._demands = demands
        self._rooms = rooms
        self._totals: list[dict[str, float]] = []
        self._operators: list[set[str]] = []
        self._slot_of: dict[ChainId, int] = {}

    def put(self, plan: ChainPlan, talk: Mapping[ChainId, float], width: int) -> None:
        """Into the slot with which it talks most; a new one while there are fewer than `width`."""
        talks: dict[int, float] = defaultdict(float)
        for peer, amount in talk.items():
            if peer in self._slot_of:
                talks[self._slot_of[peer]] += amount
        slot = self._best(plan, talks)
        if slot is None and len(self.members) >= width:
            slot = self._best(plan, range(len(self.members)))
        if slot is None:
            slot = len(self.members)
            self.members.append([])
            self._totals.append({})
            self._operators.append(set())
        self.members[slot].append(plan.chain)
        self._totals[slot] = self._with(slot, plan.chain)
        self._operators[slot].add(_head(plan.chain))
        self._slot_of[plan.chain] = slot

    def _best(self, plan: ChainPlan, among: Mapping[int, float] | range) -> int | None:
        """Of equals the one with the fewest chains, then the first."""
        free = [slot for slot in among if self._takes(slot, plan.chain)]
        weight = among if isinstance(among, Mapping) else dict.fromkeys(among, 0.0)
        ranked = ((-weight[slot], len(self.members[slot]), slot) for slot in free)
        return min(ranked, default=(0.0, 0, None))[-1]

    def _takes(self, slot: int, chain: ChainId) -> bool:
        if _head(chain) in self._operators[slot]:
            return False
        if not self._rooms:
            return True
        wanted = self._with(slot, chain)
        return any(has_room(room, wanted) for room in self._rooms)

    def _with(self, slot: int, chain: ChainId) -> dict[str, float]:
        """What a slot asks for when the chain is in it, too."""
        found = dict(self._totals[slot])
        for name, amount in self._demands[chain].items():
            found[name] = found.get(name, 0.0) + amount
        return found


def _head(chain: ChainId) -> str:
    """The operator that names the chain, the same for all of its subtasks (G6)."""
    return chain.rpartition("-")[0]


def _talk(chains: Sequence[ChainPlan]) -> dict[ChainId, dict[ChainId, float]]:
    """How much each chain talks with each of its peers, in both directions together."""
    found: dict[ChainId, dict[ChainId, float]] = {plan.chain: {} for plan in chains}
    for plan in chains:
        for outlet in plan.outlets:
            share = 1.0 / len(outlet.channels)
            for channel in outlet.channels:
                for one, other in ((plan.chain, channel.target), (channel.target, plan.chain)):
                    if one in found:
                        found[one][other] = found[one].get(other, 0.0) + share
    return found


def _greatest(rooms: Sequence[Amounts], demands: Mapping[ChainId, Amounts]) -> list[Amounts]:
    """The nodes that no other one surpasses, by what is asked for: few in an even cluster."""
    names = sorted({name for demand in demands.values() for name in demand})
    greatest: list[Amounts] = []
    for room in rooms:
        asked = {name: room.get(name, 0.0) for name in names}
        if any(has_room(other, asked) for other in greatest):
            continue
        greatest = [other for other in greatest if not has_room(asked, other)] + [asked]
    return greatest


__all__ = ["Amounts", "Slot", "has_room", "singles", "slots", "total"]
