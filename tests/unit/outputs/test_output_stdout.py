"""Output `stdout`: what is printed for a row, in what pieces, and `drop` beside it."""

import json
from typing import Any, cast

import pyarrow as pa
import pytest
from pydantic import ValidationError

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.errors import SinkError
from arkflow_kernel.ids import MonotonicMs, Sequence
from arkflow_kernel.limits import MIB
from arkflow_kernel.ports import WriteReceipt
from arkflow_ray.components.api import BuildContext, Codec, Decoded
from arkflow_ray.components.outputs import drop, stdout

NOW = MonotonicMs(0)


class Printed:
    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def put(self, lines: bytes) -> None:
        self.pieces.append(lines)

    @property
    def text(self) -> bytes:
        return b"".join(self.pieces)


class LengthCodec:
    """Encodes each row as the number of its columns and its position."""

    def decode(self, payloads: pa.BinaryArray, operator: str, origin: Origin) -> Decoded:
        raise NotImplementedError

    def encode(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        return pa.array(
            [b"%d" % n for n in cast("list[int]", batch.column(0).to_pylist())], pa.binary()
        )

    def position(self) -> dict[str, Any]:
        return {}

    def restore(self, position: dict[str, Any]) -> None:
        pass


def write(batch: pa.RecordBatch, *, codec: Codec | None = None, **config: Any) -> Printed:
    printed = Printed()
    context = BuildContext(operator="out", codec=codec, lines=printed)
    writer = stdout.build(stdout.StdoutConfig(**config), context)
    writer.open()
    assert writer.write(Sequence(1), batch, NOW) == WriteReceipt(Sequence(1))
    assert writer.flush(NOW) == writer.roll(NOW) == WriteReceipt(Sequence(1))
    writer.close()
    return printed


def test_rows_without_payload_are_printed_as_json_without_their_nulls() -> None:
    rows = pa.record_batch({"a": [1, None], "b": ["x", 'q"\n']})
    assert write(rows).text == b'{"a":1,"b":"x"}\n{"b":"q\\"\\n"}\n'


def test_json_rows_follow_one_another_without_newline() -> None:
    rows = pa.record_batch({"a": [1, 2]})
    assert write(rows, append_newline=False).text == b'{"a":1}{"a":2}'


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_string(), pa.binary_view()])
def test_payloads_win_over_other_columns_and_nulls_are_skipped(kind: pa.DataType) -> None:
    payloads = pa.array(["a", None, "", "b\nc"]).cast(kind)
    rows = pa.record_batch([[1, 2, 3, 4], payloads], ["n", "__value__"])
    assert write(rows).text == b"a\n\nb\nc\n"
    assert write(rows, append_newline=False).text == b"ab\nc"


def test_payloads_that_are_not_utf8_are_printed_as_they_are() -> None:
    rows = pa.record_batch([pa.array([b"\xff\x00"], pa.binary())], ["__value__"])
    assert write(rows).text == b"\xff\x00\n"


def test_dictionary_payloads_are_text_too() -> None:
    rows = pa.record_batch([pa.array(["a", "b", "a"]).dictionary_encode()], ["__value__"])
    assert write(rows).text == b"a\nb\na\n"


def test_the_codec_decides_when_there_is_one() -> None:
    rows = pa.record_batch({"__value__": [7, 8]})
    assert write(rows, codec=LengthCodec()).text == b"7\n8\n"


def test_nothing_is_put_for_a_batch_without_rows_or_payloads() -> None:
    empty = pa.record_batch({"a": pa.array([], pa.int64())})
    nulls = pa.record_batch([pa.nulls(3)], ["__value__"])
    assert write(empty).pieces == write(nulls).pieces == []


def test_a_payload_column_of_numbers_is_refused_by_name() -> None:
    with pytest.raises(SinkError, match=r"column `__value__` has type int64.*cast or rename"):
        write(pa.record_batch({"__value__": [1]}))


def test_a_column_that_json_cannot_hold_is_a_sink_error() -> None:
    column = pa.array([[(1, "x")]], pa.map_(pa.int64(), pa.string()))
    with pytest.raises(SinkError, match=r"output 'out'.*JSON"):
        write(pa.record_batch([column], ["m"]))


def test_a_huge_batch_is_put_in_pieces_of_whole_lines_in_order() -> None:
    rows = pa.record_batch({"n": list(range(60_000)), "pad": ["x" * 50] * 60_000})
    printed = write(rows)
    assert max(len(piece) for piece in printed.pieces) < 2 * MIB
    assert all(piece.endswith(b"\n") for piece in printed.pieces)
    assert [json.loads(line)["n"] for line in printed.text.splitlines()] == list(range(60_000))


def test_one_wide_row_does_not_make_its_neighbours_one_piece() -> None:
    payloads = [b"a"] * 1_000 + [b"b" * (3 * MIB)] + [b"c"] * 1_000
    printed = write(pa.record_batch([pa.array(payloads, pa.binary())], ["__value__"]))
    assert max(len(piece) for piece in printed.pieces) < 3 * MIB + 1_024
    assert printed.text == b"".join(payload + b"\n" for payload in payloads)


def test_a_failure_to_print_is_the_writers_failure() -> None:
    class Gone(Printed):
        def put(self, lines: bytes) -> None:
            raise SinkError(f"nobody reads these {len(lines)} bytes")

    context = BuildContext(operator="out", lines=Gone())
    writer = stdout.build(stdout.StdoutConfig(), context)
    with pytest.raises(SinkError, match="nobody reads"):
        writer.write(Sequence(1), pa.record_batch({"a": [1]}), NOW)
    assert writer.flush(NOW) == WriteReceipt(Sequence(0))


def test_without_a_way_to_stdout_opening_says_what_to_do() -> None:
    writer = stdout.build(stdout.StdoutConfig(), BuildContext(operator="out"))
    with pytest.raises(SinkError, match="use a `file` output"):
        writer.open()


def test_drop_confirms_what_it_discards() -> None:
    writer = drop.build(drop.DropConfig(), BuildContext(operator="out"))
    writer.open()
    assert writer.write(Sequence(5), pa.record_batch({"a": [1]}), NOW) == WriteReceipt(Sequence(5))
    assert writer.flush(NOW) == writer.roll(NOW) == WriteReceipt(Sequence(5))
    writer.close()


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValidationError):
        stdout.StdoutConfig.model_validate({"pretty": True})
    with pytest.raises(ValidationError):
        drop.DropConfig.model_validate({"path": "x"})
