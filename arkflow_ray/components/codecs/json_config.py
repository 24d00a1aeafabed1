"""Configuration of codec `json`, and the `types:` that every reader of JSON takes. Light."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from arkflow_ray.components.api import ComponentConfig
from arkflow_ray.components.codecs.json_types import StructType, parse_type

OnError = Literal["fail", "skip"]


def _check_types(types: dict[str, str]) -> dict[str, str]:
    for text in types.values():
        parse_type(text)
    return types


FieldTypes = Annotated[dict[str, str], AfterValidator(_check_types)]
"""Fields whose type is not inferred: `bool`, `int`, `float`, `string` or `list<...>` of one."""


class JsonCodecConfig(ComponentConfig):
    """Codec `json`.

    `on_error: fail` makes payloads that cannot be decoded bad rows, `skip` leaves them out and
    counts them. `types` fixes fields; each is a column from the beginning, and a value that does
    not fit makes its payload bad.
    """

    on_error: OnError = "fail"
    types: FieldTypes = Field(default_factory=dict)


def fixed_root(types: dict[str, str]) -> StructType:
    """The types that a reader starts with."""
    return StructType({name: parse_type(text) for name, text in types.items()})


__all__ = ["FieldTypes", "JsonCodecConfig", "OnError", "fixed_root"]
