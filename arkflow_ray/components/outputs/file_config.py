"""Configuration of output `file`. Light: nothing here opens a file or imports a format."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from arkflow_kernel.durations import parse_duration_ms
from arkflow_kernel.limits import MIB
from arkflow_ray.components.api import ComponentConfig
from arkflow_ray.components.paths import absolute_path, is_url, shown

FileFormat = Literal["json", "csv", "parquet", "arrow"]
Compression = Literal["none", "gzip", "zstd", "snappy", "lz4", "brotli"]

ROLL_BYTES_DEFAULT: Final = 128 * MIB
"""Size at which object stores and query engines read well."""

COMPRESSIONS: Final[dict[FileFormat, tuple[Compression, ...]]] = {
    "json": ("none", "gzip", "zstd"),
    "csv": ("none", "gzip", "zstd"),
    "parquet": ("snappy", "none", "gzip", "zstd", "lz4", "brotli"),
    "arrow": ("none", "lz4", "zstd"),
}
"""What each format takes; the first is its default."""

_LOCAL: Final = ("file://", "local://")

_UNITS: Final = {
    "": 1, "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
_SIZE: Final = re.compile(r"\s*([0-9]+)\s*([A-Za-z]*)\s*")


def parse_size(text: str) -> int:
    """Bytes of a size such as `128MiB`, `1 GB` or `4096`. Raises ValueError for anything else."""
    found = _SIZE.fullmatch(text)
    unit = _UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None:
        raise ValueError(
            f"'{text}' is not a size; write a whole number and one of B, KB, MB, GB, TB, "
            "KiB, MiB, GiB, TiB: `128MiB`"
        )
    return int(found[1]) * unit


class RollConfig(ComponentConfig):
    """When a part is closed and published: at whichever limit it reaches first."""

    rows: Annotated[
        int | None, Field(ge=1, description="Rows of a part, exactly; off by default.")
    ] = None
    bytes: Annotated[
        int | str, Field(description="Size of a part's file: a number of bytes, or `128MiB`.")
    ] = ROLL_BYTES_DEFAULT
    interval: Annotated[
        str, Field(description="Time since the part's first row, such as `60s`.")
    ] = "60s"

    @field_validator("bytes")
    @classmethod
    def _a_size(cls, value: int | str) -> int:
        size = parse_size(value) if isinstance(value, str) else value
        if size < 1:
            raise ValueError("must be at least 1 byte, for example `128MiB`")
        return size

    @field_validator("interval")
    @classmethod
    def _a_duration(cls, value: str) -> str:
        if parse_duration_ms(value) < 1:
            raise ValueError("must be at least `1ms`, for example `60s`")
        return value

    @property
    def bytes_max(self) -> int:
        """`bytes` as a number."""
        return int(self.bytes)

    @property
    def interval_ms(self) -> int:
        """`interval` in milliseconds."""
        return parse_duration_ms(self.interval)


class FileOutputConfig(ComponentConfig):
    """Part files below one folder. A local `path` is made absolute (C8)."""

    path: Annotated[
        str,
        Field(
            min_length=1,
            description="Folder for the parts: a local path or any fsspec URL.",
            examples=["out"],
        ),
    ]
    format: Annotated[FileFormat, Field(description="Format of the parts.")]
    roll: Annotated[
        RollConfig,
        Field(default_factory=RollConfig, description="When a part is closed and published."),
    ]
    compression: Annotated[
        Compression | None,
        Field(
            description="json and csv: none (default), gzip, zstd; parquet: snappy (default), "
            "none, gzip, zstd, lz4, brotli; arrow: none (default), lz4, zstd."
        ),
    ] = None
    exactly_once: Annotated[
        bool | None,
        Field(
            description="Publish rows with checkpoints, each once; by default wherever the job "
            "has a `checkpoint:` block and `path` is local."
        ),
    ] = None

    @field_validator("path")
    @classmethod
    def _absolute(cls, value: str) -> str:
        return absolute_path(value)

    @field_validator("exactly_once")
    @classmethod
    def _only_where_it_can(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        path = info.data.get("path")
        if value and path is not None and not stages_epochs({"path": path}):
            raise ValueError(
                f"`exactly_once: true` needs a local `path`, and '{shown(path)}' is not; leave it "
                "out (rows are delivered at least once), or write to a local folder"
            )
        return value

    @model_validator(mode="after")
    def _fits_the_format(self) -> "FileOutputConfig":
        allowed = COMPRESSIONS[self.format]
        if self.compression is not None and self.compression not in allowed:
            raise ValueError(
                f"format `{self.format}` has no compression `{self.compression}`; "
                f"use one of {', '.join(sorted(allowed))}"
            )
        return self

    @property
    def local_folder(self) -> str | None:
        """`path` as a folder of this machine, or None: then it is the URL of a store."""
        return _local_folder(self.path)

    @property
    def codec_name(self) -> Compression:
        """The compression in force."""
        return self.compression or COMPRESSIONS[self.format][0]

    @property
    def extension(self) -> str:
        """Ending of a part's name, with its dot."""
        ending = ".jsonl" if self.format == "json" else f".{self.format}"
        if self.format in ("json", "csv"):
            ending += {"gzip": ".gz", "zstd": ".zst"}.get(self.codec_name, "")
        return ending


def _local_folder(path: str) -> str | None:
    for scheme in _LOCAL:
        path = path.removeprefix(scheme)
    return None if is_url(path) else path


def stages_epochs(config: Mapping[str, Any]) -> bool:
    """Whether an output with this configuration can publish exactly once (X3): on local folders.

    `config` as it stands in the file. A path that begins with a secret may become any URL: no.
    """
    path = config.get("path")
    if not isinstance(path, str) or not path or path.startswith("${"):
        return False
    return _local_folder(path) is not None


__all__ = [
    "COMPRESSIONS",
    "ROLL_BYTES_DEFAULT",
    "Compression",
    "FileFormat",
    "FileOutputConfig",
    "RollConfig",
    "parse_size",
    "stages_epochs",
]
