"""What a valid job may ask for and this release does not run yet: one table, one row a feature.

Removing a row enables the feature. A row finds the places where its feature is asked for; a
place is reported once, by the first row that knows it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from arkflow_kernel.autoscale_rules import asks_for_autoscale
from arkflow_kernel.errors import Issue
from arkflow_kernel.job import JobSpec
from arkflow_kernel.topology import Topology, is_aggregate

JOINS: Final = "joins and aggregates"
SCALE_OUT: Final = "scale-out"
CLUSTERS: Final = "clusters"
AUTOSCALING: Final = "autoscaling"

Finder = Callable[[Topology], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A feature, as the subject of a sentence, what brings it, and where a job asks for it.

    `advice` says what to do in the meantime, where that is not to leave the feature out.
    """

    feature: str
    comes_with: str
    find: Finder
    advice: Callable[[Topology], str] | None = None

    def issues(self, topology: Topology) -> Iterator[Issue]:
        """One error for each place where the job asks for the feature."""
        text = f"{self.feature} is not available in this release; it comes with {self.comes_with}"
        if self.advice is not None:
            text += f". {self.advice(topology)}"
        for path in self.find(topology):
            yield Issue(path, text)


def unavailable(job: JobSpec) -> list[Issue]:
    """One error for each place where the job asks for what this release does not run."""
    topology = Topology(job)
    found: dict[str, Issue] = {}
    for row in UNAVAILABLE:
        for issue in row.issues(topology):
            found.setdefault(issue.path, issue)
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


def _parallel_ends(topology: Topology) -> list[str]:
    """Sources and sinks that have the job's parallelism because they have none of their own."""
    if topology.job.parallelism <= 1:
        return []
    ends = [op for op in topology.operators.values() if op.kind in ("source", "sink")]
    return [operator.id for operator in ends if operator.parallelism is None]


def _own_parallelism(kind: str) -> Finder:
    def test(topology: Topology, name: str) -> bool:
        operator = topology.operators[name]
        return operator.kind == kind and (operator.parallelism or 1) > 1

    return _operators(test, "parallelism")


def _inherited_parallelism(topology: Topology) -> Iterator[str]:
    if _parallel_ends(topology):
        yield "parallelism"


def _set_to_one(topology: Topology) -> str:
    ends = _parallel_ends(topology)
    text = f"Set `parallelism: 1` on {', '.join(map(repr, ends))}"
    if any(topology.operators[name].kind == "source" for name in ends):
        text += ", and `type: rebalance` or `partitioned: true` on the edges behind sources"
    return f"{text}; the other operators keep the job's value"


UNAVAILABLE: Final[tuple[Unavailable, ...]] = (
    Unavailable("a join operator", JOINS, _kind("join")),
    Unavailable(
        "an aggregate operator without `config.type`",
        JOINS,
        _operators(lambda t, name: is_aggregate(t.operators[name]), "kind"),
    ),
    *(
        Unavailable(
            f"a {kind} with parallelism above 1",
            SCALE_OUT,
            _own_parallelism(kind),
            lambda _: "Set `parallelism: 1` here; the operators between may have more",
        )
        for kind in ("source", "sink")
    ),
    Unavailable(
        "a job's parallelism above 1 for its sources and sinks",
        SCALE_OUT,
        _inherited_parallelism,
        _set_to_one,
    ),
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
    Unavailable("`autoscale`", AUTOSCALING, asks_for_autoscale),
    Unavailable("`node_ids`", CLUSTERS, _job(lambda j: j.node_ids is not None, "node_ids")),
    Unavailable("`transport: ray`", CLUSTERS, _job(lambda j: j.transport == "ray", "transport")),
)
"""Features by what brings them."""

__all__ = [
    "AUTOSCALING",
    "CLUSTERS",
    "JOINS",
    "SCALE_OUT",
    "UNAVAILABLE",
    "Unavailable",
    "unavailable",
]
