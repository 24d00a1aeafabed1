"""Input `file`, JSON lines: rows, exact positions, bad rows (T8)."""

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arkflow_kernel.errors import ConfigError, SourceError
from arkflow_kernel.ids import MonotonicMs
from arkflow_kernel.ports import NothingYet, SourceBatch, SourceReader, SplitPosition
from arkflow_ray.components.inputs import file_lines

Make = Callable[..., SourceReader]
Drain = Callable[..., list[SourceBatch]]


def rows(batches: list[SourceBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.batch.to_pylist()]


def bad(batches: list[SourceBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches if batch.bad for row in batch.bad.to_pylist()]


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_bytes(end.join(lines).encode() + end.encode())
    return path


def read(reader: SourceReader) -> SourceBatch:
    result = reader.read(MonotonicMs(0))
    assert isinstance(result, SourceBatch)
    return result


def test_an_unreadable_file_is_an_error_that_names_it(
    tmp_path: Path, lines_of: Make, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a", '{"n":1}')

    def refuse(*_args: object, **_kw: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    reader = lines_of(path)
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(SourceError, match=f"cannot open '{path}': Permission denied"):
        drain(reader)


def test_a_read_that_fails_is_an_error_that_names_the_file(
    tmp_path: Path, lines_of: Make, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a", '{"n":1}')

    def fail(_self: object, _want: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(file_lines.LineSplit, "_fill", fail)
    with pytest.raises(SourceError, match=f"cannot read '{path}': Input/output error"):
        drain(lines_of(path))


def test_bad_lines_do_not_lose_their_neighbours(
    tmp_path: Path, lines_of: Make, drain: Drain
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b'{"n":1}\n{"n":\n{"n":2}\n{"s":"\xff"}\nnull\n{"n":3}{"n":4}\n{"n":5}')
    (batch,) = drain(lines_of(path))
    assert [r["n"] for r in rows([batch])] == [1, 2, 5]
    assert [(b["__value__"], b["__meta_offset"]) for b in bad([batch])] == [
        (b'{"n":', 8),
        (b'{"s":"\xff"}', 22),
        (b"null", 32),
        (b'{"n":3}{"n":4}', 37),
    ]
    assert {(b["__meta_source"], b["__meta_error_operator"]) for b in bad([batch])} == {
        (str(path), "source")
    }
    assert all(b["__meta_error"] for b in bad([batch]))


def test_on_error_skip_leaves_bad_lines_out_and_counts_them(
    tmp_path: Path, lines_of: Make, drain: Drain
) -> None:
    (batch,) = drain(lines_of(write(tmp_path / "a", '{"n":1}', "x", "y"), on_error="skip"))
    assert (batch.skipped, batch.bad, rows([batch])) == (2, None, [{"n": 1}])


def test_a_byte_order_mark_and_a_last_line_without_break_are_read(
    tmp_path: Path, lines_of: Make, drain: Drain
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b'\xef\xbb\xbf{"n":1}\r\n{"n":2}')
    (batch,) = drain(lines_of(path))
    assert (rows([batch]), batch.origin.offset) == ([{"n": 1}, {"n": 2}], 3)
    assert (batch.position["offset"], batch.bad) == (path.stat().st_size, None)


def test_fixed_types_are_columns_and_refuse_other_values(
    tmp_path: Path, lines_of: Make, drain: Drain
) -> None:
    path = write(tmp_path / "a", '{"n":1,"t":5}', '{"n":1.5}', '{"x":"2024-01-01"}')
    (batch,) = drain(lines_of(path, types={"t": "string", "n": "int", "late": "list<float>"}))
    assert {f.name: str(f.type) for f in batch.batch.schema} == {
        "t": "string", "n": "int64", "late": "list<item: double>", "x": "string",
    }  # fmt: skip
    assert rows([batch])[0]["t"] == "5"
    assert [b["__value__"] for b in bad([batch])] == [b'{"n":1.5}']


@pytest.mark.parametrize("break_at_end", [True, False])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_line_above_the_limit_is_a_bad_row_and_its_neighbours_are_read(
    tmp_path: Path,
    lines_of: Make,
    drain: Drain,
    monkeypatch: pytest.MonkeyPatch,
    place: int,
    break_at_end: bool,
) -> None:
    monkeypatch.setattr(file_lines, "BLOCK_BYTES_FIRST", 4096)
    monkeypatch.setattr(file_lines, "CHUNK_BYTES_MIN", 4096)
    monkeypatch.setattr(file_lines, "SKIP_BYTES_MAX", 8192)
    texts = ['{"n":1}', '{"n":2}']
    texts.insert(place, '{"n":"' + "x" * 100_000 + '"}')
    path = tmp_path / "a"
    path.write_text("\n".join(texts) + ("\n" if break_at_end else ""))
    batches = drain(lines_of(path, max_row_bytes="64KB"))
    assert [r["n"] for r in rows(batches)] == [1, 2]
    (row,) = bad(batches)
    assert (len(row["__value__"]), row["__meta_offset"]) == (1024, 8 * place)
    assert "a line of 100008 bytes" in row["__meta_error"]
    assert batches[-1].position["offset"] == path.stat().st_size
    assert [b.split_ended for b in batches] == [False] * (len(batches) - 1) + [True]


def test_a_line_just_above_the_limit_in_a_block_is_a_bad_row(
    tmp_path: Path, lines_of: Make, drain: Drain
) -> None:
    path = write(tmp_path / "a", '{"n":1}', '{"n":"xxxxxxxxx"}', '{"n":2}')
    batches = drain(lines_of(path, max_row_bytes=16))
    assert [r["n"] for r in rows(batches)] == [1, 2]
    assert [b["__meta_offset"] for b in bad(batches)] == [8]
    assert drain(lines_of(path, max_row_bytes=17))[0].bad is None


def test_a_line_of_200_mb_is_skipped_without_being_held(
    tmp_path: Path, lines_of: Make, drain: Drain
) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.write(b'{"n":1}\n{"n":"')
        file.truncate(200_000_000)
        file.seek(0, os.SEEK_END)
        file.write(b'"}\n{"n":2}\n')
    tracemalloc.start()
    try:
        batches = drain(lines_of(path, max_row_bytes="8MiB"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [r["n"] for r in rows(batches)] == [1, 2]
    assert len(bad(batches)) == 1
    assert peak < 32 * 1024 * 1024


def test_what_is_appended_before_the_end_is_reached_is_read(tmp_path: Path, lines_of: Make) -> None:
    path = write(tmp_path / "a", *['{"n":1}'] * 200_000)
    reader = lines_of(path)
    reader.open([])
    reader.read(MonotonicMs(0))
    with path.open("ab") as file:
        file.write(b'{"n":2}\n')
    last = read(reader)
    while not last.split_ended:
        last = read(reader)
    assert rows([last])[-1] == {"n": 2}
    reader.close()


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path, lines_of: Make) -> None:
    path = write(tmp_path / "a", *['{"n":1}'] * 200_000)
    reader = lines_of(path)
    reader.open([])
    reader.read(MonotonicMs(0))
    os.truncate(path, 100)
    with pytest.raises(SourceError, match="shrank"):
        list(iter(lambda: reader.read(MonotonicMs(0)), None))
    reader.close()


def restored(batch: SourceBatch) -> list[SplitPosition]:
    position = json.loads(json.dumps(batch.position, sort_keys=True))
    return [SplitPosition(batch.split, position, ended=batch.split_ended)]


def test_a_position_in_a_file_that_is_gone_shorter_or_other_is_refused(
    tmp_path: Path, lines_of: Make, drain: Drain
) -> None:
    path = write(tmp_path / "a", *['{"n":1}'] * 10)
    (first,) = drain(lines_of(path, batch_rows=5), limit=1)
    write(path, *['{"number":1}'] * 10)
    with pytest.raises(SourceError, match="no line begins at byte 40"):
        drain(lines_of(path), restored(first))
    write(path, '{"n":1}')
    with pytest.raises(SourceError, match="only 8 now"):
        drain(lines_of(path), restored(first))
    write(tmp_path / "b", '{"n":1}')
    path.unlink()
    with pytest.raises(SourceError, match="is gone"):
        drain(lines_of(tmp_path), restored(first))


def test_a_file_that_was_ended_is_not_read_again(
    tmp_path: Path, lines_of: Make, drain: Drain
) -> None:
    path = write(tmp_path / "a", '{"n":1}')
    (batch,) = drain(lines_of(path))
    write(tmp_path / "b", '{"n":2}')
    assert rows(drain(lines_of(tmp_path), restored(batch))) == [{"n": 2}]
    path.unlink()
    assert rows(drain(lines_of(tmp_path), restored(batch))) == [{"n": 2}]


def test_a_batch_that_ends_early_for_an_exact_integer_continues_right_behind(
    tmp_path: Path, lines_of: Make, drain: Drain
) -> None:
    path = write(tmp_path / "a", '{"a":9007199254740993}', '{"a":1}', '{"a":2.5}', '{"a":3}')
    first, second = drain(lines_of(path))
    assert rows([first]) == [{"a": 9007199254740993}, {"a": 1}]
    assert (first.position["offset"], first.split_ended) == (31, False)
    assert rows([second]) == [{"a": 2.5}, {"a": 3.0}]
    assert rows(drain(lines_of(path), restored(first))) == rows([second])


LINES = st.lists(
    st.sampled_from(
        ['{"a":1}', '{"a":2.5}', '{"a":9007199254740993}', '{"b":"x"}', '{"b":[1]}', "bad", "",
         '{"a":"t"}', '{"c":{"d":null}}', '{"c":{"d":1}}', '{"a":3}', '{"a":4}', "x" * 40]
    ),
    max_size=30,
)  # fmt: skip


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.integers(1, 7), st.integers(8, 90))
def test_reading_on_from_any_position_gives_the_same_rows_bad_rows_and_types(
    tmp_path: Path,
    lines_of: Make,
    drain: Drain,
    lines: list[str],
    end: str,
    last_break: bool,
    batch_rows: int,
    chunk: int,
) -> None:
    path = tmp_path / "a"
    path.write_bytes((end.join(lines) + (end if last_break else "")).encode())
    with pytest.MonkeyPatch.context() as patch:
        for name in ("BLOCK_BYTES_FIRST", "BLOCK_BYTES_MAX", "CHUNK_BYTES_MIN"):
            patch.setattr(file_lines, name, chunk)
        config = {"batch_rows": batch_rows, "max_row_bytes": 36}
        whole = drain(lines_of(path, **config))
        assert [b.split_ended for b in whole] == [False] * (len(whole) - 1) + [True]
        assert whole[-1].position["offset"] == path.stat().st_size
        assert len(rows(whole)) + len(bad(whole)) == sum(1 for line in lines if line)
        for i, batch in enumerate(whole[:-1]):
            rest = drain(lines_of(path, **config), restored(batch))
            assert widened(rest) == widened(whole[i + 1 :])
            assert bad(rest) == bad(whole[i + 1 :])
            assert rest[-1].position == whole[-1].position


def widened(batches: list[SourceBatch]) -> list[dict[str, Any]]:
    """Rows without nulls and numbers as text: what does not depend on where batches are cut."""
    return [{k: as_text(v) for k, v in row.items() if v is not None} for row in rows(batches)]


def as_text(value: object) -> Any:
    if isinstance(value, list):
        return [as_text(v) for v in value] if len(value) != 1 else as_text(value[0])
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def test_no_batch_has_more_rows_than_asked_for_and_full_ones_are_the_rule(
    tmp_path: Path, lines_of: Make, drain: Drain
) -> None:
    path = write(tmp_path / "a", *[f'{{"n":{i}}}' for i in range(100_000)])
    sizes = [b.batch.num_rows for b in drain(lines_of(path))]
    assert max(sizes) == 8192
    assert sum(sizes) == 100_000
    assert len(sizes) <= 14


def test_reading_returns_nothing_yet_while_a_long_line_is_skipped(
    tmp_path: Path, lines_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lines, "SKIP_BYTES_MAX", 1024)
    path = write(tmp_path / "a", "x" * 2_000_000)
    reader = lines_of(path, max_row_bytes=100)
    reader.open([])
    assert isinstance(reader.read(MonotonicMs(0)), NothingYet)
    reader.close()


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"input_type": {"type": "csv", "path": "x"}}, "later release; use `json` or `parquet`"),
        ({"input_type": {"type": "json", "path": "x", "store": {"type": "s3"}}}, "`store` comes"),
        ({"query": {"query": "SELECT 1"}}, "`query` of the `file` input comes"),
        ({"ballista": {"remote_url": "x"}}, "`ballista` of the `file` input comes"),
        ({"types": {"a": "timestamp"}}, "is not a type"),
        ({"max_row_bytes": "65MiB"}, "64 MiB"),
        ({"batch_rows": 0}, "batch_rows"),
    ],
)
def test_what_comes_later_or_is_wrong_is_refused_with_a_sentence(
    make: Make, config: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as error:
        make("file", **{"input_type": {"type": "json", "path": "x"}, **config})
    assert told in str(error.value)
