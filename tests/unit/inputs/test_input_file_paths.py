"""Input `file`: which files a path, a folder, a glob or a URL names, and in which order."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arkflow_kernel.errors import SourceError
from arkflow_kernel.ports import SourceBatch, SourceReader

Make = Callable[..., SourceReader]
Drain = Callable[..., list[SourceBatch]]


def rows(batches: list[SourceBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.batch.to_pylist()]


def write(path: Path, line: str) -> None:
    path.write_bytes(line.encode() + b"\n")


def test_files_of_a_folder_are_read_in_the_order_of_their_names(
    tmp_path: Path, lines_of: Make, drain: Drain
) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path / "b.jsonl", '{"n":2}')
    write(tmp_path / "a.jsonl", '{"n":1}')
    write(tmp_path / "sub" / "c.jsonl", '{"n":3}')
    write(tmp_path / ".part-1.jsonl", '{"n":9}')
    write(tmp_path / "_SUCCESS", "x")
    batches = drain(lines_of(tmp_path))
    assert [r["n"] for r in rows(batches)] == [1, 2, 3]
    assert [b.split_ended for b in batches] == [True] * 3
    assert [b.split for b in batches] == sorted(str(p) for p in tmp_path.rglob("[abc].jsonl"))


def test_a_glob_and_a_url_name_files(tmp_path: Path, lines_of: Make, drain: Drain) -> None:
    write(tmp_path / "a1.json", '{"n":1}')
    write(tmp_path / "a2.json", '{"n":2}')
    write(tmp_path / "b.json", '{"n":3}')
    assert len(rows(drain(lines_of(tmp_path / "a*.json")))) == 2
    assert len(rows(drain(lines_of(f"file://{tmp_path}")))) == 3


def test_an_fsspec_url_is_read_like_a_local_path(lines_of: Make, drain: Drain) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/in-lines/a.jsonl", b'{"n":1}\n')
    memory.pipe_file("/in-lines/b.jsonl", b'{"n":2}')
    try:
        batches = drain(lines_of("memory://in-lines"))
        assert [r["n"] for r in rows(batches)] == [1, 2]
        assert batches[0].split == "memory:///in-lines/a.jsonl"
        assert len(rows(drain(lines_of("memory://in-lines/*.jsonl")))) == 2
        assert len(rows(drain(lines_of("memory://in-lines/b.jsonl")))) == 1
        with pytest.raises(SourceError, match="memory://in-other"):
            drain(lines_of("memory://in-other"))
    finally:
        memory.rm("/in-lines", recursive=True)


def test_an_empty_file_does_not_end_the_input(tmp_path: Path, lines_of: Make, drain: Drain) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").write_bytes(b"\n\r\n  \n")
    write(tmp_path / "c", '{"n":1}')
    batches = drain(lines_of(tmp_path))
    assert rows(batches) == [{"n": 1}]
    assert [b.position["offset"] for b in batches] == [0, 6, 8]
    assert all(b.split_ended for b in batches)


@pytest.mark.parametrize("missing", ["nothing.jsonl", "*.none", "no/folder/x.jsonl"])
def test_a_missing_file_is_an_error_that_names_it(
    tmp_path: Path, lines_of: Make, missing: str
) -> None:
    with pytest.raises(SourceError, match="source.*" + missing.replace("*", r"\*")):
        lines_of(tmp_path / missing).open([])


def test_an_empty_folder_is_an_error(tmp_path: Path, lines_of: Make) -> None:
    with pytest.raises(SourceError, match="no file"):
        lines_of(tmp_path).open([])


def test_a_pipe_is_refused_instead_of_waited_for(
    tmp_path: Path, lines_of: Make, drain: Drain
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(SourceError, match=r"/pipe' is a pipe, a socket or a device; this"):
            drain(lines_of(path))


def test_a_link_that_leads_back_up_does_not_multiply_rows(
    tmp_path: Path, lines_of: Make, drain: Drain
) -> None:
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    write(folder / "sub" / "a.jsonl", '{"n":1}')
    (folder / "loop").symlink_to(folder)
    (folder / "sub" / "up").symlink_to("..")
    for pattern in ("**/*.jsonl", "**", "**/sub/**/*"):
        assert rows(drain(lines_of(folder / pattern))) == [{"n": 1}]


def test_two_stars_find_files_at_any_depth_but_hidden_ones(
    tmp_path: Path, lines_of: Make, drain: Drain
) -> None:
    for number, name in enumerate(("a.json", "x/b.json", "x/y[1]/c.json", ".h/d.json", "e.txt")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / name, f'{{"n":{number}}}')
    assert sorted(r["n"] for r in rows(drain(lines_of(tmp_path / "**" / "*.json")))) == [0, 1, 2]
    assert rows(drain(lines_of(tmp_path / "**" / "y*" / "*"))) == [{"n": 2}]


def test_the_query_of_a_web_address_is_no_glob(lines_of: Make, drain: Drain) -> None:
    pytest.importorskip("aiohttp")
    with pytest.raises(SourceError) as caught:
        drain(lines_of("http://user:pw@127.0.0.1:1/a.jsonl?sig=abc"))
    told = str(caught.value)
    assert "cannot list 'http://***127.0.0.1:1/a.jsonl?***': ClientConnectorError" in told
    assert "abc" not in told
    assert "pw" not in told
