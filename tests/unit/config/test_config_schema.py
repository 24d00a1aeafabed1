"""The JSON Schema that editors use."""

import warnings
from typing import Any

import pytest

from arkflow_ray.config.schema import json_schema
from tests.unit.config.sample_files import schema_errors

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    jsonschema = pytest.importorskip("jsonschema")

STREAM: dict[str, Any] = {
    "input": {"type": "generate", "context": "{}", "codec": "json", "rows_per_second": 5},
    "pipeline": {"processors": [{"type": "sql", "query": "SELECT 1"}]},
    "output": {"type": "stdout", "codec": {"type": "json", "on_error": "skip"}},
}
JOB: dict[str, Any] = {
    "id": "j",
    "version": 1,
    "operators": [
        {"id": "a", "kind": "source"},
        {"id": "m", "kind": "map", "config": {"type": "sql", "query": "SELECT 1"}},
        {"id": "b", "kind": "sink"},
    ],
    "edges": [{"id": "e", "from": "a", "to": "m"}, {"id": "f", "from": "m", "to": "b"}],
    "sources": [
        {
            "operator_id": "a",
            "input_type": "generate",
            "config": {"type": "generate", "context": "{}"},
            "time": {"mode": "processing_time"},
        }
    ],
    "sinks": [{"operator_id": "b", "output_type": "stdout"}],
}


def test_the_schema_is_a_valid_schema_of_2020_12() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)


def test_good_files_are_valid_by_the_schema() -> None:
    assert schema_errors({"streams": [STREAM]}) == []
    assert schema_errors({"streams": [], "jobs": [JOB]}) == []
    assert schema_errors({"streams": [{**STREAM, "error_output": {"type": "drop"}}]}) == []


def test_the_column_of_the_count_is_a_key_of_stateful_processors_only() -> None:
    count = {"type": "sql", "query": "SELECT 1", "state_output_field": "n"}
    plain = {"id": "m", "kind": "map", "config": count}
    keyed = plain | {"stateful": True, "key_field": "k"}
    assert schema_errors({"jobs": [JOB | {"operators": [keyed]}]}) == []
    assert schema_errors({"jobs": [JOB | {"operators": [plain]}]}) != []


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"streams": [], "jobs": []},
        {"streams": [STREAM], "loging": {}},
        {"streams": [{**STREAM, "outptu": {}}]},
        {"streams": [{**STREAM, "input": {"type": "generat", "context": "{}"}}]},
        {"streams": [{**STREAM, "input": {"type": "generate"}}]},
        {"streams": [{**STREAM, "input": {"type": "generate", "context": "{}", "x": 1}}]},
        {"streams": [{**STREAM, "pipeline": {"processors": [{"type": "sql"}]}}]},
        {"streams": [{**STREAM, "output": {"type": "drop", "codec": "jsn"}}]},
        {"jobs": [{**JOB, "sources": [{**JOB["sources"][0], "input_type": "generat"}]}]},
        {"jobs": [{**JOB, "sources": [{**JOB["sources"][0], "config": {}}]}]},
        {"jobs": [{**JOB, "operators": [{"id": "m", "kind": "map", "config": {"type": "x"}}]}]},
        {"jobs": [{**JOB, "operators": [{"id": "w", "kind": "window", "config": {"a": 1}}]}]},
        {"jobs": [{**JOB, "operators": [{"id": "w", "kind": "top_n", "config": {"by": "a"}}]}]},
        {"jobs": [{**JOB, "operators": [{"id": "w", "kind": "aggregate", "config": {"a": 1}}]}]},
    ],
)
def test_what_the_loader_refuses_is_refused_by_the_schema(data: Any) -> None:
    assert schema_errors(data) != []


def test_every_object_of_the_models_refuses_unknown_keys() -> None:
    schema = json_schema()
    open_ones = [
        name
        for name, definition in schema["$defs"].items()
        if definition.get("type") == "object"
        and definition.get("additionalProperties", True) is not False
        # The first five choose a closed one by `type`; the last is that of `temporary`.
        and name
        not in {"Input", "Output", "Processor", "StatefulProcessor", "Codec", "ComponentSpec"}
    ]
    assert open_ones == []
    assert schema["additionalProperties"] is False


def test_sections_and_components_have_descriptions() -> None:
    schema = json_schema()
    assert "description" in schema["$defs"]["LoggingConfig"]
    assert all("description" in d for d in schema["$defs"].values())
