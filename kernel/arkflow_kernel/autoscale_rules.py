"""What `autoscale:` of a job means, and what it must hold (K6, C6)."""

from collections.abc import Iterator, Mapping
from typing import Final

from arkflow_kernel.autoscale_stages import ScaleBounds
from arkflow_kernel.errors import Issue
from arkflow_kernel.ids import OperatorId
from arkflow_kernel.job import AutoscaleSpec, JobSpec, OperatorSpec
from arkflow_kernel.topology import Topology

_ENDS: Final = ("source", "sink")


def autoscale_bounds(topology: Topology) -> Mapping[OperatorId, ScaleBounds]:
    """The operators of a valid job whose parallelism may change, and within what."""
    return {
        OperatorId(name): ScaleBounds(
            *_limits(topology.job, operator), _busy(topology.job, operator)
        )
        for name, operator in topology.operators.items()
        if _takes_part(topology.job, operator)
    }


def asks_for_autoscale(topology: Topology) -> Iterator[str]:
    """Places where a job asks for it."""
    job = topology.job
    if job.autoscale is not None and job.autoscale.mode != "off":
        yield "autoscale"
    elif job.autoscale is None:
        for i, operator in enumerate(job.operators):
            if _takes_part(job, operator):
                yield f"operators[{i}].autoscale"


def autoscale_issues(topology: Topology) -> Iterator[Issue]:
    """Bounds that exclude each other, the job's limit, or the parallelism that is declared."""
    job = topology.job
    if job.autoscale is not None:
        yield from _job(job, job.autoscale)
    for i, operator in enumerate(job.operators):
        if not _takes_part(job, operator):
            continue
        low, high = _limits(job, operator)
        own = operator.autoscale is not None
        where = f"operators[{i}].autoscale" if own else "autoscale"
        given = topology.parallelism(operator.id)
        if own and low > high:
            text = f"`autoscale.min` of operator '{operator.id}' is {low}, above its maximum"
            yield Issue(where, f"{text} of {high}")
        elif own and high > job.max_parallelism:
            text = f"`autoscale.max` of operator '{operator.id}' is {high}, above max_parallelism"
            yield Issue(where, f"{text} ({job.max_parallelism})")
        elif low <= high and not low <= given <= high:
            text = f"operator '{operator.id}' starts with {given} subtasks, outside of the bounds"
            yield Issue(where, f"{text} {low} to {high}; change its `parallelism`, or the bounds")


def _job(job: JobSpec, autoscale: AutoscaleSpec) -> Iterator[Issue]:
    high = _maximum(job, autoscale.max)
    if autoscale.min > high:
        text = f"`autoscale.min` is {autoscale.min}, above the maximum of {high}"
        yield Issue("autoscale.min", f"{text}; lower it, or raise `max`")
    elif high > job.max_parallelism:
        text = f"`autoscale.max` is {high}, above max_parallelism ({job.max_parallelism})"
        yield Issue("autoscale.max", f"{text}; lower it, or raise the other")


def _takes_part(job: JobSpec, operator: OperatorSpec) -> bool:
    """By its own block, else by the job's, which does not speak of sources and sinks."""
    if job.autoscale is not None and job.autoscale.mode == "off":
        return False
    if operator.autoscale is not None:
        return operator.autoscale.mode == "on"
    return job.autoscale is not None and operator.kind not in _ENDS


def _limits(job: JobSpec, operator: OperatorSpec) -> tuple[int, int]:
    """The least and the greatest parallelism: the operator's own, else the job's."""
    own, whole = operator.autoscale, job.autoscale
    low = None if own is None else own.min
    high = None if own is None else own.max
    if low is None:
        low = 1 if whole is None else whole.min
    if high is None:
        high = None if whole is None else whole.max
    return low, _maximum(job, high)


def _maximum(job: JobSpec, given: int | None) -> int:
    return max(1, job.max_parallelism) if given is None else given


def _busy(job: JobSpec, operator: OperatorSpec) -> float:
    whole = AutoscaleSpec() if job.autoscale is None else job.autoscale
    own = None if operator.autoscale is None else operator.autoscale.target_busy
    return whole.target_busy if own is None else own


__all__ = ["asks_for_autoscale", "autoscale_bounds", "autoscale_issues"]
