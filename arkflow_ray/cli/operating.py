"""`status`, `jobs`, `logs`, `stop`, `cancel`, `savepoint`, `rescale`, `checkpoints`: for jobs that
run or ran, here or in a cluster.

Only names and options; the work is in `doors.py`, `following.py`, `rescaling.py` and `history.py`.
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from arkflow_ray.cli.exits import command
from arkflow_ray.cli.places import AddressOption, ClusterOption, Where
from arkflow_ray.door.messages import DONE_WITHIN_S

operating = typer.Typer(rich_markup_mode=None)

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="The job's id; ID.PID if it runs more than once.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
TimeoutOption = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0.001,
        help="Wait for so long; what was asked for stands afterwards too.",
    ),
]


@operating.command("jobs")
@command
def jobs_command(
    address: AddressOption = None,
    cluster: ClusterOption = None,
    forget: Annotated[
        str | None,
        typer.Option(metavar="JOB", help="Let a job of the cluster go that is over."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """List the jobs that run on this machine as this user, or those of a cluster.

    A job of a cluster stays in the list when it is over, until it is submitted again or forgotten.
    """
    where = Where(address, cluster)
    if forget is not None:
        from arkflow_ray.cli.following import forget_job

        return forget_job(forget, where, as_json=as_json)
    from arkflow_ray.cli.doors import list_jobs

    return list_jobs(where, as_json=as_json)


@operating.command("status")
@command
def status_command(
    job: JobArgument,
    address: AddressOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> int:
    """Show how a running JOB is: its state, rows, checkpoints, and what it waits for."""
    from arkflow_ray.cli.doors import show_status

    return show_status(job, Where(address, cluster), as_json=as_json)


@operating.command("logs")
@command
def logs_command(
    job: JobArgument,
    address: AddressOption = None,
    cluster: ClusterOption = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the job is over.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option(metavar="LINES", min=0, help="Only the last ones.")
    ] = None,
) -> int:
    """Print what a JOB of a cluster has said: its log, and the rows of `stdout` outputs."""
    from arkflow_ray.cli.following import show_logs

    return show_logs(job, Where(address, cluster), follow=follow, tail=tail)


class _StopCommand(TyperCommand):
    """Lets `--savepoint` stand without a name: behind JOB, or before another option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        filled = []
        for arg, following in zip(args, [*args[1:], "-"], strict=False):
            filled.append(arg)
            if arg == "--savepoint" and following.startswith("-"):
                filled.append("")
        rest: list[str] = super().parse_args(ctx, filled)
        return rest


@operating.command("stop", cls=_StopCommand)
@command
def stop_command(
    job: JobArgument,
    drain: Annotated[
        bool, typer.Option("--drain", help="Its data count as ended: windows fire, all goes out.")
    ] = False,
    savepoint: Annotated[
        str | None,
        typer.Option(metavar="[NAME]", help="Its last checkpoint is a savepoint, too."),
    ] = None,
    address: AddressOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = DONE_WITHIN_S,
    as_json: JsonOption = False,
) -> int:
    """Stop a running JOB in order, and wait until it has stopped.

    What it keeps is in its last checkpoint, from which the next `run` goes on.
    """
    from arkflow_ray.cli.doors import stop_job

    where = Where(address, cluster)
    return stop_job(
        job, where, drain=drain, savepoint=savepoint, timeout_s=timeout, as_json=as_json
    )


@operating.command("cancel")
@command
def cancel_command(
    job: JobArgument,
    address: AddressOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = DONE_WITHIN_S,
    as_json: JsonOption = False,
) -> int:
    """End a running JOB now, as two Ctrl-C do: what is not confirmed is given up.

    The next `run` begins at the last checkpoint that was complete.
    """
    from arkflow_ray.cli.doors import cancel_job

    return cancel_job(job, Where(address, cluster), timeout_s=timeout, as_json=as_json)


@operating.command("savepoint")
@command
def savepoint_command(
    job: JobArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="sp-<time> without one.")
    ] = None,
    address: AddressOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = DONE_WITHIN_S,
    as_json: JsonOption = False,
) -> int:
    """Make a savepoint of a running JOB, which goes on; print where it lies."""
    from arkflow_ray.cli.doors import make_savepoint

    where = Where(address, cluster)
    return make_savepoint(job, name, where, timeout_s=timeout, as_json=as_json)


@operating.command("rescale")
@command
def rescale_command(
    job: JobArgument,
    wanted: Annotated[
        list[str],
        typer.Argument(metavar="OPERATOR=N...", help="Operators, and how many subtasks each gets."),
    ],
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Answer as soon as it has begun.")
    ] = False,
    address: AddressOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = DONE_WITHIN_S,
    as_json: JsonOption = False,
) -> int:
    """Give operators of a running JOB another number of subtasks, without losing a row.

    Waits until the new plan is at work, and prints what it took. If it does not come to work, the
    job goes on as it was, and the reason is printed.
    """
    from arkflow_ray.cli.rescaling import rescale_job

    where = Where(address, cluster)
    return rescale_job(job, wanted, where, wait=not no_wait, timeout_s=timeout, as_json=as_json)


@operating.command("checkpoints")
@command
def checkpoints_command(
    job: JobArgument,
    config: Annotated[
        Path | None,
        typer.Option("-c", "--config", metavar="FILE", help="The file of the job."),
    ] = None,
    root: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where checkpoints lie; not needed while JOB runs."),
    ] = None,
    address: AddressOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> int:
    """List the checkpoints and savepoints of JOB, newest first.

    Says which of them can be restored, and which one the next start would take.
    """
    from arkflow_ray.cli.history import list_checkpoints

    where = Where(address, cluster)
    return list_checkpoints(job, where, config=config, root=root, as_json=as_json)


__all__ = ["operating"]
