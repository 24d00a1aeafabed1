"""Configuration of input `file`. Light: nothing here opens a file or imports a format."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator

from arkflow_kernel.limits import BATCH_ROWS_DEFAULT, MIB, ROW_BYTES_MAX
from arkflow_ray.components.api import ComponentConfig
from arkflow_ray.components.codecs.json_config import FieldTypes, OnError
from arkflow_ray.components.outputs.file_config import parse_size
from arkflow_ray.components.paths import absolute_path

BATCH_ROWS_MAX: Final = 1_048_576
"""Above this a batch of the narrowest rows is larger than a frame may be."""

SPLIT_BYTES_MIN: Final = MIB
"""Each range that was begun stands in every checkpoint, so there must not be too many."""

BatchRows = Annotated[int, Field(ge=1, le=BATCH_ROWS_MAX, description="Most rows in one batch.")]


def subtasks_max(_: Mapping[str, Any]) -> int | None:
    """There may be any number of files."""
    return None


class FileTypeConfig(ComponentConfig):
    """What the files are and where. A local `path` is made absolute (C8)."""

    type: Annotated[
        Literal["json", "parquet", "avro", "arrow", "csv"],
        Field(description="json (an object a line) or parquet; avro, arrow and csv come later."),
    ]
    path: Annotated[
        str,
        Field(
            min_length=1,
            description="A file, a folder or a glob; local or fsspec URL.",
            examples=["data/*.jsonl"],
        ),
    ]
    store: Annotated[
        dict[str, Any] | None, Field(description="ArkFlow's object stores; comes later.")
    ] = None

    @field_validator("type")
    @classmethod
    def _readable(cls, value: str) -> str:
        if value not in ("json", "parquet"):
            raise ValueError(
                f"files of type `{value}` come with a later release; use `json` or `parquet`"
            )
        return value

    @field_validator("path")
    @classmethod
    def _absolute(cls, value: str) -> str:
        return absolute_path(value)

    @field_validator("store")
    @classmethod
    def _no_store(cls, value: dict[str, Any] | None) -> None:
        if value is not None:
            raise ValueError(
                "`store` comes with a later release; write `path` as a URL (`s3://bucket/key`) and "
                "give credentials by the environment"
            )


class FileInputConfig(ComponentConfig):
    """Input `file`: its files one after the other, in the order of their names."""

    input_type: FileTypeConfig
    types: Annotated[
        FieldTypes, Field(description="json: fields whose type is not inferred, such as `a: int`.")
    ] = Field(default_factory=dict)
    on_error: Annotated[
        OnError, Field(description="json: `fail` makes undecodable lines bad rows, `skip` counts.")
    ] = "fail"
    max_row_bytes: Annotated[
        int | str, Field(description="json: a longer line is a bad row and never buffered.")
    ] = ROW_BYTES_MAX
    batch_rows: BatchRows = BATCH_ROWS_DEFAULT
    split_bytes: Annotated[
        int | str | None,
        Field(
            description="Size of the ranges in which subtasks share a file, such as `256MiB`; "
            "without it each file is read by one of them.",
            examples=["256MiB"],
        ),
    ] = None
    query: Annotated[
        dict[str, Any] | None, Field(description="SQL over the file; comes later.")
    ] = None
    ballista: Annotated[
        dict[str, Any] | None, Field(description="Remote execution; comes later.")
    ] = None

    @field_validator("max_row_bytes")
    @classmethod
    def _a_size(cls, value: int | str) -> int:
        size = parse_size(value) if isinstance(value, str) else value
        if not 1 <= size <= ROW_BYTES_MAX:
            raise ValueError(f"must be between 1 byte and {ROW_BYTES_MAX} bytes (64 MiB)")
        return size

    @field_validator("split_bytes")
    @classmethod
    def _a_range(cls, value: int | str | None) -> int | None:
        size = parse_size(value) if isinstance(value, str) else value
        if size is not None and size < SPLIT_BYTES_MIN:
            raise ValueError(f"must be at least {SPLIT_BYTES_MIN} bytes (1 MiB), or be left out")
        return size

    @field_validator("query", "ballista")
    @classmethod
    def _later(cls, value: dict[str, Any] | None, info: Any) -> None:
        if value is not None:
            raise ValueError(
                f"`{info.field_name}` of the `file` input comes with a later release; remove it "
                "and put an `sql` processor behind the input"
            )

    @property
    def row_bytes_max(self) -> int:
        """`max_row_bytes` as a number."""
        return int(self.max_row_bytes)

    @property
    def range_bytes(self) -> int | None:
        """`split_bytes` as a number."""
        return None if self.split_bytes is None else int(self.split_bytes)


__all__ = [
    "BATCH_ROWS_MAX",
    "SPLIT_BYTES_MIN",
    "BatchRows",
    "FileInputConfig",
    "FileTypeConfig",
    "subtasks_max",
]
