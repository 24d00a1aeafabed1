"""Configurations of the operators that the kernel itself runs (D.8, D.9, J5-J7).

The models say what parses; `config_issues` adds what the fields must hold together and turns
every mistake into an Issue below `config`. Processors' configurations belong to the components.
"""

import difflib
import re
from collections.abc import Iterator
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from arkflow_kernel.errors import Issue
from arkflow_kernel.job import (
    Column,
    DurationMs,
    OperatorSpec,
    PositiveDurationMs,
    PositiveInt,
    Spec,
)
from arkflow_kernel.keyed_config import KeyedConfig, keyed_findings, keyed_model
from arkflow_kernel.window_config import Finding, WindowConfig, window_findings

STATE_OUTPUT_KEY: Final = "state_output_field"
"""Key in the config of a stateful processor that the processor itself never sees (C.2)."""

STATE_OUTPUT_DEFAULT: Final = "__arkflow_state_count"
"""Column of the running row count of a row's key, unless the config names another (C.2)."""


_KINDS: Final = {
    "int_type": "an integer",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "model_type": "a mapping",
}


class _JoinSides(Spec):
    """What all joins say of their sides."""

    left_from: Column
    right_from: Column
    left_key: Column
    right_key: Column
    left_timestamp: Column = "__meta_timestamp"
    right_timestamp: Column = "__meta_timestamp"
    max_per_key: PositiveInt = 10_000
    on_overflow: Literal["fail", "evict_oldest"] = "fail"


class JoinConfig(_JoinSides):
    """`config` of a `join` operator (D.9); with `join_type: temporal` a `TemporalJoinConfig`."""

    join_type: Literal["inner", "left_outer", "right_outer", "full_outer", "temporal"] = "inner"
    window_ms: PositiveDurationMs
    ttl_ms: DurationMs = 0


class TemporalJoinConfig(_JoinSides):
    """`config` of a temporal join, an addition: the left side's rows with versions (J9).

    It has no `window_ms`, and no `ttl_ms`: how long a version holds is `version_ttl_ms`, since
    without it that is for ever, and not 0 ms.
    """

    join_type: Literal["temporal"]
    unmatched: Literal["drop", "keep"] = Field(
        default="drop", description="A row without a version: left out, or kept with nulls."
    )
    version_ttl_ms: PositiveDurationMs | None = Field(
        default=None, description="A version that none follows holds so long; else for ever."
    )


def join_model(config: dict[str, Any]) -> type[JoinConfig | TemporalJoinConfig]:
    """The model of a join's config."""
    return TemporalJoinConfig if config.get("join_type") == "temporal" else JoinConfig


def config_issues(operator: OperatorSpec, state_ttl_ms: int | None = None) -> list[Issue]:
    """Every mistake in the config of an operator that the kernel runs itself, at paths that begin
    with `config`. `state_ttl_ms` is the job's `state.ttl_ms`.
    """
    models: dict[str, type[Spec]] = {"window": WindowConfig, "join": join_model(operator.config)}
    model = keyed_model(operator) or models.get(operator.kind)
    if model is None:
        return []
    prefix = f"{operator.kind} operator '{operator.id}' has invalid config: "
    try:
        parsed = model.model_validate(operator.config)
    except ValidationError as error:
        known = [field.alias or name for name, field in model.model_fields.items()]
        return [_issue(detail, known, prefix) for detail in error.errors(include_url=False)]
    if isinstance(parsed, WindowConfig):
        found = window_findings(parsed, operator.key_field)
    elif isinstance(parsed, KeyedConfig):
        found = keyed_findings(parsed, operator, state_ttl_ms)
    else:
        found = _join(parsed)
    return [Issue(each.path, prefix + each.text, each.warning) for each in found]


def _issue(detail: Any, known: list[str], prefix: str) -> Issue:
    """One of pydantic's findings, in our words; never the value that was found."""
    location = list(detail["loc"])
    path = "config" + "".join(f"[{x}]" if isinstance(x, int) else f".{x}" for x in location)
    name = location[-1] if location and isinstance(location[-1], str) else path
    if detail["type"] == "missing":
        return Issue(path, f"{prefix}`{name}` is required")
    if detail["type"] == "extra_forbidden":
        names = known if len(location) == 1 else ["function", "field", "as"]
        near = difflib.get_close_matches(str(name), names, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(names)}"
        return Issue(path, f"{prefix}unknown key '{name}'; {hint}")
    return Issue(path, f"{prefix}`{name}` {_wrong(detail)}")


def _wrong(detail: Any) -> str:
    """What is wrong with a value, without the value."""
    kind, limits = detail["type"], detail.get("ctx", {})
    if kind == "greater_than_equal":
        return f"must be at least {limits['ge']}"
    if kind == "less_than_equal":
        return f"must be at most {limits['le']}"
    if kind in ("string_too_short", "too_short"):
        return "must not be empty"
    if kind == "literal_error":
        allowed = re.findall("'([^']*)'", limits["expected"])
        near = difflib.get_close_matches(str(detail["input"]), allowed, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        return f"must be {limits['expected']}{hint}"
    wanted = _KINDS.get(kind)
    return f"must be {wanted}" if wanted else f"is wrong: {detail['msg']}"


def _join(config: Spec) -> Iterator[Finding]:
    if isinstance(config, _JoinSides) and config.left_from == config.right_from:
        text = "left_from and right_from must be two operators; a join with itself needs a copy"
        yield Finding("config.right_from", text)


__all__ = [
    "STATE_OUTPUT_DEFAULT",
    "STATE_OUTPUT_KEY",
    "JoinConfig",
    "TemporalJoinConfig",
    "config_issues",
    "join_model",
]
