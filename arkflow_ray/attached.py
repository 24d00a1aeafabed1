"""Runs launched jobs to their end from this process: the loop, the signals, the figures.

Shared by the command line and the Python API. Rules (D5): the first Ctrl-C or SIGTERM stops the
jobs in order, the second Ctrl-C cancels them, a third gives up on them. Signal handlers only count;
the loop acts, because a handler may interrupt code that holds the very lock it would need.
"""

import signal
import socket
import threading
import time
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any, Final

from arkflow_kernel.errors import ArkflowError, ClusterError, ComponentError
from arkflow_kernel.protocol import JobOutcome, JobState, OutcomeKind
from arkflow_ray.observability.display import Display
from arkflow_ray.observability.figures import JobFigures, figures
from arkflow_ray.observability.results import JobResult, job_result
from arkflow_ray.observability.rows import StdoutRows
from arkflow_ray.runtime.running import RunningJob, RunningJobs

POLL_S: Final = 0.2
"""Between two looks at signals and figures."""

CONNECT_TIMEOUT_S: Final = 10.0
"""For one connection to a cluster's head: more than any network needs that could run jobs."""

STOPPING_NOTE: Final = "stopping in order; press Ctrl-C again to cancel at once"
TERMINATED_NOTE: Final = "SIGTERM: stopping in order"
CANCELLING_NOTE: Final = "cancelling: what is not confirmed is given up"
CLOSED_NOTE: Final = "stdout was closed by its reader: the jobs are cancelled"

_ENDED: Final = (JobState.FINISHED, JobState.STOPPED, JobState.FAILED, JobState.CANCELLED)


class StopSignals:
    """Counts SIGINT and SIGTERM while it is entered; restores the handlers that were there.

    Outside the main thread it counts nothing: Python allows handlers only there. Enter it after
    Ray has started, which sets handlers of its own.
    """

    def __init__(self, *, terminate: bool = True) -> None:
        self.interrupts = 0
        self.terminations = 0
        self._numbers = [signal.SIGINT, *([signal.SIGTERM] if terminate else [])]
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                self._before[number] = signal.signal(number, self._count)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            # None: a handler that was not set from Python, which cannot be set again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _count(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGTERM:
            self.terminations += 1
            return
        self.interrupts += 1
        if self.interrupts > 2:
            raise KeyboardInterrupt


class AttachedRun:
    """One launch, watched until all of its jobs are over."""

    def __init__(
        self, jobs: RunningJobs, signals: StopSignals, display: Display, rows: StdoutRows
    ) -> None:
        self._jobs = jobs
        self._signals = signals
        self._display = display
        self._rows = rows
        self._started_s = time.monotonic()
        self._ended_s: dict[str, float] = {}
        self._running_ms: dict[str, int] = {}
        self._stopping = False
        self._cancelling = False

    def watch(self) -> list[JobResult]:
        """Return when all jobs are over; how they ended, in their order in the file."""
        while not self._jobs.wait(POLL_S):
            self._act()
            self._display.update(self._look())
        self._act()
        self._display.update(self._look())
        return self._results()

    def _act(self) -> None:
        """Do what signals and a closed stdout ask for, each once."""
        if self._rows.closed:
            self._cancel(CLOSED_NOTE)
        asked = self._signals.interrupts + min(self._signals.terminations, 1)
        if self._signals.interrupts and asked > 1:
            self._cancel(CANCELLING_NOTE)
        elif self._signals.interrupts:
            self._stop(STOPPING_NOTE)
        elif self._signals.terminations:
            self._stop(TERMINATED_NOTE)

    def _stop(self, note: str) -> None:
        if not self._stopping:
            self._stopping = True
            self._display.note(note)
            self._jobs.stop()

    def _cancel(self, note: str) -> None:
        if not self._cancelling:
            self._stopping = self._cancelling = True
            self._display.note(note)
            self._jobs.cancel()

    def _look(self) -> list[JobFigures]:
        now_s = time.monotonic()
        for job in self._jobs.outcomes():
            self._ended_s.setdefault(job, now_s)
        found = []
        for running in self._jobs.jobs.values():
            status = running.status()
            if status.state is JobState.RUNNING:
                self._running_ms.setdefault(running.job, status.since.now_ms)
            found.append(figures(running.job, status, running.chains))
        return found

    def _results(self) -> list[JobResult]:
        outcomes = self._jobs.outcomes()
        found = []
        for last, running in zip(self._look(), self._jobs.jobs.values(), strict=True):
            outcome = outcomes[running.job]
            if self._rows.closed and self._rows.caused(outcome.error):
                outcome = JobOutcome(OutcomeKind.CANCELLED)
            found.append(job_result(last, outcome, self._duration_s(running)))
        return found

    def _duration_s(self, running: RunningJob) -> float:
        """From running to the end, by the coordinator's clock; by ours if we were not told."""
        status = running.status()
        running_ms = self._running_ms.get(running.job)
        if running_ms is not None and status.state in _ENDED:
            return (status.since.now_ms - running_ms) / 1000
        return self._ended_s[running.job] - self._started_s


def check_address(address: str | None) -> None:
    """Whether something listens at a `host:port`. Ray itself tries for minutes before it tells.

    Raises `ClusterError`. Words such as `auto` are Ray's to resolve.
    """
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S):
            return
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ClusterError(
            f"cannot reach Ray at '{address}': {reason}; is it running, and does it listen there? "
            "`ray status` on the head node tells"
        ) from error


def first_failure(results: Sequence[JobResult]) -> ArkflowError | None:
    """The error to raise for these results: the first job's, with a note of every other one's."""
    failed = [result for result in results if result.failed]
    if not failed:
        return None
    first, *others = failed
    error = first.error or ComponentError(f"job '{first.job}' failed without saying why")
    error.add_note(f"(job '{first.job}')")
    for other in others:
        error.add_note(f"job '{other.job}' failed as well: {other.error}")
    return error


__all__ = [
    "CANCELLING_NOTE",
    "CLOSED_NOTE",
    "POLL_S",
    "STOPPING_NOTE",
    "TERMINATED_NOTE",
    "AttachedRun",
    "StopSignals",
    "check_address",
    "first_failure",
]
