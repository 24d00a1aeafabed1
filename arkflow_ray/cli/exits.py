"""Exit codes, and the boundary that turns every end of a command into one of them."""

import functools
import os
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import ParamSpec

import typer

Params = ParamSpec("Params")


class ExitCode(IntEnum):
    """How the program ended. `DONE` also after a stop in order (D5)."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NO_CLUSTER = 3
    CANCELLED = 130


def command(body: Callable[Params, int]) -> Callable[Params, None]:
    """Make a function that returns an exit code a command of typer.

    Errors of the closed set are printed without a traceback. A reader of stdout that has gone
    away (`explain … | head`) is no error.
    """

    @functools.wraps(body)
    def run(*args: Params.args, **kwargs: Params.kwargs) -> None:
        raise typer.Exit(_guarded(lambda: body(*args, **kwargs)))

    return run


def _guarded(body: Callable[[], int]) -> int:
    try:
        code = body()
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        say("cancelled")
        return ExitCode.CANCELLED
    except BrokenPipeError:
        forget_stdout()
        return ExitCode.DONE
    return code


def forget_stdout() -> None:
    """Nobody reads stdout: let what Python still holds for it go nowhere, at exit too."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.close(sink)


def say(text: str) -> None:
    """One line on stderr."""
    print(text, file=sys.stderr, flush=True)


__all__ = ["ExitCode", "command", "forget_stdout", "say"]
