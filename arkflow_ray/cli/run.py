"""`run`: check, start, watch, tell how it ended. stdout belongs to the rows (P9)."""

import gc
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NoReturn

from arkflow_kernel.errors import ArkflowError, ClusterError, ConfigError
from arkflow_kernel.protocol import OutcomeKind
from arkflow_ray.attached import GivenUp, StopSignals, run_attached
from arkflow_ray.cli.exits import ExitCode
from arkflow_ray.cli.problems import check, has_errors, issue_lines, issues_json, summary
from arkflow_ray.config.issues import LocatedIssue
from arkflow_ray.observability.display import Display, LiveDisplay, LogDisplay
from arkflow_ray.observability.logs import Logging, start_logging
from arkflow_ray.observability.results import (
    JobResult,
    SinkTypes,
    advice,
    results_json,
    results_text,
)
from arkflow_ray.observability.rows import StdoutRows
from arkflow_ray.observability.screen import Screen
from arkflow_ray.observability.stray import stray_prints_logged
from arkflow_ray.pipeline import select_jobs
from arkflow_ray.restore_choice import StartOptions, check_jobs, flag, restore_choice
from arkflow_ray.runtime.launch import RunSettings, launch
from arkflow_ray.runtime.ray_address import check_address

if TYPE_CHECKING:
    from arkflow_ray.config.project import CheckedJob, CheckedProject

GIVEN_UP: Final = "given up without waiting; files that were not published stay behind"
CANCELLED: Final = "cancelled before a job ran"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the user asked for."""

    path: Path
    inline: bool
    address: str | None
    only: Sequence[str]
    lenient: bool
    as_json: bool
    start: StartOptions = field(default_factory=StartOptions)


def run(options: RunOptions) -> int:
    """Run a file; the exit code."""
    gc.enable()
    screen = _screen(options)
    try:
        return _checked(screen, options)
    except KeyboardInterrupt:
        if not options.as_json:
            raise
        _tell_end(screen, "Cancelled", CANCELLED, ExitCode.CANCELLED)
        return ExitCode.CANCELLED


def _checked(screen: Screen, options: RunOptions) -> int:
    try:
        choice = restore_choice(options.start, flag)
    except ConfigError as error:
        _tell_error(screen, options, error, ExitCode.USAGE)
        return ExitCode.USAGE
    project, issues = check(options.path, lenient=options.lenient)
    if project is None or has_errors(issues):
        _tell_mistakes(screen, options, issues)
        return ExitCode.USAGE
    try:
        jobs = select_jobs(project.jobs, options.only)
        check_jobs(jobs, options.start, flag)
    except ConfigError as error:
        _tell_error(screen, options, error, ExitCode.USAGE)
        return ExitCode.USAGE
    logging = _logging(screen, options, project)
    try:
        for line in issue_lines(issues):
            _tell_note(screen, options, line)
        settings = RunSettings(options.inline, options.address, choice=choice)
        return _run(screen, options, jobs, settings)
    finally:
        logging.close()


def _run(
    screen: Screen, options: RunOptions, jobs: "Sequence[CheckedJob]", settings: RunSettings
) -> int:
    display = LiveDisplay(screen) if screen.live else LogDisplay()
    rows = StdoutRows(screen)
    signals = StopSignals()
    try:
        with stray_prints_logged():
            results = _attached(options, jobs, settings, (display, rows, signals))
    except ArkflowError as error:
        display.close()
        code = _launch_code(error)
        _tell_error(screen, options, error, code)
        return code
    finally:
        display.close()
    code = exit_code(results, signals, rows)
    if options.as_json:
        screen.print(results_json(results, code) + "\n")
    else:
        screen.print(results_text(results, _sink_types(jobs)))
    return code


def _sink_types(jobs: "Sequence[CheckedJob]") -> SinkTypes:
    graphs = [job.graph for job in jobs if job.graph is not None]
    return {
        graph.job: {
            sink.output: sink.component.type for chain in graph.chains for sink in chain.sinks
        }
        for graph in graphs
    }


def _attached(
    options: RunOptions,
    jobs: "Sequence[CheckedJob]",
    settings: RunSettings,
    watching: tuple[Display, StdoutRows, StopSignals],
) -> list[JobResult]:
    display, rows, signals = watching
    check_address(options.address)
    try:
        return run_attached(
            lambda: launch(jobs, settings, rows, display.phase), signals, display, rows
        )
    except GivenUp:
        display.close()
        _give_up(options)


def _give_up(options: RunOptions) -> NoReturn:
    """The third Ctrl-C: something hangs, so nothing is waited for."""
    told = {"jobs": [], "error": {"type": "GivenUp", "message": GIVEN_UP}, "exit_code": 130}
    sys.stderr.write((json.dumps(told) if options.as_json else GIVEN_UP) + "\n")
    sys.stderr.flush()
    os._exit(ExitCode.CANCELLED)


def exit_code(results: Sequence[JobResult], signals: StopSignals, rows: StdoutRows) -> ExitCode:
    """The worst of the jobs' ends; a cancel because nobody reads stdout is none."""
    ends = {result.outcome for result in results}
    if OutcomeKind.FAILED.value in ends:
        return ExitCode.FAILED
    if OutcomeKind.CANCELLED.value not in ends:
        return ExitCode.DONE
    if signals.interrupts:
        return ExitCode.CANCELLED
    return ExitCode.DONE if rows.closed else ExitCode.CANCELLED  # by `cancel JOB`


def _launch_code(error: ArkflowError) -> ExitCode:
    if isinstance(error, ClusterError):
        return ExitCode.NO_CLUSTER
    return ExitCode.USAGE if isinstance(error, ConfigError) else ExitCode.FAILED


def _screen(options: RunOptions) -> Screen:
    live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not options.as_json
    return Screen(sys.stderr, live=live, shared=sys.stdout is not None and sys.stdout.isatty())


def _logging(screen: Screen, options: RunOptions, project: "CheckedProject") -> Logging:
    """What the file's `logging:` section says (A.3); with --json, lines are JSON."""
    top = project.reading.top
    config = top.logging if top is not None else None
    form: Literal["plain", "json"] = "plain" if config is None else config.format
    logging = start_logging(
        screen.print,
        level="info" if config is None else config.level,
        form="json" if options.as_json else form,
        file_path=None if config is None else config.file_path,
    )
    if logging.note is not None:
        _tell_note(screen, options, logging.note)
    return logging


def _tell_note(screen: Screen, options: RunOptions, text: str) -> None:
    """A line that is no mistake; with --json an object, as every line is."""
    fields = {"level": "warn", "message": text}
    screen.print((json.dumps(fields, ensure_ascii=False) if options.as_json else text) + "\n")


def _tell_mistakes(screen: Screen, options: RunOptions, issues: Sequence[LocatedIssue]) -> None:
    if options.as_json:
        told = {"jobs": [], "issues": issues_json(issues), "exit_code": int(ExitCode.USAGE)}
        screen.print(json.dumps(told, ensure_ascii=False) + "\n")
        return
    lines = [*issue_lines(issues), summary(options.path, issues, "; nothing was started")]
    screen.print("\n".join(lines) + "\n")


def _tell_error(screen: Screen, options: RunOptions, error: ArkflowError, code: ExitCode) -> None:
    if options.as_json:
        _tell_end(screen, type(error).__name__, error.message, code)
        return
    hint = advice(error)
    screen.print(f"{error.message}\n" + (f"{hint}\n" if hint else ""))


def _tell_end(screen: Screen, kind: str, message: str, code: ExitCode) -> None:
    """With --json: the result of a run in which no job came to an end."""
    told = {"jobs": [], "error": {"type": kind, "message": message}, "exit_code": int(code)}
    screen.print(json.dumps(told, ensure_ascii=False) + "\n")


__all__ = ["RunOptions", "StartOptions", "exit_code", "run"]
