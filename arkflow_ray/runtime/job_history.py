"""The status of a job over several coordinators, as one story (P8).

A coordinator that takes the place of another begins its status anew. Here its transitions,
restarts and rescales are counted on from those that the ones before told; what they said of
checkpoints, savepoints and a rescale that was over stays until there is something newer.
"""

from collections.abc import Iterable
from dataclasses import replace

from arkflow_kernel.ids import NO_CHECKPOINT
from arkflow_kernel.limits import TRANSITIONS_KEPT_MAX
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import (
    CheckpointStatus,
    JobState,
    JobStatus,
    RescaleStatus,
    Transition,
)
from arkflow_ray.runtime.rescaling import ENDED


class JobHistory:
    """What coordinators that are gone told of a job. Plain data; no clock."""

    def __init__(self) -> None:
        self._told: tuple[Transition, ...] = ()
        self._count = 0
        self._restarts = 0
        self._checkpoints: CheckpointStatus | None = None
        self._rescale: RescaleStatus | None = None

    def joined(self, status: JobStatus) -> JobStatus:
        """What the coordinator at work says, behind what those before it said."""
        if not self._told:
            return status
        transitions = (*self._told, *self._counted_on(status.transitions))
        return replace(
            status,
            restarts=self._restarts + status.restarts,
            transitions=transitions[-TRANSITIONS_KEPT_MAX:],
            checkpoints=_newest(self._checkpoints, status.checkpoints),
            rescale=self._rescaled(status.rescale),
        )

    def lost(self, last: JobStatus, cause: str, at: Moment) -> JobStatus:
        """A coordinator is gone, `last` is what `joined` told of it; the status until the next."""
        number = last.transitions[-1].number + 1 if last.transitions else self._count + 1
        change = Transition(number, at, last.state, JobState.RESTARTING, cause)
        self._told = (*last.transitions, change)[-TRANSITIONS_KEPT_MAX:]
        self._count, self._restarts = number, last.restarts + 1
        self._checkpoints, self._rescale = last.checkpoints, last.rescale or self._rescale
        return replace(
            last,
            state=JobState.RESTARTING,
            cause=cause,
            since=at,
            ready=0,
            waits={},
            restarts=self._restarts,
            transitions=self._told,
        )

    def _rescaled(self, now: RescaleStatus | None) -> RescaleStatus | None:
        """The last rescale. One that was under way when its coordinator was lost is forgotten."""
        before = self._rescale
        if before is None:
            return now
        if now is None:
            return before if before.phase in ENDED else None
        return replace(now, number=before.number + now.number)

    def _counted_on(self, transitions: Iterable[Transition]) -> Iterable[Transition]:
        for change in transitions:
            # For the user the job was restarting, not created.
            before = JobState.RESTARTING if change.before is JobState.CREATED else change.before
            yield replace(change, number=self._count + change.number, before=before)


def _newest(
    before: CheckpointStatus | None, now: CheckpointStatus | None
) -> CheckpointStatus | None:
    if before is None or now is None:
        return now or before
    savepoints = {**before.savepoints, **now.savepoints}
    if now.last == NO_CHECKPOINT:
        now = replace(now, last=before.last, at=before.at, phases=before.phases)
    return replace(now, savepoints=savepoints)


__all__ = ["JobHistory"]
