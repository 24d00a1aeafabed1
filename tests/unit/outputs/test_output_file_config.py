"""Configuration of output `file`: defaults, sizes, durations, and what is refused with advice."""

import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from arkflow_kernel.errors import ConfigError
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.building import stages_epochs
from arkflow_ray.components.outputs.file import build
from arkflow_ray.components.outputs.file_config import FileOutputConfig, parse_size


def config(**fields: object) -> FileOutputConfig:
    return FileOutputConfig.model_validate({"path": "out", "format": "json", **fields})


def test_defaults_are_128_mib_and_a_minute() -> None:
    roll = config().roll
    assert (roll.rows, roll.bytes_max, roll.interval_ms) == (None, 128 * 2**20, 60_000)


@pytest.mark.parametrize(
    ("text", "size"),
    [("128MiB", 2**27), ("1 GB", 10**9), ("4096", 4096), ("2kb", 2000), ("1TiB", 2**40)],
)
def test_sizes_are_whole_numbers_with_a_unit(text: str, size: int) -> None:
    assert parse_size(text) == size
    assert config(roll={"bytes": text}).roll.bytes_max == size


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"roll": {"bytes": "128 apples"}}, "'128 apples' is not a size"),
        ({"roll": {"bytes": "1.5MiB"}}, "whole number"),
        ({"roll": {"bytes": "0MiB"}}, "at least 1 byte"),
        ({"roll": {"bytes": -5}}, "at least 1 byte"),
        ({"roll": {"rows": 0}}, "greater than or equal to 1"),
        ({"roll": {"interval": "60"}}, "is not a duration"),
        ({"roll": {"interval": "10us"}}, "at least `1ms`"),
        ({"roll": {"size": 1}}, "Extra inputs"),
        ({"format": "avro"}, "'json', 'csv', 'parquet' or 'arrow'"),
        ({"compression": "snappy"}, "format `json` has no compression `snappy`; use one of gzip"),
        ({"format": "arrow", "compression": "gzip"}, "lz4, none, zstd"),
        ({"path": "s3://b/x", "exactly_once": True}, "needs a local `path`, and 's3://b/x' is not"),
        ({"path": ""}, "at least 1 character"),
    ],
)
def test_a_mistake_is_refused_with_what_to_do(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        config(**fields)
    assert told in str(refused.value)


def test_relative_paths_are_those_of_the_loading_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert config(path="out/x").path == str(tmp_path / "out/x")
    assert config(path="s3://b/x").path == "s3://b/x"


def test_a_url_without_a_client_is_refused_when_the_sink_is_built() -> None:
    with pytest.raises(ConfigError, match="cannot write to `nosuch://`"):
        build(config(path="nosuch://bucket/x"), BuildContext(operator="s"))


@pytest.mark.parametrize(
    ("output", "given", "can"),
    [
        ("file", {"path": "out", "format": "json"}, True),
        ("file", {"type": "file", "path": "/data/out", "format": "parquet"}, True),
        ("file", {"path": "file:///data/out", "format": "csv"}, True),
        ("file", {"path": "s3://bucket/out", "format": "json"}, False),
        ("file", {"path": "zip://x::s3://bucket/a.zip"}, False),
        ("file", {"path": "out/${secret:NAME}"}, True),
        ("file", {"path": "${secret:URL}"}, False),
        ("file", {}, False),
        ("file", {"path": 7}, False),
        ("stdout", {}, False),
        ("drop", {}, False),
        ("nosuch", {}, False),
    ],
)
def test_an_output_says_whether_it_can_publish_exactly_once(
    output: str, given: dict[str, Any], can: bool
) -> None:
    assert stages_epochs(output, given) is can
    if can:
        assert config(path=given["path"], exactly_once=True).local_folder is not None


def test_validating_imports_no_format_and_no_store() -> None:
    import subprocess

    code = (
        "import sys; from arkflow_ray.components.outputs.file_config import FileOutputConfig as F;"
        "F.model_validate({'path': 's3://b/x', 'format': 'parquet', 'roll': {'bytes': '1MiB'}});"
        "print(sorted({'pyarrow.parquet','pyarrow.csv','pyarrow.compute','fsspec'}"
        " & set(sys.modules)))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert told == "[]\n"
