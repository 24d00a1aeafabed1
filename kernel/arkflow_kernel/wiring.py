"""The channels of a job: which subtask sends to which, and under what bound (G2, E3).

An edge between two chains becomes one outlet in each subtask of its source's chain, and one
channel from each sending to each receiving subtask. An edge inside a chain becomes nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from arkflow_kernel.ids import ChainId, ChannelId, OutputId
from arkflow_kernel.job import ChannelSpec
from arkflow_kernel.limits import (
    CHAIN_INPUT_BYTES_DEFAULT,
    CHANNEL_BYTES_MAX,
    CHANNEL_BYTES_MIN,
    CHANNEL_ENVELOPES_DEFAULT,
)
from arkflow_kernel.operator_calls import batching
from arkflow_kernel.plan import ChannelPlan, EdgeKind, EdgePlan, OutletPlan
from arkflow_kernel.topology import Topology


@dataclass(frozen=True, slots=True)
class Wiring:
    """Channels into and outlets out of each subtask of a chain, in the order of the job's edges."""

    inputs: dict[ChainId, tuple[ChannelPlan, ...]]
    outlets: dict[ChainId, tuple[OutletPlan, ...]]


def wire(topology: Topology, chain_of: dict[str, str], edges: Iterable[EdgePlan]) -> Wiring:
    """The wiring of a valid job. `chain_of`: the head of each operator's chain.

    Channels are numbered over the job: by edge, then sending, then receiving subtask.
    """
    ends = {edge: _ends(topology, edge) for edge in carrying(chain_of, edges)}
    feeding = Counter(
        chain_id(chain_of[edge.target], end) for edge, pairs in ends.items() for _, end in pairs
    )
    inputs: defaultdict[ChainId, list[ChannelPlan]] = defaultdict(list)
    outlets: defaultdict[ChainId, tuple[OutletPlan, ...]] = defaultdict(tuple)
    number = 0
    for edge, pairs in ends.items():
        leaving: defaultdict[ChainId, list[ChannelPlan]] = defaultdict(list)
        asked = batching(topology.operators[edge.target])
        for start, end in pairs:
            channel = ChannelPlan(
                channel=ChannelId(f"{edge.edge}[{start}-{end}]"),
                number=number,
                edge=edge.edge,
                source=chain_id(chain_of[edge.source], start),
                target=(target := chain_id(chain_of[edge.target], end)),
                capacity=_capacity(topology.job.channel),
                capacity_bytes=capacity_bytes(topology.job.channel, feeding[target]),
                batch_rows=asked.rows,
                batch_wait_ms=asked.wait_ms,
            )
            number += 1
            leaving[channel.source].append(channel)
            inputs[target].append(channel)
        for source, channels in leaving.items():
            outlets[source] += (_outlet(topology, edge, channels),)
    return Wiring({chain: tuple(found) for chain, found in inputs.items()}, dict(outlets))


def carrying(chain_of: dict[str, str], edges: Iterable[EdgePlan]) -> list[EdgePlan]:
    """The edges that have channels of their own.

    Those that leave their chain, except a side edge after the first of its kind from its chain to
    its target: what fails anywhere in a chain leaves it by one door.
    """
    found: dict[tuple[str, ...], EdgePlan] = {}
    for edge in edges:
        if edge.fused:
            continue
        own = (edge.edge,) if not edge.kind.is_side else ()
        found.setdefault((chain_of[edge.source], edge.target, edge.kind.value, *own), edge)
    return list(found.values())


def channel_pairs(kind: EdgeKind, above: int, below: int) -> list[tuple[int, int]]:
    """Sending and receiving subtask of each channel of an edge (G2), in order of both.

    Raises `ValueError` for numbers of subtasks that such an edge cannot join.
    """
    if below == 1 or not (kind.is_side or kind is EdgeKind.FORWARD):
        return [(start, end) for start in range(above) for end in range(below)]
    if above != below:
        raise ValueError(f"a {kind.value} edge cannot join {above} subtasks to {below}")
    return [(both, both) for both in range(above)]


def capacity_bytes(channel: ChannelSpec | None, inputs: int) -> int:
    """Bytes that may be under way on one of `inputs` channels into a chain (E3)."""
    given = channel or ChannelSpec()
    if given.capacity_bytes is not None:
        return given.capacity_bytes
    budget = CHAIN_INPUT_BYTES_DEFAULT if given.chain_bytes is None else given.chain_bytes
    return min(CHANNEL_BYTES_MAX, max(CHANNEL_BYTES_MIN, budget // inputs))


def chain_id(head: str, subtask: int) -> ChainId:
    """The id of one subtask of a chain (G6)."""
    return ChainId(f"{head}-{subtask}")


def _ends(topology: Topology, edge: EdgePlan) -> list[tuple[int, int]]:
    return channel_pairs(
        edge.kind, topology.parallelism(edge.source), topology.parallelism(edge.target)
    )


def _outlet(topology: Topology, edge: EdgePlan, channels: list[ChannelPlan]) -> OutletPlan:
    return OutletPlan(
        output=OutputId(edge.edge),
        kind=edge.kind,
        channels=tuple(channels),
        key_fields=edge.key_fields,
        max_parallelism=topology.job.max_parallelism,
    )


def _capacity(channel: ChannelSpec | None) -> int:
    given = None if channel is None else channel.capacity
    return CHANNEL_ENVELOPES_DEFAULT if given is None else given


__all__ = [
    "Wiring",
    "capacity_bytes",
    "carrying",
    "chain_id",
    "channel_pairs",
    "wire",
]
