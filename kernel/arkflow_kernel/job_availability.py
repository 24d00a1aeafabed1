"""What a valid job may ask for and this release does not run yet: one table, one row a feature.

Removing a row enables the feature. A row finds the places where its feature is asked for; a
place is reported once, by the first row that knows it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from arkflow_kernel.errors import Issue
from arkflow_kernel.fusion import fuse
from arkflow_kernel.job import JobSpec, RestartSpec
from arkflow_kernel.topology import Topology, is_aggregate, is_keyed

MANY_CHAINS: Final = "many chains"
CHECKPOINTS: Final = "checkpoints and recovery"
EVENT_TIME: Final = "event time and windows"
JOINS: Final = "joins and aggregates"
CLUSTERS: Final = "clusters"

Finder = Callable[[Topology], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A feature, as the subject of a sentence, what brings it, and where a job asks for it."""

    feature: str
    comes_with: str
    find: Finder

    def message(self) -> str:
        """The sentence that a user reads."""
        return f"{self.feature} is not available in this release; it comes with {self.comes_with}"


def unavailable(job: JobSpec) -> list[Issue]:
    """One error for each place where the job asks for what this release does not run."""
    topology = Topology(job)
    found: dict[str, Issue] = {}
    for row in UNAVAILABLE:
        for path in row.find(topology):
            found.setdefault(path, Issue(path, row.message()))
    if not found:
        for path in _links_between_chains(topology):
            found.setdefault(path, Issue(path, _BETWEEN_CHAINS.message()))
    return list(found.values())


def _operators(test: Callable[[Topology, str], bool], key: str) -> Finder:
    """Places `operators[i].<key>` of all operators that pass the test."""

    def find(topology: Topology) -> Iterator[str]:
        for i, operator in enumerate(topology.job.operators):
            if test(topology, operator.id):
                yield f"operators[{i}].{key}"

    return find


def _job(test: Callable[[JobSpec], bool], key: str) -> Finder:
    """The place `<key>` of the job, if it passes the test."""

    def find(topology: Topology) -> Iterator[str]:
        if test(topology.job):
            yield key

    return find


def _kind(kind: str) -> Finder:
    return _operators(lambda topology, name: topology.operators[name].kind == kind, "kind")


def _stateful(topology: Topology, name: str) -> bool:
    operator = topology.operators[name]
    return operator.stateful and operator.kind not in ("window", "join", "source", "sink")


def _event_time(topology: Topology) -> Iterator[str]:
    for i, source in enumerate(topology.job.sources):
        if source.time.mode == "event_time":
            yield f"sources[{i}].time.mode"


def _late_route(topology: Topology) -> Iterator[str]:
    for i, source in enumerate(topology.job.sources):
        if source.time.mode != "event_time" and source.time.late_event_route is not None:
            yield f"sources[{i}].time.late_event_route"


def _edges_of(kind: str) -> Finder:
    def find(topology: Topology) -> Iterator[str]:
        for i, edge in enumerate(topology.job.edges):
            if kind == "partitioned" and edge.partitioned:
                target = topology.operators.get(edge.to)
                if target is None or not is_keyed(target):
                    yield f"edges[{i}].partitioned"
            elif edge.type == kind:
                yield f"edges[{i}].type"

    return find


def _exactly_once(topology: Topology) -> Iterator[str]:
    for i, sink in enumerate(topology.job.sinks):
        if sink.config.get("exactly_once") is True:
            yield f"sinks[{i}].config.exactly_once"


def _unchained(topology: Topology) -> Iterator[str]:
    """`chain: false`; once where every operator says so, as a stream's pipeline does."""
    places = [i for i, operator in enumerate(topology.job.operators) if not operator.chain]
    everywhere = len(places) == len(topology.job.operators)
    for i in places[:1] if everywhere else places:
        yield f"operators[{i}].chain"


def _restarts(restart: RestartSpec | None) -> bool:
    return restart is not None and restart.strategy != "none"


def _links_between_chains(topology: Topology) -> Iterator[str]:
    chain_of = {name: chain.head for chain in fuse(topology) for name in chain.operators}
    for i, edge in enumerate(topology.job.edges):
        known = edge.from_ in chain_of and edge.to in chain_of
        if known and chain_of[edge.from_] != chain_of[edge.to]:
            yield f"edges[{i}]"


_BETWEEN_CHAINS: Final = Unavailable(
    "a job that does not fuse into one chain (an operator with several inputs or several "
    "outputs, or a side path of its own)",
    MANY_CHAINS,
    _links_between_chains,
)

UNAVAILABLE: Final[tuple[Unavailable, ...]] = (
    Unavailable("a window operator", EVENT_TIME, _kind("window")),
    Unavailable("event time", EVENT_TIME, _event_time),
    Unavailable("a route for late rows", EVENT_TIME, _late_route),
    Unavailable("a join operator", JOINS, _kind("join")),
    Unavailable(
        "an aggregate operator without `config.type`",
        JOINS,
        _operators(lambda t, name: is_aggregate(t.operators[name]), "kind"),
    ),
    Unavailable("a stateful operator", MANY_CHAINS, _operators(_stateful, "stateful")),
    Unavailable(
        "a checkpoint", CHECKPOINTS, _job(lambda j: j.checkpoint is not None, "checkpoint")
    ),
    Unavailable(
        "a `recovery` other than `latest_checkpoint`",
        CHECKPOINTS,
        _job(lambda j: j.recovery != "latest_checkpoint", "recovery"),
    ),
    Unavailable("an exactly-once sink", CHECKPOINTS, _exactly_once),
    Unavailable(
        "parallelism above 1", MANY_CHAINS, _job(lambda j: j.parallelism > 1, "parallelism")
    ),
    Unavailable(
        "parallelism above 1",
        MANY_CHAINS,
        _operators(lambda t, name: (t.operators[name].parallelism or 1) > 1, "parallelism"),
    ),
    Unavailable("a partitioned edge", MANY_CHAINS, _edges_of("partitioned")),
    Unavailable("a broadcast edge", MANY_CHAINS, _edges_of("broadcast")),
    Unavailable("a rebalance edge", MANY_CHAINS, _edges_of("rebalance")),
    Unavailable("`chain: false`", MANY_CHAINS, _unchained),
    Unavailable("a restart strategy", MANY_CHAINS, _job(lambda j: _restarts(j.restart), "restart")),
    Unavailable("`channel`", MANY_CHAINS, _job(lambda j: j.channel is not None, "channel")),
    Unavailable(
        "resources per operator",
        CLUSTERS,
        _operators(lambda t, name: t.operators[name].resources is not None, "resources"),
    ),
    Unavailable("`resources`", CLUSTERS, _job(lambda j: j.resources is not None, "resources")),
    Unavailable(
        "a placement other than `colocated`",
        CLUSTERS,
        _job(lambda j: j.placement != "colocated", "placement"),
    ),
    Unavailable("`rescale`", CLUSTERS, _job(lambda j: j.rescale, "rescale")),
    Unavailable(
        "automatic rebalancing",
        CLUSTERS,
        _job(lambda j: j.rebalance is not None and j.rebalance.mode != "off", "rebalance"),
    ),
    Unavailable("`node_ids`", CLUSTERS, _job(lambda j: j.node_ids is not None, "node_ids")),
    Unavailable("`transport: ray`", CLUSTERS, _job(lambda j: j.transport == "ray", "transport")),
)
"""Features by what brings them. A job without any of them runs as one chain per pipeline."""

__all__ = [
    "CHECKPOINTS",
    "CLUSTERS",
    "EVENT_TIME",
    "JOINS",
    "MANY_CHAINS",
    "UNAVAILABLE",
    "Unavailable",
    "unavailable",
]
