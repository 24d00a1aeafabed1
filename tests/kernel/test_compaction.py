"""What leaves a chain holds its own bytes only, in any layout, and keeps its values (H3, H5)."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.compaction import Compactor, compacted
from arkflow_kernel.limits import MIB, SLICE_BYTES_MAX

HEADER_BYTES = 2_048
"""More than the metadata and padding of any batch here: one column, a few levels deep."""

texts = st.text(max_size=8) | st.sampled_from(["", "x" * 40])
Column = Any


def _dictionary(values: list[str | None]) -> Column:
    return pa.array(values, pa.string()).dictionary_encode()


def _nested_runs(values: list[str | None]) -> Column:
    ends = pa.array(range(1, len(values) + 1), pa.int32())
    return pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, pa.string_view()))


def _lists(kind: Any) -> Callable[[list[str | None]], Column]:
    def build(values: list[str | None]) -> Column:
        return pa.array([None if v is None else [v, None] * (len(v) % 3) for v in values], kind)

    return build


def _fixed_lists(values: list[str | None]) -> Column:
    pairs = [None if v is None else [v, v] for v in values]
    return pa.array(pairs, pa.list_(pa.string_view(), 2))


def _maps(values: list[str | None]) -> Column:
    entries = [None if v is None else [(v, v)] * (len(v) % 3) for v in values]
    return pa.array(entries, pa.map_(pa.string_view(), pa.binary_view()))


def _structs(values: list[str | None]) -> Column:
    children = [
        _dictionary(values),
        pa.array(values, pa.string_view()),
        pa.array(values, pa.string()),
    ]
    mask = pa.array([v is not None and len(v) == 3 for v in values], pa.bool_())
    return pa.StructArray.from_arrays(children, names=["d", "v", "s"], mask=mask)


def _list_of_dictionary(values: list[str | None]) -> Column:
    offsets = pa.array(range(len(values) + 1), pa.int32())
    return pa.ListArray.from_arrays(offsets, _dictionary(values))


def _dictionary_of_views(values: list[str | None]) -> Column:
    return pa.DictionaryArray.from_arrays(
        pa.array(range(len(values)), pa.uint64()), pa.array(values, pa.string_view())
    )


def _sparse(values: list[str | None]) -> Column:
    codes = pa.array([i % 2 for i in range(len(values))], pa.int8())
    made: Any = pa.UnionArray
    return made.from_sparse(codes, [pa.array(values, pa.string_view()), _dictionary(values)])


def _dense(values: list[str | None]) -> Column:
    codes = pa.array([i % 2 for i in range(len(values))], pa.int8())
    places = pa.array(range(len(values)), pa.int32())
    made: Any = pa.UnionArray
    return made.from_dense(
        codes, places, [pa.array(values, pa.string_view()), pa.array(values, pa.string())]
    )


LAYOUTS: dict[str, Callable[[list[str | None]], Column]] = {
    "string": lambda values: pa.array(values, pa.string()),
    "large_string": lambda values: pa.array(values, pa.large_string()),
    "string_view": lambda values: pa.array(values, pa.string_view()),
    "binary_view": lambda values: pa.array(
        [None if v is None else v.encode() for v in values], pa.binary_view()
    ),
    "null": lambda values: pa.nulls(len(values)),
    "null views": lambda values: pa.nulls(len(values), pa.string_view()),
    "dictionary": _dictionary,
    "dictionary of views": _dictionary_of_views,
    "dictionary of dictionary": lambda values: pa.DictionaryArray.from_arrays(
        pa.array(range(len(values)), pa.int32()), _dictionary(values)
    ),
    "runs": _nested_runs,
    "runs of dictionary": lambda values: pa.RunEndEncodedArray.from_arrays(
        pa.array(range(1, len(values) + 1), pa.int32()), _dictionary(values)
    ),
    "extension": lambda values: pa.ExtensionArray.from_storage(
        pa.json_(), pa.array(values, pa.string())
    ),
    "extension over a view": lambda values: pa.ExtensionArray.from_storage(
        pa.json_(pa.string_view()), pa.array(values, pa.string_view())
    ),
    "list": _lists(pa.list_(pa.string())),
    "list of views": _lists(pa.list_(pa.string_view())),
    "large list": _lists(pa.large_list(pa.large_string())),
    "list view": _lists(pa.list_view(pa.string())),
    "list view of views": _lists(pa.list_view(pa.string_view())),
    "large list view": _lists(pa.large_list_view(pa.string())),
    "list of dictionary": _list_of_dictionary,
    "fixed lists of views": _fixed_lists,
    "map of views": _maps,
    "struct": _structs,
    "sparse union": _sparse,
    "dense union": _dense,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=20)
@given(values=st.lists(st.none() | texts, max_size=12), data=st.data())
def test_a_slice_is_sent_in_its_own_bytes_and_keeps_its_values(
    layout: str, values: list[str | None], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(values)))
    rows = data.draw(st.integers(0, len(values) - first))
    around: list[str | None] = [f"{i:04}" * 8 for i in range(100)]
    column = LAYOUTS[layout]([*around, *values, *around])
    batch = pa.RecordBatch.from_arrays([column], names=["c"]).slice(len(around) + first, rows)
    plain = compacted(batch)
    plain.validate(full=True)
    assert plain.num_rows == rows
    assert plain.to_pylist() == batch.to_pylist()
    alone = LAYOUTS[layout](values[first : first + rows])
    own_bytes = pa.RecordBatch.from_arrays([alone], names=["c"]).nbytes
    assert plain.serialize().size <= 1.2 * max(own_bytes, plain.nbytes) + HEADER_BYTES
    assert plain.nbytes <= 2 * own_bytes + HEADER_BYTES, "decoding repeats, and nothing else"
    read = pa.ipc.read_record_batch(plain.serialize(), plain.schema)
    assert read.to_pylist() == batch.to_pylist()
    assert compacted(plain).schema == plain.schema


def test_lists_without_elements_do_not_send_the_offsets_of_their_parent() -> None:
    many = ["xxxxx"] * 20_000
    for column in (
        pa.array([[], [], many]),
        pa.array([None, [], many], pa.large_list(pa.string())),
        pa.array([[[]], [[]], [many]]),
        pa.array([{"a": []}, {"a": None}, {"a": many}]),
        pa.array([[[], []], [[], []], [many, many]], pa.list_(pa.list_(pa.string()), 2)),
        pa.array([[], [], [(text, text) for text in many]], pa.map_(pa.string(), pa.string())),
    ):
        batch = pa.RecordBatch.from_arrays([column], names=["c"]).slice(0, 2)
        assert batch.serialize().size > 80_000, "Arrow has learnt to cut them: drop the detour"
        plain = compacted(batch)
        assert plain.to_pylist() == batch.to_pylist()
        assert plain.serialize().size < HEADER_BYTES


def test_a_plain_batch_is_handed_on_as_it_is() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1], "b": ["x"], "c": [[1]], "d": [{"e": b"y"}]})
    compactor = Compactor()
    again = pa.RecordBatch.from_pydict({"a": [2], "b": ["y"], "c": [[2]], "d": [{"e": b"z"}]})
    for each in (batch, again, batch.slice(0, 1)):
        assert compactor.compacted(each) is each
        assert next(compactor.parts(each)) is each


def test_names_metadata_and_an_extension_over_a_plain_storage_stay() -> None:
    fields = [
        pa.field("v", pa.string_view(), nullable=False, metadata={"unit": "m"}),
        pa.field("u", pa.uuid()),
    ]
    schema = pa.schema(fields, {"origin": "here"})
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["a"], pa.string_view()), pa.array([b"0" * 16], pa.uuid())], schema=schema
    )
    plain = compacted(batch).schema
    assert plain.metadata == {b"origin": b"here"}
    assert plain.field("v") == pa.field("v", pa.string(), nullable=False)
    assert plain.field("v").metadata == {b"unit": b"m"}
    assert plain.field("u").type == pa.uuid()


def test_a_schema_seen_as_plain_does_not_vouch_for_another() -> None:
    compactor = Compactor()
    compactor.compacted(pa.RecordBatch.from_pydict({"a": ["x"]}))
    viewed = pa.RecordBatch.from_arrays([pa.array(["x"], pa.string_view())], names=["a"])
    assert compactor.compacted(viewed).schema.field("a").type == pa.string()


@pytest.mark.parametrize("kind", ["dictionary", "views"])
def test_a_long_text_that_every_row_shares_is_decoded_in_parts(kind: str) -> None:
    words = pa.array(["w" * MIB, "short"])
    rows = pa.array([i % 2 for i in range(64)], pa.int32())
    column: Any = pa.DictionaryArray.from_arrays(rows, words)
    if kind == "views":
        column = pc.cast(column, pa.string()).cast(pa.string_view())
    parts = list(Compactor().parts(pa.RecordBatch.from_arrays([column], names=["c"])))
    assert len(parts) >= 4, "a part is about as large as a slice"
    assert all(part.nbytes <= SLICE_BYTES_MAX + MIB for part in parts)
    assert sum(part.num_rows for part in parts) == 64
    assert [len(str(t)) for part in parts for t in part.column(0).to_pylist()] == [MIB, 5] * 32


def test_a_dictionary_of_lists_is_decoded_in_parts_too() -> None:
    words = pa.array([["w" * MIB]])
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 32, pa.int8()), words)
    parts = list(Compactor().parts(pa.RecordBatch.from_arrays([column], names=["c"])))
    assert sum(part.num_rows for part in parts) == 32
    assert all(part.nbytes <= SLICE_BYTES_MAX for part in parts)


def test_an_extension_over_lists_without_elements_sends_no_offsets_of_its_parent() -> None:
    storage = pa.array([[[]], [[]], [["xxxxx"] * 20_000]])
    opaque = pa.opaque(storage.type, "lists", "us")
    column = pa.ExtensionArray.from_storage(opaque, storage)
    batch = pa.RecordBatch.from_arrays([column], names=["c"]).slice(0, 2)
    plain = compacted(batch)
    assert plain.to_pylist() == batch.to_pylist()
    assert plain.schema.field("c").type == opaque
    assert plain.serialize().size < HEADER_BYTES
