"""What happens to a job's checkpoints, told once: failed rounds and savepoints (B6, X4).

Somebody looks at the status several times a second; this remembers what was told.
"""

from arkflow_kernel.errors import ArkflowError
from arkflow_kernel.protocol import CheckpointStatus, JobStatus
from arkflow_ray.observability.job_event import JobEvent


class CheckpointStory:
    """What was told of the checkpoints of one job."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._failures = 0
        self._savepoints: set[str] = set()

    def news(self, status: JobStatus) -> list[JobEvent]:
        """What is worth a line and was not told yet."""
        told = status.checkpoints
        if told is None:
            return []
        return [*self._failed(told), *self._new_savepoints(told)]

    def _failed(self, told: CheckpointStatus) -> list[JobEvent]:
        before, self._failures = self._failures, told.failures
        if told.failures <= before or told.error is None:
            return []
        times = "" if told.failures == 1 else f", {told.failures} in a row"
        text = f"a checkpoint failed{times}: {told.error}; data go on"
        return [self._event(text, warning=True, failures=told.failures)]

    def _new_savepoints(self, told: CheckpointStatus) -> list[JobEvent]:
        found = []
        for name, end in told.savepoints.items():
            if name in self._savepoints:
                continue
            self._savepoints.add(name)
            if isinstance(end, ArkflowError):
                text = f"savepoint '{name}' failed: {end.message}"
                found.append(self._event(text, warning=True, savepoint=name))
            else:
                text = f"savepoint '{name}' is complete: {end}"
                found.append(self._event(text, warning=False, savepoint=name, url=end))
        return found

    def _event(self, text: str, *, warning: bool, **fields: object) -> JobEvent:
        line = " ".join(text.split())
        return JobEvent(f"job {self._job}: {line}", warning, {"job": self._job, **fields})


__all__ = ["CheckpointStory"]
