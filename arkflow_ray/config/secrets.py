"""Secrets: references in configurations and in the JobSpec, values only when a component is built.

A text of a loaded configuration may hold `${secret:NAME}` or `${secret:NAME:-text}`; nothing else
in it is a reference any more. Text that only looks like one is kept apart by two escapes, made
by `escape_literal` and undone by `resolve_secrets`: `$${secret:` stands for the characters
`${secret:`, and `${secret:$}` for one dollar sign. Values never appear in errors (M8).
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from arkflow_kernel.errors import ConfigError, Issue
from arkflow_ray.components.config_path import ConfigPath, render_path

VARIABLE_PREFIX: Final = "ARKFLOW_SECRET_"
"""`${secret:X}` is the environment variable `ARKFLOW_SECRET_X`."""

HIDDEN: Final = "***"

_TOKEN = re.compile(r"\$\$\{secret:|\$\{secret:([^}]*)\}")
_DOLLAR: Final = "$"


class Secret:
    """A text that shows itself only to `reveal`: repr, str, pickle and JSON are `***`."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself. Call it where the value is used, never where it is kept."""
        return self._value

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> tuple[type["Secret"], tuple[str]]:
        return (Secret, (HIDDEN,))

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Secret":
        return self

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: Any, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, Secret) else Secret(str(value)),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda _: HIDDEN),
        )


def escape_literal(text: str, *, before_reference: bool = False) -> str:
    """`text` such that `resolve_secrets` gives back exactly it."""
    text = text.replace("${secret:", "$${secret:")
    if not before_reference:
        return text
    bare = text.rstrip(_DOLLAR)
    return bare + f"${{secret:{_DOLLAR}}}" * (len(text) - len(bare))


def resolve_secrets(value: Any, env: Mapping[str, str | Secret]) -> Any:
    """A copy of a loaded configuration value with every secret reference replaced.

    `env` holds the variables with their prefix. Texts become plain `str`, so the result belongs
    into a component and nowhere else. Raises `ConfigError` naming path and variable if one is
    unset.
    """
    return _walk(value, (), env)


def secret_environment(value: Any, env: Mapping[str, str | Secret]) -> dict[str, Secret]:
    """The variables of `env` that the references in `value` name: what a worker needs of it."""
    found: dict[str, Secret] = {}
    for text in _texts(value):
        for match in _TOKEN.finditer(text):
            variable = _variable(match)
            known = env.get(variable) if variable else None
            if known is not None:
                found[variable] = known if isinstance(known, Secret) else Secret(known)
    return found


def resolve_reference(body: str, env: Mapping[str, str | Secret]) -> str | None:
    """The value of `NAME` or `NAME:-text`; None if the variable is unset and has no default."""
    name, separator, default = body.partition(":-")
    found = env.get(VARIABLE_PREFIX + name)
    text = found.reveal() if isinstance(found, Secret) else found
    return default if separator and not text else text


def _variable(match: re.Match[str]) -> str:
    body = match[1]
    if body is None or body == _DOLLAR:
        return ""
    return VARIABLE_PREFIX + body.partition(":-")[0]


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping | list | tuple):
        return [text for item in items for text in _texts(item)]
    return []


def _walk(value: Any, path: ConfigPath, env: Mapping[str, str | Secret]) -> Any:
    if isinstance(value, Mapping):
        return {key: _walk(item, (*path, str(key)), env) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(item, (*path, index), env) for index, item in enumerate(value)]
    return _resolve(value, path, env) if isinstance(value, str) else value


def _resolve(text: str, path: ConfigPath, env: Mapping[str, str | Secret]) -> str:
    def replace(match: re.Match[str]) -> str:
        body = match[1]
        if body is None:
            return "${secret:"
        if body == _DOLLAR:
            return _DOLLAR
        value = resolve_reference(body, env)
        if value is None:
            _unset(path, _variable(match), match[0])
        return value

    return _TOKEN.sub(replace, text)


def _unset(path: ConfigPath, variable: str, reference: str) -> NoReturn:
    message = f"environment variable '{variable}' is not set (reference: {reference})"
    raise ConfigError([Issue(render_path(path), message)])


__all__ = [
    "HIDDEN",
    "VARIABLE_PREFIX",
    "Secret",
    "escape_literal",
    "resolve_reference",
    "resolve_secrets",
    "secret_environment",
]
