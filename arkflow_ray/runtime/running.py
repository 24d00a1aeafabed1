"""Jobs that were started, as the CLI and the Python API hold them: one thread per job."""

import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from arkflow_kernel.errors import ArkflowError, ComponentError, RescaleError
from arkflow_kernel.ids import JobId
from arkflow_kernel.job import JobSpec
from arkflow_kernel.job_parallelism import parallelisms, with_parallelism
from arkflow_kernel.kernel_handle import KernelHandle
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.protocol import JobOutcome, JobState, JobStatus, OutcomeKind
from arkflow_ray.runtime.autoscaling import AutoscaleTold, Autoscaling
from arkflow_ray.runtime.rescaling import Rescaling, under_way


class Session(Protocol):
    """What all jobs of one launch share, to be closed after them."""

    def close(self) -> None:
        """Release it."""
        ...


class RunningJob:
    """A job and the thread that waits for it. All methods but `run` return at once.

    `spec` is what `graph` was planned from; without it the job cannot be rescaled. `autoscaling`
    has a thread of its own while the job runs.
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        handle: KernelHandle,
        spec: JobSpec | None = None,
        autoscaling: Autoscaling | None = None,
    ) -> None:
        self.job = graph.job
        self._plans = [({} if spec is None else parallelisms(spec), graph)]
        self._spec = spec
        self._asking = threading.Lock()
        self._asked: Rescaling | None = None
        self._handle = handle
        self._outcome: JobOutcome | None = None
        self.cancel_asked = False
        self._autoscaling = autoscaling

    @property
    def outcome(self) -> JobOutcome | None:
        """How the job ended, or None while it runs."""
        return self._outcome

    @property
    def graph(self) -> ExecutionGraph:
        """The plan at work, as far as this side knows."""
        return self.plan_of(self.status())

    def plan_of(self, status: JobStatus) -> ExecutionGraph:
        """The plan that was at work when the job told this status."""
        at_work = _by_name(status)
        for parallelism, plan in reversed(self._plans):
            if parallelism == at_work:
                return plan
        return self._plans[0][1]

    def status(self) -> JobStatus:
        """State, cause and counters, as far as this side knows."""
        return self._handle.status()

    def autoscale(self) -> AutoscaleTold | None:
        """What autoscaling decides and does (K6); None if the job asks for none."""
        return None if self._autoscaling is None else self._autoscaling.told()

    def stop(self, *, drain: bool = False, savepoint: str | None = None) -> None:
        """Stop in order (D5): see `KernelHandle.stop`."""
        self._handle.stop(drain=drain, savepoint=savepoint)

    def savepoint(self, name: str) -> None:
        """Make a savepoint (X4): see `KernelHandle.savepoint`."""
        self._handle.savepoint(name)

    def rescale(self, changes: Mapping[str, int], *, automatic: bool = False) -> Rescaling:
        """Go on with another number of subtasks of some operators (K2, K3); what that changes.

        `automatic`: autoscaling wants it. A user's wish takes the place of such a one that is under
        way, or follows it (K6).

        Raises `ConfigError` with every reason why the job cannot be so, `RescaleError` if it
        cannot be rescaled now. `Rescaling.end` tells how it ends.
        """
        from arkflow_ray.config.replan import replan

        with self._asking:
            status = self.status()
            gives_way = not automatic and self._gives_way(status)
            self._check_rescalable(status, gives_way=gives_way)
            assert self._spec is not None, "see _check_rescalable"
            plan = replan(with_parallelism(self._spec, _by_name(status)), changes)
            asked = 0 if status.rescale is None else status.rescale.number
            if plan.changed or gives_way:
                self._note((parallelisms(plan.job), plan.graph))
                self._handle.rescale(plan.graph)
            self._asked = Rescaling(plan.changed, plan.notes, asked, status.generation, automatic)
            return self._asked

    def cancel(self) -> None:
        """End now (D5)."""
        self.cancel_asked = True
        self._handle.cancel()

    def run(self, on_end: Callable[[], None]) -> None:
        """Wait for the job; the body of its thread. Whatever goes wrong is an outcome."""
        over = threading.Event()
        if self._autoscaling is not None:
            threading.Thread(
                target=self._autoscaling.run,
                args=(self, over),
                name=f"autoscale-{self.job}",
                daemon=True,
            ).start()
        try:
            self._outcome = self._handle.wait()
        except ArkflowError as error:
            self._outcome = JobOutcome(OutcomeKind.FAILED, error)
        except BaseException as error:
            text = f"job '{self.job}': {type(error).__name__}: {error} (a fault of arkflow_ray)"
            self._outcome = JobOutcome(OutcomeKind.FAILED, ComponentError(text))
            raise
        finally:
            over.set()
            on_end()

    def _note(self, plan: tuple[dict[str, int], ExecutionGraph]) -> None:
        """It may be at work from now on. One of each parallelism is kept, however many follow."""
        if plan[0] not in [known for known, _ in self._plans]:
            self._plans.append(plan)

    def _gives_way(self, status: JobStatus) -> bool:
        """Whether an automatic rescale is under way, and how far is known."""
        asked = self._asked
        if asked is None or not asked.automatic or under_way(asked.told(status)) is None:
            return False
        return status.state in (JobState.RESCALING, JobState.DEPLOYING)

    def _check_rescalable(self, status: JobStatus, *, gives_way: bool) -> None:
        """Raise `RescaleError` if the job cannot be rescaled now."""
        if self._spec is None:
            raise RescaleError(f"job '{self.job}' was started from a plan alone")
        if self._outcome is not None:
            raise RescaleError(f"job '{self.job}' is over")
        if gives_way:
            return
        busy = under_way(status.rescale)
        if busy is not None or (self._asked and self._asked.end(status, None) is None):
            phase = "" if busy is None else f" (phase `{busy.phase}`)"
            text = f"job '{self.job}' is being rescaled{phase}; ask again when that is over"
            raise RescaleError(text)
        if status.state is not JobState.RUNNING:
            text = f"job '{self.job}' is {status.state.value}, and is only rescaled while it runs"
            raise RescaleError(f"{text}; ask again then")


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

    @property
    def cancel_asked(self) -> bool:
        """Whether all that run shall end now."""
        running = [job for job in self.jobs.values() if job.outcome is None]
        return bool(running) and all(job.cancel_asked for job in running)

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


def _by_name(status: JobStatus) -> dict[str, int]:
    """Subtasks by operator in the plan at work."""
    return {str(name): subtasks for name, subtasks in status.parallelism.items()}


__all__ = ["RunningJob", "RunningJobs", "Session"]
