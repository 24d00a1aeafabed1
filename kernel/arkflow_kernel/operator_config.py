"""Configurations of the operators that the kernel itself runs: windows and joins (D.8, D.9).

The models say what parses; `config_issues` adds what the fields must hold together and turns
every mistake into an Issue below `config`. Processors' configurations belong to the components.
"""

import difflib
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from arkflow_kernel.buffer_compiler import ALL_ROWS_KEY
from arkflow_kernel.errors import Issue
from arkflow_kernel.job import NonNegativeInt, OperatorSpec, PositiveInt, Spec

Column = Annotated[str, Field(min_length=1)]

PANES_PER_ROW_MAX: Final = 10_000
"""Windows that one row may belong to: size / slide (D.8)."""

STATE_OUTPUT_KEY: Final = "state_output_field"
"""Key in the config of a stateful processor that the processor itself never sees (C.2)."""

STATE_OUTPUT_DEFAULT: Final = "__arkflow_state_count"
"""Column of the running row count of a row's key, unless the config names another (C.2)."""

_SIZES: Final = {
    "tumbling": ("size_ms",),
    "sliding": ("size_ms", "slide_ms"),
    "session": ("gap_ms",),
}


class AggregateConfig(Spec):
    """An entry of `aggregates:` (N3), an addition. Without `field` only `count` makes sense."""

    function: Literal[
        "count", "sum", "min", "max", "avg", "stddev", "first", "last", "count_distinct"
    ]
    field: Column | None = None
    as_: Annotated[Column | None, Field(alias="as")] = None


def aggregate_name(aggregate: AggregateConfig) -> str:
    """The column of an aggregate: its `as`, else `sum_price`, or `count` of rows."""
    if aggregate.as_ is not None:
        return aggregate.as_
    return "_".join(part for part in (aggregate.function, aggregate.field) if part)


class WindowConfig(Spec):
    """`config` of a `window` operator (D.8)."""

    kind: Literal["tumbling", "sliding", "session"]
    size_ms: PositiveInt | None = None
    slide_ms: PositiveInt | None = None
    gap_ms: PositiveInt | None = None
    unit: Literal["day", "week", "month"] | None = None
    timezone: Column | None = None
    offset_ms: int = 0
    timestamp_field: Column
    key_field: Column | None = None
    key_fields: Annotated[list[Column] | None, Field(min_length=1)] = None
    value_fields: list[Column] = Field(default_factory=list)
    aggregates: Annotated[list[AggregateConfig] | None, Field(min_length=1)] = None
    trigger: Literal["watermark", "processing_time"] = "watermark"
    trigger_interval_ms: PositiveInt = 5_000
    watermark_field: Column = "__watermark_ms"
    allowed_lateness_ms: NonNegativeInt | None = None
    legacy_payload: bool = False
    max_buffered_keys: PositiveInt | None = None
    on_overflow: Literal["fail", "evict_oldest"] = "fail"
    overflow: Literal["error"] | None = "error"


class JoinConfig(Spec):
    """`config` of a `join` operator (D.9)."""

    left_from: Column
    right_from: Column
    left_key: Column
    right_key: Column
    left_timestamp: Column = "__meta_timestamp"
    right_timestamp: Column = "__meta_timestamp"
    join_type: Literal["inner", "left_outer", "right_outer", "full_outer"] = "inner"
    window_ms: PositiveInt
    ttl_ms: NonNegativeInt = 0
    max_per_key: PositiveInt = 10_000
    on_overflow: Literal["fail", "evict_oldest"] = "fail"


def config_issues(operator: OperatorSpec) -> list[Issue]:
    """Every mistake in the config of a window or join, at paths that begin with `config`."""
    models: dict[str, type[Spec]] = {"window": WindowConfig, "join": JoinConfig}
    model = models.get(operator.kind)
    if model is None:
        return []
    prefix = f"{operator.kind} operator '{operator.id}' has invalid config: "
    try:
        parsed = model.model_validate(operator.config)
    except ValidationError as error:
        known = [field.alias or name for name, field in model.model_fields.items()]
        return [_issue(detail, known, prefix) for detail in error.errors(include_url=False)]
    found = _window(parsed) if isinstance(parsed, WindowConfig) else _join(parsed)
    return [Issue(path, prefix + text, warning) for path, text, warning in found]


def _issue(detail: Any, known: list[str], prefix: str) -> Issue:
    """One of pydantic's findings, in our words; never the value that was found."""
    location = list(detail["loc"])
    path = "config" + "".join(f"[{x}]" if isinstance(x, int) else f".{x}" for x in location)
    name = location[-1] if location else "config"
    if detail["type"] == "missing":
        return Issue(path, f"{prefix}`{name}` is required")
    if detail["type"] == "extra_forbidden":
        names = known if len(location) == 1 else ["function", "field", "as"]
        near = difflib.get_close_matches(str(name), names, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(names)}"
        return Issue(path, f"{prefix}unknown key '{name}'; {hint}")
    return Issue(path, f"{prefix}`{name}`: {detail['msg']}")


_Found = tuple[str, str, bool]


def _window(config: WindowConfig) -> list[_Found]:
    wanted = () if config.unit is not None else _SIZES[config.kind]
    found: list[_Found] = []
    for name in ("size_ms", "slide_ms", "gap_ms"):
        given = getattr(config, name) is not None
        if name in wanted and not given:
            found.append((f"config.{name}", f"a {config.kind} window needs `{name}`", False))
        if given and name not in wanted:
            text = f"a {config.kind} window has no `{name}`; remove it"
            found.append((f"config.{name}", text, False))
    return [*found, *_slide(config), *_window_keys(config), *_window_outputs(config)]


def _slide(config: WindowConfig) -> list[_Found]:
    size, slide = config.size_ms, config.slide_ms
    if config.kind != "sliding" or size is None or slide is None:
        return []
    if slide > size:
        text = "slide_ms must not exceed size_ms, or rows between two windows would be lost"
        return [("config.slide_ms", text, False)]
    if size > slide * PANES_PER_ROW_MAX:
        text = f"size_ms / slide_ms must not exceed {PANES_PER_ROW_MAX}; raise slide_ms"
        return [("config.slide_ms", text, False)]
    return []


def _window_keys(config: WindowConfig) -> list[_Found]:
    if config.key_field is None and config.key_fields is None:
        text = f"`key_field` is required; `{ALL_ROWS_KEY}` makes one window of all rows"
        return [("config.key_field", text, False)]
    if config.key_field is not None and config.key_fields is not None:
        return [("config.key_fields", "give `key_field` or `key_fields`, not both", False)]
    return []


def _window_outputs(config: WindowConfig) -> list[_Found]:
    found: list[_Found] = []
    if config.legacy_payload and config.kind == "sliding":
        found.append(("config.legacy_payload", "a sliding window cannot release its rows", False))
    if config.legacy_payload and config.aggregates:
        text = "with `legacy_payload` a window releases its rows and aggregates nothing"
        found.append(("config.aggregates", text, False))
    if config.aggregates and config.value_fields:
        text = "`value_fields` has no effect beside `aggregates`; remove one of them"
        found.append(("config.value_fields", text, False))
    for i, aggregate in enumerate(config.aggregates or []):
        if aggregate.field is None and aggregate.function != "count":
            text = f"`{aggregate.function}` needs a `field`"
            found.append((f"config.aggregates[{i}].field", text, False))
    if config.on_overflow == "evict_oldest" and config.max_buffered_keys is None:
        text = "`on_overflow` has no effect without `max_buffered_keys`"
        found.append(("config.on_overflow", text, True))
    return found


def _join(config: Spec) -> list[_Found]:
    if isinstance(config, JoinConfig) and config.left_from == config.right_from:
        text = "left_from and right_from must be two operators; a join with itself needs a copy"
        return [("config.right_from", text, False)]
    return []


__all__ = [
    "PANES_PER_ROW_MAX",
    "STATE_OUTPUT_DEFAULT",
    "STATE_OUTPUT_KEY",
    "AggregateConfig",
    "JoinConfig",
    "WindowConfig",
    "aggregate_name",
    "config_issues",
]
