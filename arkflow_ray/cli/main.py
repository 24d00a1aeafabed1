"""`arkflow-ray`: the commands and their options. Their work is in the modules beside this one.

Imports typer and nothing heavier: `--help` answers before anyone wonders. Rich is left out of
help and errors for the same reason.
"""

import gc
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from arkflow_ray.cli import places
from arkflow_ray.cli.benching import benching
from arkflow_ray.cli.exits import ExitCode, command, say
from arkflow_ray.cli.operating import operating

app = typer.Typer(
    name="arkflow-ray",
    help="ArkFlow streaming pipelines, distributed on Ray.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
components = typer.Typer(
    help="What pipelines can be made of.", rich_markup_mode=None, no_args_is_help=True
)
app.add_typer(components, name="components")
app.add_typer(operating)
app.add_typer(benching, name="bench")


class Format(StrEnum):
    """How a command answers."""

    TEXT = "text"
    JSON = "json"


class ExplainFormat(StrEnum):
    """How `explain` answers: in words, for a program, or as a diagram."""

    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"
    DOT = "dot"


FileArgument = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="Configuration: .yaml, .json or .toml.")
]
ConfigOption = Annotated[
    Path | None, typer.Option("-c", "--config", metavar="FILE", help="The same, as in ArkFlow.")
]
LenientOption = Annotated[bool, typer.Option("--lenient", help="Unknown keys are warnings.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
FormatOption = Annotated[Format, typer.Option("-f", "--format", help="How to answer.")]
InlineOption = Annotated[
    bool, typer.Option("--inline", help="Without Ray, in this process: for trying.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(help="A Ray cluster that is running; a local Ray is started without it."),
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="ID", help="Run this stream or job. May be repeated."),
]
SavepointOption = Annotated[
    str | None,
    typer.Option(metavar="NAME_OR_URL", help="Begin at this savepoint of the job, or of another."),
]
CheckpointOption = Annotated[
    int | None, typer.Option(metavar="N", help="Begin at this checkpoint, not at the newest.")
]
ScratchOption = Annotated[
    bool, typer.Option("--from-scratch", help="Begin from nothing, though there are checkpoints.")
]
DuplicatesOption = Annotated[
    bool,
    typer.Option(
        "--accept-duplicates", help="Exactly-once outputs may get again what they have already."
    ),
]
DroppedOption = Annotated[
    bool,
    typer.Option(
        "--allow-dropped-state", help="What is kept of operators that are gone may be dropped."
    ),
]


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    config: ConfigOption = None,
    validate: Annotated[
        bool, typer.Option("-v", "--validate", help="Check the file and exit.")
    ] = False,
    as_json: JsonOption = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Run a pipeline: `arkflow-ray run FILE`, or `arkflow-ray --config FILE` as in ArkFlow."""
    if context.invoked_subcommand is not None:
        if config is not None or validate:
            _misused(f"put it behind the command: arkflow-ray {context.invoked_subcommand} FILE")
        return
    if version:
        version_command(as_json)
    if config is None:
        _misused(
            "missing --config <FILE> (or run a subcommand: run, submit, validate, explain, "
            "components, schema)"
        )
    if validate:
        validate_command(config, as_json=as_json)
    run_command(config, as_json=as_json)


@app.command("run")
@command
def run_command(
    file: FileArgument = None,
    config: ConfigOption = None,
    inline: InlineOption = False,
    address: AddressOption = None,
    only: OnlyOption = None,
    from_savepoint: SavepointOption = None,
    from_checkpoint: CheckpointOption = None,
    from_scratch: ScratchOption = False,
    accept_duplicates: DuplicatesOption = False,
    allow_dropped_state: DroppedOption = False,
    lenient: LenientOption = False,
    as_json: JsonOption = False,
) -> int:
    """Run the streams and jobs of FILE to their end.

    A job with a `checkpoint:` block goes on from its newest checkpoint, if it has one.

    Rows of `stdout` outputs go to stdout, everything else to stderr. Ctrl-C stops in order, twice
    cancels. With --json, stderr is one JSON object a line, the last of them the result.
    """
    from arkflow_ray.cli.run import RunOptions, StartOptions, run

    _check_place(inline, address)
    start = StartOptions(
        from_savepoint, from_checkpoint, from_scratch, accept_duplicates, allow_dropped_state
    )
    path = _file(file, config)
    return run(RunOptions(path, inline, address, only or [], lenient, as_json, start))


@app.command("resume")
@command
def resume_command(
    file: FileArgument = None,
    config: ConfigOption = None,
    inline: InlineOption = False,
    address: AddressOption = None,
    only: OnlyOption = None,
    from_savepoint: SavepointOption = None,
    from_checkpoint: CheckpointOption = None,
    accept_duplicates: DuplicatesOption = False,
    allow_dropped_state: DroppedOption = False,
    lenient: LenientOption = False,
    as_json: JsonOption = False,
) -> int:
    """Run FILE as `run` does, but only if there is a checkpoint to go on from."""
    from arkflow_ray.cli.run import RunOptions, StartOptions, run

    _check_place(inline, address)
    start = StartOptions(
        from_savepoint,
        from_checkpoint,
        accept_duplicates=accept_duplicates,
        allow_dropped_state=allow_dropped_state,
        resume=True,
    )
    path = _file(file, config)
    return run(RunOptions(path, inline, address, only or [], lenient, as_json, start))


@app.command("submit")
@command
def submit_command(
    file: FileArgument = None,
    config: ConfigOption = None,
    address: places.AddressOption = None,
    cluster: places.ClusterOption = None,
    only: OnlyOption = None,
    from_savepoint: SavepointOption = None,
    from_checkpoint: CheckpointOption = None,
    from_scratch: ScratchOption = False,
    accept_duplicates: DuplicatesOption = False,
    allow_dropped_state: DroppedOption = False,
    lenient: LenientOption = False,
    as_json: JsonOption = False,
) -> int:
    """Give the streams and jobs of FILE to a cluster, where they run without this program.

    FILE is checked here and once more there. `jobs`, `status`, `logs`, `stop`, `cancel`,
    `savepoint` and `rescale` reach the jobs with the same --address or --cluster.
    """
    from arkflow_ray.cli.submitting import StartOptions, SubmitOptions, submit

    start = StartOptions(
        from_savepoint, from_checkpoint, from_scratch, accept_duplicates, allow_dropped_state
    )
    where = places.Where(address, cluster)
    return submit(SubmitOptions(_file(file, config), where, only or [], lenient, as_json, start))


@app.command("validate")
@command
def validate_command(
    file: FileArgument = None,
    config: ConfigOption = None,
    lenient: LenientOption = False,
    as_json: JsonOption = False,
) -> int:
    """Check FILE and show every mistake in it. Nothing is started, nothing connects."""
    from arkflow_ray.cli.check import validate

    return validate(_file(file, config), lenient=lenient, as_json=as_json)


@app.command("explain")
@command
def explain_command(
    file: FileArgument = None,
    config: ConfigOption = None,
    form: Annotated[
        ExplainFormat,
        typer.Option("-f", "--format", help="Text, JSON, or a diagram for Mermaid or Graphviz."),
    ] = ExplainFormat.TEXT,
    lenient: LenientOption = False,
    as_json: JsonOption = False,
) -> int:
    """Show what FILE would run: operators, chains, edges, and why."""
    from arkflow_ray.cli.check import explain

    if as_json and form not in (ExplainFormat.TEXT, ExplainFormat.JSON):
        _misused(f"--json and --format {form.value} exclude each other")
    return explain(_file(file, config), lenient=lenient, form="json" if as_json else form.value)


@components.command("list")
@command
def list_command(
    kind: Annotated[
        str | None, typer.Option("-k", "--kind", metavar="KIND", help="Only this kind.")
    ] = None,
    form: FormatOption = Format.TEXT,
    as_json: JsonOption = False,
) -> int:
    """List the components: inputs, outputs, processors, codecs."""
    from arkflow_ray.cli.catalog import list_components

    return list_components(kind, as_json=as_json or form is Format.JSON)


@components.command("show")
@command
def show_command(
    kind: Annotated[str, typer.Argument(metavar="KIND")],
    name: Annotated[str, typer.Argument(metavar="NAME")],
    form: FormatOption = Format.TEXT,
    as_json: JsonOption = False,
) -> int:
    """Describe a component: its fields and an example."""
    from arkflow_ray.cli.catalog import show_component

    return show_component(kind, name, as_json=as_json or form is Format.JSON)


@app.command("schema")
@command
def schema_command(
    as_json: Annotated[bool, typer.Option("--json", help="It always is.")] = False,
) -> int:
    """Print the JSON Schema of configuration files, for editors."""
    from arkflow_ray.cli.catalog import print_schema

    del as_json
    return print_schema()


@command
def version_command(as_json: bool) -> int:
    """Print the version."""
    import json

    from arkflow_ray import __version__

    print(json.dumps({"version": __version__}) if as_json else f"arkflow-ray {__version__}")
    return ExitCode.DONE


def _check_place(inline: bool, address: str | None) -> None:
    """A job runs here or there, not both."""
    if inline and address is not None:
        _misused("--inline runs without Ray: leave --address out")


def _file(file: Path | None, config: Path | None) -> Path:
    if file is not None and config is not None:
        _misused("name the file once: as FILE or with --config")
    named = file or config
    if named is None:
        _misused("name the file: as FILE or with --config")
    return named


def _misused(message: str) -> NoReturn:
    say(f"Error: {message}")
    raise typer.Exit(ExitCode.USAGE)


def main() -> None:
    """Entry point of the program."""
    # A tenth of what `validate` takes is the collector looking through freshly imported modules.
    # `run` turns it on again.
    gc.disable()
    if sys.stderr is None:
        # Started with `2>&-`: without this, the next file that is opened would become stderr.
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    app()


if __name__ == "__main__":
    main()

__all__ = ["app", "main"]
