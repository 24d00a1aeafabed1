"""`bench nexmark`: names and options; the work is in `nexmark_bench.py`."""

from pathlib import Path
from typing import Annotated

import typer

from arkflow_ray.cli.exits import command

benching = typer.Typer(
    help="How fast this machine is.", rich_markup_mode=None, no_args_is_help=True
)


@benching.callback()
def bench() -> None:
    """How fast this machine is."""


@benching.command("nexmark")
@command
def nexmark_command(
    query: Annotated[
        list[str] | None,
        typer.Option(metavar="QUERY", help="Such as q5; all without it. May be repeated."),
    ] = None,
    events: Annotated[
        int, typer.Option(metavar="N", min=1, help="Persons, auctions and bids in all.")
    ] = 1_000_000,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures there, too.")
    ] = None,
) -> int:
    """Run queries of Nexmark, one after the other, and print what each costs.

    Each runs in a process of its own, without Ray, with one subtask, checkpoints and an
    exactly-once output, in a temporary folder. What starting costs is measured by a run without
    events, and taken off.
    """
    from arkflow_ray.cli.nexmark_bench import bench_nexmark

    return bench_nexmark(query or [], events, json_file)


__all__ = ["benching"]
