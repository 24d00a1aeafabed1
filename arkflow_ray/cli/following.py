"""`logs` and `jobs --forget`: what only jobs of a cluster have."""

import sys
import time
from typing import TYPE_CHECKING, Final

from arkflow_kernel.errors import ArkflowError, ConfigError, Issue
from arkflow_ray.cli.doors import tell_error, tell_failure
from arkflow_ray.cli.exits import ExitCode, say
from arkflow_ray.cli.places import Where
from arkflow_ray.cluster.target import Target, find_target
from arkflow_ray.door.messages import BadRequestError, DoorError

if TYPE_CHECKING:
    from arkflow_ray.cluster.cluster_jobs import ClusterJobs

LOOK_S: Final = 0.5
"""Between two looks at a log that is followed."""


def show_logs(job: str, where: Where, *, follow: bool, tail: int | None) -> int:
    """Print a job's log to stdout; what is lost of it is told on stderr."""
    try:
        from arkflow_ray.cluster.connection import Connection

        with Connection(_target(where)) as jobs:
            _print_log(jobs, job, follow=follow, tail=tail)
    except ArkflowError as error:
        return tell_failure(error, as_json=False)
    except DoorError as error:
        say(error.message)
        return _code(error)
    return ExitCode.DONE


def forget_job(job: str, where: Where, *, as_json: bool) -> int:
    """Let the runner of a job go that is over."""
    try:
        from arkflow_ray.cluster.connection import Connection

        with Connection(_target(where)) as jobs:
            jobs.forget(job)
    except ArkflowError as error:
        return tell_failure(error, as_json=as_json)
    except DoorError as error:
        tell_error(type(error).__name__, error.message, _code(error), as_json=as_json)
        return _code(error)
    print('{"forgotten": true}' if as_json else f"job '{job}' is forgotten; its checkpoints stay")
    return ExitCode.DONE


def _print_log(jobs: "ClusterJobs", job: str, *, follow: bool, tail: int | None) -> None:
    printed: int | None = None
    while True:
        page = jobs.logs(job, printed or 0, tail if printed is None else None)
        first, lines = page["first"], page["lines"]
        if printed is None and tail is not None:
            printed = first - 1
        missed = first - 1 - (printed or 0)
        if missed > 0:
            say(f"({missed:,} lines before are not kept any more)")
        if lines:
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
        printed = first - 1 + len(lines)
        if lines:
            continue
        if page["over"] or not follow:
            return
        time.sleep(LOOK_S)


def _target(where: Where) -> Target:
    target = find_target(where.address, where.cluster)
    if target is None:
        text = (
            "say which cluster: --address, --cluster or ARKFLOW_RAY_ADDRESS (a local run tells "
            "this on its own terminal)"
        )
        raise ConfigError([Issue("", text)])
    return target


def _code(error: DoorError) -> ExitCode:
    return ExitCode.USAGE if isinstance(error, BadRequestError) else ExitCode.NO_CLUSTER


__all__ = ["forget_job", "show_logs"]
