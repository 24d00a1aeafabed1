"""`logs` and `jobs --forget`: what only jobs of a cluster have."""

import sys
import time
from typing import TYPE_CHECKING, Final

from arkflow_kernel.errors import ArkflowError
from arkflow_ray.cli.doors import tell_error, tell_failure
from arkflow_ray.cli.exits import ExitCode, say
from arkflow_ray.cli.places import Where
from arkflow_ray.cluster.target import the_target
from arkflow_ray.door.messages import BadRequestError, DoorError

if TYPE_CHECKING:
    from arkflow_ray.cluster.cluster_jobs import ClusterJobs

LOOK_S: Final = 0.5
"""Between two looks at a log that is followed."""


def show_logs(job: str, where: Where, *, follow: bool, tail: int | None) -> int:
    """Print a job's log to stdout; what is lost of it is told on stderr."""
    try:
        from arkflow_ray.cluster.connection import Connection

        with Connection(the_target(where.address, where.cluster)) as jobs:
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

        with Connection(the_target(where.address, where.cluster)) as jobs:
            jobs.forget(job)
    except ArkflowError as error:
        return tell_failure(error, as_json=as_json)
    except DoorError as error:
        tell_error(type(error).__name__, error.message, _code(error), as_json=as_json)
        return _code(error)
    print('{"forgotten": true}' if as_json else f"job '{job}' is forgotten; its checkpoints stay")
    return ExitCode.DONE


def _print_log(jobs: "ClusterJobs", job: str, *, follow: bool, tail: int | None) -> None:
    page = jobs.logs(job, 0, tail)
    printed = 0 if tail is None else page["first"] - 1
    newest = page["last"]
    while True:
        first, lines = page["first"], page["lines"]
        if first - 1 > printed:
            say(f"({first - 1 - printed:,} lines before are not kept any more)")
        if lines:
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
        printed = first - 1 + len(lines)
        if not follow and printed >= newest:
            return
        if not lines:
            if page["over"]:
                return
            time.sleep(LOOK_S)
        page = jobs.logs(job, printed)


def _code(error: DoorError) -> ExitCode:
    return ExitCode.USAGE if isinstance(error, BadRequestError) else ExitCode.NO_CLUSTER


__all__ = ["forget_job", "show_logs"]
