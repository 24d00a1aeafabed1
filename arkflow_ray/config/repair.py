"""Parsing one entry of a file as far as it goes.

An entry with mistakes is parsed again without the values that are wrong, so that the rules about
the rest of it can be checked in the same run. What is repaired never runs: its mistakes are errors
(or, for unknown keys in lenient mode, warnings).
"""

import copy
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from arkflow_ray.components.config_path import ConfigPath
from arkflow_ray.components.model_issues import Finding, FindingKind, findings

Model = TypeVar("Model", bound=BaseModel)

_ROUNDS_MAX = 8
"""Each round removes at least one key; leaving a required one out may take its parent along."""


@dataclass(frozen=True, slots=True)
class Parsed(Generic[Model]):
    """What became of an entry. `spec` is None if it cannot be parsed even without its mistakes.

    `removed` are the paths that `spec` lacks; rules about them would only repeat the findings.
    """

    spec: Model | None
    findings: list[Finding] = field(default_factory=list)
    removed: frozenset[ConfigPath] = frozenset()

    def concerns_removed(self, path: ConfigPath) -> bool:
        """Whether `path` is, contains or lies in something that was removed."""
        return any(
            path[: len(gone)] == gone or (path and gone[: len(path)] == path)
            for gone in self.removed
        )


def parse_entry(model: type[Model], data: Any) -> Parsed[Model]:
    """Parse `data` as `model`, with all findings of the first attempt."""
    try:
        return Parsed(model.model_validate(data))
    except ValidationError as error:
        found = findings(error, model, data)
    rest = copy.deepcopy(data)
    removed: set[ConfigPath] = set()
    current = found
    for _ in range(_ROUNDS_MAX):
        if not all(_remove(rest, finding, removed) for finding in current):
            break
        try:
            return Parsed(model.model_validate(rest), found, frozenset(removed))
        except ValidationError as error:
            current = findings(error, model, rest)
    return Parsed(None, found, frozenset(removed))


def remove_key(data: Any, path: ConfigPath) -> bool:
    """Delete the key at `path`; False if it is not there or is an item of a list."""
    for step in path[:-1]:
        present = isinstance(data, list) or (isinstance(data, dict) and step in data)
        data = data[step] if present else None
    if path and isinstance(data, dict) and path[-1] in data:
        del data[path[-1]]
        return True
    return False


def _remove(data: Any, finding: Finding, removed: set[ConfigPath]) -> bool:
    """Take the nearest key that holds the mistake out. A list keeps its items: their indexes
    are the places of the other mistakes."""
    path = finding.path
    if finding.kind is FindingKind.MISSING_KEY:
        path = path[:-1]
    while path and isinstance(path[-1], int):
        path = path[:-1]
        if finding.kind is FindingKind.MISSING_KEY:
            return False
    if not path:
        return False
    if any(path[: len(gone)] == gone for gone in removed):
        return True
    removed.add(path)
    return remove_key(data, path)


__all__ = ["Parsed", "parse_entry", "remove_key"]
