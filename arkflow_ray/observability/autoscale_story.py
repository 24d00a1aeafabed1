"""What a user is told of autoscaling: each decision with its reason, and what came of it (K6)."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from arkflow_ray.observability.job_event import JobEvent

if TYPE_CHECKING:
    from arkflow_kernel.autoscale import GroupFigures
    from arkflow_kernel.ids import WallMs
    from arkflow_ray.runtime.autoscaling import AutoscaleTold, Decided


class AutoscaleStory:
    """What was told of the decisions for one job."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._told: tuple[int, str] = (0, "")
        self._kept: set[str] = set()
        self._fault: str | None = None

    def news(self, told: "AutoscaleTold | None") -> list[JobEvent]:
        """What is worth a line and was not told yet: a decision, one that came to nothing,
        operators that stay as they are, a fault.
        """
        if told is None:
            return []
        found = list(self._new_kept(told))
        last = told.last
        if last is not None and self._told != (last.number, last.outcome):
            first = self._told[0] != last.number
            self._told = (last.number, last.outcome)
            if first or last.outcome == "failed":
                found.append(self._decided(last))
        if told.fault is not None and told.fault != self._fault:
            self._fault = told.fault
            found.append(self._event(f"has ended: {told.fault}", warning=True))
        return found

    def _new_kept(self, told: "AutoscaleTold") -> Iterator[JobEvent]:
        for operator, reason in told.kept.items():
            if operator not in self._kept:
                self._kept.add(operator)
                fields: dict[str, object] = {"operator": operator, "reason": reason}
                yield self._event(f"leaves '{operator}' as it is: {reason}", True, fields)

    def _decided(self, last: "Decided") -> JobEvent:
        fields: dict[str, object] = {
            "decision": last.number,
            "parallelism": dict(last.decision.parallelism),
            "outcome": last.outcome,
        }
        if last.outcome == "failed":
            fields["error"] = last.error
        return self._event(decision_text(last), last.outcome == "failed", fields)

    def _event(
        self, text: str, warning: bool = False, fields: dict[str, object] | None = None
    ) -> JobEvent:
        line = f"job {self._job}: autoscale: {text}"
        return JobEvent(line, warning, {"job": self._job, **(fields or {})})


def decision_text(last: "Decided") -> str:
    """A decision, and what came of it, in one line."""
    sentence = last.decision.sentence
    match last.outcome:
        case "told":
            return f"{sentence}; in mode `observe` nothing is done"
        case "failed":
            reason = " ".join((last.error or "no reason was told").split())
            return f"{sentence}; it was not done: {reason}"
        case outcome:
            return f"{sentence}; {outcome}"


def autoscale_values(told: "AutoscaleTold | None", now_ms: "WallMs") -> dict[str, Any] | None:
    """Autoscaling as JSON values; None for a job that asks for none."""
    if told is None:
        return None
    machine = told.machine
    return {
        "mode": machine.mode.value,
        "text": machine.sentence if told.fault is None else f"it has ended: {told.fault}",
        "groups": [_group(each) for each in machine.figures],
        "kept": dict(told.kept),
        "decision": None if told.last is None else _decision(told.last, now_ms),
    }


def _group(figures: "GroupFigures") -> dict[str, Any]:
    """Operators that change together, and what is known of them."""
    names = {"operators": [str(operator) for operator in figures.operators]}
    rounded = {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in asdict(figures).items()
    }
    return rounded | names | {"text": figures.sentence()}


def _decision(last: "Decided", now_ms: "WallMs") -> dict[str, Any]:
    return {
        "number": last.number,
        "parallelism": dict(last.decision.parallelism),
        "age_ms": max(0, now_ms - last.at),
        "outcome": last.outcome,
        "error": last.error,
        "text": decision_text(last),
    }


__all__ = ["AutoscaleStory", "autoscale_values", "decision_text"]
