"""A mistake with its place in a file, and the error that carries all of them.

Invariant: neither ever holds a value that came from a reference (`${env:…}` and its like).
"""

from dataclasses import dataclass
from typing import NamedTuple

from arkflow_kernel.errors import ConfigError, Issue


class Location(NamedTuple):
    """A place in a file; line and column count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class LocatedIssue:
    """One mistake (or warning): file, line and column from 1, path in the configuration."""

    file: str
    line: int
    column: int
    path: str
    message: str
    warning: bool = False

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}"
        return f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}"


class LoadError(ConfigError):
    """A configuration file is wrong. `located` holds every mistake, sorted by place."""

    def __init__(self, located: list[LocatedIssue]) -> None:
        ordered = sort_issues(located)
        super().__init__([Issue(i.path, i.message, i.warning) for i in ordered])
        self.message = "\n".join(str(i) for i in ordered)
        self.args = (self.message,)
        self.located = ordered


def sort_issues(issues: list[LocatedIssue]) -> list[LocatedIssue]:
    """By place, each once."""
    unique = dict.fromkeys(issues)
    return sorted(unique, key=lambda i: (i.file, i.line, i.column, i.path, i.message))


__all__ = ["LoadError", "LocatedIssue", "Location", "sort_issues"]
