"""What happens to a job beside its figures, told once: restarts, and waits that stall (D3, E5).

A job's status holds the last changes of its state and what stalls now. Somebody looks at it
several times a second; this remembers what was told.
"""

from arkflow_kernel.ids import ChainId, Generation
from arkflow_kernel.metrics import Wait
from arkflow_kernel.protocol import JobState, JobStatus, Transition
from arkflow_ray.observability.checkpoint_story import CheckpointStory
from arkflow_ray.observability.job_event import JobEvent
from arkflow_ray.observability.rescale_story import RescaleStory

AT_ONCE = "at once"
"""How the cause of a restart that does not wait ends: nobody needs a line for that."""


class JobStory:
    """What was told of one job."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._told = 0
        self._cause = ""
        self._generation: Generation | None = None
        self._stalled: set[tuple[ChainId, str]] = set()
        self._saved = CheckpointStory(job)
        self._rescaled = RescaleStory(job)

    def news(self, status: JobStatus) -> list[JobEvent]:
        """What is worth a line and was not told yet, in the order in which it happened."""
        found = [self._changed(status, change) for change in self._new_transitions(status)]
        told = [event for event in found if event is not None]
        saved, rescaled = self._saved.news(status), self._rescaled.news(status)
        return [*told, *rescaled, *saved, *self._waits(status)]

    def _new_transitions(self, status: JobStatus) -> list[Transition]:
        new = [change for change in status.transitions if change.number > self._told]
        if new:
            self._told = new[-1].number
        return new

    def _changed(self, status: JobStatus, change: Transition) -> JobEvent | None:
        fields: dict[str, object] = {
            "job": self._job,
            "state": change.after.value,
            "cause": change.cause,
            "generation": int(status.generation),
            "restarts": status.restarts,
        }
        if change.after is JobState.RESTARTING:
            first = change.before is not JobState.RESTARTING
            # A broken channel may be told before the failure that broke it.
            same = not first and change.cause.startswith(self._cause)
            self._cause = change.cause
            if same and change.cause.endswith(AT_ONCE):
                return None
            tail = "; this attempt ends" if first else ""
            return JobEvent(self._line(change.cause) + tail, True, fields)
        # What the log said: where it begins, what it found, that there is nothing left to do.
        asked = change.before is JobState.DEPLOYING and status.checkpoints is not None
        if asked and change.after in (JobState.DEPLOYING, JobState.FINISHED):
            return JobEvent(self._line(change.cause), False, fields)
        # A job that is stopped after a failure has no error that would tell of it.
        told = (JobState.DEPLOYING, JobState.STOPPED)
        if change.before is JobState.RESTARTING and change.after in told:
            return JobEvent(self._line(change.cause), True, fields)
        return None

    def _line(self, text: str) -> str:
        """One line, though an error's text may have several."""
        return f"job {self._job}: {' '.join(text.split())}"

    def _waits(self, status: JobStatus) -> list[JobEvent]:
        if status.generation != self._generation:
            self._generation = status.generation
            self._stalled.clear()  # those waits ended with their attempt
        waits = {(chain, wait.on): wait for chain, found in status.waits.items() for wait in found}
        new = [key for key in waits if key not in self._stalled]
        over = [key for key in self._stalled if key not in waits]
        self._stalled = set(waits)
        stalls = [self._stall(chain, waits[chain, on]) for chain, on in new]
        return [*stalls, *(self._goes_on(chain, on) for chain, on in sorted(over))]

    def _stall(self, chain: ChainId, wait: Wait) -> JobEvent:
        seconds = wait.waited_ms / 1000
        text = (
            f"job {self._job}: chain '{chain}' has waited {seconds:.0f} s for {wait.on}: "
            f"{wait.detail}; it goes on waiting"
        )
        fields: dict[str, object] = {"waits_for": wait.on, "detail": wait.detail}
        return JobEvent(text, True, {**self._chain(chain), **fields, "waited_ms": wait.waited_ms})

    def _goes_on(self, chain: ChainId, on: str) -> JobEvent:
        text = f"job {self._job}: chain '{chain}' waits no longer for {on}"
        return JobEvent(text, False, {**self._chain(chain), "waited_for": on})

    def _chain(self, chain: ChainId) -> dict[str, object]:
        return {"job": self._job, "chain": chain}


__all__ = ["JobEvent", "JobStory"]
