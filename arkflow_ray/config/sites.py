"""Where the components of a configuration stand, in both forms: streams and jobs.

Works on the plain data of a file, so that the components of an entry that does not fit its model
are found, and checked, all the same. What is no component (a missing `type`, a list in its place)
is left to the models.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from arkflow_kernel.operator_config import STATE_OUTPUT_KEY
from arkflow_kernel.plan import ComponentPlan
from arkflow_kernel.stream_compiler import WORKERS_KEY
from arkflow_ray.components.api import ComponentKind
from arkflow_ray.components.building import codec_config
from arkflow_ray.components.config_path import ConfigPath

_PROCESSOR_KINDS = frozenset({"map", "filter", "udf", "aggregate"})
_INPUT, _OUTPUT, _PROCESSOR = ComponentKind.INPUT, ComponentKind.OUTPUT, ComponentKind.PROCESSOR


@dataclass(frozen=True, slots=True)
class Site:
    """A component and where it stands.

    `config`, `type` and `codec` are the paths of its own keys, of its type and of its codec.
    """

    kind: ComponentKind
    plan: ComponentPlan
    config: ConfigPath
    type: ConfigPath
    codec: ConfigPath
    operator: str

    @property
    def entry(self) -> ConfigPath:
        """The stream or job that it belongs to."""
        return self.config[:2]

    def place(self, path: ConfigPath) -> ConfigPath:
        """Where a path of `check_component` stands in the file."""
        if path == ("type",):
            return self.type
        if path[:1] == ("codec",) and self.plan.codec is not None:
            return (*self.codec, *path[1:])
        return (*self.config, *path)


def component_sites(data: dict[str, Any]) -> Iterator[Site]:
    """Every component of a file, in its order, except buffers and temporaries."""
    for index, stream in _items(data, "streams"):
        yield from _stream(stream, ("streams", index))
    for index, job in _items(data, "jobs"):
        yield from _job(job, ("jobs", index))


def _items(data: dict[str, Any], key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    found = data.get(key)
    for index, item in enumerate(found if isinstance(found, list) else []):
        if isinstance(item, dict):
            yield index, item


def _stream(stream: dict[str, Any], path: ConfigPath) -> Iterator[Site]:
    named = {"input": ("source", _INPUT)}
    yield from _flat(stream, named, path)
    pipeline = stream.get("pipeline")
    if isinstance(pipeline, dict):
        for index, entry in _items(pipeline, "processors"):
            name = entry.get("type")
            if isinstance(name, str):
                config = _without(entry, "type", "name")
                given = entry.get("name")
                operator = given if isinstance(given, str) else f"p{index}-{name}"
                own = (*path, "pipeline", "processors", index)
                plan = ComponentPlan(name, config)
                yield Site(_PROCESSOR, plan, own, (*own, "type"), (*own, "codec"), operator)
    outputs = {"output": ("sink", _OUTPUT), "error_output": ("error-sink", _OUTPUT)}
    yield from _flat(stream, outputs, path)


def _flat(
    stream: dict[str, Any], keys: dict[str, tuple[str, ComponentKind]], path: ConfigPath
) -> Iterator[Site]:
    for key, (operator, kind) in keys.items():
        entry = stream.get(key)
        name = entry.get("type") if isinstance(entry, dict) else None
        if isinstance(entry, dict) and isinstance(name, str):
            own = (*path, key)
            plan = ComponentPlan(name, _without(entry, "type", "name", "codec"), _codec(entry))
            yield Site(kind, plan, own, (*own, "type"), (*own, "codec"), operator)


def _job(job: dict[str, Any], path: ConfigPath) -> Iterator[Site]:
    for list_key, type_key, kind in (
        ("sources", "input_type", _INPUT),
        ("sinks", "output_type", _OUTPUT),
    ):
        for index, entry in _items(job, list_key):
            yield from _connector(entry, type_key, kind, (*path, list_key, index))
    for index, operator in _items(job, "operators"):
        config = operator.get("config")
        if operator.get("kind") in _PROCESSOR_KINDS and isinstance(config, dict):
            name = config.get("type")
            if isinstance(name, str):
                own = (*path, "operators", index, "config")
                kept_back = (STATE_OUTPUT_KEY,) if operator.get("stateful") is True else ()
                plan = ComponentPlan(name, _without(config, "type", "name", *kept_back))
                called = str(operator.get("id"))
                yield Site(_PROCESSOR, plan, own, (*own, "type"), (*own, "codec"), called)


def _connector(
    entry: dict[str, Any], type_key: str, kind: ComponentKind, path: ConfigPath
) -> Iterator[Site]:
    config = entry.get("config", {})
    name = entry.get(type_key)
    if not isinstance(name, str) or not isinstance(config, dict):
        return
    outside = entry.get("codec") is not None
    plan = ComponentPlan(
        name,
        _without(config, "type", "name", "codec", WORKERS_KEY),
        _codec(entry if outside else config),
    )
    own = (*path, "config")
    codec = (*path, "codec") if outside else (*own, "codec")
    yield Site(kind, plan, own, (*path, type_key), codec, str(entry.get("operator_id")))


def _without(entry: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in keys}


def _codec(entry: dict[str, Any]) -> dict[str, Any] | None:
    codec = entry.get("codec")
    return codec_config(codec) if isinstance(codec, str | dict) else None


__all__ = ["Site", "component_sites"]
