"""The `json_get` family inside queries."""

from typing import Any

import pyarrow as pa
import pytest

from arkflow_ray.components.processors.sql_engine import SqlEngine

TEXTS = [
    '{"a": 1, "b": "x", "c": [1, "two", null], "d": {"e": 2.50}, "t": true, "n": null}',
    '{"a": 9223372036854775807, "b": "é\\u00e9", "c": {"0": "zero"}}',
    '{"a": 9223372036854775808, "b": "\\ud800", "t": "true"}',
    "[10, 20]",
    '"scalar"',
    "not json",
    '{"a": NaN}',
    None,
]
BATCH = pa.record_batch({"j": pa.array(TEXTS, pa.string()), "k": ["a", "b", "a"] + ["1"] * 5})


def column(expression: str) -> list[Any]:
    engine = SqlEngine(f"SELECT {expression} AS r FROM flow", "flow")
    return [value for part in engine.run(BATCH) for value in part.column(0).to_pylist()]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("json_get(j, 'a')", ["1", "9223372036854775807", "9223372036854775808"] + [None] * 5),
        ("json_get(j, 'b')", ["x", "éé", None] + [None] * 5),
        ("json_get(j, 'c')", ['[1,"two",null]', '{"0":"zero"}'] + [None] * 6),
        ("json_get(j, 'd')", ['{"e":2.5}'] + [None] * 7),
        ("json_get(j, 'n')", [None] * 8),
        ("json_get(j, 1)", [None, None, None, "20", None, None, None, None]),
        ("json_get(json_get(j, 'c'), 0)", ["1", "zero"] + [None] * 6),
        ("json_get_str(json_get(j, 'c'), 1)", ["two"] + [None] * 7),
        ("json_get_str(j, 'a')", [None] * 8),
        ("json_get_int(j, 'a')", [1, 2**63 - 1, None] + [None] * 5),
        ("json_get_int(j, 't')", [None] * 8),
        ("json_get_float(j, 'a')", [1.0, 2.0**63, 2.0**63] + [None] * 5),
        ("json_get_float(json_get(j, 'd'), 'e')", [2.5] + [None] * 7),
        ("json_get_bool(j, 't')", [True] + [None] * 7),
        ("json_contains(j, 'n')", [True] + [False] * 7),
        ("json_length(j)", [6, 3, 3, 2, None, None, None, None]),
        ("json_get(j, k)", ["1", "éé", "9223372036854775808", "20"] + [None] * 4),
        ("CAST(json_get(j, 't') AS BOOLEAN)", [True, None, True] + [None] * 5),
    ],
)
def test_values_are_read_by_key_and_type(expression: str, expected: list[Any]) -> None:
    assert column(expression) == expected


def test_a_very_deep_text_is_null_and_not_a_crash() -> None:
    batch = pa.record_batch({"j": ["[" * 200_000]})
    [part] = SqlEngine("SELECT json_get(j, 0) AS r FROM flow", "flow").run(batch)
    assert part.to_pylist() == [{"r": None}]


def test_bytes_are_read_as_text() -> None:
    batch = pa.record_batch({"j": pa.array([b'{"a":1}'])})
    [part] = SqlEngine("SELECT json_get_int(j, 'a') AS r FROM flow", "flow").run(batch)
    assert part.to_pylist() == [{"r": 1}]
