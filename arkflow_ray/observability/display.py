"""What `run` shows while it runs: a live display on a terminal, log lines elsewhere.

Both say the same things: what is being started, how many chains are up, and per job its state,
rows, rate and bad rows. Neither decides anything; `update` may be called as often as one likes.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final, Protocol

from arkflow_kernel.metrics import ChannelStatistics
from arkflow_kernel.protocol import JobState
from arkflow_ray.observability.figures import (
    JobFigures,
    ProcessFigures,
    RateMeter,
    rescale_phase,
    restarts_text,
)
from arkflow_ray.observability.job_event import JobEvent
from arkflow_ray.observability.screen import Screen
from arkflow_ray.observability.time_figures import TimeFigures

PROGRESS_S: Final = 10.0
"""Between two progress lines of a job, where there is no terminal."""

REFRESH_S: Final = 0.2
"""Between two frames of the live display while something is being started."""

PHASE_CHARS_MAX: Final = 70
"""A phase that is longer is a sentence to be read, and stays on the screen."""

_TOLD: Final = (JobState.RESTARTING, JobState.RESCALING)
"""States of which an event tells more than a change of state would."""

_log = logging.getLogger("arkflow_ray.run")

Clock = Callable[[], float]
"""Seconds of a monotonic clock."""


class Display(Protocol):
    """Shows how the start and the jobs are getting on."""

    def phase(self, text: str) -> None:
        """What is being started now, e.g. `starting Ray`."""
        ...

    def update(self, jobs: Sequence[JobFigures]) -> None:
        """The jobs' figures now."""
        ...

    def note(self, text: str) -> None:
        """A sentence that the user must see, at once."""
        ...

    def event(self, event: JobEvent) -> None:
        """Something happened to a job: a line that stays."""
        ...

    def close(self) -> None:
        """Take everything that moves away. May be called again."""
        ...


class LogDisplay:
    """Log lines: each phase, each change of a job's state, and progress every ten seconds."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._states: dict[str, JobState] = {}
        self._next_s: dict[str, float] = {}
        self._rates: dict[str, RateMeter] = {}

    def phase(self, text: str) -> None:
        """See `Display.phase`."""
        _log.info("%s", text)

    def update(self, jobs: Sequence[JobFigures]) -> None:
        """See `Display.update`."""
        now_s = self._clock()
        for job in jobs:
            rate = self._rates.setdefault(job.job, RateMeter()).sample(now_s, job.read)
            if self._states.get(job.job) is not job.state:
                self._states[job.job] = job.state
                self._next_s[job.job] = now_s + PROGRESS_S
                if job.state not in _TOLD:
                    _log.info("job %s is %s", job.job, _state(job), extra=_fields(job))
            elif now_s >= self._next_s[job.job]:
                self._next_s[job.job] = now_s + PROGRESS_S
                _log.info("job %s: %s", job.job, _progress(job, rate), extra=_fields(job))

    def note(self, text: str) -> None:
        """See `Display.note`."""
        _log.warning("%s", text)

    def event(self, event: JobEvent) -> None:
        """See `Display.event`."""
        level = logging.WARNING if event.warning else logging.INFO
        _log.log(level, "%s", event.text, extra={"fields": event.fields})

    def close(self) -> None:
        """Nothing moves."""


class LiveDisplay:
    """A table at the bottom of the terminal, drawn again several times a second by a thread."""

    def __init__(self, screen: Screen, clock: Clock = time.monotonic) -> None:
        self._screen = screen
        self._clock = clock
        self._since_s = clock()
        self._phase = "checking"
        self._jobs: Sequence[JobFigures] = ()
        self._rates: dict[str, float] = {}
        self._meters: dict[str, RateMeter] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._refresh, name="live-display", daemon=True)
        self._thread.start()

    def phase(self, text: str) -> None:
        """See `Display.phase`."""
        if len(text) > PHASE_CHARS_MAX:
            self.note(text)
            return
        with self._lock:
            self._phase = text

    def update(self, jobs: Sequence[JobFigures]) -> None:
        """See `Display.update`."""
        now_s = self._clock()
        with self._lock:
            self._jobs = jobs
            for job in jobs:
                meter = self._meters.setdefault(job.job, RateMeter())
                self._rates[job.job] = meter.sample(now_s, job.read)

    def note(self, text: str) -> None:
        """See `Display.note`."""
        self._screen.print(f"{text}\n")

    def event(self, event: JobEvent) -> None:
        """See `Display.event`."""
        self.note(event.text)

    def close(self) -> None:
        """See `Display.close`."""
        self._closed.set()
        self._thread.join()
        self._screen.clear()

    def frame(self, columns: int, lines: int) -> list[str]:
        """The region's lines for a terminal of that size."""
        from arkflow_ray.observability.frame import jobs_frame, phase_frame

        elapsed_s = self._clock() - self._since_s
        with self._lock:
            if not self._jobs:
                return phase_frame(self._phase, elapsed_s, columns)
            return jobs_frame(self._jobs, self._rates, elapsed_s, (columns, lines))

    def _refresh(self) -> None:
        while True:
            size = _terminal_size()
            self._screen.draw(self.frame(size.columns, size.lines))
            if self._closed.wait(REFRESH_S):
                return


def _terminal_size() -> os.terminal_size:
    try:
        size = os.get_terminal_size(2)
    except OSError:
        return os.terminal_size((80, 24))
    return size if size.columns and size.lines else os.terminal_size((80, 24))


def _state(job: JobFigures) -> str:
    if job.state is JobState.DEPLOYING:
        return f"deploying: {job.ready} of {job.chains} chains are up"
    if job.state is JobState.RUNNING:
        return f"running, {job.chains} of {job.chains} chains are up"
    if job.state is JobState.STOPPING and job.cause:
        return f"stopping: {job.cause}"
    return str(job.state.value)


def _progress(job: JobFigures, rate: float) -> str:
    phase = rescale_phase(job)
    state = job.state.value if phase is None else f"rescaling ({phase})"
    parts = [f"{state}, {job.read:,} rows read, {job.rows_written:,} written"]
    parts.append(f"{rate:,.0f} rows/s, {job.bad:,} bad")
    if job.late:
        parts.append(f"{job.late:,} late")
    if job.evicted:
        parts.append(f"{job.evicted:,} evicted")
    if job.checkpoint is not None and job.checkpoint.last:
        parts.append(f"checkpoint {job.checkpoint.last}")
    if job.restarts:
        parts.append(restarts_text(job.restarts))
    return ", ".join(parts)


def _fields(job: JobFigures) -> dict[str, dict[str, object]]:
    """For log lines in JSON."""
    return {
        "fields": {
            "job": job.job,
            "state": job.state.value,
            "cause": job.cause,
            "rows_read": job.read,
            "rows_written": dict(job.written),
            "bad_rows": job.bad,
            "skipped_rows": job.skipped,
            "late_rows": job.late,
            "untimed_rows": job.untimed,
            "evicted_rows": job.evicted,
            "restarts": job.restarts,
            "checkpoint": None if job.checkpoint is None else asdict(job.checkpoint),
            "channels": {str(each.channel): _figures(each) for each in job.channels},
            "processes": {str(each.chain): _figures(each) for each in job.processes},
            "event_time": {str(each.chain): _figures(each) for each in job.times},
            "parallelism": dict(job.parallelism),
            "rescale": None if job.rescale is None else asdict(job.rescale),
        }
    }


def _figures(each: ChannelStatistics | ProcessFigures | TimeFigures) -> dict[str, object]:
    """All figures of one channel, process or chain, without the name that they stand under."""
    return {key: value for key, value in asdict(each).items() if key not in ("channel", "chain")}


__all__ = ["PROGRESS_S", "REFRESH_S", "Display", "LiveDisplay", "LogDisplay"]
