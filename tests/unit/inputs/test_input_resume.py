"""Every input goes on at any of its positions with exactly the rows that are left (B7, K5)."""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_kernel.errors import SourceError
from arkflow_kernel.ids import MonotonicMs, SplitId
from arkflow_kernel.plan import ComponentPlan
from arkflow_kernel.ports import NothingYet, SourceBatch, SourceReader, SplitPosition
from arkflow_kernel.testing.port_contracts import SourceHistory, check_source_reader
from arkflow_ray.components.api import BuildContext, ComponentKind
from arkflow_ray.components.building import build_component
from arkflow_ray.components.inputs import file_lines

pytestmark = pytest.mark.thorough

Make = Callable[..., SourceReader]
Drain = Callable[..., list[SourceBatch]]

JSON = {"type": "json"}
SIZES = st.integers(1, 7)


def made(kind: str, codec: dict[str, Any] | None = None, **config: Any) -> SourceReader:
    plan = ComponentPlan(kind, config, codec)
    return cast(SourceReader, build_component(ComponentKind.INPUT, plan, BuildContext("source")))


def files(folder: Path, format_: str, **config: Any) -> SourceReader:
    return made("file", input_type={"type": format_, "path": str(folder)}, **config)


def rows(history: SourceHistory) -> list[Any]:
    """Good rows of all splits, in the order of their names."""
    return [row for _, (good, _) in sorted(history.apart().items()) for row in good]


@contextmanager
def a_folder() -> Iterator[Path]:
    """A folder of one example: Hypothesis runs many in one test."""
    folder = Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


LINE = st.one_of(
    st.builds(
        lambda n, t: json.dumps({"n": n, "t": t}, ensure_ascii=False),
        st.integers(0, 9),
        st.text("aé日😀\n", max_size=4),
    ),
    st.sampled_from(["", "  ", "bad", '{"n":"\\ud800"}', "x" * 90]),
)
TEXT = st.tuples(
    st.lists(LINE, max_size=12),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.sampled_from(["", "\ufeff"]),
)


def text_of(
    drawn: tuple[list[str], str, bool, str],
) -> bytes:
    lines, end, last, mark = drawn
    return (mark + end.join(lines) + (end if last and lines else "")).encode()


@settings(max_examples=20, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=4), SIZES, SIZES, st.integers(8, 90))
def test_json_lines_in_several_files_go_on_at_any_cut(
    texts: list[tuple[list[str], str, bool, str]], size: int, other: int, chunk: int
) -> None:
    with a_folder() as folder, pytest.MonkeyPatch.context() as patch:
        for number, drawn in enumerate(texts):
            (folder / f"{number}.jsonl").write_bytes(text_of(drawn))
        for name in ("BLOCK_BYTES_FIRST", "BLOCK_BYTES_MAX", "CHUNK_BYTES_MIN"):
            patch.setattr(file_lines, name, chunk)
        config = {"types": {"n": "int", "t": "string"}, "max_row_bytes": 80}
        history = check_source_reader(
            lambda: files(folder, "json", batch_rows=size, **config),
            make_otherwise=lambda: files(folder, "json", batch_rows=other, **config),
        )
        good = [line for lines, *_ in texts for line in lines if line.startswith('{"n": ')]
        assert rows(history) == [json.loads(line) for line in good]


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8)), min_size=1, max_size=3), SIZES, SIZES
)
def test_parquet_in_several_files_goes_on_at_any_cut(
    shapes: list[tuple[int, int]], size: int, other: int
) -> None:
    expected = []
    with a_folder() as folder:
        for number, (count, group) in enumerate(shapes):
            table = pa.table(
                {"n": range(count), "t": [f"é{number}"] * count, "d": [[number]] * count}
            )
            pq.write_table(table, folder / f"{number}.parquet", row_group_size=group)
            expected += table.to_pylist()
        history = check_source_reader(
            lambda: files(folder, "parquet", batch_rows=size),
            make_otherwise=lambda: files(folder, "parquet", batch_rows=other),
        )
    assert rows(history) == expected


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 40), SIZES, SIZES, st.sampled_from(["0ns", "100us", "3ms"]),
    st.sampled_from([None, JSON]),
)  # fmt: skip
def test_generate_goes_on_with_its_count_at_any_cut(
    count: int, size: int, other: int, interval: str, codec: dict[str, Any] | None
) -> None:
    def make(batch_rows: int) -> SourceReader:
        config = {"context": '{"a":"é"}', "interval": interval, "count": count}
        return made("generate", codec, batch_size=size, batch_rows=batch_rows, **config)

    history = check_source_reader(lambda: make(size), make_otherwise=lambda: make(size * other))
    assert len(rows(history)) == count // size * size


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.sampled_from(['{"a":1}', '{"a":2}', "bad", "", "é"]), max_size=20), SIZES, SIZES,
    st.sampled_from([None, JSON]),
)  # fmt: skip
def test_memory_goes_on_at_any_cut(
    messages: list[str], size: int, other: int, codec: dict[str, Any] | None
) -> None:
    history = check_source_reader(
        lambda: made("memory", codec, messages=messages, batch_rows=size),
        make_otherwise=lambda: made("memory", codec, messages=messages, batch_rows=other),
    )
    if codec is None:
        assert rows(history) == [{"__value__": text.encode()} for text in messages]


def places(batches: list[SourceBatch]) -> list[SplitPosition]:
    return SourceHistory(batches).positions(len(batches))


def numbers(batches: list[SourceBatch]) -> list[Any]:
    return [row["n"] for batch in batches for row in batch.batch.to_pylist()]


def lines(*values: int) -> str:
    return "".join(f'{{"n":{value}}}\n' for value in values)


def test_files_that_came_since_begin_at_their_beginning(
    tmp_path: Path, lines_of: Make, drain: Drain
) -> None:
    """K5: a split that no record lists."""
    (tmp_path / "b").write_text(lines(1, 2, 3))
    (tmp_path / "c").write_text(lines(4))
    cut = places(drain(lines_of(tmp_path, batch_rows=1), limit=2))
    for name, value in (("a", 7), ("bb", 8), ("d", 9)):
        (tmp_path / name).write_text(lines(value))
    assert numbers(drain(lines_of(tmp_path), cut)) == [7, 3, 8, 4, 9]


def test_a_file_that_was_appended_to_or_copied_goes_on(
    tmp_path: Path, lines_of: Make, drain: Drain
) -> None:
    path = tmp_path / "a"
    path.write_text(lines(1, 2))
    cut = places(drain(lines_of(path, batch_rows=1), limit=1))
    shutil.copy(path, tmp_path / "copy")
    path.unlink()
    (tmp_path / "copy").rename(path)
    with path.open("a") as file:
        file.write(lines(3))
    assert numbers(drain(lines_of(path), cut)) == [2, 3]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (lines(1), "it is at byte 16, and the file has only 8 now"),
        (lines(100, 200, 300), "no line begins at byte 16 any more"),
        (lines(1, 9, 3), "it does not begin any more as it did"),
    ],
)
def test_another_file_of_json_lines_is_refused_by_name(
    tmp_path: Path, lines_of: Make, drain: Drain, text: str, told: str
) -> None:
    path = tmp_path / "a"
    path.write_text(lines(1, 2, 3))
    cut = places(drain(lines_of(path, batch_rows=1), limit=2))
    path.write_text(text)
    with pytest.raises(SourceError) as caught:
        drain(lines_of(path), cut)
    assert f"cannot continue '{path}' at its position: {told}" in str(caught.value)


def test_the_mark_of_a_long_file_is_of_its_first_kilobyte_alone(
    tmp_path: Path, lines_of: Make, drain: Drain
) -> None:
    path = tmp_path / "a"
    path.write_text(lines(*range(1000)))
    batches = drain(lines_of(path, batch_rows=100))
    marks = [str(batch.position["head"]) for batch in batches]
    assert marks[0].startswith("890:")
    assert {mark.partition(":")[0] for mark in marks[1:]} == {"1024"}
    assert len({*marks[1:]}) == 1


def test_another_file_is_refused_before_anything_is_read(
    tmp_path: Path, lines_of: Make, drain: Drain
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(lines(1, 2, 3))
    batches = drain(lines_of(tmp_path, batch_rows=1), limit=4)
    [_, in_b] = places(batches)
    (tmp_path / "b").write_text(lines(7, 8, 9))
    reader = lines_of(tmp_path)
    with pytest.raises(SourceError, match=f"cannot continue '{tmp_path}/b'"):
        reader.open([in_b])
    reader.close()


@pytest.mark.parametrize("start", [0, 1000])
def test_another_parquet_file_is_refused_by_name(tmp_path: Path, drain: Drain, start: int) -> None:
    path = tmp_path / "a"
    pq.write_table(pa.table({"n": range(20)}), path, row_group_size=10)
    cut = places(drain(files(path, "parquet", batch_rows=4), limit=1))
    assert numbers(drain(files(path, "parquet"), cut)) == [*range(4, 20)]
    pq.write_table(pa.table({"n": range(start, start + 20)}), path, row_group_size=10 + (not start))
    with pytest.raises(SourceError, match=f"'{path}' as Parquet: it is not the file any more"):
        drain(files(path, "parquet"), cut)


def test_messages_that_were_changed_before_the_position_are_refused(
    make: Make, drain: Drain
) -> None:
    cut = places(drain(make("memory", messages=["a", "b", "c"]), limit=2))
    more = drain(make("memory", messages=["a", "b", "x", "y"]), cut)
    assert [b.batch["__value__"][0].as_py() for b in more] == [b"x", b"y"]
    for changed in (["b", "a", "c"], ["ab", "", "c"]):
        with pytest.raises(SourceError, match="first 2 of `messages` are not those that were read"):
            drain(make("memory", messages=changed), cut)


def test_generate_paces_anew_after_a_restore_without_a_burst(make: Make) -> None:
    reader = make("generate", context="x", interval="10ms", count=9)
    reader.open([SplitPosition(SplitId("generate"), {"emitted": 5})])
    given: list[int] = []
    now = 1_000_000
    while len(given) < 3:
        result = reader.read(MonotonicMs(now))
        if isinstance(result, NothingYet):
            assert result.resume_ms is not None
            now = result.resume_ms
            continue
        assert isinstance(result, SourceBatch)
        assert result.batch.num_rows == 1
        given.append(now)
    reader.close()
    assert given[0] == 1_000_000
    assert [b - a for a, b in pairwise(given)] == [10, 10]
