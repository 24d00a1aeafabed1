"""What follows a failed attempt of a job: another one, perhaps of another plan, or the end (D3).

A part of `coordinator.py`. `restart` decides whether trying again can help; what a user wants, and
a new plan that does not come to work, are known here.
"""

from typing import NamedTuple

from arkflow_kernel.errors import ArkflowError
from arkflow_kernel.ids import NO_CHECKPOINT
from arkflow_kernel.job_facts import JobFacts
from arkflow_kernel.job_rescale import JobRescale
from arkflow_kernel.job_rounds import JobRounds
from arkflow_kernel.plan import RestartPlan
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import Desired, JobState, OutcomeKind
from arkflow_kernel.restart import GiveUp, Restart, RestartStrategy
from arkflow_kernel.restart_positions import RestartPositions


class JobEnd(NamedTuple):
    """How a job ends, and why."""

    kind: OutcomeKind
    cause: str
    error: ArkflowError | None = None


class JobFailures:
    """The failures of one run of a job. `rounds` are None in ack mode."""

    def __init__(
        self,
        plan: RestartPlan,
        job: JobFacts,
        rescale: JobRescale,
        rounds: JobRounds | None,
        positions: RestartPositions,
    ) -> None:
        self._strategy = RestartStrategy(plan)
        self._job = job
        self._rescale = rescale
        self._rounds = rounds
        self._positions = positions

    def judged(self, error: ArkflowError, text: str, at: Moment) -> JobEnd | None:
        """An attempt failed and is over, or could not even begin. None: another one follows, at
        the job's `restart_at_ms`.
        """
        job = self._job
        job.trouble = text
        if job.state is JobState.STOPPING:  # what was to end in order did not
            cause = f"{error}; it is not restarted: a {job.wanted.name.lower()} was requested"
            return JobEnd(OutcomeKind.FAILED, cause, error)
        verdict = self._verdict(error, at)
        if isinstance(verdict, GiveUp):
            if job.restarts:  # else the error says it all
                error.add_note(f"the job ends: {verdict.reason}")
            return JobEnd(OutcomeKind.FAILED, f"{error}; {verdict.reason}", error)
        if job.wanted is not Desired.RUN:
            return self.stopped()
        job.waits_for_restart(verdict.delay_ms, at)
        return None

    def stopped(self) -> JobEnd:
        """A stop was requested, and the attempt that was to end in order has failed."""
        cause = f"{self._job.trouble}; it is not restarted: a stop was requested"
        return JobEnd(OutcomeKind.STOPPED, cause)

    def _verdict(self, error: ArkflowError, at: Moment) -> Restart | GiveUp:
        if self._rescale.takes_back(error, at):
            self._job.trouble += "; the plan before the rescale is taken back"
            return Restart(0)
        saved = NO_CHECKPOINT if self._rounds is None else self._rounds.status().last
        progress, started = self._positions.progress(), self._job.started
        return self._strategy.failed(
            error, at.now_ms, started=started, progress=progress, saved=saved
        )


__all__ = ["JobEnd", "JobFailures"]
