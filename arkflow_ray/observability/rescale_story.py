"""What a user is told of a rescale: how far it is, what it took, why it was not done (K2, K3)."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from arkflow_kernel.ids import OperatorId
from arkflow_kernel.protocol import JobStatus, RescalePhases, RescaleStatus
from arkflow_ray.observability.job_event import JobEvent

PHASES: Final[Mapping[str, str]] = {
    "prepare": "more processes are started",
    "round": "what was read goes through, and the old plan is saved",
    "end": "the old plan publishes what is saved, and ends",
    "claim": "the new plan is written into the log",
    "deploy": "the new plan restores what is saved, and starts",
}
"""What is done in each phase, as a user knows it."""


class RescaleStory:
    """What was told of the rescales of one job."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._told: tuple[int, str] = (0, "")

    def news(self, status: JobStatus) -> list[JobEvent]:
        """What is worth a line and was not told yet: each phase, and the end."""
        rescale = status.rescale
        if rescale is None or self._told == (rescale.number, rescale.phase):
            return []
        self._told = (rescale.number, rescale.phase)
        fields: dict[str, object] = {
            "job": self._job,
            "rescale": rescale.number,
            "parallelism": dict(rescale.parallelism),
            "phase": rescale.phase,
            "phases": asdict(rescale.phases),
        }
        text = f"job {self._job}: {rescale_text(rescale)}"
        bad = rescale.phase in ("failed", "taken back")
        return [JobEvent(text, bad, {**fields, "error": rescale.error} if bad else fields)]


def rescale_text(rescale: RescaleStatus) -> str:
    """How a rescale stands, in one line."""
    asked = asked_text(rescale.parallelism)
    reason = " ".join((rescale.error or "no reason was told").split())
    match rescale.phase:
        case "done":
            return f"rescaled to {asked} in {phases_text(rescale.phases)}"
        case "failed":
            return f"was not rescaled to {asked}: {reason}"
        case "taken back":
            return f"the rescale to {asked} was taken back, the plan before runs again: {reason}"
        case phase:
            return f"rescaling to {asked}, {phase}: {PHASES.get(phase, 'under way')}"


def asked_text(parallelism: Mapping[OperatorId, int]) -> str:
    """`count=4, printed=2`."""
    return ", ".join(f"{operator}={subtasks}" for operator, subtasks in parallelism.items())


def total_ms(phases: RescalePhases) -> int:
    """How long all phases took together."""
    return sum(asdict(phases).values())


def phases_text(phases: RescalePhases) -> str:
    """`1,440 ms (prepare 120, round 340, end 60, claim 20, deploy 900)`."""
    parts = [f"{name.removesuffix('_ms')} {ms:,}" for name, ms in asdict(phases).items()]
    return f"{total_ms(phases):,} ms ({', '.join(parts)})"


__all__ = ["PHASES", "RescaleStory", "asked_text", "phases_text", "rescale_text", "total_ms"]
