"""Ack mode or checkpoint mode: how a job makes progress durable (F0)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from arkflow_kernel.job import JobSpec, OperatorSpec
from arkflow_kernel.plan import Mode
from arkflow_kernel.topology import is_aggregate

KEEPING_PROCESSORS: Final = frozenset({"batch"})
"""Processors that keep rows across batches without being stateful in the job."""

_KEEPING: Final[tuple[tuple[Callable[[OperatorSpec], bool], str], ...]] = (
    (lambda op: op.kind == "window", "is a window"),
    (lambda op: op.kind == "join", "is a join"),
    (is_aggregate, "is an aggregate"),
    (lambda op: op.kind == "deduplicate", "keeps the keys that it has seen"),
    (lambda op: op.kind == "top_n", "keeps the best rows of each key"),
    (lambda op: op.stateful, "is stateful"),
    (lambda op: op.config.get("type") in KEEPING_PROCESSORS, "keeps rows across batches"),
)


@dataclass(frozen=True, slots=True)
class ModeDecision:
    """The mode of a job and the one sentence that says why."""

    mode: Mode
    reason: str


def keeps(operator: OperatorSpec) -> str | None:
    """What the operator keeps across batches, as the end of a sentence about it, or None."""
    if operator.kind in ("source", "sink"):
        return None
    return next((reason for test, reason in _KEEPING if test(operator)), None)


def decide_mode(job: JobSpec) -> ModeDecision:
    """The mode of a job (F0)."""
    for operator in job.operators:
        reason = keeps(operator)
        if reason is not None:
            return ModeDecision(Mode.CHECKPOINT, f"operator '{operator.id}' {reason}")
    for sink in job.sinks:
        if sink.config.get("exactly_once") is True:
            return ModeDecision(Mode.CHECKPOINT, f"sink '{sink.operator_id}' is exactly-once")
    if job.checkpoint is not None:
        return ModeDecision(Mode.CHECKPOINT, "the job has a `checkpoint:` block")
    text = "no operator keeps anything across batches, and there is no `checkpoint:` block"
    return ModeDecision(Mode.ACK, text)


__all__ = ["KEEPING_PROCESSORS", "ModeDecision", "decide_mode", "keeps"]
