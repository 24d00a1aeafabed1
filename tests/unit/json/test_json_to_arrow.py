"""Processor `json_to_arrow`, and limits of the decoder; bad rows (T8)."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pyarrow as pa
import pytest

from arkflow_kernel.bad_rows import NOWHERE, Origin
from arkflow_kernel.errors import ProcessingError
from arkflow_kernel.plan import ComponentPlan
from arkflow_kernel.ports import Operator
from arkflow_ray.components.api import BuildContext, ComponentKind
from arkflow_ray.components.building import build_component
from arkflow_ray.components.codecs.json_block import JsonDecoder
from arkflow_ray.components.codecs.json_texts import Lines
from arkflow_ray.components.codecs.json_types import from_json, to_json

Parse = Callable[..., Operator]


@pytest.fixture
def operator() -> Parse:
    def build(**config: Any) -> Operator:
        plan = ComponentPlan("json_to_arrow", config)
        return cast(Operator, build_component(ComponentKind.PROCESSOR, plan, BuildContext("parse")))

    return build


def batch_of(
    values: list[Any], kind: pa.DataType | None = None, name: str = "__value__"
) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"other": pa.array([7] * len(values)), name: pa.array(values, kind or pa.binary())}
    )


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.string_view()]
)
def test_objects_become_columns_and_other_columns_go(operator: Parse, kind: pa.DataType) -> None:
    batch = batch_of(['{"a":1}', None, '{"b":"x"}'], kind)
    (rows,) = operator().process(batch, NOWHERE).batches
    assert rows.to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": "x"}]


def test_types_are_those_of_the_batch_alone(operator: Parse) -> None:
    parse = operator()
    one = parse.process(batch_of([b'{"a":1}', b'{"a":1.5}']), NOWHERE).batches[0]
    two = parse.process(batch_of([b'{"a":1}']), NOWHERE).batches[0]
    assert [str(b.schema.field("a").type) for b in (one, two)] == ["double", "int64"]


def test_several_threads_do_not_see_each_other(operator: Parse) -> None:
    parse = operator()
    batches = [batch_of([f'{{"f{i}":{i}}}'.encode()] * 50) for i in range(20)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda b: parse.process(b, NOWHERE), batches))
    for i, result in enumerate(results):
        assert result.batches[0].schema.names == [f"f{i}"]


def test_a_bad_payload_keeps_its_neighbours_and_says_why(operator: Parse) -> None:
    origin = Origin("topic", 3, 40)
    result = operator().process(batch_of([b'{"a":1}', b'{"a":1}{"a":', b"[]"]), origin)
    assert result.batches[0].to_pylist() == [{"a": 1}]
    assert result.bad is not None
    bad = result.bad.to_pylist()
    assert [b["__value__"] for b in bad] == [b'{"a":1}{"a":', b"[]"]
    assert bad[0]["__meta_error_operator"] == "parse"
    assert (bad[0]["__meta_partition"], bad[0]["__meta_offset"]) == (3, 40)


def test_only_named_fields_are_kept(operator: Parse) -> None:
    parse = operator(fields_to_include=["c", "a", "none"])
    (rows,) = parse.process(batch_of([b'{"a":1,"b":2,"c":3}']), NOWHERE).batches
    assert rows.to_pylist() == [{"a": 1, "c": 3}]


def test_payloads_in_another_column(operator: Parse) -> None:
    batch = batch_of([b'{"a":1}'], name="raw")
    assert operator(value_field="raw").process(batch, NOWHERE).batches[0].num_rows == 1
    with pytest.raises(ProcessingError, match=r"no column '__value__' \(columns: other, raw\)"):
        operator().process(batch, NOWHERE)
    with pytest.raises(ProcessingError, match="is int64"):
        operator(value_field="other").process(batch, NOWHERE)


def test_nothing_but_nulls_gives_nothing(operator: Parse) -> None:
    assert operator().process(batch_of([None, None]), NOWHERE).batches == ()


def test_a_sliced_batch_gives_its_own_rows(operator: Parse) -> None:
    batch = batch_of([f'{{"a":{i}}}'.encode() for i in range(10)]).slice(3, 4)
    (rows,) = operator().process(batch, NOWHERE).batches
    assert rows.column("a").to_pylist() == [3, 4, 5, 6]


def test_a_payload_may_go_over_lines_and_hold_several_objects_also_at_speed(
    operator: Parse,
) -> None:
    parse = operator()
    payload = b'{"a":\n 1}\n{"a":2, "s":{"x":3}} '
    (rows,) = parse.process(batch_of([payload] * 300), NOWHERE).batches
    assert rows.num_rows == 600
    assert rows.to_pylist()[-1] == {"a": 2, "s": {"x": 3}}


def test_an_object_that_reaches_into_the_next_payload_is_two_bad_payloads(operator: Parse) -> None:
    result = operator().process(batch_of([b'{"a":', b"1}", b'{"b":{}', b"}"] * 40), NOWHERE)
    assert result.bad is not None
    assert (result.batches, result.bad.num_rows) == ((), 160)


@pytest.mark.parametrize("deep", ["[", '{"a":'])
def test_deep_nesting_is_a_bad_row_however_deep(deep: str) -> None:
    closing = "]" if deep == "[" else "}"
    lines = [
        '{"v":1}',
        '{"a":' + deep * 50 + "null" + closing * 50 + "}",
        '{"a":' + deep * 100 + "null" + closing * 100 + "}",
        '{"a":' + deep * 200_000 + "null" + closing * 200_000 + "}",
        '{"v":2}',
    ]
    decoder = JsonDecoder()
    for _ in range(2):
        decoded = decoder.decode(Lines("\n".join(lines).encode()))
        assert [b.index for b in decoded.bad] == [2, 3]
        assert "nested" in decoded.bad[0].reason
        assert decoded.batch.column("v").to_pylist() == [1, None, 2]
    form = decoder.form()
    assert to_json(from_json(["struct", form])) == ["struct", form]


def test_rows_that_use_keys_as_data_become_bad_instead_of_growing_the_schema() -> None:
    decoder = JsonDecoder()
    row = "{" + ",".join(f'"k{i}":1' for i in range(4096)) + "}"
    decoded = decoder.decode(Lines(f'{row}\n{{"other":1}}\n{{"k1":2}}'.encode()))
    assert [b.index for b in decoded.bad] == [1]
    assert decoded.batch.num_columns == 4096


def test_a_date_is_text() -> None:
    decoded = JsonDecoder().decode(Lines(b'{"d":"2024-01-01T00:00:00Z"}\n' * 200))
    assert str(decoded.batch.schema.field("d").type) == "string"


def test_a_null_beside_an_object_does_not_end_the_process() -> None:
    decoder = JsonDecoder()
    decoder.decode(Lines(b'{"a":1,"s":"x"}'))
    odd = [b"null", b'{"a":1}null{"a":2}', b'{"a":{}} null {"a":2}', b'{"s":"}}"}null{}']
    decoded = decoder.decode(Lines(b"\n".join([b'{"a":1}', *odd, b'{"s":"}"}'])))
    assert [b.index for b in decoded.bad] == [1, 2, 3, 4]
    assert decoded.batch.num_rows == 2
