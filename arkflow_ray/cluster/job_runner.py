"""The actor that runs one submitted job: the driver of P8 and P9 inside the cluster.

It checks the file again where it will run, launches it as `run` does, and answers at its desk what
a door answers. Ray makes it again elsewhere when its node is lost (P8): then the job goes on from
the newest record of its log. What the user has asked for and how the job ended is remembered by
the cluster, so that a job that was stopped is not started again by that.
"""

import logging
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from arkflow_kernel.errors import ActorLostError, ArkflowError, ClusterError, ConfigError, Issue
from arkflow_kernel.job_parallelism import with_parallelism
from arkflow_kernel.protocol import JobState, OutcomeKind
from arkflow_kernel.snapshot import NEWEST
from arkflow_ray.attached import AttachedRun, StopSignals
from arkflow_ray.cluster.job_log import JobLog, LoggedRows
from arkflow_ray.cluster.submission import (
    ForeignSubmissionError,
    Submission,
    parse_submission,
)
from arkflow_ray.config.issues import LoadError, LocatedIssue
from arkflow_ray.config.project import CheckedJob, check_file, job_graph
from arkflow_ray.door.desk import Answer, Desk, Errand
from arkflow_ray.door.messages import BadRequestError, Request, parse_request
from arkflow_ray.observability.display import LogDisplay
from arkflow_ray.observability.logs import LOGGER_NAME, level_number, start_logging
from arkflow_ray.observability.results import results_text
from arkflow_ray.runtime.detached_actors import forget, recall, remember, this_place
from arkflow_ray.runtime.launch import RunSettings, launch
from arkflow_ray.runtime.placement_groups import remove_groups
from arkflow_ray.runtime.running import RunningJob, RunningJobs

STARTING: Final = "starting"
RUNNING: Final = "running"
OVER: Final = "over"

LOOK_S: Final = 0.2
"""Between two looks at the plan at work."""

ERRANDS_MAX: Final = 256
"""So many requests are kept for callers that come back to them; the oldest ones go first."""

_log = logging.getLogger("arkflow_ray.runner")


@dataclass(frozen=True, slots=True)
class CheckedSubmission:
    """A job as the machine sees it that runs it, the environment it was checked with, and the level
    of its log.
    """

    job: CheckedJob
    environment: Mapping[str, str] = field(repr=False)
    level: str


class JobRunner:
    """The body of the actor. Its methods return at once; they may be called from any thread."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._log = JobLog()
        self._lock = threading.Lock()
        self._remembering = threading.Lock()
        self._errands: dict[str, Errand] = {}
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._phase = STARTING
        self._running: RunningJob | None = None
        self._desk: Desk | None = None
        self._end: dict[str, Any] | None = None
        self._given = values
        threading.Thread(target=self._live, name="job-runner", daemon=True).start()

    def about(self) -> dict[str, Any]:
        """Who it is, how far it is, and how the job ended."""
        desk = self._desk
        status = None if desk is None else self._told(desk, Request("status"))
        return {
            "job": self._given["job"],
            "token": self._given["token"],
            "phase": self._phase,
            "pid": os.getpid(),
            "node": this_place(),
            "started_at": self._started_at,
            "status": status,
            "end": self._end,
        }

    def ask(self, key: str, line: bytes) -> dict[str, Any]:
        """Begin an errand, or look at it again: its result, its error, or its progress.

        `key` names the errand for the caller; a runner that was made again begins it anew.
        """
        desk = self._desk
        if desk is None:
            return self._without_desk()
        try:
            with self._lock:
                errand = self._errands.get(key)
                if errand is None:
                    request = parse_request(line)
                    errand = self._errands[key] = desk.take(request)
                    self._note_wish(request)
                    while len(self._errands) > ERRANDS_MAX:
                        del self._errands[next(iter(self._errands))]
            stand = errand.look()
        except BadRequestError as error:
            return _error(type(error).__name__, error.message)
        if not isinstance(stand, Answer):
            return {"progress": stand.text}
        return {"result": stand.result} if stand.error is None else _error(*stand.error)

    def logs(self, after: int, tail: int | None = None) -> dict[str, Any]:
        """A page of lines behind number `after`, or the last `tail` ones."""
        if tail is not None:
            after = self._log.tail(tail)
        over, last = self._phase == OVER, self._log.last  # before the lines, which are final then
        first, lines = self._log.after(after)
        return {"first": first, "lines": lines, "last": last, "over": over}

    def release(self) -> bool:
        """Let what is remembered of the job go, if it is over; whether it is."""
        if self._phase == OVER:
            forget(self._given["token"])
        return self._phase == OVER

    # --- its life, in a thread -----------------------------------------------------------------

    def _live(self) -> None:
        """Run the job to its end. Whatever goes wrong is told by `about`."""
        logged = start_logging(self._log.write)
        try:
            submission = parse_submission(self._given)
            past = recall(submission.token) or {}
            self._end = past.get("end")
            if self._end is None:
                self._end = self._run(submission, past)
                self._remember(end=self._end)
        except LoadError as error:
            self._end = _failed(error, [asdict(issue) for issue in error.located])
        except (ArkflowError, ForeignSubmissionError) as error:
            self._end = _failed(error)
        except BaseException as error:
            self._end = _failed(error)
            raise
        finally:
            if self._end is not None and self._end["error"] is not None:
                _log.error("%s", self._end["error"]["message"])
            self._phase = OVER
            del logged  # its handler stays: what still comes belongs into the log

    def _run(self, submission: Submission, past: Mapping[str, Any]) -> dict[str, Any]:
        lost, lives = bool(past.get("began")), int(past.get("lives", 0))
        for life in range(lives):  # Ray keeps the seats of a process whose job's driver is gone
            remove_groups(_run_name(submission, life))
        self._remember(lives=lives + 1)
        if past.get("wish") == "cancel":
            return {"outcome": OutcomeKind.CANCELLED.value, "error": None, "result": {}}
        checked = checked_job(submission)
        job = checked.job
        logging.getLogger(LOGGER_NAME).setLevel(level_number(checked.level))
        if lost:
            _log.warning("the runner was lost, and is here again")
            _check_continues(job)
            job = _with_plan(job, past.get("parallelism", {}))
        choice = NEWEST if lost else submission.choice
        rows, display = LoggedRows(self._log), LogDisplay()
        run = _run_name(submission, lives)
        settings = RunSettings(environment=checked.environment, choice=choice, run=run)
        jobs = launch([job], settings, rows, display.phase)
        try:
            (self._running,) = jobs.jobs.values()
            self._desk = Desk(self._running)
            self._phase = RUNNING
            if past.get("wish") == "stop":
                self._running.stop(drain=past["drain"], savepoint=past["savepoint"])
            _watch_plan(jobs, lambda found: self._remember(began=True, parallelism=dict(found)))
            (result,) = AttachedRun(jobs, StopSignals(), display, rows).watch()
        finally:
            jobs.close()
        self._log.write(results_text([result]))
        return {
            "outcome": result.outcome,
            "error": result.as_dict()["error"],
            "result": result.as_dict(),
        }

    def _note_wish(self, request: Request) -> None:
        """Who succeeds this runner must know that the job shall end."""
        if request.command == "stop":
            self._remember(wish="stop", drain=request.drain, savepoint=request.savepoint)
        elif request.command == "cancel":
            self._remember(wish="cancel")

    def _remember(self, **values: Any) -> None:
        token = self._given["token"]
        with self._remembering:
            remember(token, (recall(token) or {}) | values)

    # --- answers -------------------------------------------------------------------------------

    def _without_desk(self) -> dict[str, Any]:
        end = self._end
        if end is None or self._phase != OVER:
            return {"progress": "the job is being started"}
        error = end["error"]
        if error is None:
            text = f"job '{self._given['job']}' is over: {end['outcome']}"
            return _error(BadRequestError.__name__, text)
        return _error(error["type"], error["message"])

    def _told(self, desk: Desk, request: Request) -> dict[str, Any] | None:
        stand = desk.take(request).look()
        return stand.result if isinstance(stand, Answer) else None


def checked_job(submission: Submission) -> CheckedSubmission:
    """The job as this machine sees it.

    Works in the submission's folder from here on. Raises `LoadError` with places in the file as
    it was submitted.
    """
    if submission.folder is not None:
        _enter(submission.folder)
    environment = {**os.environ, **submission.environment}
    with tempfile.TemporaryDirectory(prefix="afr-") as folder:
        path = Path(folder) / Path(submission.file).name
        path.write_text(submission.text, encoding="utf-8")
        try:
            project = check_file(
                path,
                lenient=submission.lenient,
                env=environment,
                defaults=submission.defaults,
            )
        except LoadError as error:
            raise LoadError(_renamed(error.located, submission.file)) from None
    if project.errors:
        raise LoadError(_renamed(project.errors, submission.file))
    logging_section = None if project.reading.top is None else project.reading.top.logging
    level = "info" if logging_section is None else logging_section.level
    for job in project.jobs:
        if job.id == submission.job:
            return CheckedSubmission(job, environment, level)
    raise ConfigError([Issue("", f"no job has the id '{submission.job}'")])


def _enter(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError:
        # Of another machine. Paths that are not absolute must not mean a folder of Ray's own,
        # which is another one each time.
        os.chdir("/")
        _log.warning("the folder %s is not on this machine: relative paths begin at /", folder)


def _renamed(issues: list[LocatedIssue], file: str) -> list[LocatedIssue]:
    return [replace(issue, file=file) for issue in issues]


def _run_name(submission: Submission, life: int) -> str:
    """The name of the run of a runner, which is made again with each loss."""
    return f"{submission.token}-{life}"


def _check_continues(job: CheckedJob) -> None:
    """Raise `ActorLostError` if a job cannot go on without the process that ran it (P8)."""
    plan = None if job.graph is None else job.graph.checkpoint
    if plan is None or plan.ephemeral:
        raise ActorLostError(
            f"the runner of job '{job.id}' was lost, and the job has no `checkpoint:` block to go "
            "on from; submit it again"
        )


def _watch_plan(jobs: RunningJobs, note: Callable[[Mapping[str, int]], None]) -> threading.Thread:
    """Note the parallelism of each plan that comes to work, in a thread until the job is over.

    What cannot be noted while the cluster's store does not answer is noted when it does.
    """

    def look() -> None:
        (running,) = jobs.jobs.values()
        noted: dict[str, int] | None = None
        silent = False
        while not jobs.wait(LOOK_S):
            status = running.status()
            at_work = {str(name): subtasks for name, subtasks in status.parallelism.items()}
            if status.state is JobState.RUNNING and at_work != noted:
                try:
                    note(at_work)
                except ClusterError as error:
                    if not silent:
                        _log.warning("the plan at work is not noted yet: %s", error.message)
                    silent = True
                else:
                    noted, silent = at_work, False

    thread = threading.Thread(target=look, name="plan-watch", daemon=True)
    thread.start()
    return thread


def _with_plan(job: CheckedJob, parallelism: Mapping[str, int]) -> CheckedJob:
    """The job as it was last at work (P8)."""
    assert job.job is not None, "only jobs without mistakes are run"
    spec = with_parallelism(job.job, parallelism)
    return replace(job, job=spec, graph=job_graph(spec))


def _failed(error: BaseException, issues: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    message = error.message if isinstance(error, ArkflowError) else str(error)
    return {
        "outcome": OutcomeKind.FAILED.value,
        "error": {"type": type(error).__name__, "message": message},
        "result": None,
        "issues": issues or [],
    }


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"type": kind, "message": message}}


__all__ = ["OVER", "RUNNING", "STARTING", "CheckedSubmission", "JobRunner", "checked_job"]
