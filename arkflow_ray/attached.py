"""Runs launched jobs to their end from this process: the loop, the signals, the figures.

Shared by the command line and the Python API. Rules (D5): the first Ctrl-C or SIGTERM stops the
jobs in order, the second Ctrl-C cancels them, a third gives up on them. Signal handlers only count;
the loop acts, because a handler may interrupt code that holds the very lock it would need.
"""

import _thread
import signal
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any, Final

from arkflow_kernel.errors import ArkflowError, ComponentError
from arkflow_kernel.ids import WallMs
from arkflow_kernel.protocol import JobOutcome, JobState, JobStatus, OutcomeKind
from arkflow_ray.door.server import open_doors
from arkflow_ray.observability.autoscale_story import AutoscaleStory
from arkflow_ray.observability.display import Display
from arkflow_ray.observability.figures import JobFigures, figures
from arkflow_ray.observability.results import JobResult, job_result
from arkflow_ray.observability.rows import Rows
from arkflow_ray.observability.story import JobStory
from arkflow_ray.observability.time_story import TimeStory
from arkflow_ray.runtime.running import RunningJob, RunningJobs

POLL_S: Final = 0.2
"""Between two looks at signals and figures."""

STOPPING_NOTE: Final = "stopping in order; press Ctrl-C again to cancel at once"
STARTING_NOTE: Final = "ending as soon as Ray has started; press Ctrl-C again to leave at once"
TERMINATED_NOTE: Final = "SIGTERM: stopping in order"
CANCELLING_NOTE: Final = "cancelling: what is not confirmed is given up"
CLOSED_NOTE: Final = "stdout was closed by its reader: the jobs are cancelled"

_ENDED: Final = (JobState.FINISHED, JobState.STOPPED, JobState.FAILED, JobState.CANCELLED)


class GivenUp(KeyboardInterrupt):
    """The user will not wait for an end in order. What was started is left as it is."""


class StopSignals:
    """Counts SIGINT and SIGTERM while it is entered; restores the handlers that were there.

    Outside the main thread it counts nothing: Python allows handlers only there. While jobs are
    being started, `note` is called at the first Ctrl-C, in a thread of its own, and the second
    Ctrl-C gives up; later the third does.
    """

    def __init__(self, *, terminate: bool = True) -> None:
        self.interrupts = 0
        self.terminations = 0
        self._numbers = [signal.SIGINT, *([signal.SIGTERM] if terminate else [])]
        self._before: dict[signal.Signals, Any] = {}
        self._starting: Callable[[], None] | None = None

    @property
    def asked(self) -> bool:
        """Whether anything has asked for the end."""
        return self.interrupts + self.terminations > 0

    def starting(self, note: Callable[[], None]) -> None:
        """From here to `started`, nothing runs that could be stopped in order."""
        self._starting = note

    def started(self) -> None:
        """Set the handlers again: Ray has set its own in between."""
        self._starting = None
        self._install()

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in self._numbers}
            self._install()
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

    def _install(self) -> None:
        for number in self._before:
            signal.signal(number, self._count)

    def _count(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGTERM:
            self.terminations += 1
        else:
            self.interrupts += 1
        if self.interrupts > (1 if self._starting else 2):
            raise GivenUp
        if self._starting:
            # Not `threading`: what was interrupted may hold its locks.
            _thread.start_new_thread(self._starting, ())


def run_attached(
    start: Callable[[], RunningJobs], signals: StopSignals, display: Display, rows: Rows
) -> list[JobResult]:
    """Start jobs, watch them to their end, close them; how they ended.

    An end that is asked for while they are being started waits for that and undoes it: half a
    Ray could not be cleared away. Then `KeyboardInterrupt` is raised; `GivenUp` if the user
    waited no longer; else what `start` raises.
    """
    with signals:
        signals.starting(lambda: display.note(STARTING_NOTE))
        try:
            running = start()
        except (ArkflowError, SystemExit) as error:
            # SystemExit: SIGTERM came when Ray's own handler was in place.
            if signals.asked or isinstance(error, SystemExit):
                raise KeyboardInterrupt from error
            raise
        signals.started()
        asked = signals.asked  # what is asked from here on is the watcher's to hear
        doors = None
        try:
            if asked:
                raise KeyboardInterrupt
            doors = open_doors(list(running.jobs.values()), display.note)
            results = AttachedRun(running, signals, display, rows).watch()
        except GivenUp:
            raise
        except BaseException:
            running.close()
            raise
        finally:
            if doors is not None:
                doors.close()
        running.close()
        return results


class AttachedRun:
    """One launch, watched until all of its jobs are over."""

    def __init__(
        self, jobs: RunningJobs, signals: StopSignals, display: Display, rows: Rows
    ) -> None:
        self._jobs = jobs
        self._signals = signals
        self._display = display
        self._rows = rows
        self._started_s = time.monotonic()
        self._ended_s: dict[str, float] = {}
        self._running_ms: dict[str, int] = {}
        self._stories: dict[str, tuple[JobStory, TimeStory, AutoscaleStory]] = {}
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
        if self._jobs.cancel_asked:
            self._cancel(CANCELLING_NOTE)  # rows that wait for a reader would keep the jobs
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
            self._rows.give_up()
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
            found.append(figures(running.plan_of(status), status))
            self._tell(running, status, found[-1])
        return found

    def _tell(self, running: RunningJob, status: JobStatus, shown: JobFigures) -> None:
        """What happened to a job since we looked last: restarts, what stalls, wrong clocks."""
        job = running.job
        story, times, scaling = self._stories.setdefault(
            job, (JobStory(job), TimeStory(job), AutoscaleStory(job))
        )
        wall_ms = WallMs(time.time_ns() // 1_000_000)
        decided = scaling.news(running.autoscale())
        for event in (*decided, *story.news(status), *times.news(shown.times, wall_ms)):
            self._display.event(event)

    def _results(self) -> list[JobResult]:
        outcomes = self._jobs.outcomes()
        found = []
        for last, running in zip(self._look(), self._jobs.jobs.values(), strict=True):
            outcome = outcomes[running.job]
            if (self._rows.closed or self._cancelling) and self._rows.caused(outcome.error):
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
    "STARTING_NOTE",
    "STOPPING_NOTE",
    "TERMINATED_NOTE",
    "AttachedRun",
    "GivenUp",
    "StopSignals",
    "first_failure",
    "run_attached",
]
