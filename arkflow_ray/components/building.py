"""Building components, and everything that can be wrong with one before it is built.

The check before a job starts and the host that runs a chain build in the same way; they differ in
what `resolve` does with secrets. Building is dry: nothing connects, nothing is written.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from arkflow_kernel.errors import ArkflowError, ConfigError, Issue
from arkflow_kernel.plan import ComponentPlan
from arkflow_kernel.ports import ReplayKind
from arkflow_ray.components import registry
from arkflow_ray.components.api import (
    BuildContext,
    Built,
    Codec,
    ComponentConfig,
    ComponentEntry,
    ComponentKind,
)
from arkflow_ray.components.config_path import join_paths
from arkflow_ray.components.model_issues import describe, did_you_mean, findings

Resolve = Callable[[dict[str, Any]], dict[str, Any]]
"""Replaces the references to secrets in a component's configuration. May raise `ConfigError`."""

RATE_KEY = "rows_per_second"
"""A key of every input that the planner takes out (`SourcePlan`): no input's model knows it."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A component and what became of it; `built` is None exactly if `issues` is not empty."""

    issues: list[Issue]
    built: Built | None = None


def keep_references(config: dict[str, Any]) -> dict[str, Any]:
    """The `resolve` of a configuration without secrets."""
    return config


def check_component(
    kind: ComponentKind,
    plan: ComponentPlan,
    context: BuildContext,
    resolve: Resolve = keep_references,
) -> list[Issue]:
    """Every mistake in a component, at paths relative to its configuration; empty if it builds.

    The path `type` is the type, `codec…` lies in its codec, all others are its own keys.
    """
    return _component(kind, plan, context, resolve).issues


def build_component(
    kind: ComponentKind,
    plan: ComponentPlan,
    context: BuildContext,
    resolve: Resolve = keep_references,
) -> Built:
    """The component, unopened. Raises `ConfigError` with every mistake."""
    part = _component(kind, plan, context, resolve)
    if part.built is None:
        raise ConfigError(part.issues)
    return part.built


def codec_config(codec: dict[str, Any] | str | None) -> dict[str, Any] | None:
    """`codec: json` means `codec: {type: json}`."""
    return {"type": codec} if isinstance(codec, str) else codec


def component_model(kind: ComponentKind, name: str) -> type[ComponentConfig] | None:
    """The configuration model of a component, or None for an unknown one."""
    entry = registry.find(kind, name)
    return registry.config_class(entry) if entry else None


def stages_epochs(output_type: str, config: Mapping[str, Any]) -> bool:
    """Whether an output of this type and configuration can be an exactly-once sink (X1).

    `config` is as it stands in the file, with or without `type`. False for an unknown type; the
    mistakes of a configuration are `check_component`'s to find.
    """
    entry = registry.find(ComponentKind.OUTPUT, output_type)
    return entry is not None and registry.stages_epochs(entry, config)


def replay_kind(input_type: str) -> ReplayKind:
    """What an input of this type can repeat after a failure (B7); `position` for an unknown one."""
    entry = registry.find(ComponentKind.INPUT, input_type)
    return ReplayKind.POSITION if entry is None else entry.replay


def subtasks_max(input_type: str, config: Mapping[str, Any]) -> int | None:
    """How many subtasks can share an input (K5); None: any number, also for an unknown type."""
    entry = registry.find(ComponentKind.INPUT, input_type)
    return None if entry is None else registry.subtasks_max(entry, config)


def _component(
    kind: ComponentKind, plan: ComponentPlan, context: BuildContext, resolve: Resolve
) -> _Part:
    entry = registry.find(kind, plan.type)
    codec = _codec(plan, context, resolve)
    if entry is None:
        return _Part([Issue("type", unknown_type(kind, plan.type)), *codec.issues])
    issues = list(codec.issues)
    if plan.codec is not None and not entry.takes_codec:
        issues = [Issue("codec", f"the {kind.value} '{plan.type}' takes no codec; remove the key")]
    given = {key: value for key, value in plan.config.items() if key != "type"}
    if kind is ComponentKind.INPUT:
        issues += _rate_issues(given.pop(RATE_KEY, None))
    try:
        config = _parse(registry.config_class(entry), resolve(given))
    except ConfigError as error:
        return _Part(issues + error.issues)
    if issues:
        # Built all the same, without its codec: its own mistakes are to be shown as well.
        return _Part(issues + _build(entry, config, replace(context, codec=None)).issues)
    built = codec.built if plan.codec is not None else context.codec
    return _build(entry, config, replace(context, codec=_as_codec(built)))


def _build(entry: ComponentEntry, config: ComponentConfig, context: BuildContext) -> _Part:
    try:
        return _Part([], registry.factory(entry)(config, context))
    except ConfigError as error:
        return _Part(error.issues or [Issue("", error.message)])
    except ArkflowError as error:
        return _Part([Issue("", error.message)])
    except Exception as error:  # noqa: BLE001 - a factory runs foreign code
        told = f"the {entry.kind.value} '{entry.name}' cannot be built"
        return _Part([Issue("", f"{told}: {type(error).__name__}: {error}")])


def _codec(plan: ComponentPlan, context: BuildContext, resolve: Resolve) -> _Part:
    if plan.codec is None:
        return _Part([])
    config = dict(plan.codec)
    name = config.pop("type", None)
    if name is None:
        return _Part([Issue("codec", "missing required key 'type'")])
    if not isinstance(name, str):
        return _Part([Issue("codec", f"`type`: expected text, got {describe(name)}")])
    inner = ComponentPlan(name, config)
    part = _component(ComponentKind.CODEC, inner, replace(context, codec=None), resolve)
    return _Part([replace(i, path=join_paths("codec", i.path)) for i in part.issues], part.built)


def _as_codec(built: Built | None) -> Codec | None:
    # The registry's entry says that this is a codec; the union `Built` cannot.
    return built  # type: ignore[return-value]


def _rate_issues(rate: Any) -> list[Issue]:
    if rate is None:
        return []
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        return [Issue(RATE_KEY, f"expected a number, got {describe(rate)}")]
    finite = 0 < rate < float("inf")
    return [] if finite else [Issue(RATE_KEY, "must be above 0 and finite")]


def _parse(model: type[ComponentConfig], config: dict[str, Any]) -> ComponentConfig:
    try:
        # By way of JSON, strict mode takes a list for a tuple or a set, and still coerces nothing.
        return model.model_validate_json(json.dumps(config))
    except ValidationError as error:
        raise ConfigError(model_findings(error, model, config)) from None


def model_findings(
    error: ValidationError, model: type[BaseModel], config: dict[str, Any]
) -> list[Issue]:
    """Pydantic's findings about a component's configuration as issues."""
    return [finding.issue() for finding in findings(error, model, config)]


def unknown_type(kind: ComponentKind, name: str) -> str:
    """Why there is no component of that name (A.6): never heard of, not yet, or never."""
    what = kind.value
    if name in registry.LATER[kind]:
        return f"the {what} '{name}' is not available in this release; it comes with a later one"
    if name in registry.NEVER[kind]:
        return (
            f"the {what} '{name}' existed only in side branches of ArkFlow and will not come"
            f"{did_you_mean(name, registry.names(kind))}"
        )
    known = (*registry.names(kind), *registry.LATER[kind])
    hint = did_you_mean(name, known)
    if not hint.startswith("; did"):
        hint = f"; available: {', '.join(registry.names(kind))}"
    return f"Unknown {what} type: {name}{hint}"


__all__ = [
    "RATE_KEY",
    "Resolve",
    "build_component",
    "check_component",
    "codec_config",
    "component_model",
    "keep_references",
    "replay_kind",
    "stages_epochs",
    "subtasks_max",
    "unknown_type",
]
