"""Configurations of operators that keep something per key without windows: aggregates that go on,
first rows, best rows (J5-J7): what parses, and what their fields must hold together.
"""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import Field

from arkflow_kernel.buffer_compiler import ALL_ROWS_KEY
from arkflow_kernel.job import Column, OperatorSpec, PositiveDurationMs, Spec
from arkflow_kernel.window_config import AggregateConfig, Finding, aggregate_findings

_AT_EDGES: Final = ("first", "last")


class KeyedConfig(Spec):
    """What all of them have in `config`: their key, unless the operator has a `key_field`."""

    key_field: Column | None = Field(default=None, description="The column of the key.")
    key_fields: Annotated[list[Column] | None, Field(min_length=1)] = Field(
        default=None, description="Several columns that are the key together."
    )
    ttl_ms: PositiveDurationMs | None = Field(
        default=None, description="A key is forgotten after so long; `state.ttl_ms` without it."
    )


class ContinuousConfig(KeyedConfig):
    """`config` of an `aggregate` operator without `type`: aggregates of all rows so far (J5)."""

    aggregates: Annotated[list[AggregateConfig], Field(min_length=1)] = Field(
        description="What to compute of the rows of each key."
    )
    timestamp_field: Column | None = Field(
        default=None, description="The column of a row's time, which decides on `first` and `last`."
    )
    emit_interval_ms: PositiveDurationMs | None = Field(
        default=None, description="Changed keys leave so often; without it after each batch."
    )
    overflow: Literal["error"] | None = Field(
        default="error", description="A sum that leaves its type fails, or is null (`null`)."
    )


class DeduplicateConfig(KeyedConfig):
    """`config` of a `deduplicate` operator, an addition: the first row of each key passes (J6)."""


class TopNConfig(KeyedConfig):
    """`config` of a `top_n` operator, an addition: the best rows of each key (J7)."""

    by: Column = Field(description="The column by whose value rows are ranked.")
    n: int = Field(ge=1, description="How many rows a key has at most.")
    order: Literal["desc", "asc"] = Field(
        default="desc", description="Whether the greatest or the least value is the best."
    )
    rank_field: Column = Field(
        default="rank", description="The column that gets the place of a row, from 1 on."
    )


def keyed_model(operator: OperatorSpec) -> type[KeyedConfig] | None:
    """The model of an operator's config, if it keeps something per key without windows.

    With `config.type` an aggregate is a processor (C.2).
    """
    if operator.kind == "aggregate" and "type" in operator.config:
        return None
    return KEYED_MODELS.get(operator.kind)


KEYED_MODELS: Final[dict[str, type[KeyedConfig]]] = {
    "aggregate": ContinuousConfig,
    "deduplicate": DeduplicateConfig,
    "top_n": TopNConfig,
}
"""Kinds of operators that keep something per key without windows."""


def keyed_findings(
    config: KeyedConfig, operator: OperatorSpec, state_ttl_ms: int | None = None
) -> Iterator[Finding]:
    """Every mistake between the fields of a config, the key of its operator, and the TTL of the
    job's `state`.
    """
    yield from _keys(config, operator)
    if isinstance(config, ContinuousConfig):
        keys = dict.fromkeys(keys_of(config, operator), "that is a key")
        yield from aggregate_findings(config.aggregates, keys)
        yield from _times(config)
        yield from _ttl(config, state_ttl_ms)


def _ttl(config: ContinuousConfig, state_ttl_ms: int | None) -> Iterator[Finding]:
    """What a TTL does not go with."""
    ttl = config.ttl_ms or state_ttl_ms
    if ttl is None:
        return
    where = "ttl_ms" if config.ttl_ms else "the job's state.ttl_ms"
    if config.emit_interval_ms is not None and config.emit_interval_ms >= ttl:
        text = f"emit_interval_ms must be below {where} ({ttl}): a key would be forgotten before"
        yield Finding("config.emit_interval_ms", f"{text} it leaves")


def _keys(config: KeyedConfig, operator: OperatorSpec) -> Iterator[Finding]:
    given = {"config.key_field": config.key_field, "config.key_fields": config.key_fields}
    found = [path for path, value in given.items() if value is not None]
    if not found and not operator.key_field:
        text = "`key_field` is required: the column whose values are kept apart"
        yield Finding("config.key_field", text)
    elif len(found) + bool(operator.key_field) > 1 and not _same(config, operator):
        text = "give one of `key_field` and `key_fields`, here or at the operator, not several"
        yield Finding(found[-1], text)
    keys = keys_of(config, operator)
    for i, name in enumerate(keys):
        path = f"config.key_fields[{i}]" if config.key_fields else "config.key_field"
        if name in keys[:i]:
            yield Finding(path, f"`key_fields` names '{name}' twice; remove one")
        if name == ALL_ROWS_KEY:
            text = f"`{name}` is no column, and only a window may be of all rows"
            yield Finding(path, f"{text}; make a column of one value in a `sql` operator before")


def _same(config: KeyedConfig, operator: OperatorSpec) -> bool:
    return config.key_fields is None and config.key_field == operator.key_field


def keys_of(config: KeyedConfig, operator: OperatorSpec) -> list[str]:
    """The key columns."""
    if config.key_fields:
        return list(config.key_fields)
    single = config.key_field or operator.key_field
    return [single] if single else []


def _times(config: ContinuousConfig) -> Iterator[Finding]:
    edges = [each.function for each in config.aggregates if each.function in _AT_EDGES]
    if edges and config.timestamp_field is None:
        text = f"`{edges[0]}` needs `timestamp_field`, the column of a row's time: the order in"
        yield Finding("config.timestamp_field", f"{text} which rows arrive is another at each run")
    elif not edges and config.timestamp_field is not None:
        text = "`timestamp_field` only decides which rows are first and last; rows without a time"
        yield Finding(
            "config.timestamp_field", f"{text} would be left out: remove it", warning=True
        )


__all__ = [
    "KEYED_MODELS",
    "ContinuousConfig",
    "DeduplicateConfig",
    "KeyedConfig",
    "TopNConfig",
    "keyed_findings",
    "keyed_model",
    "keys_of",
]
