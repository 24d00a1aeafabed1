"""Files read in ranges: every row once, whatever the ranges, the subtasks and the restarts (K5)."""

import json
import os
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.errors import ConfigError, SourceError
from arkflow_kernel.ids import MonotonicMs, SplitId
from arkflow_kernel.ports import NothingYet, SourceBatch, SourceEnded, SourceReader, SplitPosition
from arkflow_kernel.split_assignment import assigned
from arkflow_ray.components.inputs import file_lines
from arkflow_ray.components.inputs.file import FileReader
from arkflow_ray.components.inputs.file_config import FileInputConfig
from arkflow_ray.components.inputs.file_lines import LineFiles
from arkflow_ray.components.inputs.file_parquet import ParquetFiles
from arkflow_ray.components.inputs.file_store import file_store

Row = tuple[SplitId, Any]
Places = dict[SplitId, SplitPosition]


def lines_reader(
    path: object, split_bytes: int | None, *, batch_rows: int = 3, max_row_bytes: int = 10_000
) -> FileReader:
    config = FileInputConfig.model_validate(
        {
            "input_type": {"type": "json", "path": str(path)},
            "batch_rows": batch_rows,
            "max_row_bytes": max_row_bytes,
        }
    )
    return FileReader("in", file_store("in", str(path)), LineFiles("in", config, None), split_bytes)


def parquet_reader(path: object, split_bytes: int | None, *, batch_rows: int = 3) -> FileReader:
    return FileReader(
        "in", file_store("in", str(path)), ParquetFiles("in", batch_rows), split_bytes
    )


def read_some(
    reader: SourceReader,
    places: Places,
    mine: Iterable[SplitId] | None,
    limit: int | None = None,
) -> list[Row]:
    """Rows of one subtask, at most `limit` batches; `places` moves with them."""
    own = None if mine is None else tuple(mine)
    reader.open([p for s, p in places.items() if own is None or s in own], own)
    rows: list[Row] = []
    try:
        while limit is None or limit > 0:
            result = reader.read(MonotonicMs(0))
            if isinstance(result, SourceEnded):
                break
            if isinstance(result, NothingYet):
                continue
            assert isinstance(result, SourceBatch)
            rows += [(result.split, value) for value in values_of(result)]
            position = json.loads(json.dumps(dict(result.position)))
            places[result.split] = SplitPosition(result.split, position, result.split_ended)
            limit = None if limit is None else limit - 1
    finally:
        reader.close()
    return rows


def values_of(batch: SourceBatch) -> list[Any]:
    found: list[Any] = []
    if batch.batch.num_rows:
        found = batch.batch.column("n").to_pylist()
    if batch.bad is not None:
        found += ["bad"] * batch.bad.num_rows
    return found


def read_all(
    make: Callable[[], FileReader], attempts: Seq[tuple[int, int]], places: Places | None = None
) -> list[Row]:
    """Reads to the end. An attempt is a number of subtasks, and of batches that each reads."""
    places = {} if places is None else places
    rows: list[Row] = []
    for parallelism, limit in (*attempts, (2, None)):
        known = list(places.values())
        shares = assigned(make().list_splits(known), known, parallelism)
        before = dict(places)
        for share in shares:
            own = {s: p for s, p in before.items() if s in share.splits}
            rows += read_some(make(), own, share.splits, limit)
            places |= own
    return rows


LINE = st.one_of(
    st.integers(0, 9).map(lambda size: b"x" * size),
    st.integers(10, 90).map(lambda size: b"y" * size),
)


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(LINE, max_size=9),
    blank=st.integers(0, 5),
    crlf=st.booleans(),
    bom=st.booleans(),
    open_end=st.booleans(),
    split_bytes=st.sampled_from([2, 3, 7, 20, 64, 100, 333, 5_000]),
    attempts=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), max_size=3),
    batch_rows=st.integers(1, 4),
    max_row_bytes=st.sampled_from([60, 10_000]),
)
def test_every_line_is_read_once_by_ranges_however_often_subtasks_change(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[bytes],
    blank: int,
    crlf: bool,
    bom: bool,
    open_end: bool,
    split_bytes: int,
    attempts: list[tuple[int, int]],
    batch_rows: int,
    max_row_bytes: int,
) -> None:
    file = tmp_path_factory.mktemp("lines") / "a.jsonl"
    end = b"\r\n" if crlf else b"\n"
    texts = []
    for number, filler in enumerate(lines):
        texts.append(b'{"n": %d, "f": "%s"}' % (number, filler))
        texts += [b""] * (blank if number % 5 == 0 else 0)
    data = end.join(texts) + (b"" if open_end or not texts else end)
    file.write_bytes((b"\xef\xbb\xbf" if bom else b"") + data)

    def make(step: int | None = split_bytes) -> FileReader:
        return lines_reader(file, step, batch_rows=batch_rows, max_row_bytes=max_row_bytes)

    whole = [value for _, value in read_some(make(None), {}, None)]
    found = read_all(make, attempts)
    assert sorted(map(str, (v for _, v in found))) == sorted(map(str, whole))
    alone = read_some(make(), {}, None)
    assert sorted(map(str, (v for _, v in alone))) == sorted(map(str, whole))
    if "bad" not in whole:
        assert [value for _, value in alone] == whole, "ranges in order are the file in order"
        for split in {split for split, _ in found}:
            numbers = [value for s, value in found if s == split]
            assert numbers == sorted(numbers, key=int), "the order of a split is kept"


@settings(max_examples=25, deadline=None)
@given(
    groups=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    split_bytes=st.sampled_from([100, 300, 700, 5_000]),
    attempts=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6)), max_size=2),
)
def test_every_row_group_is_in_one_range(
    tmp_path_factory: pytest.TempPathFactory,
    groups: list[int],
    split_bytes: int,
    attempts: list[tuple[int, int]],
) -> None:
    file = tmp_path_factory.mktemp("groups") / "a.parquet"
    fields: Any = [("n", pa.int64()), ("t", pa.string())]
    schema = pa.schema(fields)
    first = 0
    with pq.ParquetWriter(file, schema) as writer:
        for size in groups:
            numbers = list(range(first, first + size))
            first += size
            writer.write_table(pa.table({"n": numbers, "t": [str(n) for n in numbers]}, schema))
    found = read_all(lambda: parquet_reader(file, split_bytes, batch_rows=7), attempts)
    assert sorted(value for _, value in found) == list(range(first))
    alone = read_some(parquet_reader(file, split_bytes), {}, None)
    assert [value for _, value in alone] == list(range(first))


def test_ranges_are_on_a_grid_and_their_sizes_are_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'{"n": 1}\n' * 25)
    (tmp_path / "b").write_bytes(b"")
    found = lines_reader(tmp_path, 100).list_splits([])
    assert [(Path(s.split).name, s.size) for s in found] == [
        ("a[0-100]", 100),
        ("a[100-200]", 100),
        ("a[200-300]", 25),
        ("b[0-100]", 0),
    ]


def test_whole_files_are_splits_of_their_own_size(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'{"n": 1}\n' * 25)
    found = lines_reader(tmp_path, None).list_splits([])
    assert [(Path(s.split).name, s.size) for s in found] == [("a", 225)]


def test_bad_rows_of_a_range_name_the_file_and_the_place_in_it(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b'{"n": 1}\n' * 20 + b"oops\n")
    reader = lines_reader(file, 100)
    splits = [split.split for split in reader.list_splits([])]
    reader.open([], splits[1:])
    batches: list[SourceBatch] = []
    while isinstance(result := reader.read(MonotonicMs(0)), SourceBatch | NothingYet):
        batches += [result] if isinstance(result, SourceBatch) else []
    reader.close()
    (bad,) = [batch for batch in batches if batch.bad is not None]
    assert bad.origin == Origin(str(file), offset=bad.origin.offset)
    assert bad.bad is not None
    assert "180" in str(bad.bad.to_pylist())


def test_a_file_of_which_ranges_are_known_is_refused_with_other_ranges(tmp_path: Path) -> None:
    """Its rows would come twice."""
    file = tmp_path / "a"
    file.write_bytes(b'{"n": 1}\n' * 50)
    for before, now in ((100, 200), (100, None), (None, 100)):
        for ended in (False, True):
            places: Places = {}
            read_some(lines_reader(file, before), places, None, None if ended else 1)
            with pytest.raises(SourceError, match="another `split_bytes`; set it back"):
                lines_reader(file, now).list_splits(list(places.values()))
            with pytest.raises(SourceError, match="another `split_bytes`; set it back"):
                lines_reader(file, now).open(list(places.values()))


def test_files_that_were_read_to_their_end_in_ranges_may_be_gone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b'{"n": 1}\n' * 30)
    places: Places = {}
    assert len(read_some(lines_reader(tmp_path, 100), places, None)) == 60
    (tmp_path / "a").unlink()
    known = list(places.values())
    shares = assigned(lines_reader(tmp_path, 100).list_splits(known), known, 2)
    assert {split for share in shares for split in share.splits} == set(places), "none is forgotten"
    assert sum(len(read_some(lines_reader(tmp_path, 100), places, s.splits)) for s in shares) == 0


def test_a_range_that_was_read_in_part_may_not_be_gone(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'{"n": 1}\n' * 30)
    (tmp_path / "b").write_bytes(b'{"n": 1}\n')
    places: Places = {}
    read_some(lines_reader(tmp_path, 100), places, None, 1)
    (tmp_path / "a").unlink()
    with pytest.raises(SourceError, match=r"a\[0-100\]' is gone, and was read only in part"):
        lines_reader(tmp_path, 100).list_splits(list(places.values()))


def test_what_is_appended_behind_the_end_that_was_reached_is_not_read(tmp_path: Path) -> None:
    """As without ranges: a file that is read to its end is over."""
    file = tmp_path / "a"
    for size in (22, 100):  # in the middle of a range, and at its end
        file.write_bytes(b'{"n": 1}\n' * size)
        places: Places = {}
        assert len(read_some(lines_reader(file, 100), places, None)) == size
        with file.open("ab") as more:
            more.write(b'{"n": 2}\n' * 100)
        known = list(places.values())
        assert {s.split for s in lines_reader(file, 100).list_splits(known)} == set(places)
        assert read_some(lines_reader(file, 100), places, None) == []


def test_a_file_may_grow_while_its_last_range_is_not_ended(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b'{"n": 1}\n' * 22)
    places: Places = {}
    rows = read_some(lines_reader(file, 100, batch_rows=5), places, None, 4)
    with file.open("ab") as more:
        more.write(b'{"n": 2}\n' * 100)
    rows += read_some(lines_reader(file, 100, batch_rows=5), places, None)
    assert [value for _, value in rows] == [1] * 22 + [2] * 100


def test_a_line_without_an_end_is_not_read_again_by_each_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range in which no line begins ends as soon as that is clear."""
    file = tmp_path / "a"
    file.write_bytes(b"x" * 4_000_000)
    monkeypatch.setattr(file_lines, "CHUNK_BYTES_MIN", 1_000)
    reader = lines_reader(file, 10_000)
    splits = [split.split for split in reader.list_splits([])]
    reader.open([], splits[1:2])
    assert isinstance(reader.read(MonotonicMs(0)), NothingYet)
    result = reader.read(MonotonicMs(0))
    assert isinstance(result, SourceBatch)
    assert result.split_ended
    assert result.position["offset"] in range(19_999, 22_000)
    reader.close()


def test_a_subtask_without_splits_has_ended(tmp_path: Path) -> None:
    reader = lines_reader(tmp_path / "none", None)
    reader.open([], ())
    assert reader.splits() == ()
    assert reader.read(MonotonicMs(0)) == SourceEnded()
    reader.close()


def test_ranges_below_a_mebibyte_are_refused(make: Callable[..., SourceReader]) -> None:
    for wrong in (1, "1KiB"):
        with pytest.raises(ConfigError, match="at least 1048576 bytes"):
            make("file", input_type={"type": "json", "path": "x"}, split_bytes=wrong)


def test_ranges_of_remote_files_are_read_by_their_names(tmp_path: Path) -> None:
    import fsspec  # type: ignore[import-untyped]  # it ships no types

    data = b"".join(b'{"n": %d}\n' % n for n in range(40))
    with fsspec.open("memory://ranges/a.jsonl", "wb") as file:
        file.write(data)
    found = read_all(lambda: lines_reader("memory://ranges", 60), [(3, 1), (2, 2)])
    assert sorted(value for _, value in found) == list(range(40))
    assert os.listdir(tmp_path) == []
