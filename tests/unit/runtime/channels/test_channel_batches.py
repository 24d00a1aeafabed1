"""Batches of every type travel, cut to their rows; schemas are sent once (H3, H5)."""

import datetime
import decimal
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.envelope import Data
from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import Sequence
from arkflow_ray.runtime.channels import batches
from arkflow_ray.runtime.channels.batches import BatchDecoder, BatchEncoder, Part
from arkflow_ray.runtime.channels.frames import (
    HEADER_BYTES,
    SCHEMAS_MAX,
    TO_TARGET,
    FrameError,
    FrameKind,
    FrameRules,
    Header,
)

RULES = FrameRules(TO_TARGET, [0])
MOMENT = datetime.datetime(2026, 11, 29, 12, 30, tzinfo=datetime.UTC)
COLUMNS = {
    "null": pa.nulls(4),
    "bool": pa.array([True, None, False, True]),
    "int8": pa.array([1, None, -3, 4], pa.int8()),
    "uint64": pa.array([0, 2**64 - 1, None, 1], pa.uint64()),
    "half": pa.array([1.5, None, 0.0, 2.0], pa.float16()),
    "double": pa.array([float("inf"), None, -0.0, 2.5]),
    "decimal128": pa.array([decimal.Decimal("1.25"), None, None, None], pa.decimal128(38, 2)),
    "decimal256": pa.array([decimal.Decimal("-1.25"), None, None, None], pa.decimal256(60, 2)),
    "date": pa.array([datetime.date(2026, 1, 1), None, None, None]),
    "time": pa.array([datetime.time(1, 2, 3), None, None, None]),
    "zoned": pa.array([MOMENT, None, MOMENT, MOMENT], pa.timestamp("us", "Europe/Berlin")),
    "naive": pa.array([1, None, 3, 4], pa.timestamp("ns")),
    "duration": pa.array([1, None, 3, 4], pa.duration("ms")),
    "interval": pa.array([(1, 2, 3), None, (0, 0, 0), (4, 5, 6)], pa.month_day_nano_interval()),
    "string": pa.array(["", None, "grün", "x" * 300]),
    "large_string": pa.array(["", None, "b", "c"], pa.large_string()),
    "string_view": pa.array(["", None, "a text longer than twelve", "c"], pa.string_view()),
    "binary_view": pa.array([b"", None, b"some bytes, more than twelve", b"c"], pa.binary_view()),
    "binary": pa.array([b"", None, b"\x00", b"c"]),
    "fixed_binary": pa.array([b"ab", None, b"cd", b"ef"], pa.binary(2)),
    "list": pa.array([[], None, ["a", None], ["b"]]),
    "list_of_views": pa.array(
        [[], None, ["a text longer than twelve"], ["b"]], pa.list_(pa.string_view())
    ),
    "large_list": pa.array([[], None, [1], [2, 3]], pa.large_list(pa.int32())),
    "fixed_list": pa.array([[1, 2], None, [3, None], [4, 5]], pa.list_(pa.int64(), 2)),
    "list_view": pa.array([[], None, [1], [2, 3]], pa.list_view(pa.int32())),
    "struct": pa.array([{"a": 1, "b": None}, None, {"a": None, "b": "x"}, {"a": 2, "b": ""}]),
    "map": pa.array([[("k", 1)], None, [], [("l", None)]], pa.map_(pa.string(), pa.int64())),
    "union": pa.UnionArray.from_sparse(
        pa.array([0, 1, 0, 1], pa.int8()), [pa.array([1, 2, 3, 4]), pa.array(["a", "b", "c", "d"])]
    ),
    "run_ends": pa.RunEndEncodedArray.from_arrays(
        pa.array([2, 4], pa.int32()), pa.array(["x", None])
    ),
}


def _frames(parts: list[Part]) -> Iterator[tuple[Header, pa.Buffer]]:
    wire = b"".join(bytes(memoryview(part)) for part in parts)
    while wire:
        header = RULES.parse(wire)
        end = HEADER_BYTES + header.length
        yield header, pa.py_buffer(wire[HEADER_BYTES:end])
        wire = wire[end:]


class _Wire:
    """Encoder and decoder of one direction."""

    def __init__(self) -> None:
        self._encoder = BatchEncoder()
        self._decoder = BatchDecoder()
        self._sent = 0
        self.schemas = 0
        self.size = 0

    def through(self, *pieces: pa.RecordBatch) -> pa.RecordBatch:
        """The batch that comes out."""
        self._sent += 1
        parts, size = self._encoder.frames(0, Data(Sequence(self._sent), pieces, 7))
        assert size == sum(map(len, parts))
        self.size = size
        for header, body in _frames(parts):
            if header.kind is FrameKind.SCHEMA:
                self.schemas += 1
                self._decoder.learn(header.schema_id, body)
        assert (header.sequence, header.weight) == (self._sent, 7)
        return self._decoder.batch(header.schema_id, body)


@pytest.mark.parametrize("copied_bytes_max", [0, 2**30], ids=["pieces", "copied"])
@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_comes_out_as_it_went_in(
    name: str, copied_bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "COPIED_BYTES_MAX", copied_bytes_max)
    wire = _Wire()
    batch = pa.record_batch({name: COLUMNS[name]})
    for part in (batch, batch.slice(1, 2), batch.slice(3), batch.slice(0, 0)):
        out = wire.through(part)
        assert out.schema.equals(part.schema, check_metadata=True)
        assert out.equals(part)
        out.validate(full=True)
    assert wire.schemas == 1


def test_both_ways_of_writing_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.record_batch(COLUMNS).slice(1)
    wires = []
    for limit in (0, 2**30):
        monkeypatch.setattr(batches, "COPIED_BYTES_MAX", limit)
        parts, _ = BatchEncoder().frames(0, Data(Sequence(1), (batch,), 1))
        wires.append(b"".join(bytes(memoryview(part)) for part in parts))
    assert wires[0] == wires[1]


def test_pieces_of_one_envelope_come_out_joined() -> None:
    batch = pa.record_batch({"a": ["x", "yy", None]})
    assert _Wire().through(batch, batch.slice(1)).to_pylist() == [
        *batch.to_pylist(),
        *batch.slice(1).to_pylist(),
    ]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(range(50_000)),
        pa.array([f"text number {n}" for n in range(50_000)]),
        pa.array([f"a longer text, number {n}" for n in range(50_000)], pa.string_view()),
        pa.array([[n, n] for n in range(50_000)]),
        pa.array(
            [[f"a longer text, number {n}"] for n in range(50_000)], pa.list_(pa.string_view())
        ),
        pa.array([{"a": {"b": f"text number {n}"}} for n in range(50_000)]),
        pa.array([n % 3 == 0 for n in range(50_000)]),
    ],
    ids=lambda column: str(column.type),
)
def test_a_slice_takes_at_most_a_fifth_more_than_its_own_bytes(column: Any) -> None:
    wire = _Wire()
    part = pa.record_batch({"a": column}).slice(1_003, 10_000)
    compact = pa.record_batch({"a": pa.array(part.column(0).to_pylist(), column.type)})
    wire.through(part.slice(0, 1))
    wire.through(part)
    assert wire.size <= 1.2 * compact.nbytes + 1_000


def test_metadata_of_a_schema_travels_and_makes_another_schema() -> None:
    wire = _Wire()
    batch = pa.record_batch({"a": [1]})
    marked = batch.replace_schema_metadata({"unit": "ms"})
    for part in (batch, marked, batch, marked):
        assert wire.through(part).schema.equals(part.schema, check_metadata=True)
    assert wire.schemas == 2


def test_schemas_change_in_mid_stream_and_the_one_used_longest_ago_is_forgotten() -> None:
    wire = _Wire()
    known = [pa.record_batch({f"column {n}": [n]}) for n in range(SCHEMAS_MAX)]
    for batch in (*known, known[0]):
        assert wire.through(batch).equals(batch)
    assert wire.schemas == SCHEMAS_MAX
    another = pa.record_batch({"another": ["x"]})
    assert wire.through(another).equals(another)
    assert wire.through(known[0]).equals(known[0])
    assert wire.schemas == SCHEMAS_MAX + 1
    assert wire.through(known[1]).equals(known[1])
    assert wire.schemas == SCHEMAS_MAX + 2


@pytest.mark.parametrize("nested", [False, True])
def test_a_dictionary_column_is_refused_by_name(nested: bool) -> None:
    column = pa.array(["a"]).dictionary_encode()
    array = pa.StructArray.from_arrays([column], ["b"]) if nested else column
    with pytest.raises(ChannelError, match="column 'colour' is dictionary-encoded"):
        _Wire().through(pa.record_batch({"colour": array}))


def test_a_batch_that_fits_no_frame_is_refused() -> None:
    batch = pa.record_batch({"a": pa.array([bytes(66 * 2**20)])})
    with pytest.raises(ChannelError, match="a frame takes"):
        _Wire().through(batch)


@pytest.mark.parametrize("body", [b"", b"nonsense", bytes(64), b"\xff" * 64])
def test_bytes_that_are_no_batch_are_refused(body: bytes) -> None:
    decoder = BatchDecoder()
    decoder.learn(0, pa.schema([("a", pa.int64())]).serialize())
    with pytest.raises(FrameError, match="Arrow cannot read"):
        decoder.batch(0, pa.py_buffer(body))


def test_a_batch_of_a_schema_that_was_not_sent_is_refused() -> None:
    with pytest.raises(FrameError, match="schema 5, which it has not sent"):
        BatchDecoder().batch(5, pa.py_buffer(b""))


def test_bytes_that_are_no_schema_are_refused() -> None:
    with pytest.raises(FrameError, match="schema 1"):
        BatchDecoder().learn(1, pa.py_buffer(b"\xff" * 32))
