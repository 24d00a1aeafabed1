"""Which operators share a chain, for any graph of operators (G1).

A chain is a line of operators, and the side sinks that take what fails or is late in it. It is
named by its head, so a change elsewhere in the job leaves its name alone (G6). Channels end at the
head of a line, so an operator that takes side edges beside its rows is a head.
"""

from dataclasses import dataclass

from arkflow_kernel.job import EdgeSpec, OperatorSpec
from arkflow_kernel.operator_calls import AS_THEY_COME, batching, concurrency
from arkflow_kernel.topology import Topology


@dataclass(frozen=True, slots=True)
class FusedChain:
    """Operators in the order of the rows, then the side sinks in the order of the job."""

    line: tuple[str, ...]
    side_sinks: tuple[str, ...] = ()

    @property
    def head(self) -> str:
        """The operator that names the chain."""
        return self.line[0]

    @property
    def operators(self) -> tuple[str, ...]:
        """Every operator of the chain, each in exactly one chain of the job."""
        return self.line + self.side_sinks


def fuse(topology: Topology) -> list[FusedChain]:
    """The chains of a job, in the order in which their heads stand in it.

    Every operator is in exactly one chain, even in a job that is not valid.
    """
    lines = _lines(topology)
    chain_of = {name: line[0] for line in lines for name in line}
    guests = _side_sinks(topology, chain_of)
    return [
        FusedChain(line, tuple(name for name, host in guests.items() if host == line[0]))
        for line in lines
        if line[0] not in guests
    ]


def fusable(topology: Topology, edge: EdgeSpec) -> bool:
    """Whether the two operators at the ends of a main edge fuse (G1)."""
    return (
        edge.from_ != edge.to
        and edge.to not in topology.taking_aside
        and not edge.partitioned
        and edge.type in (None, "forward")
        and len(topology.outputs[edge.from_]) == 1
        and len(topology.inputs[edge.to]) == 1
        and _of_one_time(topology.operators[edge.from_], topology.operators[edge.to])
        and _alike(topology, edge.from_, edge.to)
        and _called_alike(topology.operators[edge.from_], topology.operators[edge.to])
    )


def _of_one_time(above: OperatorSpec, below: OperatorSpec) -> bool:
    """Behind a join it is earlier than before it (J3): a chain has one watermark, a sink none."""
    return above.kind != "join" or below.kind == "sink"


def _alike(topology: Topology, one: str, other: str) -> bool:
    """Same number of subtasks, same resources, and neither opts out."""
    return (
        topology.operators[one].chain
        and topology.operators[other].chain
        and topology.parallelism(one) == topology.parallelism(other)
        and topology.resources(one) == topology.resources(other)
    )


def _called_alike(above: OperatorSpec, below: OperatorSpec) -> bool:
    """No batches are made for the lower one (E9), and neither is to be called several at once.

    Several calls are at once in a whole chain (T2), which is then a matter of one operator alone.
    """
    if batching(below) != AS_THEY_COME:
        return False
    ends = above.kind == "source" or below.kind == "sink"
    return ends or (concurrency(above) is None and concurrency(below) is None)


def _lines(topology: Topology) -> list[tuple[str, ...]]:
    """A fusable edge is the only one at both ends, so they form lines (or a wrong circle)."""
    following = {edge.from_: edge.to for edge in topology.main if fusable(topology, edge)}
    followed = set(following.values())
    heads = [name for name in topology.operators if name not in followed]
    lines: dict[str, tuple[str, ...]] = {}
    placed: set[str] = set()
    for head in (*heads, *topology.operators):
        line: list[str] = []
        at: str | None = head
        while at is not None and at not in placed:
            placed.add(at)
            line.append(at)
            at = following.get(at)
        if line:
            lines[line[0]] = tuple(line)
    return [lines[name] for name in topology.operators if name in lines]


def _side_sinks(topology: Topology, chain_of: dict[str, str]) -> dict[str, str]:
    """Side sinks that join the one chain that feeds them, with that chain's head."""
    feeders: dict[str, list[str]] = {}
    for start, end in (*((e.from_, e.to) for e in topology.errors), *topology.late):
        feeders.setdefault(end, []).append(start)
    guests = {}
    for name, operator in topology.operators.items():
        feeding = feeders.get(name, [])
        hosts = {chain_of[feeder] for feeder in feeding}
        alone = not topology.inputs[name] and not topology.outputs[name]
        lonely = operator.kind == "sink" and alone
        if lonely and len(hosts) == 1 and all(_alike(topology, f, name) for f in feeding):
            guests[name] = hosts.pop()
    return guests


__all__ = ["FusedChain", "fusable", "fuse"]
