"""Configurations of `json_to_arrow` and `arrow_to_json`. Light."""

from typing import Annotated

from pydantic import Field

from arkflow_kernel.bad_rows import VALUE_COLUMN
from arkflow_ray.components.api import ComponentConfig

_Included = Annotated[
    frozenset[str] | None, Field(description="Fields to keep; without it all are kept.")
]


class JsonToArrowConfig(ComponentConfig):
    """Processor `json_to_arrow`."""

    value_field: Annotated[
        str, Field(min_length=1, description="Column of the payloads: binary or text.")
    ] = VALUE_COLUMN
    fields_to_include: _Included = None


class ArrowToJsonConfig(ComponentConfig):
    """Processor `arrow_to_json`."""

    value_field: Annotated[
        str | None, Field(min_length=1, description="Column to add; `__value__` by default.")
    ] = None
    fields_to_include: _Included = None


__all__ = ["ArrowToJsonConfig", "JsonToArrowConfig"]
