"""`bench nexmark`: names and options; the work is in `nexmark_table.py` and `nexmark_bench.py`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from arkflow_ray.cli.exits import ExitCode, command, say

benching = typer.Typer(
    help="How fast this machine is.", rich_markup_mode=None, no_args_is_help=True
)


class Peer(StrEnum):
    """What the same is measured on."""

    FLINK = "flink"


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
    inline: Annotated[
        bool, typer.Option("--inline", help="Without Ray: any query, its events made as it runs.")
    ] = False,
    peer: Annotated[
        Peer | None, typer.Option(help="Run the same query there, over the same file, too.")
    ] = None,
    flink_python: Annotated[
        Path | None,
        typer.Option(
            metavar="PYTHON", help="Interpreter of an environment with apache-flink, for --peer."
        ),
    ] = None,
    events: Annotated[
        int, typer.Option(metavar="N", min=1, help="Persons, auctions and bids in all.")
    ] = 4_000_000,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the files of events there.")
    ] = None,
    rate: Annotated[
        int,
        typer.Option(metavar="N", min=50, max=100_000, help="Events a second, for latencies."),
    ] = 10_000,
    seconds: Annotated[
        int, typer.Option(metavar="S", min=0, help="So long latencies are measured; 0: not.")
    ] = 40,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures there, too.")
    ] = None,
) -> int:
    """Run queries of Nexmark, one after the other, and print what each costs.

    Each runs on a Ray of its own over files of events, with one subtask, a checkpoint each second
    and an exactly-once output. CPU is that of all processes, Ray's and a JVM's too, while 30 % to
    95 % of the files are read: starting is left out. Latencies are of another run, at a fixed rate.

    With --inline the events are made as they are read, and starting is measured by a run without
    events.
    """
    if inline:
        if peer is not None:
            say("--peer needs Ray: leave out --inline")
            return ExitCode.USAGE
        from arkflow_ray.cli.nexmark_bench import bench_nexmark

        return bench_nexmark(query or [], events, json_file)
    from arkflow_ray.cli.nexmark_table import bench_on_ray

    return bench_on_ray(
        query or [],
        events,
        peer=peer is not None,
        flink_python=flink_python,
        folder=folder,
        rate=rate,
        seconds=seconds,
        json_file=json_file,
    )


__all__ = ["benching"]
