"""The plan of a job with another parallelism, checked as a file is checked (K2).

`OPERATOR=N` sets the operator's own parallelism; operators that have the job's keep it. What is
wrong with it is one error with every reason, and nothing is planned then.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from arkflow_kernel.errors import ConfigError, Issue
from arkflow_kernel.job import JobSpec
from arkflow_kernel.job_parallelism import (
    chain_changes,
    parallelism_issues,
    parallelisms,
    with_parallelism,
)
from arkflow_kernel.plan import ExecutionGraph
from arkflow_ray.config.project import job_graph, job_issues

_PLACE = re.compile(r"(operators|edges|sources|sinks)\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Replan:
    """A job with another parallelism, and its plan.

    `changed` holds the number of subtasks before and after, of each operator whose number changes;
    empty if all is so already. `notes`: sentences about what else changes, and warnings.
    """

    job: JobSpec
    graph: ExecutionGraph
    changed: Mapping[str, tuple[int, int]]
    notes: tuple[str, ...] = ()


def replan(job: JobSpec, changes: Mapping[str, int]) -> Replan:
    """Plan a valid job anew. `changes`: the wanted number of subtasks by operator.

    Raises `ConfigError` with every reason why the job cannot be so.
    """
    issues = parallelism_issues(job, changes)
    if issues:
        raise ConfigError(issues)
    after = with_parallelism(job, changes)
    new = list(_new_issues(job, after))
    wrong = [Issue("", text) for text, warning in new if not warning]
    if wrong:
        raise ConfigError(wrong)
    before = parallelisms(job)
    changed = {
        name: (before[name], wanted) for name, wanted in changes.items() if before[name] != wanted
    }
    notes = (*chain_changes(job, after), *(text for text, _ in new))
    return Replan(after, job_graph(after), changed, notes)


def _new_issues(before: JobSpec, after: JobSpec) -> Iterator[tuple[str, bool]]:
    """What the rules of jobs say of the one and not of the other; whether it is a warning."""
    known = {(issue.path, issue.warning) for issue in job_issues(before)}
    for issue in job_issues(after):
        if (issue.path, issue.warning) not in known:
            yield _located(after, issue), issue.warning


def _located(job: JobSpec, issue: Issue) -> str:
    """The sentence, with the name of the part that it is about if it does not hold it."""
    found = _PLACE.match(issue.path)
    if found is None:
        return issue.message
    kind, index = found[1], int(found[2])
    if kind == "edges":
        what, name = "edge", job.edges[index].id
    elif kind == "operators":
        what, name = "operator", job.operators[index].id
    elif kind == "sources":
        what, name = "source", job.sources[index].operator_id
    else:
        what, name = "sink", job.sinks[index].operator_id
    return issue.message if f"'{name}'" in issue.message else f"{what} '{name}': {issue.message}"


__all__ = ["Replan", "replan"]
