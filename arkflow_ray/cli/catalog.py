"""`components list|show` and `schema`: what there is to write into a configuration."""

import json
from collections.abc import Iterator
from typing import Any, Final

from arkflow_ray.cli.exits import ExitCode, say
from arkflow_ray.components import registry
from arkflow_ray.components.api import ComponentEntry, ComponentKind
from arkflow_ray.components.building import RATE_KEY, unknown_type

KINDS_LATER: Final = ("buffer", "temporary")
"""Kinds that ArkFlow has and this release has no component of."""

_RATE: Final = {
    "name": RATE_KEY,
    "type": "number",
    "required": False,
    "default": None,
    "description": "At most so many rows a second are read; no limit by default.",
}
"""A field of every input; the planner takes it, so it is in no input's model."""


def list_components(kind: str | None, *, as_json: bool) -> int:
    """Print the components of one kind, or of all."""
    kinds = list(ComponentKind)
    if kind in KINDS_LATER:
        kinds = []
    elif kind is not None:
        found = _kind(kind)
        if found is None:
            return ExitCode.USAGE
        kinds = [found]
    if as_json:
        listed = {each.value: [_listed(entry) for entry in _entries(each)] for each in kinds}
        later = {each.value: list(registry.LATER[each]) for each in kinds}
        print(json.dumps({"components": listed, "later": later}, indent=2))
        return ExitCode.DONE
    print("\n\n".join(_listing(each) for each in kinds) or f"no {kind} in this release")
    return ExitCode.DONE


def show_component(kind: str, name: str, *, as_json: bool) -> int:
    """Print a component's description, fields and an example."""
    if kind in KINDS_LATER:
        say(f"there is no {kind} in this release; it comes with a later one")
        return ExitCode.USAGE
    found = _kind(kind)
    if found is None:
        return ExitCode.USAGE
    entry = registry.find(found, name)
    if entry is None:
        say(unknown_type(found, name))
        return ExitCode.USAGE
    shown = _described(entry)
    print(json.dumps(shown, indent=2, ensure_ascii=False) if as_json else _text(shown))
    return ExitCode.DONE


def print_schema() -> int:
    """Print the JSON Schema of configuration files."""
    from arkflow_ray.config.schema import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return ExitCode.DONE


def _kind(word: str) -> ComponentKind | None:
    for kind in ComponentKind:
        if kind.value == word:
            return kind
    allowed = ", ".join([*(kind.value for kind in ComponentKind), *KINDS_LATER])
    say(f"unknown kind '{word}'; say one of {allowed}")
    return None


def _entries(kind: ComponentKind) -> list[ComponentEntry]:
    found = (registry.find(kind, name) for name in registry.names(kind))
    return [entry for entry in found if entry is not None]


def _listed(entry: ComponentEntry) -> dict[str, str]:
    return {"name": entry.name, "summary": entry.summary}


def _listing(kind: ComponentKind) -> str:
    lines = [kind.value]
    lines += [f"  {entry.name:15} {entry.summary}" for entry in _entries(kind)]
    later = registry.LATER[kind]
    if later:
        lines.append(f"  (later: {', '.join(later)})")
    return "\n".join(lines)


def _described(entry: ComponentEntry) -> dict[str, Any]:
    model = registry.config_class(entry)
    schema = model.model_json_schema()
    fields = _fields(schema, schema.get("$defs", {}))
    if entry.kind is ComponentKind.INPUT:
        fields.append(_RATE)
    return {
        "kind": entry.kind.value,
        "name": entry.name,
        "summary": entry.summary,
        "description": (model.__doc__ or "").strip(),
        "takes_codec": entry.takes_codec,
        "fields": fields,
        "example": _example(entry.name, schema),
    }


def _fields(
    schema: dict[str, Any], definitions: dict[str, Any], prefix: str = ""
) -> list[dict[str, Any]]:
    """The fields of a model, those of its objects under `object.field`."""
    found: list[dict[str, Any]] = []
    for key, field in schema.get("properties", {}).items():
        name = prefix + key
        found.append(
            {
                "name": name,
                "type": _type(field, definitions),
                "required": key in schema.get("required", []),
                "default": field.get("default"),
                "description": field.get("description", ""),
            }
        )
        for option in [field, *field.get("anyOf", []), *field.get("oneOf", [])]:
            inner = definitions.get(option.get("$ref", "").rpartition("/")[2])
            if inner is not None and not prefix:
                known = {each["name"] for each in found}
                more = _fields(inner, definitions, f"{name}.")
                found += [each for each in more if each["name"] not in known]
    return found


def _type(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    """A field's type in a few words, from its JSON Schema."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return _type(definitions.get(name, {}), definitions)
    for key in ("anyOf", "oneOf"):
        if key in field:
            words = [_type(option, definitions) for option in field[key]]
            return " | ".join(dict.fromkeys(words))
    if "enum" in field or "const" in field:
        return " | ".join(json.dumps(v) for v in field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}), definitions)}"
    return str(field.get("type", "any"))


def _example(name: str, schema: dict[str, Any]) -> str:
    """The component with what it must have, as YAML."""
    definitions = schema.get("$defs", {})
    pairs = [f"{key}: {value}" for key, value in _example_fields(schema, definitions)]
    return "\n".join([f"type: {name}", *pairs]) + "\n"


def _example_fields(
    schema: dict[str, Any], definitions: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """The fields that are required, and those whose model has an example for them."""
    for key, field in schema.get("properties", {}).items():
        if key in schema.get("required", []) or field.get("examples"):
            yield key, _placeholder(key, field, definitions)


def _placeholder(key: str, field: dict[str, Any], definitions: dict[str, Any]) -> str:
    if field.get("examples"):
        return json.dumps(field["examples"][0], ensure_ascii=False)
    inner = definitions.get(field.get("$ref", "").rpartition("/")[2])
    if inner is not None:
        pairs = [f"{name}: {value}" for name, value in _example_fields(inner, definitions)]
        return "{" + ", ".join(pairs) + "}"
    words = {"string": f'"{key}"', "integer": "1", "number": "1.0", "boolean": "true"}
    kind = _type(field, definitions).partition(" | ")[0]
    if kind.startswith('"'):
        return kind
    if kind.startswith("list of"):
        return "[]"
    return words.get(kind, "{}")


def _need(field: dict[str, Any]) -> str:
    if field["required"]:
        return "required"
    return "optional" if field["default"] is None else f"default {json.dumps(field['default'])}"


def _text(shown: dict[str, Any]) -> str:
    lines = [f"{shown['kind']} {shown['name']}: {shown['summary']}", "", shown["description"], ""]
    lines.append("fields")
    for field in shown["fields"]:
        lines.append(f"  {field['name']}  ({field['type']}; {_need(field)})")
        if field["description"]:
            lines.append(f"      {field['description']}")
    if shown["takes_codec"]:
        lines.append("  codec  (a codec; default none)")
    lines += ["", "example", *(f"  {line}" for line in shown["example"].splitlines())]
    return "\n".join(lines)


__all__ = ["KINDS_LATER", "list_components", "print_schema", "show_component"]
