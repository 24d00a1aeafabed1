"""Columns that nobody looks at: left out of batches, and nothing else changes."""

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arkflow_kernel.bad_rows import Origin
from arkflow_ray.components.codecs.json import JsonCodec
from arkflow_ray.components.codecs.json_block import JsonDecoder
from arkflow_ray.components.codecs.json_texts import Lines

pytestmark = pytest.mark.thorough

ALL = ["n", "x", "s", "t", "more"]

value = st.one_of(
    st.integers(-(2**55), 2**55).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["true", "null", '"a"', '"\\n"', '""', "[1]", '{"i":1}', "nul", "01", "1 2"]),
)
flat = st.builds(
    lambda n, x, s: f'{{"n":{n},"x":{x},"s":"{s}","t":true}}',
    st.integers(-99, 99),
    st.floats(0, 9).map(repr),
    st.sampled_from(["", "a", "ä", "}", ","]),
)
wild = st.dictionaries(st.sampled_from(ALL), value, max_size=5).map(
    lambda row: "{" + ",".join(f'"{name}":{text}' for name, text in row.items()) + "}"
)
line = st.one_of(flat, flat, flat, flat, wild)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.lists(line, max_size=12), max_size=5),
    st.sets(st.sampled_from([*ALL, "nowhere"])).map(frozenset),
)
def test_the_columns_that_are_left_are_those_of_a_decoder_of_all_and_so_are_bad_rows_and_types(
    blocks: list[list[str]], wanted: frozenset[str]
) -> None:
    every, some = JsonDecoder(), JsonDecoder(columns=wanted)
    for block in blocks:
        text = "\n".join(block).encode()
        expected, got = every.decode(Lines(text)), some.decode(Lines(text))
        assert (got.bad, got.consumed) == (expected.bad, expected.consumed)
        assert some.form() == every.form()
        names = [name for name in expected.batch.schema.names if name in wanted]
        assert got.batch.equals(expected.batch.select(names or expected.batch.schema.names))
        assert some.empty().schema == got.batch.schema
        got.batch.validate(full=True)


def test_rows_are_not_lost_where_none_of_the_columns_is_there() -> None:
    batch = JsonDecoder(columns=frozenset({"k"})).decode(Lines(b'{"a":1}\n{"a":2}')).batch
    assert batch.num_rows == 2


def test_the_codec_leaves_them_out_also_after_a_restore() -> None:
    codec = JsonCodec({}, skip=False, columns=frozenset({"a"}))
    payloads = pa.array([b'{"a":1,"b":"x"}', b'{"a":2,"b":"y"}'])
    for _ in range(2):
        assert codec.decode(payloads, "in", Origin("x")).batch.to_pydict() == {"a": [1, 2]}
        codec.restore(codec.position())
    assert codec.position() == {"types": [["a", "int"], ["b", "string"]]}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(line, max_size=12), max_size=5))
def test_fields_that_are_asked_for_are_null_while_no_text_had_them_and_nothing_else_changes(
    blocks: list[list[str]],
) -> None:
    every, some = JsonDecoder(), JsonDecoder(fields=("more", "nowhere", "x"))
    for block in blocks:
        text = "\n".join(block).encode()
        expected, got = every.decode(Lines(text)), some.decode(Lines(text))
        assert (got.bad, got.consumed) == (expected.bad, expected.consumed)
        assert some.form() == every.form()
        names = expected.batch.schema.names
        assert got.batch.select(names).equals(expected.batch)
        added = [name for name in ("more", "nowhere", "x") if name not in names]
        assert got.batch.schema.names == names + added
        assert all(got.batch.column(name).null_count == got.batch.num_rows for name in added)
        assert some.empty().schema == got.batch.schema
