"""Rules of what a job asks of its machines: `resources:` and `placement:` (K7, P6)."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from arkflow_kernel.errors import Issue
from arkflow_kernel.job import JobSpec, ResourcesSpec
from arkflow_kernel.job_mode import keeps
from arkflow_kernel.limits import MIB, STATE_MEMORY_BYTES
from arkflow_kernel.placement_plan import Placing
from arkflow_kernel.topology import Topology

_STRATEGIES: Final = tuple(placing.value for placing in Placing)

_KEYS: Final = ("strategy", "labels")

_NAMED: Final = {
    "CPU": "`num_cpus`",
    "GPU": "`num_gpus`",
    "memory": "`memory_bytes`",
    "object_store_memory": "nothing: stream data do not pass through Ray's object store",
}
"""What stands for Ray's own resources, which are no custom ones."""

_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL_KEY: Final = re.compile(rf"([A-Za-z0-9.-]{{1,253}}/)?{_LABEL.pattern}")


def resource_issues(topology: Topology) -> Iterator[Issue]:
    """Every mistake of `resources` and `placement`."""
    job = topology.job
    if isinstance(job.placement, dict):
        yield from _placement(job.placement)
    if job.resources is not None:
        yield from _resources(job.resources, "resources")
    for i, operator in enumerate(job.operators):
        if operator.resources is not None:
            yield from _resources(operator.resources, f"operators[{i}].resources")
    yield from _state_memory(topology)


def _placement(placement: Mapping[str, Any]) -> Iterator[Issue]:
    for key in placement:
        if key not in _KEYS:
            yield Issue(f"placement.{key}", f"unknown key '{key}'; known: {', '.join(_KEYS)}")
    if placement.get("strategy", _STRATEGIES[0]) not in _STRATEGIES:
        text = f"unknown placement strategy; choose one of {', '.join(_STRATEGIES)}"
        yield Issue("placement.strategy", text)
    labels = placement.get("labels", {})
    if not isinstance(labels, dict):
        text = "labels is an object of texts, the labels that a node must have"
        yield Issue("placement.labels", f"{text}: `labels: {{zone: a}}`")
        return
    for key, value in labels.items():
        if not isinstance(key, str) or not _LABEL_KEY.fullmatch(key):
            yield Issue("placement.labels", f"'{key}' is no name of a label; {_spelling()}")
        elif not isinstance(value, str) or not _LABEL.fullmatch(value):
            text = f"the value of label '{key}' is one text; {_spelling()}"
            yield Issue(f"placement.labels.{key}", text)


def _spelling() -> str:
    return "use at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"


def _resources(spec: ResourcesSpec, path: str) -> Iterator[Issue]:
    for key in ("num_cpus", "num_gpus"):
        amount = getattr(spec, key)
        if amount is not None and not math.isfinite(amount):
            yield Issue(f"{path}.{key}", f"{key} must be a finite number")
    gpus = spec.num_gpus or 0.0
    if math.isfinite(gpus) and gpus > 1 and gpus != int(gpus):
        text = "num_gpus above 1 must be whole: a GPU is shared, or it is one's own"
        yield Issue(f"{path}.num_gpus", text)
    for name, amount in (spec.custom or {}).items():
        where = f"{path}.custom.{name}"
        if name in _NAMED:
            text = f"'{name}' is Ray's own; for it there is {_NAMED[name]}"
            yield Issue(where, text)
        elif name in ResourcesSpec.model_fields:
            yield Issue(where, f"'{name}' is a key of `resources` itself; move it there")
        elif not name:
            yield Issue(f"{path}.custom", "a custom resource has a name, that of the cluster's")
        elif not (math.isfinite(amount) and amount > 0):
            text = f"the amount of '{name}' must be a number above 0; leave it out for none"
            yield Issue(where, text)


def _state_memory(topology: Topology) -> Iterator[Issue]:
    """A process that is over its memory fails; its state goes to local files before, or never."""
    job = topology.job
    state_bytes = STATE_MEMORY_BYTES if job.state is None else job.state.memory_bytes
    seen: set[str] = set()
    for i, operator in enumerate(job.operators):
        asked = topology.resources(operator.id)
        budget = None if asked is None else asked.memory_bytes
        if budget is None or budget > state_bytes or not keeps(operator):
            continue
        path = _budget_path(job, i)
        if path not in seen:
            seen.add(path)
            text = (
                f"the process of '{operator.id}' fails above {_mib(budget)}, before its state goes "
                f"to local files, which is above `state.memory_bytes` ({_mib(state_bytes)}); "
                "lower that, or raise this"
            )
            yield Issue(path, text, warning=True)


def _budget_path(job: JobSpec, operator: int) -> str:
    own = job.operators[operator].resources is not None
    return f"operators[{operator}].resources.memory_bytes" if own else "resources.memory_bytes"


def _mib(size: int) -> str:
    return f"{size / MIB:,.0f} MiB"


__all__ = ["resource_issues"]
