"""Ids of streams and jobs (A.6): allowed characters, and one id for one pipeline of the file.

Works on plain data: an entry that does not fit its model still takes its id.
"""

import re
from typing import Any

from arkflow_kernel.errors import Issue

_STREAM_ID = re.compile(r"[A-Za-z0-9_-]+")


def identity_issues(data: dict[str, Any]) -> list[Issue]:
    """Every mistake in the ids of a file, and a warning for each stream without one."""
    issues: list[Issue] = []
    seen: dict[str, str] = {}
    for index, given in _ids(data, "streams"):
        path = f"streams[{index}]"
        if given is None:
            given = f"stream-{index}"
            issues.append(Issue(f"{path}.id", _unnamed(given), warning=True))
        elif not _STREAM_ID.fullmatch(given):
            issues.append(Issue(f"{path}.id", _bad_stream_id(given, index)))
        if given in seen:
            issues.append(Issue(f"{path}.id", f"Duplicate stream id '{given}' at index {index}"))
        seen.setdefault(given, path)
    jobs: set[str] = set()
    for index, given in _ids(data, "jobs"):
        path = f"jobs[{index}].id"
        if given in jobs:
            issues.append(Issue(path, f"Duplicate job id '{given}'"))
        elif given in seen:
            told = f"Duplicate job id '{given}': {seen[given]} has it already; rename one"
            issues.append(Issue(path, told))
        jobs.add(given or "")
    return issues


def _ids(data: dict[str, Any], key: str) -> list[tuple[int, str | None]]:
    """Ids that are text, and None for streams that have none; others are the models' matter."""
    entries = data.get(key)
    found: list[tuple[int, str | None]] = []
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        if not isinstance(entry, dict):
            continue
        given = entry.get("id")
        if isinstance(given, str) or (given is None and key == "streams"):
            found.append((index, given))
    return found


def _unnamed(given: str) -> str:
    return (
        f"the stream has no `id` and is called '{given}', after its place in the list; "
        "give it an `id`, so that it keeps its name when the list changes"
    )


def _bad_stream_id(given: str, index: int) -> str:
    return (
        f"Invalid stream id '{given}' at index {index}; use non-empty letters, numbers, '-' or '_'"
    )


__all__ = ["identity_issues"]
