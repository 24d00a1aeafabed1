"""The `arrow_to_json` processor: which columns go in, which come out."""

from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.bad_rows import NOWHERE, VALUE_COLUMN
from arkflow_kernel.errors import ProcessingError
from arkflow_ray.components import registry
from arkflow_ray.components.api import BuildContext, ComponentKind
from arkflow_ray.components.processors.arrow_to_json import ArrowToJson

BATCH = pa.record_batch({"b": [1, None], "a": ["x", "y"]})


def result(
    batch: pa.RecordBatch, fields: frozenset[str] | None = None, value_field: str = VALUE_COLUMN
) -> pa.RecordBatch:
    [found] = ArrowToJson("j", fields, value_field).process(batch, NOWHERE).batches
    return found


def test_the_json_is_the_last_column_beside_all_others() -> None:
    found = result(BATCH)
    assert found.schema.names == ["b", "a", "__value__"]
    assert found.schema.field("__value__").type == pa.binary()
    assert found.column("__value__").to_pylist() == [b'{"b":1,"a":"x"}', b'{"a":"y"}']
    assert found.select(["b", "a"]) == BATCH


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"a", "b"}, [b'{"b":1,"a":"x"}', b'{"a":"y"}']),
        ({"a", "absent"}, [b'{"a":"x"}', b'{"a":"y"}']),
        ({"absent"}, [b"{}", b"{}"]),
    ],
)
def test_included_fields_limit_the_json_in_schema_order(
    fields: set[str], expected: list[bytes]
) -> None:
    found = result(BATCH, frozenset(fields))
    assert found.schema.names == ["b", "a", "__value__"]
    assert found.column("__value__").to_pylist() == expected


def test_a_second_value_column_replaces_the_first() -> None:
    once = result(BATCH, frozenset({"a"}))
    twice = result(once, frozenset({"b"}))
    assert twice.schema.names == ["b", "a", "__value__"]
    assert twice.column("__value__").to_pylist() == [b'{"b":1}', b"{}"]


def test_a_batch_of_payloads_alone_keeps_one_column() -> None:
    payloads = pa.record_batch({VALUE_COLUMN: [b"hi"]})
    assert result(payloads).to_pydict() == {VALUE_COLUMN: [b'{"__value__":"6869"}']}


def test_the_added_column_has_the_configured_name() -> None:
    found = result(BATCH, None, "text")
    assert found.schema.names == ["b", "a", "text"]


def test_an_empty_batch_gives_nothing() -> None:
    assert ArrowToJson("j", None, VALUE_COLUMN).process(BATCH.slice(2), NOWHERE).batches == ()


def test_a_type_that_json_cannot_hold_names_operator_and_column() -> None:
    keys: Any = pa.array([[(1, 2)]], pa.map_(pa.int64(), pa.int64()))
    with pytest.raises(ProcessingError, match=r"operator 'j' failed: rows cannot.*m map<int64"):
        result(pa.record_batch({"m": keys}))


def test_the_registry_builds_it_from_its_configuration() -> None:
    entry = registry.find(ComponentKind.PROCESSOR, "arrow_to_json")
    assert entry is not None
    text = '{"fields_to_include": ["a"], "value_field": "text"}'
    config = registry.config_class(entry).model_validate_json(text)
    operator: Any = registry.factory(entry)(config, BuildContext("j"))
    [found] = operator.process(BATCH, NOWHERE).batches
    assert found.column("text").to_pylist() == [b'{"a":"x"}', b'{"a":"y"}']
    plain: Any = registry.factory(entry)(registry.config_class(entry)(), BuildContext("j"))
    assert plain.process(BATCH, NOWHERE).batches[0].schema.names == ["b", "a", "__value__"]
