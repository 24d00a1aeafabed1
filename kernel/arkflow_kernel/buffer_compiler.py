"""The `buffer:` of a stream becomes nothing, a window operator, or an error that says why (B.4).

A window buffer works on processing time and releases the original rows of a window together
(`legacy_payload`), so that a `sql` processor behind it sees the whole window as its table.
"""

import difflib
from dataclasses import dataclass, field
from typing import Any, Final

from arkflow_kernel.durations import parse_duration_ms
from arkflow_kernel.errors import Issue
from arkflow_kernel.job import ComponentSpec, OperatorSpec

WINDOW_ID: Final = "window"
"""Operator id of a compiled window buffer."""

ALL_ROWS_KEY: Final = "__arkflow_window_all"
"""Key of a window over all rows."""

_SIZES: Final = {
    "tumbling_window": ("tumbling", "size_ms", ("interval", "size")),
    "session_window": ("session", "gap_ms", ("gap",)),
}
_FIELDS: Final = ("time_field", "timestamp_field", "key_field", "aggregate_fields", "value_fields")
_KEYS: Final = {
    "memory": ("capacity", "timeout"),
    "tumbling_window": ("interval", "size", *_FIELDS),
    "session_window": ("gap", *_FIELDS),
}
_KNOWN: Final = (*_KEYS, "sliding_window")


@dataclass(frozen=True, slots=True)
class CompiledBuffer:
    """What became of a buffer. With an error among the issues, `operator` is None."""

    operator: OperatorSpec | None = None
    issues: list[Issue] = field(default_factory=list)


def compile_buffer(buffer: ComponentSpec | None, stream: str) -> CompiledBuffer:
    """Compile the buffer of a stream. A window shares the chain of the processors behind it."""
    if buffer is None:
        return CompiledBuffer()
    refused = _refused(buffer, stream)
    if refused:
        return CompiledBuffer(issues=refused)
    if buffer.type == "memory":
        return CompiledBuffer(issues=_unknown_keys(buffer))
    kind, size_key, fields = _SIZES[buffer.type]
    issues = _unknown_keys(buffer)
    size = _duration(buffer, fields, issues)
    texts = _texts(buffer, issues)
    values = _values(buffer, issues)
    if any(not issue.warning for issue in issues):
        return CompiledBuffer(issues=issues)
    config = {
        "kind": kind,
        size_key: size,
        **texts,
        "value_fields": values,
        "trigger": "processing_time",
        "trigger_interval_ms": size,
        "legacy_payload": True,
    }
    operator = OperatorSpec(
        id=WINDOW_ID,
        kind="window",
        stateful=True,
        key_field=texts["key_field"],
        config=config,
    )
    return CompiledBuffer(operator, issues)


def _refused(buffer: ComponentSpec, stream: str) -> list[Issue]:
    """C3, and names that no buffer has."""
    if buffer.type not in _KNOWN:
        near = difflib.get_close_matches(buffer.type, _KNOWN, n=1)
        known = ", ".join(f"`{name}`" for name in _KNOWN)
        hint = f"did you mean `{near[0]}`? " if near else ""
        text = f"unknown buffer type '{buffer.type}' while compiling stream '{stream}'; "
        return [Issue("buffer.type", f"{text}{hint}known: {known}")]
    if buffer.type == "sliding_window":
        text = (
            f"stream '{stream}': a `sliding_window` buffer counts rows (`window_size`, "
            "`slide_size`), which is not supported, as in ArkFlow's new kernel; declare a job "
            "under `jobs:` with an operator of kind `window` and config "
            "`{kind: sliding, size_ms: …, slide_ms: …}`, which slides over event time"
        )
        return [Issue("buffer.type", text)]
    if "join" in buffer.config:
        text = (
            f"stream '{stream}': joins in a buffer are not supported, as in ArkFlow's new "
            "kernel; declare a job under `jobs:` with one source per side and an operator of "
            "kind `join`"
        )
        return [Issue("buffer.join", text)]
    return []


def _unknown_keys(buffer: ComponentSpec) -> list[Issue]:
    known = _KEYS[buffer.type]
    issues = []
    if buffer.codec is not None:
        issues.append(Issue("buffer.codec", "a buffer takes no codec; set it on the input"))
    for key in buffer.config:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known)}"
            issues.append(Issue(f"buffer.{key}", f"unknown key '{key}' of `{buffer.type}`; {hint}"))
    return issues


def _duration(buffer: ComponentSpec, fields: tuple[str, ...], issues: list[Issue]) -> int:
    """The window's size in milliseconds, at least 1, from the first of the fields that is set."""
    config = buffer.config
    name = next((f for f in fields if f in config), None)
    if name is None:
        text = f"buffer '{buffer.type}' requires a '{fields[0]}' duration (e.g. \"1s\")"
        issues.append(Issue(f"buffer.{fields[0]}", text))
        return 1
    value = config[name]
    if not isinstance(value, str):
        text = f'`{name}` is a duration with a unit, as text (e.g. "1s")'
        issues.append(Issue(f"buffer.{name}", text))
        return 1
    try:
        return max(parse_duration_ms(value), 1)
    except ValueError as error:
        issues.append(Issue(f"buffer.{name}", str(error)))
        return 1


def _texts(buffer: ComponentSpec, issues: list[Issue]) -> dict[str, str]:
    """Timestamp and key columns, with ArkFlow's defaults (B.4)."""
    config = buffer.config
    for name in ("time_field", "timestamp_field", "key_field"):
        if name in config and not (isinstance(config[name], str) and config[name]):
            issues.append(Issue(f"buffer.{name}", f"`{name}` is the name of a column, as text"))
    timestamp = config.get("time_field", config.get("timestamp_field", "__meta_timestamp"))
    key = config.get("key_field", ALL_ROWS_KEY)
    return {"timestamp_field": str(timestamp), "key_field": str(key)}


def _values(buffer: ComponentSpec, issues: list[Issue]) -> list[Any]:
    name = "aggregate_fields" if "aggregate_fields" in buffer.config else "value_fields"
    values = buffer.config.get(name, [])
    if isinstance(values, list) and all(isinstance(v, str) and v for v in values):
        return list(values)
    issues.append(Issue(f"buffer.{name}", f"`{name}` is a list of column names"))
    return []


__all__ = ["ALL_ROWS_KEY", "WINDOW_ID", "CompiledBuffer", "compile_buffer"]
