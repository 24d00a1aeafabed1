"""Output `file`: when parts appear, what they hold, and what is confirmed (X3, F2)."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arkflow_kernel.bad_rows import bad_row_batch
from arkflow_kernel.errors import SinkError
from arkflow_kernel.ids import MonotonicMs, Sequence
from arkflow_kernel.limits import SLICE_ROWS_MAX
from arkflow_kernel.ports import SinkWriter, WriteReceipt
from arkflow_ray.components.codecs.json_encode import encode_lines
from arkflow_ray.components.outputs import part_formats
from arkflow_ray.components.outputs.file import FileSink

OpenSink = Callable[..., FileSink]
Parts = Callable[[Path], list[Path]]
Rows = Callable[[Path], list[dict[str, Any]]]


FORMATS = ("json", "csv", "parquet", "arrow")
STEM = "part-0000000001-0000000000-0000000000"


def write(sink: SinkWriter, number: int, rows: pa.RecordBatch, now_ms: int = 0) -> WriteReceipt:
    return sink.write(Sequence(number), rows, MonotonicMs(now_ms))


def flush(sink: SinkWriter, now_ms: int = 0) -> WriteReceipt:
    return sink.flush(MonotonicMs(now_ms))


def roll(sink: SinkWriter, now_ms: int) -> WriteReceipt:
    return sink.roll(MonotonicMs(now_ms))


def receipt(confirmed: int, roll_at_ms: int | None = None) -> WriteReceipt:
    due = None if roll_at_ms is None else MonotonicMs(roll_at_ms)
    return WriteReceipt(Sequence(confirmed), due)


def batch(start: int, count: int) -> pa.RecordBatch:
    numbers = range(start, start + count)
    return pa.record_batch({"n": list(numbers), "text": [f"t{n}" for n in numbers]})


def expected(count: int) -> list[dict[str, object]]:
    return [{"n": n, "text": f"t{n}"} for n in range(count)]


@pytest.mark.parametrize("form", FORMATS)
def test_a_part_appears_when_it_is_published_and_only_then_is_its_write_confirmed(
    tmp_path: Path, open_sink: OpenSink, parts: Parts, rows: Rows, form: str
) -> None:
    sink = open_sink(tmp_path, format=form)
    assert write(sink, 1, batch(0, 3), 1_000) == receipt(0, 61_000)
    assert parts(tmp_path) == []
    assert flush(sink, 2_000) == receipt(1)
    assert rows(tmp_path) == expected(3)
    assert os.listdir(tmp_path) == [f"{STEM}-0000000001.{'jsonl' if form == 'json' else form}"]


@pytest.mark.parametrize("form", FORMATS)
def test_without_rows_there_is_no_part_and_everything_is_confirmed(
    tmp_path: Path, open_sink: OpenSink, form: str
) -> None:
    sink = open_sink(tmp_path, format=form)
    assert write(sink, 1, batch(0, 0)) == receipt(1)
    assert flush(sink) == receipt(1)
    assert os.listdir(tmp_path) == []


def test_a_row_limit_cuts_parts_exactly_and_in_the_middle_of_a_batch(
    tmp_path: Path, open_sink: OpenSink, parts: Parts
) -> None:
    sink = open_sink(tmp_path, roll={"rows": 4})
    receipts = [write(sink, 1, batch(0, 3)), write(sink, 2, batch(3, 6))]
    assert [r.confirmed_upto for r in receipts] == [0, 1]
    assert flush(sink).confirmed_upto == 2
    lines = [part.read_bytes().splitlines() for part in parts(tmp_path)]
    assert [len(part) for part in lines] == [4, 4, 1]
    assert [json.loads(line)["n"] for part in lines for line in part] == list(range(9))


def test_a_write_that_fills_its_part_is_confirmed_at_once(
    tmp_path: Path, open_sink: OpenSink
) -> None:
    sink = open_sink(tmp_path, roll={"rows": 4})
    assert write(sink, 1, batch(0, 8)) == receipt(1)


def test_a_part_rolls_when_its_file_reaches_the_byte_limit(
    tmp_path: Path, open_sink: OpenSink, parts: Parts
) -> None:
    sink = open_sink(tmp_path, roll={"bytes": 1_000})
    for sequence in range(1, 101):
        write(sink, sequence, batch(sequence, 1))
    flush(sink)
    *full, _last = [part.stat().st_size for part in parts(tmp_path)]
    assert full
    assert all(1_000 <= size < 1_040 for size in full)


def test_a_parquet_part_rolls_by_its_bytes_too(
    tmp_path: Path, open_sink: OpenSink, parts: Parts
) -> None:
    sink = open_sink(tmp_path, format="parquet", roll={"bytes": "4KiB"}, compression="none")
    for sequence in range(1, 41):
        write(sink, sequence, batch(sequence * 100, 100))
    assert len(parts(tmp_path)) > 3


def test_the_interval_counts_from_the_first_row_of_the_part(
    tmp_path: Path, open_sink: OpenSink, parts: Parts
) -> None:
    sink = open_sink(tmp_path, roll={"interval": "10s"})
    assert write(sink, 1, batch(0, 1), 5_000).roll_at_ms == 15_000
    assert write(sink, 2, batch(1, 1), 9_000).roll_at_ms == 15_000
    assert roll(sink, 14_999) == receipt(0, 15_000)
    assert roll(sink, 15_000) == receipt(2)
    assert len(parts(tmp_path)) == 1


def test_a_write_after_the_interval_goes_to_a_new_part(
    tmp_path: Path, open_sink: OpenSink, parts: Parts
) -> None:
    sink = open_sink(tmp_path, roll={"interval": "10s"})
    write(sink, 1, batch(0, 1))
    assert write(sink, 2, batch(1, 1), 10_000) == receipt(1, 20_000)
    assert len(parts(tmp_path)) == 1


@pytest.mark.parametrize("form", FORMATS)
def test_a_schema_change_closes_the_part(
    tmp_path: Path, open_sink: OpenSink, rows: Rows, parts: Parts, form: str
) -> None:
    sink = open_sink(tmp_path, format=form)
    write(sink, 1, pa.record_batch({"a": [1]}))
    assert write(sink, 2, pa.record_batch({"b": ["x"]})).confirmed_upto == 1
    flush(sink)
    assert len(parts(tmp_path)) == 2
    assert rows(tmp_path) == [{"a": 1}, {"b": "x"}]


def test_a_folder_with_parts_is_added_to(tmp_path: Path, open_sink: OpenSink, parts: Parts) -> None:
    for run in range(3):
        sink = open_sink(tmp_path)
        write(sink, 1, batch(run, 1))
        flush(sink)
        sink.close()
    assert [json.loads(p.read_bytes())["n"] for p in parts(tmp_path)] == [0, 1, 2]
    assert [p.name[-16:] for p in parts(tmp_path)] == [f"{n:010d}.jsonl" for n in (1, 2, 3)]


@pytest.mark.parametrize("links", [True, False])
def test_two_writers_of_one_folder_never_overwrite_each_other(
    tmp_path: Path, open_sink: OpenSink, rows: Rows, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", _no_links)
    sinks = [open_sink(tmp_path), open_sink(tmp_path)]
    for sequence in range(1, 4):
        for index, sink in enumerate(sinks):
            write(sink, sequence, batch(10 * index + sequence, 1))
            flush(sink)
    assert [row["n"] for row in rows(tmp_path)] == [1, 11, 2, 12, 3, 13]
    assert len(os.listdir(tmp_path)) == 6


def _no_links(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def test_closing_without_flush_leaves_nothing_behind(tmp_path: Path, open_sink: OpenSink) -> None:
    for form in FORMATS:
        sink = open_sink(tmp_path, format=form)
        write(sink, 1, batch(0, 5))
        assert len(os.listdir(tmp_path)) == 1
        sink.close()
        assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_made_with_its_parents(
    tmp_path: Path, open_sink: OpenSink, rows: Rows
) -> None:
    sink = open_sink(f"file://{tmp_path}/a/b/c")
    write(sink, 1, batch(0, 1))
    flush(sink)
    assert rows(tmp_path / "a/b/c") == expected(1)


def test_hidden_files_of_others_are_left_alone(tmp_path: Path, open_sink: OpenSink) -> None:
    (tmp_path / f".{STEM}-1-abc.tmp").write_bytes(b"x")
    sink = open_sink(tmp_path)
    write(sink, 1, batch(0, 1))
    flush(sink)
    sink.close()
    assert (tmp_path / f".{STEM}-1-abc.tmp").read_bytes() == b"x"


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.string_view()])
def test_payloads_alone_are_written_as_lines_without_their_nulls(
    tmp_path: Path, open_sink: OpenSink, parts: Parts, kind: pa.DataType
) -> None:
    values = pa.array(["skipped", '{"a":1}', None, "plain", ""]).cast(kind).slice(1)
    sink = open_sink(tmp_path)
    write(sink, 1, pa.record_batch([values], ["__value__"]))
    flush(sink)
    assert parts(tmp_path)[0].read_bytes() == b'{"a":1}\nplain\n\n'


def test_payloads_that_are_all_null_make_no_part(tmp_path: Path, open_sink: OpenSink) -> None:
    sink = open_sink(tmp_path)
    payloads = pa.record_batch([pa.nulls(3, pa.binary())], ["__value__"])
    assert write(sink, 1, payloads) == receipt(1)
    assert os.listdir(tmp_path) == []


def test_payloads_beside_other_columns_are_fields_of_json_objects(
    tmp_path: Path, open_sink: OpenSink, rows: Rows
) -> None:
    sink = open_sink(tmp_path)
    write(sink, 1, pa.record_batch({"__value__": ["x"], "n": [1]}))
    flush(sink)
    assert rows(tmp_path) == [{"__value__": "x", "n": 1}]


@pytest.mark.parametrize("form", ["json", "csv"])
def test_raw_bad_rows_are_readable_text_beside_their_reason(
    tmp_path: Path, open_sink: OpenSink, rows: Rows, form: str
) -> None:
    bad = bad_row_batch([b'{"a":', b"\xff\xe2\x82\xac"], ["cut off", "not UTF-8"], operator="in")
    sink = open_sink(tmp_path, format=form)
    write(sink, 1, bad)
    flush(sink)
    told = [(row["__value__"], row["__meta_error"]) for row in rows(tmp_path)]
    assert told == [('{"a":', "cut off"), ("\\xff€", "not UTF-8")]


def test_raw_bad_rows_are_exact_bytes_in_formats_that_hold_bytes(
    tmp_path: Path, open_sink: OpenSink, rows: Rows
) -> None:
    sink = open_sink(tmp_path, format="parquet")
    write(sink, 1, bad_row_batch([b"\xff"], ["not UTF-8"], operator="in"))
    flush(sink)
    assert rows(tmp_path)[0]["__value__"] == b"\xff"


@pytest.mark.parametrize(
    ("form", "compression", "ending"),
    [
        ("json", "gzip", ".jsonl.gz"),
        ("json", "zstd", ".jsonl.zst"),
        ("csv", "gzip", ".csv.gz"),
        ("csv", "zstd", ".csv.zst"),
        ("parquet", "zstd", ".parquet"),
        ("arrow", "lz4", ".arrow"),
    ],
)
def test_compressed_parts_say_so_in_their_name_and_read_back(
    tmp_path: Path,
    open_sink: OpenSink,
    parts: Parts,
    rows: Rows,
    form: str,
    compression: str,
    ending: str,
) -> None:
    sink = open_sink(tmp_path, format=form, compression=compression)
    write(sink, 1, batch(0, 10))
    write(sink, 2, batch(10, 10))
    flush(sink)
    assert parts(tmp_path)[0].name.endswith(ending)
    assert rows(tmp_path) == expected(20)


def test_gzip_parts_are_what_the_gzip_tool_reads(
    tmp_path: Path, open_sink: OpenSink, parts: Parts
) -> None:
    sink = open_sink(tmp_path, compression="gzip")
    write(sink, 1, batch(0, 1))
    flush(sink)
    assert gzip.decompress(parts(tmp_path)[0].read_bytes()) == b'{"n":0,"text":"t0"}\n'


def test_many_small_batches_become_one_parquet_row_group(
    tmp_path: Path, open_sink: OpenSink, parts: Parts
) -> None:
    sink = open_sink(tmp_path, format="parquet")
    for sequence in range(1, 51):
        write(sink, sequence, batch(sequence, 1))
    flush(sink)
    facts = pq.read_metadata(parts(tmp_path)[0])
    assert (facts.num_row_groups, facts.num_rows) == (1, 50)
    assert facts.row_group(0).column(0).compression == "SNAPPY"


def test_dictionaries_that_change_from_batch_to_batch_fit_an_arrow_part(
    tmp_path: Path, open_sink: OpenSink, rows: Rows
) -> None:
    sink = open_sink(tmp_path, format="arrow", roll={"bytes": 1_000_000})
    for sequence, text in enumerate(("a", "b"), start=1):
        column = pa.array([text] * 70_000).dictionary_encode()
        write(sink, sequence, pa.record_batch([column], ["d"]))
    flush(sink)
    assert {row["d"] for row in rows(tmp_path)} == {"a", "b"}


def test_csv_takes_string_views_and_quotes_text(
    tmp_path: Path, open_sink: OpenSink, parts: Parts
) -> None:
    sink = open_sink(tmp_path, format="csv")
    write(sink, 1, pa.record_batch([pa.array(['a,"b'], pa.string_view()), [None]], ["s", "n"]))
    flush(sink)
    assert parts(tmp_path)[0].read_text() == '"s","n"\n"a,""b",\n'


def test_a_huge_batch_is_written_in_pieces(
    tmp_path: Path, open_sink: OpenSink, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def encode(piece: pa.RecordBatch) -> bytes:
        sizes.append(piece.num_rows)
        return encode_lines(piece)

    monkeypatch.setattr(part_formats, "encode_lines", encode)
    sink = open_sink(tmp_path)
    write(sink, 1, batch(0, 2 * SLICE_ROWS_MAX + 1))
    flush(sink)
    assert len(sizes) == 3
    assert max(sizes) <= SLICE_ROWS_MAX
    assert [row["n"] for row in rows(tmp_path)] == list(range(2 * SLICE_ROWS_MAX + 1))


def test_parts_are_synced_before_they_are_confirmed(
    tmp_path: Path, open_sink: OpenSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def noted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            calls.append(name)
            return real(*args)

        return call

    for name in ("fsync", "link", "unlink"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name)))
    sink = open_sink(tmp_path)
    write(sink, 1, batch(0, 1))
    calls.clear()
    flush(sink)
    assert calls == ["fsync", "link", "unlink", "fsync"]


def test_a_crash_left_claim_only_costs_a_number(
    tmp_path: Path, open_sink: OpenSink, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", _no_links)
    Path(tmp_path, f".{STEM}-0000000001.jsonl.claim").touch()
    sink = open_sink(tmp_path)
    write(sink, 1, batch(0, 1))
    flush(sink)
    assert [p.name for p in parts(tmp_path)] == [f"{STEM}-0000000002.jsonl"]


def test_rows_without_columns_are_json_objects_and_nothing_else(
    tmp_path: Path, open_sink: OpenSink, rows: Rows
) -> None:
    bare = batch(0, 2).select([])
    sink = open_sink(tmp_path)
    write(sink, 1, bare)
    flush(sink)
    assert rows(tmp_path) == [{}, {}]
    for form in ("csv", "parquet", "arrow"):
        with pytest.raises(SinkError, match="rows without columns"):
            write(open_sink(tmp_path, format=form), 1, bare)
