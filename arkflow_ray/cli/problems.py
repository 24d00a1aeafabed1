"""Mistakes of a configuration, printed: one per line, or as JSON. Errors before the summary."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arkflow_ray.config.issues import LoadError, LocatedIssue

if TYPE_CHECKING:
    from arkflow_ray.config.project import CheckedProject


def check(path: Path, *, lenient: bool) -> "tuple[CheckedProject | None, list[LocatedIssue]]":
    """Check a file: what is known about it, and everything that is wrong with it, by place.

    There is no project for a file that cannot be read or parsed.
    """
    from arkflow_ray.config.project import check_file

    try:
        project = check_file(path, lenient=lenient)
    except LoadError as error:
        return None, error.located
    return project, project.issues


def has_errors(issues: Sequence[LocatedIssue]) -> bool:
    """Whether any of them keeps the file from running."""
    return any(not issue.warning for issue in issues)


def issue_lines(issues: Sequence[LocatedIssue]) -> list[str]:
    """`file:line:column: path: message`, warnings marked and after the errors."""
    errors = [str(issue) for issue in issues if not issue.warning]
    return errors + [_warning_line(issue) for issue in issues if issue.warning]


def issues_json(issues: Sequence[LocatedIssue]) -> list[dict[str, Any]]:
    """The issues as JSON objects."""
    return [asdict(issue) for issue in issues]


def verdict_json(path: Path, issues: Sequence[LocatedIssue], jobs: Sequence[str]) -> str:
    """The result of a check as one JSON object on one line."""
    verdict = {
        "file": str(path),
        "valid": not has_errors(issues),
        "jobs": list(jobs),
        "issues": issues_json(issues),
    }
    return json.dumps(verdict, ensure_ascii=False)


def summary(path: Path, issues: Sequence[LocatedIssue], consequence: str) -> str:
    """`6 mistakes in pipeline.yaml; nothing was started`."""
    errors = sum(not issue.warning for issue in issues)
    return f"{errors} mistake{'s' if errors != 1 else ''} in {path}{consequence}"


def _warning_line(issue: LocatedIssue) -> str:
    where = f"{issue.file}:{issue.line}:{issue.column}"
    path = f"{issue.path}: " if issue.path else ""
    return f"{where}: warning: {path}{issue.message}"


__all__ = [
    "check",
    "has_errors",
    "issue_lines",
    "issues_json",
    "summary",
    "verdict_json",
]
