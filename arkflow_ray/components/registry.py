"""The one list of components: built-in ones, and names that are known but not built."""

import importlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

from arkflow_ray.components.api import ComponentConfig, ComponentEntry, ComponentKind, Factory

_INPUT, _OUTPUT = ComponentKind.INPUT, ComponentKind.OUTPUT
_PROCESSOR, _CODEC = ComponentKind.PROCESSOR, ComponentKind.CODEC
_BASE = "arkflow_ray.components"

BUILT_IN: tuple[ComponentEntry, ...] = (
    ComponentEntry(
        _INPUT,
        "generate",
        "Makes rows from a template, at an interval; for trying and for tests.",
        f"{_BASE}.inputs.generate:GenerateConfig",
        f"{_BASE}.inputs.generate:build",
        takes_codec=True,
        subtasks=f"{_BASE}.inputs.dealt_splits:subtasks_max",
    ),
    ComponentEntry(
        _INPUT,
        "memory",
        "Yields the messages written in the configuration, one row each.",
        f"{_BASE}.inputs.memory:MemoryConfig",
        f"{_BASE}.inputs.memory:build",
        takes_codec=True,
    ),
    ComponentEntry(
        _INPUT,
        "file",
        "Reads JSON lines or Parquet: one file, a folder or a glob, of any fsspec URL.",
        f"{_BASE}.inputs.file_config:FileInputConfig",
        f"{_BASE}.inputs.file:build",
        subtasks=f"{_BASE}.inputs.file_config:subtasks_max",
    ),
    ComponentEntry(
        _INPUT,
        "nexmark",
        "Makes the persons, auctions or bids of the Nexmark benchmark.",
        f"{_BASE}.inputs.nexmark_config:NexmarkConfig",
        f"{_BASE}.inputs.nexmark:build",
        subtasks=f"{_BASE}.inputs.dealt_splits:subtasks_max",
    ),
    ComponentEntry(
        _OUTPUT,
        "stdout",
        "Prints a line per row to the stdout of the program that started the job.",
        f"{_BASE}.outputs.stdout:StdoutConfig",
        f"{_BASE}.outputs.stdout:build",
        takes_codec=True,
    ),
    ComponentEntry(
        _OUTPUT,
        "drop",
        "Discards every row.",
        f"{_BASE}.outputs.drop:DropConfig",
        f"{_BASE}.outputs.drop:build",
        takes_codec=True,
    ),
    ComponentEntry(
        _OUTPUT,
        "file",
        "Writes part files below a folder: JSON lines, CSV, Parquet or Arrow.",
        f"{_BASE}.outputs.file_config:FileOutputConfig",
        f"{_BASE}.outputs.file:build",
        stages_epochs=f"{_BASE}.outputs.file_config:stages_epochs",
    ),
    ComponentEntry(
        _PROCESSOR,
        "json_to_arrow",
        "Parses the JSON objects in a column of payloads into columns.",
        f"{_BASE}.processors.json_config:JsonToArrowConfig",
        f"{_BASE}.processors.json_to_arrow:build",
    ),
    ComponentEntry(
        _PROCESSOR,
        "arrow_to_json",
        "Adds `__value__`: each row as one JSON object.",
        f"{_BASE}.processors.json_config:ArrowToJsonConfig",
        f"{_BASE}.processors.arrow_to_json:build",
    ),
    ComponentEntry(
        _PROCESSOR,
        "sql",
        "Runs a DataFusion query over each batch, as table `flow`.",
        f"{_BASE}.processors.sql_config:SqlConfig",
        f"{_BASE}.processors.sql:build",
    ),
    ComponentEntry(
        _PROCESSOR,
        "python",
        "Calls a Python function or object with each batch.",
        f"{_BASE}.processors.python_config:PythonConfig",
        f"{_BASE}.processors.python:build",
    ),
    ComponentEntry(
        _PROCESSOR,
        "lookup",
        "Adds columns of a table to each row, by a key; the table is a file, read again at will.",
        f"{_BASE}.processors.lookup_config:LookupConfig",
        f"{_BASE}.processors.lookup:build",
    ),
    ComponentEntry(
        _CODEC,
        "json",
        "JSON objects, one or more a payload; types are inferred and only ever widen.",
        f"{_BASE}.codecs.json_config:JsonCodecConfig",
        f"{_BASE}.codecs.json:build",
    ),
)

LATER: dict[ComponentKind, tuple[str, ...]] = {
    _INPUT: (
        "http", "kafka", "modbus", "mqtt", "multiple_inputs", "nats", "pulsar", "redis", "sql",
        "websocket",
    ),
    _OUTPUT: (
        "http", "influxdb", "kafka", "milvus", "mongodb", "mqtt", "nats", "pgvector", "pulsar",
        "qdrant", "redis", "sql",
    ),
    _PROCESSOR: (
        "arrow_to_protobuf", "batch", "embedding", "llm", "milvus_search",
        "pgvector_search", "protobuf_to_arrow", "vector_search", "vrl", "wasm",
    ),
    _CODEC: ("debezium_json", "protobuf", "schema_registry"),
}  # fmt: skip
"""Types that ArkFlow has or that are planned, and that this release does not have yet."""

NEVER: dict[ComponentKind, tuple[str, ...]] = {
    _INPUT: ("amqp09", "file_system", "rocketmq"),
    _OUTPUT: ("amqp09", "deltalake", "python", "rocketmq", "s3"),
    _PROCESSOR: ("filter",),
    _CODEC: (),
}
"""Types seen only in abandoned branches of ArkFlow."""


@cache
def entries() -> dict[tuple[ComponentKind, str], ComponentEntry]:
    """Every component that can be used, by kind and name."""
    return {(entry.kind, entry.name): entry for entry in BUILT_IN}


def names(kind: ComponentKind) -> tuple[str, ...]:
    """Names of the usable components of one kind, sorted."""
    return tuple(sorted(name for k, name in entries() if k is kind))


def find(kind: ComponentKind, name: str) -> ComponentEntry | None:
    """The component of that kind and name, or None."""
    return entries().get((kind, name))


def config_class(entry: ComponentEntry) -> type[ComponentConfig]:
    """The component's configuration model; imports its (light) module."""
    return cast("type[ComponentConfig]", _load(entry.config))


def factory(entry: ComponentEntry) -> Factory:
    """The component's factory; imports its module, which may be heavy."""
    return cast("Factory", _load(entry.factory))


def stages_epochs(entry: ComponentEntry, config: Mapping[str, Any]) -> bool:
    """Whether an output with this configuration can be an exactly-once sink (X1).

    The configuration may hold mistakes; a wrong one gives some answer and no error.
    """
    if entry.stages_epochs is None:
        return False
    return cast("Callable[[Mapping[str, Any]], bool]", _load(entry.stages_epochs))(config)


def subtasks_max(entry: ComponentEntry, config: Mapping[str, Any]) -> int | None:
    """How many subtasks can share an input with this configuration; None: any number (K5).

    The configuration may hold mistakes, as in `stages_epochs`.
    """
    if entry.subtasks is None:
        return 1
    return cast("Callable[[Mapping[str, Any]], int | None]", _load(entry.subtasks))(config)


def _load(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


__all__ = [
    "BUILT_IN",
    "LATER",
    "NEVER",
    "config_class",
    "entries",
    "factory",
    "find",
    "names",
    "stages_epochs",
    "subtasks_max",
]
