"""Configuration of the `lookup` processor. Light: no table is read here."""

from typing import Annotated, Final, Literal

from pydantic import Field, field_validator, model_validator

from arkflow_ray.components.api import ComponentConfig
from arkflow_ray.components.codecs.json_config import FieldTypes
from arkflow_ray.components.paths import absolute_path

TableFormat = Literal["parquet", "csv", "json"]

FORMATS: Final[dict[str, TableFormat]] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
"""What a path's ending says of its format."""

Name = Annotated[str, Field(min_length=1)]
Names = Annotated[Name | Annotated[list[Name], Field(min_length=1)], Field(examples=["product"])]


class LookupTableConfig(ComponentConfig):
    """Where the table is. A local `path` is made absolute (C8)."""

    path: Annotated[
        str, Field(min_length=1, description="One file, local or fsspec URL.", examples=["a.csv"])
    ]
    format: Annotated[
        TableFormat | None,
        Field(description="parquet, csv (with a header line) or json (an object a line)."),
    ] = None
    types: Annotated[
        FieldTypes, Field(description="csv, json: columns whose type is not inferred.")
    ] = Field(default_factory=dict)

    @field_validator("path")
    @classmethod
    def _absolute(cls, value: str) -> str:
        return absolute_path(value)

    @model_validator(mode="after")
    def _known(self) -> "LookupTableConfig":
        if self.read_as == "parquet" and self.types:
            raise ValueError("`types` has no effect on parquet, which has its own; remove it")
        return self

    @property
    def read_as(self) -> TableFormat:
        """The format; by the path's ending if it is not given. ValueError if that says nothing."""
        if self.format is not None:
            return self.format
        for ending, found in FORMATS.items():
            if self.path.lower().endswith(ending):
                return found
        raise ValueError("the path's ending says no format; set `format` to parquet, csv or json")


class LookupConfig(ComponentConfig):
    """Processor `lookup`."""

    table: LookupTableConfig
    on: Annotated[Names, Field(description="Column of the rows, or several, that are looked up.")]
    key: Annotated[
        Names | None, Field(description="The table's columns for them; by default of equal names.")
    ] = None
    columns: Annotated[
        list[Name] | None,
        Field(description="Columns of the table to add; by default all but the keys."),
    ] = None
    prefix: Annotated[str, Field(description="Text before the names of added columns.")] = ""
    how: Annotated[
        Literal["left", "inner"],
        Field(description="A row that is not found gets nulls (left) or is left out (inner)."),
    ] = "left"
    on_duplicate: Annotated[
        Literal["fail", "last"],
        Field(description="A key that is in the table twice is an error, or its last row counts."),
    ] = "fail"
    refresh_interval_ms: Annotated[
        int | None,
        Field(
            ge=1,
            le=86_400_000 * 366,
            description="How often the file is looked at, and read again if it changed.",
        ),
    ] = None

    @model_validator(mode="after")
    def _pairs(self) -> "LookupConfig":
        if len(self.on_names) != len(self.key_names):
            raise ValueError(
                f"`on` names {len(self.on_names)} columns and `key` {len(self.key_names)}; they "
                "must be pairs, in the same order"
            )
        for name, names in (("on", self.on_names), ("key", self.key_names)):
            if len(set(names)) < len(names):
                raise ValueError(f"`{name}` names a column twice; remove one of them")
        added = self.columns or []
        if len(set(added)) < len(added):
            raise ValueError("`columns` names a column twice; remove one of them")
        return self

    @property
    def on_names(self) -> tuple[str, ...]:
        """`on` as a list."""
        return _listed(self.on)

    @property
    def key_names(self) -> tuple[str, ...]:
        """`key` as a list."""
        return self.on_names if self.key is None else _listed(self.key)


def _listed(names: str | list[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


__all__ = ["FORMATS", "LookupConfig", "LookupTableConfig", "TableFormat"]
