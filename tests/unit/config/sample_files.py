"""Files that tests of this folder change in one place, and what editors say of a file."""

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arkflow_ray.config.schema import json_schema

Write = Callable[..., Path]
"""Writes a text as a configuration file and gives its path."""

STREAM = """
streams:
  - id: a
    input: {type: generate, context: '{"a": 1}'}
    pipeline:
      processors:
        - {type: sql, query: SELECT 1}
    output: {type: stdout}
"""

JOB = """
jobs:
  - id: j
    version: 1
    operators:
      - {id: in, kind: source}
      - {id: m, kind: map, config: {type: sql, query: SELECT 1}}
      - {id: out, kind: sink}
    edges:
      - {id: e, from: in, to: m}
      - {id: f, from: m, to: out}
    sources:
      - operator_id: in
        input_type: generate
        config: {type: generate, context: x}
        codec: json
        time: {mode: processing_time}
    sinks:
      - {operator_id: out, output_type: stdout}
"""


@functools.cache
def _validator() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jsonschema = pytest.importorskip("jsonschema")
    return jsonschema.Draft202012Validator(json_schema())


def schema_errors(data: Any) -> list[str]:
    """What the schema of editors says of a file's data, with the components of these tests."""
    return [error.message for error in _validator().iter_errors(data)]


__all__ = ["JOB", "STREAM", "Write", "schema_errors"]
