"""Bad input as a user meets it: through the command line, with message, exit code and output."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.thorough

NUMBERS = """{type: memory, messages: ['{"a":1}', '{"a":2}', '{"a":3}'], codec: json}"""


def pipeline(
    folder: Path, source: str, *, processors: str = "[]", error_output: str | None = None
) -> Path:
    lines = [
        "streams:",
        "  - id: s",
        f"    input: {source}",
        f"    pipeline: {{processors: {processors}}}",
        "    output: {type: stdout}",
    ]
    if error_output is not None:
        lines.append(f"    error_output: {error_output}")
    path = folder / "pipeline.yaml"
    path.write_text("\n".join(lines))
    return path


def files(path: Path, more: str = "") -> str:
    return f"{{type: file, input_type: {{type: json, path: '{path}'}}{more}}}"


def python(body: str, more: str = "") -> str:
    return f"[{{type: python, function: f, script: {json.dumps(body)}{more}}}]"


def kept(folder: Path) -> list[dict[str, Any]]:
    """The rows of all parts in a folder."""
    lines = [line for part in sorted(folder.iterdir()) for line in part.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def test_a_missing_file_fails_the_job_and_is_named(cli: Any, tmp_path: Path) -> None:
    ran = cli("run", "--inline", pipeline(tmp_path, files(tmp_path / "absent.jsonl")))
    assert (ran.code, ran.out) == (1, "")
    assert f"cannot list '{tmp_path}/absent.jsonl': No such file or directory; check" in ran.err


def test_a_file_that_cannot_be_opened_fails_the_job_after_those_before_it(
    cli: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"a":1}\n')
    (folder / "b.jsonl").symlink_to("absent")
    path = pipeline(tmp_path, files(folder))
    path.write_text(f"{path.read_text()}\n    restart: {{strategy: none}}\n")
    ran = cli("run", "--inline", path)
    assert (ran.code, ran.out) == (1, '{"a":1}\n')
    assert f"input 'source': cannot open '{folder}/b.jsonl': No such file" in ran.err


def test_an_empty_file_is_not_the_end_when_others_follow(cli: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, text in {"a": "", "b": '{"a":1}\n', "c": "\n\n", "d": '{"a":2}', "e": ""}.items():
        (folder / name).write_text(text)
    ran = cli("run", "--inline", pipeline(tmp_path, files(folder)))
    assert (ran.code, ran.out) == (0, '{"a":1}\n{"a":2}\n')


BAD_LINES = b'{"a":1}\n{bad\n{"a":3}\n{"a":"\xff"}\n{"a":5}\n'


def test_bad_rows_are_kept_with_their_place_and_lose_no_neighbour(cli: Any, tmp_path: Path) -> None:
    file, rejected = tmp_path / "x.jsonl", tmp_path / "rejected"
    file.write_bytes(BAD_LINES)
    aside = f"{{type: file, path: {rejected}, format: json}}"
    ran = cli("run", "--inline", pipeline(tmp_path, files(file), error_output=aside))
    assert (ran.code, ran.out) == (0, '{"a":1}\n{"a":3}\n{"a":5}\n')
    assert "  bad      2 rows\n" in ran.err
    rows = kept(rejected)
    assert [row["__value__"] for row in rows] == ["{bad", '{"a":"\\xff"}']
    assert [row["__meta_offset"] for row in rows] == [8, 21]
    assert {row["__meta_source"] for row in rows} == {str(file)}
    assert "not JSON" in rows[0]["__meta_error"]
    assert "UTF-8" in rows[1]["__meta_error"]


def test_a_bad_row_without_error_output_fails_the_job_with_file_offset_and_row(
    cli: Any, tmp_path: Path
) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(BAD_LINES)
    ran = cli("run", "--inline", pipeline(tmp_path, files(file)))
    assert ran.code == 1
    assert f"bad row at {file}, offset 8 (operator 'source'): not JSON" in ran.err
    assert "row: {bad. Set `error_output`" in ran.err


def test_bad_rows_are_left_out_and_counted_with_on_error_skip(cli: Any, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(BAD_LINES)
    ran = cli("run", "--inline", pipeline(tmp_path, files(file, ", on_error: skip")))
    assert (ran.code, ran.out) == (0, '{"a":1}\n{"a":3}\n{"a":5}\n')
    assert "  skipped  2 rows\n" in ran.err


def test_a_line_of_200_mb_is_a_bad_row_between_good_ones(cli: Any, tmp_path: Path) -> None:
    file, rejected = tmp_path / "x.jsonl", tmp_path / "rejected"
    with file.open("wb") as stream:
        stream.write(b'{"a":1}\n{"b":"')
        stream.seek(200_000_000)  # a hole: it takes no disk
        stream.write(b'"}\n{"a":3}\n')
    aside = f"{{type: file, path: {rejected}, format: json}}"
    ran = cli("run", "--inline", pipeline(tmp_path, files(file), error_output=aside))
    assert (ran.code, ran.out) == (0, '{"a":1}\n{"a":3}\n')
    (row,) = kept(rejected)
    assert "a line of 199999994 bytes, above `max_row_bytes`" in row["__meta_error"]
    assert row["__meta_offset"] == 8


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("streams:\n\t- id: s\n", ":2:1: a tab; YAML is indented and separated by spaces only"),
        ("streams: []\nstreams: []\n", ":2:1: the key 'streams' stands twice; it is first at"),
        ("streams: [*later, &later {}]\n", ":1:11: no anchor '&later' is complete above this"),
        (
            "streams:\n  - input: {type: generate, context: x, interval: 1s, count: 010}\n",
            ":2:62: streams[0].input.count: expected an integer, got text",
        ),
        (
            "streams:\n  - input: {type: memroy}\n",
            "streams[0].input.type: Unknown input type: memroy; did you mean 'memory'?",
        ),
    ],
)
def test_a_mistake_in_the_file_has_its_place(
    cli: Any, tmp_path: Path, text: str, told: str
) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(text)
    for command in (["validate"], ["run", "--inline"]):
        ran = cli(*command, path)
        assert (ran.code, ran.out) == (2, "")
        assert f"{path}:" in ran.err
        assert told in ran.err


def test_words_that_other_yaml_takes_for_values_are_text_and_anchors_work(
    cli: Any, tmp_path: Path
) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text("""\
streams:
  - id: NO
    input: &same {type: memory, messages: [NO, 010, on, 1_0, 2001-01-01]}
    pipeline: &none {processors: []}
    output: {type: stdout}
  - {id: 010, input: *same, pipeline: *none, output: {type: drop}}
""")
    ran = cli("run", "--inline", path)
    assert (ran.code, ran.out) == (0, "NO\n010\non\n1_0\n2001-01-01\n")
    assert "NO: finished" in ran.err
    assert "010: finished" in ran.err


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELEC a FROM flow", "SQL syntax error: Expected: an SQL statement, found: SELEC at"),
        ("CREATE TABLE t AS SELECT 1", "CREATE is refused at Line: 1, Column: 1: this processor"),
        ("DROP TABLE flow", "DROP is refused at Line: 1, Column: 1: this processor only reads"),
    ],
)
def test_a_query_that_cannot_run_is_found_by_validate(
    cli: Any, tmp_path: Path, query: str, told: str
) -> None:
    path = pipeline(tmp_path, NUMBERS, processors=f'[{{type: sql, query: "{query}"}}]')
    ran = cli("validate", path)
    assert ran.code == 2
    assert f"{path}:4:48: streams[0].pipeline.processors[0].query: {told}" in ran.err


def test_a_column_in_the_wrong_case_gets_the_quoted_spelling(cli: Any, tmp_path: Path) -> None:
    source = """{type: memory, messages: ['{"userId":7}'], codec: json}"""
    query = '[{type: sql, query: "SELECT userId FROM flow"}]'
    ran = cli("run", "--inline", pipeline(tmp_path, source, processors=query))
    assert (ran.code, ran.out) == (1, "")
    assert 'no column "userid"; names without quotes are read in lower case: write "userId" in' in (
        ran.err
    )


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("def f(b):\n    raise ValueError('boom')", "failed: ValueError: boom"),
        ("def f(b):\n    raise KeyboardInterrupt", "failed: KeyboardInterrupt"),
        ("import sys\ndef f(b): sys.exit(0)", "failed: SystemExit: 0"),
        ("def f(b): return 5", "failed: function 'f' returned int; return a pyarrow RecordBatch"),
    ],
)
def test_a_function_that_fails_is_told_and_its_rows_can_be_kept(
    cli: Any, tmp_path: Path, body: str, told: str
) -> None:
    ran = cli("run", "--inline", pipeline(tmp_path, NUMBERS, processors=python(body)))
    assert (ran.code, ran.out) == (1, "")
    assert f"operator 'p0-python' {told}" in ran.err
    assert 'at the batch from memory, offset 0; first row: {"a":1}' in ran.err
    assert "Traceback" not in ran.err

    aside = f"{{type: file, path: {tmp_path}/rejected, format: json}}"
    path = pipeline(tmp_path, NUMBERS, processors=python(body), error_output=aside)
    ran = cli("run", "--inline", path)
    assert (ran.code, ran.out) == (0, "")
    rows = kept(tmp_path / "rejected")
    assert [(r["a"], r["__meta_offset"]) for r in rows] == [(1, 0), (2, 1), (3, 2)]
    assert {r["__meta_error_operator"] for r in rows} == {"p0-python"}


def test_a_function_that_hangs_fails_the_job_at_its_time_out(cli: Any, tmp_path: Path) -> None:
    body = "import threading\ndef f(b): threading.Event().wait()"
    aside = "{type: drop}"
    path = pipeline(
        tmp_path, NUMBERS, processors=python(body, ", timeout_ms: 50"), error_output=aside
    )
    ran = cli("run", "--inline", path)
    assert (ran.code, ran.out) == (1, "")
    assert "operator 'p0-python' failed: no result within 50 ms; raise its `timeout_ms`" in ran.err


def test_what_a_function_prints_is_not_between_the_rows(cli: Any, tmp_path: Path) -> None:
    body = "def f(b):\n    print('hello')\n    return b"
    ran = cli("run", "--inline", pipeline(tmp_path, NUMBERS, processors=python(body)))
    assert (ran.code, ran.out) == (0, '{"a":1}\n{"a":2}\n{"a":3}\n')
    assert ran.err.count("hello\n") == 3


def test_one_row_that_becomes_very_many_is_written_in_slices(cli: Any, tmp_path: Path) -> None:
    body = "import pyarrow as pa\ndef f(b): return pa.table({'i': range(300_000)})"
    source = """{type: memory, messages: ['{"a":1}'], codec: json}"""
    ran = cli("run", "--inline", pipeline(tmp_path, source, processors=python(body)))
    assert ran.code == 0
    assert ran.out == "".join(f'{{"i":{i}}}\n' for i in range(300_000))


@pytest.mark.parametrize("threads", [1, 4])
def test_a_batch_that_fails_leaves_the_others_in_order(
    cli: Any, tmp_path: Path, threads: int
) -> None:
    messages = ", ".join(f"'{{\"a\":{number}}}'" for number in range(40))
    body = "def f(b):\n    if b['a'][0].as_py() == 17: raise ValueError('x')\n    return b"
    path = pipeline(
        tmp_path,
        f"{{type: memory, messages: [{messages}], codec: json}}",
        processors=f"{python(body)}, thread_num: {threads}",
        error_output=f"{{type: file, path: {tmp_path}/rejected, format: json}}",
    )
    ran = cli("run", "--inline", path)
    assert ran.code == 0
    assert ran.out == "".join(f'{{"a":{number}}}\n' for number in range(40) if number != 17)
    (row,) = kept(tmp_path / "rejected")
    assert (row["a"], row["__meta_offset"]) == (17, 17)


def test_an_error_output_that_cannot_be_opened_fails_the_job(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "rejected").write_text("a file")
    aside = f"{{type: file, path: {tmp_path}/rejected, format: json}}"
    ran = cli("run", "--inline", pipeline(tmp_path, NUMBERS, error_output=aside))
    assert (ran.code, ran.out) == (1, "")
    assert "output 'error-sink': cannot create the folder in" in ran.err
    assert (tmp_path / "rejected").read_text() == "a file"
    assert sorted(os.listdir(tmp_path)) == ["pipeline.yaml", "rejected"]
