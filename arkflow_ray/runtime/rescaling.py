"""A rescale that was asked of a running job: what it changes, and how it ends (K2, K3).

Plain data and judgement, from the statuses that the job's handle tells. A coordinator that is lost
meanwhile takes its story with it; what counts then is the plan with which the job runs again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from arkflow_kernel.ids import FIRST_GENERATION, Generation
from arkflow_kernel.protocol import (
    JobOutcome,
    JobState,
    JobStatus,
    RescalePhases,
    RescaleStatus,
)

NO_PHASES: Final = RescalePhases()
"""Of a rescale that did nothing, or whose story is lost."""

DONE: Final = "done"
FAILED: Final = "failed"
TAKEN_BACK: Final = "taken back"
ENDED: Final = (DONE, FAILED, TAKEN_BACK)
"""Phases in which nothing is under way."""


@dataclass(frozen=True, slots=True)
class RescaleEnd:
    """How a rescale ended. `error` says why it was not done; None: it was."""

    phases: RescalePhases = NO_PHASES
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Rescaling:
    """What was asked for. `changed`: subtasks before and after, by operator; empty if nothing was
    to be done. `notes`: sentences about what else changes.

    `before` and `generation` are the last rescale and the attempt that there were. `automatic`: by
    autoscaling, so a user's wish goes before it (K6).
    """

    changed: Mapping[str, tuple[int, int]]
    notes: tuple[str, ...] = ()
    before: int = 0
    generation: Generation = FIRST_GENERATION
    automatic: bool = False

    def end(self, status: JobStatus, outcome: JobOutcome | None) -> RescaleEnd | None:
        """How it ended, by the job's status and its outcome; None while it is under way."""
        if not self.changed:
            return RescaleEnd()
        told = self.told(status)
        if told is not None and told.phase in ENDED:
            return RescaleEnd(told.phases, _error(told, status))
        if outcome is not None:
            return RescaleEnd(error="the job is over, and was not rescaled before")
        if told is None and self._at_work_again(status):
            if self._is_so(status):
                return RescaleEnd()
            text = "the job was restarted meanwhile, and runs with the plan that it had"
            return RescaleEnd(error=f"{text}; ask again")
        return None

    def told(self, status: JobStatus) -> RescaleStatus | None:
        """What the status says of this rescale; None for nothing."""
        rescale = status.rescale
        return None if rescale is None or rescale.number <= self.before else rescale

    def _at_work_again(self, status: JobStatus) -> bool:
        return status.generation > self.generation and status.state is JobState.RUNNING

    def _is_so(self, status: JobStatus) -> bool:
        now = {str(name): subtasks for name, subtasks in status.parallelism.items()}
        return all(now.get(name) == wanted for name, (_, wanted) in self.changed.items())


def under_way(rescale: RescaleStatus | None) -> RescaleStatus | None:
    """The last rescale, if it is under way."""
    return None if rescale is None or rescale.phase in ENDED else rescale


def _error(told: RescaleStatus, status: JobStatus) -> str | None:
    if told.phase == DONE:
        return None
    reason = told.error or "no reason was told"
    if told.phase == TAKEN_BACK:
        return f"the new plan did not come to work, and the one before runs again: {reason}"
    goes_on = "; the job goes on as it was" if status.state is JobState.RUNNING else ""
    return f"{reason}{goes_on}"


__all__ = ["ENDED", "RescaleEnd", "Rescaling", "under_way"]
