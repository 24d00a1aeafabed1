"""Fixtures for outputs: a file sink over a temporary folder, and readers of what it published."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.outputs.file import FileSink, build
from arkflow_ray.components.outputs.file_config import FileOutputConfig

OpenSink = Callable[..., FileSink]


def _read(part: Path) -> list[dict[str, Any]]:
    if part.suffix == ".parquet":
        return pq.read_table(part).to_pylist()
    if part.suffix == ".arrow":
        return pa.ipc.open_file(str(part)).read_all().to_pylist()
    with pa.input_stream(part, compression="detect") as stream:
        if ".csv" in part.suffixes:
            # The stub knows no Arrow streams.
            return csv.read_csv(stream).to_pylist()  # type: ignore[arg-type]
        return [json.loads(line) for line in stream.read().splitlines()]


@pytest.fixture
def parts() -> Callable[[Path], list[Path]]:
    """What a reader of the folder sees, in the order of the names."""
    return lambda folder: sorted(
        entry for entry in folder.iterdir() if not entry.name.startswith((".", "_"))
    )


@pytest.fixture
def rows(parts: Callable[[Path], list[Path]]) -> Callable[[Path], list[dict[str, Any]]]:
    """Every published row of the folder, in order."""
    return lambda folder: [row for part in parts(folder) for row in _read(part)]


@pytest.fixture
def open_sink() -> Iterator[OpenSink]:
    """Open sinks by configuration; whatever a test leaves open is closed."""
    opened: list[FileSink] = []

    def start(path: object, **config: Any) -> FileSink:
        given = {"format": "json", **config, "path": str(path)}
        sink = build(FileOutputConfig.model_validate(given), BuildContext(operator="sink"))
        assert isinstance(sink, FileSink)
        opened.append(sink)
        sink.open()
        return sink

    yield start
    for sink in opened:
        sink.close()
