"""Output `file`: when parts appear, what they hold, and what is confirmed (X3, F2)."""

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arkflow_kernel.bad_rows import bad_row_batch
from arkflow_kernel.errors import SinkError
from arkflow_kernel.ports import WriteReceipt
from arkflow_ray.components.outputs import part_folders

FORMATS = ("json", "csv", "parquet", "arrow")
STEM = "part-0000000001-0000000000-0000000000"


def batch(start: int, count: int) -> pa.RecordBatch:
    numbers = range(start, start + count)
    return pa.record_batch({"n": list(numbers), "text": [f"t{n}" for n in numbers]})


def expected(count: int) -> list[dict[str, object]]:
    return [{"n": n, "text": f"t{n}"} for n in range(count)]


@pytest.mark.parametrize("form", FORMATS)
def test_a_part_appears_when_it_is_published_and_only_then_is_its_write_confirmed(
    tmp_path, open_sink, parts, rows, form
):
    sink = open_sink(tmp_path, format=form)
    assert sink.write(1, batch(0, 3), 1_000) == WriteReceipt(0, 61_000)
    assert parts(tmp_path) == []
    assert sink.flush(2_000) == WriteReceipt(1)
    assert rows(tmp_path) == expected(3)
    assert os.listdir(tmp_path) == [f"{STEM}-0000000001.{'jsonl' if form == 'json' else form}"]


@pytest.mark.parametrize("form", FORMATS)
def test_without_rows_there_is_no_part_and_everything_is_confirmed(tmp_path, open_sink, form):
    sink = open_sink(tmp_path, format=form)
    assert sink.write(1, batch(0, 0), 0) == WriteReceipt(1)
    assert sink.flush(0) == WriteReceipt(1)
    assert os.listdir(tmp_path) == []


def test_a_row_limit_cuts_parts_exactly_and_in_the_middle_of_a_batch(tmp_path, open_sink, parts):
    sink = open_sink(tmp_path, roll={"rows": 4})
    receipts = [sink.write(1, batch(0, 3), 0), sink.write(2, batch(3, 6), 0)]
    assert [r.confirmed_upto for r in receipts] == [0, 1]
    assert sink.flush(0).confirmed_upto == 2
    lines = [part.read_bytes().splitlines() for part in parts(tmp_path)]
    assert [len(part) for part in lines] == [4, 4, 1]
    assert [json.loads(line)["n"] for part in lines for line in part] == list(range(9))


def test_a_write_that_fills_its_part_is_confirmed_at_once(tmp_path, open_sink):
    sink = open_sink(tmp_path, roll={"rows": 4})
    assert sink.write(1, batch(0, 8), 0) == WriteReceipt(1)


def test_a_part_rolls_when_its_file_reaches_the_byte_limit(tmp_path, open_sink, parts):
    sink = open_sink(tmp_path, roll={"bytes": 1_000})
    for sequence in range(1, 101):
        sink.write(sequence, batch(sequence, 1), 0)
    sink.flush(0)
    *full, _last = [part.stat().st_size for part in parts(tmp_path)]
    assert full
    assert all(1_000 <= size < 1_040 for size in full)


def test_a_parquet_part_rolls_by_its_bytes_too(tmp_path, open_sink, parts):
    sink = open_sink(tmp_path, format="parquet", roll={"bytes": "4KiB"}, compression="none")
    for sequence in range(1, 41):
        sink.write(sequence, batch(sequence * 100, 100), 0)
    assert len(parts(tmp_path)) > 3


def test_the_interval_counts_from_the_first_row_of_the_part(tmp_path, open_sink, parts):
    sink = open_sink(tmp_path, roll={"interval": "10s"})
    assert sink.write(1, batch(0, 1), 5_000).roll_at_ms == 15_000
    assert sink.write(2, batch(1, 1), 9_000).roll_at_ms == 15_000
    assert sink.roll(14_999) == WriteReceipt(0, 15_000)
    assert sink.roll(15_000) == WriteReceipt(2)
    assert len(parts(tmp_path)) == 1


def test_a_write_after_the_interval_goes_to_a_new_part(tmp_path, open_sink, parts):
    sink = open_sink(tmp_path, roll={"interval": "10s"})
    sink.write(1, batch(0, 1), 0)
    assert sink.write(2, batch(1, 1), 10_000) == WriteReceipt(1, 20_000)
    assert len(parts(tmp_path)) == 1


@pytest.mark.parametrize("form", FORMATS)
def test_a_schema_change_closes_the_part(tmp_path, open_sink, rows, parts, form):
    sink = open_sink(tmp_path, format=form)
    sink.write(1, pa.record_batch({"a": [1]}), 0)
    assert sink.write(2, pa.record_batch({"b": ["x"]}), 0).confirmed_upto == 1
    sink.flush(0)
    assert len(parts(tmp_path)) == 2
    assert rows(tmp_path) == [{"a": 1}, {"b": "x"}]


def test_a_folder_with_parts_is_added_to(tmp_path, open_sink, parts):
    for run in range(3):
        sink = open_sink(tmp_path)
        sink.write(1, batch(run, 1), 0)
        sink.flush(0)
        sink.close()
    assert [json.loads(p.read_bytes())["n"] for p in parts(tmp_path)] == [0, 1, 2]
    assert [p.name[-16:] for p in parts(tmp_path)] == [f"{n:010d}.jsonl" for n in (1, 2, 3)]


@pytest.mark.parametrize("links", [True, False])
def test_two_writers_of_one_folder_never_overwrite_each_other(
    tmp_path, open_sink, rows, monkeypatch, links
):
    if not links:
        monkeypatch.setattr(part_folders.os, "link", _no_links)
    sinks = [open_sink(tmp_path), open_sink(tmp_path)]
    for sequence in range(1, 4):
        for index, sink in enumerate(sinks):
            sink.write(sequence, batch(10 * index + sequence, 1), 0)
            sink.flush(0)
    assert [row["n"] for row in rows(tmp_path)] == [1, 11, 2, 12, 3, 13]
    assert len(os.listdir(tmp_path)) == 6


def _no_links(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def test_closing_without_flush_leaves_nothing_behind(tmp_path, open_sink):
    for form in FORMATS:
        sink = open_sink(tmp_path, format=form)
        sink.write(1, batch(0, 5), 0)
        assert len(os.listdir(tmp_path)) == 1
        sink.close()
        assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_made_with_its_parents(tmp_path, open_sink, rows):
    sink = open_sink(f"file://{tmp_path}/a/b/c")
    sink.write(1, batch(0, 1), 0)
    sink.flush(0)
    assert rows(tmp_path / "a/b/c") == expected(1)


def test_hidden_files_of_others_are_left_alone(tmp_path, open_sink):
    (tmp_path / f".{STEM}-1-abc.tmp").write_bytes(b"x")
    sink = open_sink(tmp_path)
    sink.write(1, batch(0, 1), 0)
    sink.flush(0)
    sink.close()
    assert (tmp_path / f".{STEM}-1-abc.tmp").read_bytes() == b"x"


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.string_view()])
def test_payloads_alone_are_written_as_lines_without_their_nulls(tmp_path, open_sink, parts, kind):
    values = pa.array(["skipped", '{"a":1}', None, "plain", ""]).cast(kind).slice(1)
    sink = open_sink(tmp_path)
    sink.write(1, pa.record_batch([values], ["__value__"]), 0)
    sink.flush(0)
    assert parts(tmp_path)[0].read_bytes() == b'{"a":1}\nplain\n\n'


def test_payloads_that_are_all_null_make_no_part(tmp_path, open_sink):
    sink = open_sink(tmp_path)
    payloads = pa.record_batch([pa.nulls(3, pa.binary())], ["__value__"])
    assert sink.write(1, payloads, 0) == WriteReceipt(1)
    assert os.listdir(tmp_path) == []


def test_payloads_beside_other_columns_are_fields_of_json_objects(tmp_path, open_sink, rows):
    sink = open_sink(tmp_path)
    sink.write(1, pa.record_batch({"__value__": ["x"], "n": [1]}), 0)
    sink.flush(0)
    assert rows(tmp_path) == [{"__value__": "x", "n": 1}]


@pytest.mark.parametrize("form", ["json", "csv"])
def test_raw_bad_rows_are_readable_text_beside_their_reason(tmp_path, open_sink, rows, form):
    bad = bad_row_batch([b'{"a":', b"\xff\xe2\x82\xac"], ["cut off", "not UTF-8"], operator="in")
    sink = open_sink(tmp_path, format=form)
    sink.write(1, bad, 0)
    sink.flush(0)
    told = [(row["__value__"], row["__meta_error"]) for row in rows(tmp_path)]
    assert told == [('{"a":', "cut off"), ("\\xff€", "not UTF-8")]


def test_raw_bad_rows_are_exact_bytes_in_formats_that_hold_bytes(tmp_path, open_sink, rows):
    sink = open_sink(tmp_path, format="parquet")
    sink.write(1, bad_row_batch([b"\xff"], ["not UTF-8"], operator="in"), 0)
    sink.flush(0)
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
    tmp_path, open_sink, parts, rows, form, compression, ending
):
    sink = open_sink(tmp_path, format=form, compression=compression)
    sink.write(1, batch(0, 10), 0)
    sink.write(2, batch(10, 10), 0)
    sink.flush(0)
    assert parts(tmp_path)[0].name.endswith(ending)
    assert rows(tmp_path) == expected(20)


def test_gzip_parts_are_what_the_gzip_tool_reads(tmp_path, open_sink, parts):
    sink = open_sink(tmp_path, compression="gzip")
    sink.write(1, batch(0, 1), 0)
    sink.flush(0)
    assert gzip.decompress(parts(tmp_path)[0].read_bytes()) == b'{"n":0,"text":"t0"}\n'


def test_many_small_batches_become_one_parquet_row_group(tmp_path, open_sink, parts):
    sink = open_sink(tmp_path, format="parquet")
    for sequence in range(1, 51):
        sink.write(sequence, batch(sequence, 1), 0)
    sink.flush(0)
    facts = pq.read_metadata(parts(tmp_path)[0])
    assert (facts.num_row_groups, facts.num_rows) == (1, 50)
    assert facts.row_group(0).column(0).compression == "SNAPPY"


def test_dictionaries_that_change_from_batch_to_batch_fit_an_arrow_part(tmp_path, open_sink, rows):
    sink = open_sink(tmp_path, format="arrow", roll={"bytes": 1_000_000})
    for sequence, text in enumerate(("a", "b"), start=1):
        column = pa.array([text] * 70_000).dictionary_encode()
        sink.write(sequence, pa.record_batch([column], ["d"]), 0)
    sink.flush(0)
    assert {row["d"] for row in rows(tmp_path)} == {"a", "b"}


def test_csv_takes_string_views_and_quotes_text(tmp_path, open_sink, parts):
    sink = open_sink(tmp_path, format="csv")
    sink.write(1, pa.record_batch([pa.array(['a,"b'], pa.string_view()), [None]], ["s", "n"]), 0)
    sink.flush(0)
    assert parts(tmp_path)[0].read_text() == '"s","n"\n"a,""b",\n'


def test_a_huge_batch_is_written_in_pieces(tmp_path, open_sink, rows, monkeypatch):
    sizes: list[int] = []
    from arkflow_ray.components.outputs import part_formats

    encode = part_formats.encode_lines
    monkeypatch.setattr(
        part_formats, "encode_lines", lambda b: (sizes.append(b.num_rows), encode(b))[1]
    )
    sink = open_sink(tmp_path)
    sink.write(1, batch(0, 20_000), 0)
    sink.flush(0)
    assert max(sizes) <= 8_192
    assert [row["n"] for row in rows(tmp_path)] == list(range(20_000))


def test_parts_are_synced_before_they_are_confirmed(tmp_path, open_sink, monkeypatch):
    calls: list[str] = []
    for name in ("fsync", "link", "unlink"):
        real = getattr(os, name)
        monkeypatch.setattr(
            part_folders.os, name, lambda *a, _n=name, _r=real: (calls.append(_n), _r(*a))[1]
        )
    sink = open_sink(tmp_path)
    sink.write(1, batch(0, 1), 0)
    calls.clear()
    sink.flush(0)
    assert calls == ["fsync", "link", "unlink", "fsync"]


def test_a_crash_left_claim_only_costs_a_number(tmp_path, open_sink, parts, monkeypatch):
    monkeypatch.setattr(part_folders.os, "link", _no_links)
    Path(tmp_path, f".{STEM}-0000000001.jsonl.claim").touch()
    sink = open_sink(tmp_path)
    sink.write(1, batch(0, 1), 0)
    sink.flush(0)
    assert [p.name for p in parts(tmp_path)] == [f"{STEM}-0000000002.jsonl"]


def test_rows_without_columns_are_json_objects_and_nothing_else(tmp_path, open_sink, rows):
    bare = batch(0, 2).select([])
    sink = open_sink(tmp_path)
    sink.write(1, bare, 0)
    sink.flush(0)
    assert rows(tmp_path) == [{}, {}]
    for form in ("csv", "parquet", "arrow"):
        with pytest.raises(SinkError, match="rows without columns"):
            open_sink(tmp_path, format=form).write(1, bare, 0)
