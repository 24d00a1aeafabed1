"""A job on a real Ray as a test holds it: watched, waited for with a deadline."""

import threading
from collections.abc import Callable
from typing import Final

from arkflow_kernel.protocol import JobState, JobStatus, OutcomeKind
from arkflow_ray.runtime.os_process import OsProcess, started_ticks
from arkflow_ray.runtime.ray_job import RayJob
from arkflow_ray.runtime.rescaling import RescaleEnd
from arkflow_ray.runtime.running import RunningJob, RunningJobs

DEADLINE_S: Final = 100.0


class Printed:
    """The driver's stdout: keeps lines, and prints none while it is `held`."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.free = threading.Event()
        self.free.set()
        self._changed = threading.Condition()

    def put(self, lines: bytes) -> None:
        assert self.free.wait(DEADLINE_S)
        with self._changed:
            self.lines += lines.splitlines()
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.lines) >= count, DEADLINE_S)


class Running:
    """The one job of a test."""

    def __init__(self, jobs: RunningJobs) -> None:
        self.jobs = jobs
        (self.job,) = jobs.jobs.values()

    @property
    def status(self) -> JobStatus:
        return self.job.status()

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that the job's status will fulfil, with a deadline."""
        for _ in range(int(DEADLINE_S / 0.1)):
            if condition():
                return
            self.jobs.wait(0.1)
        raise AssertionError(self.status)

    def until_at_work(self, restarts: int = 0) -> dict[str, int]:
        """The processes of all chains of an attempt, once each of them has said that it runs."""
        self.until(lambda: self._at_work(restarts))
        return {chain: usage.pid for chain, usage in self.status.usage.items()}

    def _at_work(self, restarts: int) -> bool:
        status = self.status
        reported = len(status.usage) == len(self.job.graph.chains)
        rows = all(chain.rows_in for chain in status.chains.values())
        alive_all = all(alive(usage.pid) for usage in status.usage.values())
        running = status.state is JobState.RUNNING and status.restarts == restarts
        return reported and rows and alive_all and running

    @property
    def completed(self) -> int:
        """The number of the last completed checkpoint; 0 before the first."""
        told = self.status.checkpoints
        return 0 if told is None else int(told.last)

    def until_restorable(self) -> dict[str, int]:
        """The chains' processes, when the first attempt has completed checkpoints of its own."""
        pids = self.until_at_work()
        self.until_saved()
        return pids

    def until_saved(self) -> None:
        """Wait for a checkpoint that began after this call: one more may be under way."""
        before = self.completed
        self.until(lambda: self.completed > before + 1)

    @property
    def handle(self) -> RayJob:
        """The job on Ray."""
        handle = self.job._handle
        assert isinstance(handle, RayJob)
        return handle

    @property
    def coordinator_pid(self) -> int:
        """The process of the coordinator at work."""
        pid = self.handle.coordinator_pid
        assert pid is not None
        return pid

    def rescaled(self, subtasks: dict[str, int]) -> RescaleEnd:
        """How a rescale of the running job ended."""
        self.until(lambda: self.status.state is JobState.RUNNING)
        asked = self.job.rescale(subtasks)
        self.until(lambda: asked.end(self.status, self.job.outcome) is not None)
        end = asked.end(self.status, self.job.outcome)
        assert end is not None
        return end

    def end(self) -> RunningJob:
        """The job after its end."""
        assert self.jobs.wait(DEADLINE_S), self.status
        return self.job

    def ended(self, kind: OutcomeKind) -> RunningJob:
        """The job after its end, which is of this kind."""
        job = self.end()
        assert job.outcome is not None
        assert job.outcome.kind is kind, (job.outcome, causes(job.status()))
        return job


Start = Callable[..., Running]
"""Starts the one job of a YAML text."""


def alive(pid: int) -> bool:
    """Whether a process runs or may run again (a zombie does not)."""
    return OsProcess(pid, started_ticks(pid)).is_alive()


def causes(status: JobStatus) -> str:
    """Why the job's state changed, all of it."""
    return "\n".join(change.cause for change in status.transitions)


__all__ = ["DEADLINE_S", "Printed", "Running", "Start", "alive", "causes"]
