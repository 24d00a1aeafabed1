"""Pydantic's findings in our words.

Every message says what was expected and what sort of value stands there, never the value itself:
it may have come from a reference. The one exception is the text of a `ValueError` that a model's
own validator raises; whoever knows the references redacts it.
"""

import difflib
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from arkflow_kernel.errors import Issue
from arkflow_ray.components.config_path import ConfigPath, render_path

KEYS_LISTED_MAX = 12
"""More known keys than this are not listed in a message."""


class FindingKind(Enum):
    """What a finding is about: loaders drop unknown keys and repair values, not missing keys."""

    UNKNOWN_KEY = "unknown"
    MISSING_KEY = "missing"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake in the data of a model, at a path relative to it."""

    path: ConfigPath
    message: str
    kind: FindingKind

    def issue(self) -> Issue:
        """The finding as an issue with a path in text."""
        return Issue(render_path(self.path), self.message)


@dataclass(frozen=True, slots=True)
class _Raw:
    """A finding before those of the branches of a union are put together."""

    path: ConfigPath
    kind: FindingKind
    message: str
    expected: str | None
    of_branch: bool


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or the known names, or nothing if they are too many."""
    names = sorted(known)
    lowered = {n.lower(): n for n in names}
    near = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    if near:
        return f"; did you mean '{lowered[near[0]]}'?"
    if not names or len(names) > KEYS_LISTED_MAX:
        return ""
    return f"; known: {', '.join(names)}"


def describe(value: Any) -> str:
    """The sort of a value, for a message."""
    if value is None:
        return "null"
    names: dict[type, str] = {
        bool: "a truth value",
        int: "an integer",
        float: "a decimal number",
        str: "text",
        list: "a list",
        dict: "a mapping",
    }
    return names.get(type(value), "something else")


def findings(error: ValidationError, model: type[BaseModel], data: Any) -> list[Finding]:
    """Every finding of `error`, which `model` raised over `data`, each path once per message."""
    raw = [_raw(detail, model, data) for detail in error.errors(include_url=False)]
    by_path: dict[ConfigPath, list[_Raw]] = {}
    for item in raw:
        by_path.setdefault(item.path, []).append(item)
    found: list[Finding] = []
    for path, items in by_path.items():
        deeper = any(len(p) > len(path) and p[: len(path)] == path for p in by_path)
        mismatches = [i for i in items if i.expected is not None]
        others = [i for i in items if i.expected is None]
        if mismatches and not (deeper and all(i.of_branch for i in mismatches)):
            expected = dict.fromkeys(str(i.expected) for i in mismatches)
            message = _mismatch(list(expected), _value_at(data, path))
            found.append(Finding(path, message, FindingKind.VALUE))
        unique = dict.fromkeys((i.message, i.kind) for i in others)
        found += [Finding(path, message, kind) for message, kind in unique]
    return found


def _mismatch(expected: list[str], value: Any) -> str:
    if len(expected) == 1 and expected[0].startswith("one of") and isinstance(value, str):
        names = expected[0].removeprefix("one of ")
        near = did_you_mean(value, [n.strip(" '") for n in names.split(",")])
        return f"must be one of {names}{near if near.startswith('; did') else ''}"
    return f"expected {' or '.join(expected)}, got {describe(value)}"


def _raw(detail: Any, model: type[BaseModel], data: Any) -> _Raw:
    name = detail["type"]
    context = detail.get("ctx", {})
    path, skipped = _path(detail["loc"], data, own_key=name in {"missing", "extra_forbidden"})
    if name == "missing":
        message = f"missing required key '{path[-1]}'"
        return _Raw(path, FindingKind.MISSING_KEY, message, None, skipped)
    if name == "extra_forbidden":
        known = known_keys(model, path[:-1])
        message = f"unknown key '{path[-1]}'{did_you_mean(str(path[-1]), known)}"
        return _Raw(path, FindingKind.UNKNOWN_KEY, message, None, skipped)
    if name == "union_tag_not_found":
        key = str(context["discriminator"]).strip("'")
        message = f"missing required key '{key}'"
        return _Raw((*path, key), FindingKind.MISSING_KEY, message, None, skipped)
    if name == "union_tag_invalid":
        path = (*path, str(context["discriminator"]).strip("'"))
        expected = f"one of {context['expected_tags']}"
        return _Raw(path, FindingKind.VALUE, "", expected, skipped)
    if name in {"literal_error", "enum"}:
        expected = f"one of {str(context['expected']).replace(' or ', ', ')}"
        return _Raw(path, FindingKind.VALUE, "", expected, skipped)
    if name in _EXPECTED:
        return _Raw(path, FindingKind.VALUE, "", _EXPECTED[name], skipped)
    told = _BOUNDS.get(name, lambda _: f"is not valid ({name})")(context)
    return _Raw(path, FindingKind.VALUE, told, None, skipped)


_EXPECTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "none_required": "null",
}


def _no_shorter(context: Any) -> str:
    least = context.get("min_length", 1)
    return "must not be empty" if least == 1 else f"must have a length of at least {least}"


_BOUNDS: dict[str, Callable[[Any], str]] = {
    "greater_than_equal": lambda c: f"must be at least {c['ge']}",
    "greater_than": lambda c: f"must be above {c['gt']}",
    "less_than_equal": lambda c: f"must be at most {c['le']}",
    "less_than": lambda c: f"must be below {c['lt']}",
    "multiple_of": lambda c: f"must be a multiple of {c['multiple_of']}",
    "finite_number": lambda _: "must be a finite number",
    "string_too_short": _no_shorter,
    "too_short": _no_shorter,
    "string_too_long": lambda c: f"must have a length of at most {c['max_length']}",
    "too_long": lambda c: f"must have a length of at most {c['max_length']}",
    "string_pattern_mismatch": lambda c: f"must match the pattern {c['pattern']}",
    "value_error": lambda c: str(c["error"]),
    "assertion_error": lambda c: str(c["error"]),
}


def _path(loc: tuple[Any, ...], data: Any, *, own_key: bool) -> tuple[ConfigPath, bool]:
    """The part of pydantic's location that exists in the data; the rest names union branches.

    With `own_key` the last step is a key that the data lacks, or that the model does not know.
    """
    path: list[str | int] = []
    value, skipped = data, False
    for number, step in enumerate(loc, start=1):
        if (isinstance(value, dict) and step in value) or (
            isinstance(value, list) and isinstance(step, int) and step < len(value)
        ):
            value = value[step]
            path.append(step)
        elif own_key and number == len(loc):
            path.append(step)
        else:
            skipped = True
    return tuple(path), skipped


def _value_at(data: Any, path: ConfigPath) -> Any:
    for step in path:
        present = isinstance(data, list) or (isinstance(data, dict) and step in data)
        data = data[step] if present else None
    return data


def known_keys(model: type[BaseModel], path: ConfigPath) -> set[str]:
    """The keys that the models at a path below `model` know; aliases instead of field names."""
    annotations: list[Any] = [model]
    for step in path:
        annotations = [below for a in annotations for below in _below(a, step)]
    return {
        field.alias or name
        for annotation in annotations
        for kind in _models(annotation)
        for name, field in kind.model_fields.items()
    }


def _members(annotation: Any) -> list[Any]:
    """The alternatives of an annotation, without `Annotated` and unions."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _members(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [m for a in get_args(annotation) for m in _members(a)]
    return [annotation]


def _models(annotation: Any) -> list[type[BaseModel]]:
    found = _members(annotation)
    return [m for m in found if isinstance(m, type) and issubclass(m, BaseModel)]


def _below(annotation: Any, step: str | int) -> list[Any]:
    found: list[Any] = []
    for member in _members(annotation):
        origin, arguments = get_origin(member), get_args(member)
        if isinstance(step, int):
            found += arguments[:1] if origin in (list, tuple, set, frozenset) else []
        elif origin is dict:
            found += arguments[1:]
        elif origin is None and isinstance(member, type) and issubclass(member, BaseModel):
            fields = member.model_fields.items()
            found += [f.annotation for name, f in fields if (f.alias or name) == step]
    return found


__all__ = ["Finding", "FindingKind", "describe", "did_you_mean", "findings", "known_keys"]
