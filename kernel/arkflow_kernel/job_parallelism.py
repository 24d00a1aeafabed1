"""Another parallelism for the operators of a job: what may be asked for, and what it changes (K2).

Pure functions of valid jobs. What holds for every job (G2, G4) is in `edge_rules`; here is what
only makes sense beside a job that was right before.
"""

import difflib
from collections.abc import Iterator, Mapping

from arkflow_kernel.errors import Issue
from arkflow_kernel.fusion import fuse
from arkflow_kernel.job import JobSpec
from arkflow_kernel.topology import Topology

OPERATORS_NAMED_MAX = 12
"""So many operators are named where one is missing."""


def parallelisms(job: JobSpec) -> dict[str, int]:
    """The number of subtasks of each operator, in the order of the job."""
    topology = Topology(job)
    return {name: topology.parallelism(name) for name in topology.operators}


def with_parallelism(job: JobSpec, changes: Mapping[str, int]) -> JobSpec:
    """The job with another parallelism of some operators, each its own; others keep theirs."""
    operators = [
        operator.model_copy(update={"parallelism": changes[operator.id]})
        if operator.id in changes
        else operator
        for operator in job.operators
    ]
    return job.model_copy(update={"operators": operators})


def parallelism_issues(job: JobSpec, changes: Mapping[str, int]) -> list[Issue]:
    """What is wrong with what is asked for: names, numbers, and neighbours that go together."""
    found = list(_values(job, changes))
    return found or list(_links(Topology(with_parallelism(job, changes)), changes))


def chain_changes(before: JobSpec, after: JobSpec) -> list[str]:
    """A sentence for each two neighbours that share a chain in only one of the two jobs (G1)."""
    were, are = _chain_of(before), _chain_of(after)
    found = []
    for start, end in Topology(before).links:
        together = are[start] == are[end]
        if together and were[start] != were[end]:
            found.append(f"'{start}' and '{end}' share a chain now: no channel is between them")
        elif not together and were[start] == were[end]:
            text = f"'{start}' and '{end}' no longer share a chain: rows take a channel between"
            found.append(f"{text} them")
    return found


def _values(job: JobSpec, changes: Mapping[str, int]) -> Iterator[Issue]:
    known = {operator.id for operator in job.operators}
    limit = job.max_parallelism
    for name, wanted in changes.items():
        if name not in known:
            yield Issue("", _unknown(job, name))
        elif wanted < 1:
            yield Issue("", f"operator '{name}' has at least one subtask, so {wanted} cannot be")
        elif wanted > limit:
            yield Issue("", _too_many(name, wanted, limit))


def _too_many(name: str, wanted: int, limit: int) -> str:
    if limit == 1:
        text = f"operator '{name}' has one subtask, so {wanted:,} cannot be"
        return f"{text}: a stream, or a job with `max_parallelism: 1`, is not divided"
    text = f"operator '{name}' has at most {limit} subtasks, so {wanted:,} cannot be"
    reason = "that is `max_parallelism`, into so many key groups its keys are divided"
    return f"{text}: {reason} for as long as its state lives"


def _unknown(job: JobSpec, name: str) -> str:
    if name == job.id:
        return f"'{name}' is the job; say which of its operators: {_named(job)}"
    names = {operator.id.lower(): operator.id for operator in job.operators}
    near = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean '{names[near[0]]}'? " if near else ""
    return f"job '{job.id}' has no operator '{name}'; {hint}it has: {_named(job)}"


def _named(job: JobSpec) -> str:
    names = [operator.id for operator in job.operators]
    more = len(names) - OPERATORS_NAMED_MAX
    return ", ".join(names[:OPERATORS_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _links(topology: Topology, changes: Mapping[str, int]) -> Iterator[Issue]:
    """Links from subtask to subtask whose ends would have different numbers of them (G2).

    The advice has the number that is asked for, not the one that the other end has now.
    """
    for start, end, what, advice in _one_to_one(topology):
        above, below = topology.parallelism(start), topology.parallelism(end)
        if below in (1, above):
            continue
        wanted = above if start in changes and end not in changes else below
        one_of = "1" if above == 1 else f"1 or {above}"
        text = (
            f"{what} leads from each subtask of '{start}' ({above}) to one of '{end}', which can "
            f"have {one_of}, not {below}: change both, as in `{start}={wanted} {end}={wanted}`"
        )
        yield Issue("", f"{text}{advice}")


def _one_to_one(topology: Topology) -> Iterator[tuple[str, str, str, str]]:
    """Start, end, name and other remedy of each link that joins subtask to subtask."""
    typed = ", or stop the job, and give the edge `type: rebalance` or `partitioned: true`"
    for edge in topology.main:
        if not edge.partitioned and edge.type in (None, "forward"):
            yield edge.from_, edge.to, f"edge '{edge.id}'", typed
    for edge in topology.errors:
        yield edge.from_, edge.to, f"error edge '{edge.id}'", ""
    for start, end in topology.late:
        yield start, end, "the late route", ""


def _chain_of(job: JobSpec) -> dict[str, str]:
    """The head of each operator's chain."""
    return {name: chain.head for chain in fuse(Topology(job)) for name in chain.operators}


__all__ = ["chain_changes", "parallelism_issues", "parallelisms", "with_parallelism"]
