"""What a valid job may ask for and this release does not run yet: one table, one row a feature.

Removing a row enables the feature. A row finds the places where its feature is asked for; a
place is reported once, by the first row that knows it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from arkflow_kernel.errors import Issue
from arkflow_kernel.job import JobSpec
from arkflow_kernel.topology import Topology

CLUSTERS: Final = "clusters"

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


def _job(test: Callable[[JobSpec], bool], key: str) -> Finder:
    """The place `<key>` of the job, if it passes the test."""

    def find(topology: Topology) -> Iterator[str]:
        if test(topology.job):
            yield key

    return find


UNAVAILABLE: Final[tuple[Unavailable, ...]] = (
    Unavailable(
        "automatic rebalancing",
        CLUSTERS,
        _job(lambda j: j.rebalance is not None and j.rebalance.mode != "off", "rebalance"),
    ),
    Unavailable("`node_ids`", CLUSTERS, _job(lambda j: j.node_ids is not None, "node_ids")),
)
"""Features by what brings them."""

__all__ = [
    "CLUSTERS",
    "UNAVAILABLE",
    "Unavailable",
    "unavailable",
]
