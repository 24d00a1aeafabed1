"""The JSON Schema (2020-12) of a configuration file, for editors.

Built from the same models that parse the file and from the registered components, so it cannot
name a key that the loader does not know. It is advice: rules that tie several values together, and
references (`${env:X}` where an enumeration is due), are beyond it.
"""

from collections.abc import Iterable
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from arkflow_kernel.keyed_config import KEYED_MODELS
from arkflow_kernel.operator_config import (
    STATE_OUTPUT_DEFAULT,
    STATE_OUTPUT_KEY,
    JoinConfig,
    TemporalJoinConfig,
)
from arkflow_kernel.window_config import WindowConfig
from arkflow_ray.components import registry
from arkflow_ray.components.api import ComponentConfig, ComponentEntry, ComponentKind
from arkflow_ray.components.building import RATE_KEY
from arkflow_ray.config.models import BUFFERS, EngineConfig

_DIALECT: Final = GenerateJsonSchema.schema_dialect
_PREFIX: Final = "#/$defs/"
_PROCESSOR_KINDS: Final = ["map", "filter", "udf"]
_RATE: Final = {
    "type": "number",
    "exclusiveMinimum": 0,
    "description": "At most so many rows a second are read.",
}
_COUNT: Final = {
    "type": "string",
    "minLength": 1,
    "default": STATE_OUTPUT_DEFAULT,
    "description": "The column that gets the running row count of the key.",
}
_JOINS: Final = (JoinConfig, TemporalJoinConfig)
_KEYED: Final = tuple(KEYED_MODELS.values())
_NAME: Final = {"type": "string", "description": "A name for this component."}

Schema = dict[str, Any]


def json_schema() -> Schema:
    """The schema of a whole file, a new object at each call."""
    entries = [entry for _, entry in sorted(registry.entries().items(), key=_order)]
    models: list[type[BaseModel]] = [EngineConfig, WindowConfig, *_JOINS, *_KEYED, *BUFFERS]
    models += [registry.config_class(entry) for entry in entries]
    unique = list(dict.fromkeys(models))
    refs, schema = models_json_schema([(m, "validation") for m in unique], by_alias=True)
    definitions: Schema = schema["$defs"]
    names = {m: refs[m, "validation"]["$ref"].removeprefix(_PREFIX) for m in unique}
    for entry in entries:
        definitions[_name(entry)] = _component(entry, definitions, names)
    for kind in ComponentKind:
        definitions[kind.value.capitalize()] = _any_of(kind, entries)
    definitions["StatefulProcessor"] = _stateful(entries, definitions)
    _fill_streams(definitions, names)
    _fill_jobs(definitions, names, entries)
    root: Schema = definitions.pop(names[EngineConfig])
    root["anyOf"] = [
        {"required": [key], "properties": {key: {"minItems": 1}}} for key in ("streams", "jobs")
    ]
    used = _reachable(root, definitions)
    kept = {name: definitions[name] for name in sorted(definitions) if name in used}
    return {"$schema": _DIALECT, **root, "title": "ArkFlow pipelines", "$defs": kept}


def _order(item: tuple[tuple[ComponentKind, str], ComponentEntry]) -> tuple[str, str]:
    (kind, name), _ = item
    return kind.value, name


def _name(entry: ComponentEntry) -> str:
    return f"{entry.kind.value}:{entry.name}"


def _component(
    entry: ComponentEntry, definitions: Schema, names: dict[type[BaseModel], str]
) -> Schema:
    """A component as it stands in a stream: `type`, `name`, `codec`, and its own keys."""
    model: type[ComponentConfig] = registry.config_class(entry)
    own = definitions[names[model]]
    properties: Schema = {"type": {"const": entry.name, "description": entry.summary}}
    if entry.kind is not ComponentKind.CODEC:
        properties["name"] = _NAME
    if entry.takes_codec:
        properties["codec"] = {"$ref": f"{_PREFIX}CodecOrName"}
    if entry.kind is ComponentKind.INPUT:
        properties[RATE_KEY] = _RATE
    return {
        "type": "object",
        "description": entry.summary,
        "properties": properties | own.get("properties", {}),
        "required": ["type", *own.get("required", [])],
        "additionalProperties": False,
    }


def _settings(entry: ComponentEntry, definitions: Schema) -> Schema:
    """A component as it stands in a job's `config`, which may repeat its type."""
    component = definitions[_name(entry)]
    required = [key for key in component["required"] if key != "type"]
    return {**component, "required": required}


def _stateful(entries: Iterable[ComponentEntry], definitions: Schema) -> Schema:
    """A processor of an operator with `stateful: true`: its keys and the count's column."""
    found = _any_of(ComponentKind.PROCESSOR, entries)
    own = [entry for entry in entries if entry.kind is ComponentKind.PROCESSOR]
    found["allOf"] = []
    for entry in own:
        component = definitions[_name(entry)]
        properties = component["properties"] | {STATE_OUTPUT_KEY: _COUNT}
        found["allOf"].append(_when({"type": entry.name}, {**component, "properties": properties}))
    return found


def _any_of(kind: ComponentKind, entries: Iterable[ComponentEntry]) -> Schema:
    """A component of a kind: `type` chooses which keys there are."""
    own = [entry for entry in entries if entry.kind is kind]
    return {
        "type": "object",
        "description": f"One {kind.value}; `type` says which.",
        "required": ["type"],
        "properties": {"type": {"enum": [entry.name for entry in own]}},
        "allOf": [_when({"type": e.name}, {"$ref": _PREFIX + _name(e)}) for e in own],
    }


def _when(values: dict[str, Any], then: Schema) -> Schema:
    """`then` where the keys have these values (one, or one of a list)."""
    tests = {
        key: {"enum": value} if isinstance(value, list) else {"const": value}
        for key, value in values.items()
    }
    return {"if": {"properties": tests, "required": list(tests)}, "then": then}


def _fill_streams(definitions: Schema, names: dict[type[BaseModel], str]) -> None:
    definitions["CodecOrName"] = {
        "description": "A codec, or only its name.",
        "anyOf": [
            {"enum": list(registry.names(ComponentKind.CODEC))},
            {"$ref": f"{_PREFIX}Codec"},
        ],
    }
    stream = definitions["StreamSpec"]["properties"]
    for key, kind in (("input", "Input"), ("output", "Output")):
        stream[key] = {"$ref": _PREFIX + kind}
    stream["error_output"] = _or_null(_PREFIX + "Output")
    stream["buffer"] = _or_null(*(_PREFIX + names[model] for model in BUFFERS))
    stream["buffer"]["description"] = "Rows are held until a window ends; `memory` has no effect."
    processors = definitions["PipelineSpec"]["properties"]
    processors["processors"] = {
        "anyOf": [{"type": "array", "items": {"$ref": f"{_PREFIX}Processor"}}, {"type": "null"}],
        "description": "Run in order; each gets what the one before it made.",
    }
    definitions["StreamSpec"]["required"] = ["input", "pipeline", "output"]


def _or_null(*references: str) -> Schema:
    found = [{"$ref": reference} for reference in references]
    return {"anyOf": [*found, {"type": "null"}], "default": None}


def _fill_jobs(
    definitions: Schema, names: dict[type[BaseModel], str], entries: list[ComponentEntry]
) -> None:
    operator = definitions["OperatorSpec"]
    processor = _when({"stateful": True}, _config(f"{_PREFIX}StatefulProcessor"))
    processor["else"] = _config(f"{_PREFIX}Processor")
    operator["allOf"] = [
        _when({"kind": _PROCESSOR_KINDS}, processor),
        _when({"kind": "aggregate"}, _aggregate(processor, names)),
        *(
            _when({"kind": kind}, _config(_PREFIX + names[model]))
            for kind, model in KEYED_MODELS.items()
            if kind != "aggregate"
        ),
        _when({"kind": "window"}, _config(_PREFIX + names[WindowConfig])),
        _when({"kind": "join"}, _join(names)),
    ]
    for name, key, kind in (
        ("SourceSpec", "input_type", ComponentKind.INPUT),
        ("SinkSpec", "output_type", ComponentKind.OUTPUT),
    ):
        spec, own = definitions[name], [entry for entry in entries if entry.kind is kind]
        spec["properties"][key] = {
            "enum": [entry.name for entry in own],
            "description": f"Which {kind.value} it is.",
        }
        spec["properties"]["codec"] = {
            "anyOf": [{"$ref": f"{_PREFIX}CodecOrName"}, {"type": "null"}]
        }
        spec["allOf"] = [
            _when({key: entry.name}, {"properties": {"config": _settings(entry, definitions)}})
            for entry in own
        ]


def _aggregate(processor: Schema, names: dict[type[BaseModel], str]) -> Schema:
    """With a `type` it is a processor, else a continuous aggregate."""
    typed = {"properties": {"config": {"required": ["type"]}}, "required": ["config"]}
    own = _config(_PREFIX + names[KEYED_MODELS["aggregate"]])
    return {"if": typed, "then": processor, "else": own}


def _join(names: dict[type[BaseModel], str]) -> Schema:
    """By its `join_type` it is a temporal one, or one of rows close to each other."""
    kind = {"properties": {"join_type": {"const": "temporal"}}, "required": ["join_type"]}
    return {
        "if": {"properties": {"config": kind}, "required": ["config"]},
        "then": _config(_PREFIX + names[TemporalJoinConfig]),
        "else": _config(_PREFIX + names[JoinConfig]),
    }


def _config(reference: str) -> Schema:
    return {"properties": {"config": {"$ref": reference}}}


def _reachable(root: Schema, definitions: Schema) -> set[str]:
    """Names of the definitions that the schema uses, directly or not."""
    found: set[str] = set()
    waiting: list[Any] = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            reference = value.get("$ref")
            name = reference.removeprefix(_PREFIX) if isinstance(reference, str) else None
            if name is not None and name not in found:
                found.add(name)
                waiting.append(definitions[name])
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return found


__all__ = ["json_schema"]
