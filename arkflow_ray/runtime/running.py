"""Jobs that were started, as the CLI and the Python API hold them: one thread per job."""

import threading
from collections.abc import Callable
from typing import Protocol

from arkflow_kernel.errors import ArkflowError, ComponentError
from arkflow_kernel.ids import JobId
from arkflow_kernel.kernel_handle import KernelHandle
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.protocol import JobOutcome, JobStatus, OutcomeKind


class Session(Protocol):
    """What all jobs of one launch share, to be closed after them."""

    def close(self) -> None:
        """Release it."""
        ...


class RunningJob:
    """A job and the thread that waits for it. All methods but `run` return at once."""

    def __init__(self, graph: ExecutionGraph, handle: KernelHandle) -> None:
        self.job = graph.job
        self.graph = graph
        self._handle = handle
        self._outcome: JobOutcome | None = None

    @property
    def outcome(self) -> JobOutcome | None:
        """How the job ended, or None while it runs."""
        return self._outcome

    def status(self) -> JobStatus:
        """State, cause and counters, as far as this side knows."""
        return self._handle.status()

    def stop(self, *, drain: bool = False, savepoint: str | None = None) -> None:
        """Stop in order (D5): see `KernelHandle.stop`."""
        self._handle.stop(drain=drain, savepoint=savepoint)

    def savepoint(self, name: str) -> None:
        """Make a savepoint (X4): see `KernelHandle.savepoint`."""
        self._handle.savepoint(name)

    def cancel(self) -> None:
        """End now (D5)."""
        self._handle.cancel()

    def run(self, on_end: Callable[[], None]) -> None:
        """Wait for the job; the body of its thread. Whatever goes wrong is an outcome."""
        try:
            self._outcome = self._handle.wait()
        except ArkflowError as error:
            self._outcome = JobOutcome(OutcomeKind.FAILED, error)
        except BaseException as error:
            text = f"job '{self.job}': {type(error).__name__}: {error} (a fault of arkflow_ray)"
            self._outcome = JobOutcome(OutcomeKind.FAILED, ComponentError(text))
            raise
        finally:
            on_end()


class RunningJobs:
    """All jobs of one launch. `close` must be called."""

    def __init__(self, jobs: list[RunningJob], session: Session | None = None) -> None:
        self.jobs = {job.job: job for job in jobs}
        self._session = session
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(
                target=job.run, args=(self._on_end,), name=f"job-{job.job}", daemon=True
            )
            for job in jobs
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop all in order."""
        for job in self.jobs.values():
            job.stop()

    def cancel(self) -> None:
        """End all now."""
        for job in self.jobs.values():
            job.cancel()

    def wait(self, timeout_s: float) -> bool:
        """True when all are over; False after the time-out. Signals are handled in between."""
        with self._changed:
            return self._changed.wait_for(self._over, timeout_s)

    def outcomes(self) -> dict[JobId, JobOutcome]:
        """The ends of those that are over."""
        return {name: job.outcome for name, job in self.jobs.items() if job.outcome is not None}

    def close(self) -> None:
        """Cancel what still runs, wait for it, release the session."""
        self.cancel()
        for thread in self._threads:
            thread.join()
        if self._session is not None:
            self._session.close()

    def _over(self) -> bool:
        return all(job.outcome is not None for job in self.jobs.values())

    def _on_end(self) -> None:
        with self._changed:
            self._changed.notify_all()


__all__ = ["RunningJob", "RunningJobs", "Session"]
