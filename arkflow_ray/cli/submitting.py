"""`submit FILE`: check, hand each job to a runner in the cluster, tell what was started."""

import gc
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arkflow_kernel.errors import ArkflowError
from arkflow_ray.cli.doors import tell_error, tell_failure
from arkflow_ray.cli.exits import ExitCode, say
from arkflow_ray.cli.places import Where
from arkflow_ray.cli.problems import has_errors, issue_lines, issues_json, summary
from arkflow_ray.cluster.submitting import (
    check_for_cluster,
    submissions,
    submit_all,
    suspicious_variables,
)
from arkflow_ray.cluster.target import Target, the_target
from arkflow_ray.config.issues import LoadError, LocatedIssue
from arkflow_ray.config.profiles import Profile
from arkflow_ray.door.messages import DoorError, NotReachableError
from arkflow_ray.pipeline import select_jobs
from arkflow_ray.restore_choice import StartOptions, check_jobs, flag, restore_choice

if TYPE_CHECKING:
    from arkflow_ray.config.project import CheckedProject


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """What the user asked for."""

    path: Path
    where: Where
    only: Sequence[str]
    lenient: bool
    as_json: bool
    start: StartOptions = field(default_factory=StartOptions)


def submit(options: SubmitOptions) -> int:
    """Submit the jobs of a file; the exit code."""
    gc.enable()
    started: list[Mapping[str, Any]] = []
    try:
        target = the_target(options.where.address, options.where.cluster)
        code = _submit(options, target, started)
    except LoadError as error:
        code = _tell_mistakes(options, error.located)
    except ArkflowError as error:
        code = tell_failure(error, as_json=options.as_json)
    except DoorError as error:
        reachable = not isinstance(error, NotReachableError)
        code = ExitCode.USAGE if reachable else ExitCode.NO_CLUSTER
        tell_error(type(error).__name__, error.message, code, as_json=options.as_json)
    if code is not ExitCode.DONE and started and not options.as_json:
        say("these run already: " + ", ".join(told["job"] for told in started))
    return code


def _submit(options: SubmitOptions, target: Target, started: list[Mapping[str, Any]]) -> ExitCode:
    choice = restore_choice(options.start, flag)
    profile = target.profile or Profile()
    checked = check_for_cluster(options.path, profile, lenient=options.lenient)
    project = checked.project
    if has_errors(project.issues):
        return _tell_mistakes(options, project.issues)
    jobs = select_jobs(project.jobs, options.only)
    check_jobs(jobs, options.start, flag)
    if not options.as_json:
        for line in issue_lines(project.issues):
            say(line)
    _warn(project, profile)
    given = submissions(jobs, checked, profile, choice)
    progress = (lambda _: None) if options.as_json else say
    submit_all(given, target, progress, started.append)
    if options.as_json:
        told = [{key: each[key] for key in ("job", "phase", "pid", "node")} for each in started]
        print(json.dumps({"jobs": told, "exit_code": 0}, ensure_ascii=False))
    for each in started if not options.as_json else ():
        print(f"job '{each['job']}' runs in the cluster, detached (node {each['node'][:8]})")
    return ExitCode.DONE


def _warn(project: "CheckedProject", profile: Profile) -> None:
    for name in suspicious_variables(profile, list(project.reading.secrets)):
        say(
            f"warning: the profile's `runtime_env` holds {name}, which the file uses as a secret: "
            "everyone in the cluster can read it there; set it on the nodes instead"
        )


def _tell_mistakes(options: SubmitOptions, issues: Sequence[LocatedIssue]) -> ExitCode:
    if options.as_json:
        told = {"jobs": [], "issues": issues_json(issues), "exit_code": int(ExitCode.USAGE)}
        print(json.dumps(told, ensure_ascii=False))
    else:
        lines = [*issue_lines(issues), summary(options.path, issues, "; nothing was submitted")]
        say("\n".join(lines))
    return ExitCode.USAGE


__all__ = ["StartOptions", "SubmitOptions", "submit"]
