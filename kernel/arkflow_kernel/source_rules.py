"""How many subtasks a source may have: no more than can share its input (K5).

The kernel knows no component. How many subtasks an input can have is asked of the driver.
"""

from collections.abc import Callable, Iterator

from arkflow_kernel.errors import Issue
from arkflow_kernel.job import JobSpec, SourceSpec
from arkflow_kernel.topology import Topology

SubtasksMax = Callable[[SourceSpec], int | None]
"""How many subtasks can share the input of this source, configured like this; None: any number."""


def any_number(_: SourceSpec) -> int | None:
    """Every input can be shared by any number of subtasks."""
    return None


def source_issues(job: JobSpec, subtasks_max: SubtasksMax) -> Iterator[Issue]:
    """Sources with more subtasks than can have something to read."""
    topology = Topology(job)
    for i, operator in enumerate(job.operators):
        source = topology.sources.get(operator.id)
        if operator.kind != "source" or source is None:
            continue
        most, wanted = subtasks_max(source), topology.parallelism(operator.id)
        if most is None or wanted <= most:
            continue
        path, given = f"operators[{i}].parallelism", f"source '{operator.id}' has parallelism"
        if operator.parallelism is None:
            given = f"source '{operator.id}' gets from the job parallelism"
        if most == 1:
            text = f"{given} {wanted}, and input '{source.input_type}', as it is configured, can "
            text += "only be read by one subtask: set `parallelism: 1` here"
        else:
            text = f"{given} {wanted}, and its input can be shared by {most}: set it to {most} at "
            text += "most, or give the input more splits"
        edges = "a forward edge behind it becomes `type: rebalance` or `partitioned: true`"
        yield Issue(path, f"{text}; {edges}")


__all__ = ["SubtasksMax", "any_number", "source_issues"]
