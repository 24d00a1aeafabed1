"""`validate` and `explain`: every mistake with its place, and nothing started."""

import json
import re
from pathlib import Path
from typing import Any

import pytest


def test_six_mistakes_are_shown_with_their_places(cli: Any, bad_file: Path) -> None:
    ran = cli("validate", bad_file)
    *lines, summary = ran.err.splitlines()
    assert ran.code == 2
    assert ran.out == ""
    assert all(re.match(rf"{re.escape(str(bad_file))}:\d+:\d+: \S+: ", line) for line in lines)
    places = [line.removeprefix(f"{bad_file}:").split(": ")[:2] for line in lines]
    assert [(int(at.split(":")[0]), path) for at, path in places] == [
        (2, "logging.level"),
        (5, "streams[0].input.type"),
        (7, "streams[0].pipeline.thread_num"),
        (9, "streams[0].pipeline.processors[0].query"),
        (10, "streams[0].output.format"),
        (11, "streams[0].colour"),
    ]
    assert summary == f"6 mistakes in {bad_file}"


def test_mistakes_as_json_are_one_object(cli: Any, bad_file: Path) -> None:
    ran = cli("validate", bad_file, "--json")
    verdict = json.loads(ran.out)
    assert (ran.code, ran.err) == (2, "")
    assert verdict["valid"] is False
    assert verdict["issues"][0] == {
        "file": str(bad_file),
        "line": 2,
        "column": 10,
        "path": "logging.level",
        "message": verdict["issues"][0]["message"],
        "warning": False,
    }
    assert len(verdict["issues"]) == 6


@pytest.mark.parametrize("command", [["run"], ["run", "--inline"], ["explain"], ["-c"]])
def test_nothing_starts_from_a_file_with_mistakes(
    cli: Any, bad_file: Path, command: list[str]
) -> None:
    ran = cli(*command, bad_file)
    assert (ran.code, ran.out) == (2, "")
    assert f"{bad_file}:9:" in ran.err
    assert f"6 mistakes in {bad_file}; " in ran.err.splitlines()[-1]


def test_mistakes_before_a_run_as_json_end_stderr(cli: Any, bad_file: Path) -> None:
    ran = cli("run", "--inline", "--json", bad_file)
    told = json.loads(ran.err.splitlines()[-1])
    assert (ran.code, ran.out, told["exit_code"]) == (2, "", 2)
    assert len(told["issues"]) == 6


def test_a_good_file_is_validated(cli: Any, good_file: Path) -> None:
    ran = cli("validate", good_file)
    assert ran.code == 0
    assert ran.out == f"The config is validated. {good_file}: numbers, silent\n"
    assert json.loads(cli("validate", good_file, "--json").out) == {
        "file": str(good_file),
        "valid": True,
        "jobs": ["numbers", "silent"],
        "issues": [],
    }


def test_the_options_of_arkflow_validate_too(cli: Any, good_file: Path) -> None:
    for options in (["--config", good_file, "--validate"], ["-v", "-c", good_file]):
        ran = cli(*options)
        assert ran.code == 0
        assert ran.out.startswith("The config is validated.")


def test_lenient_turns_unknown_keys_into_warnings(
    cli: Any, tmp_path: Path, good_file: Path
) -> None:
    path = tmp_path / "lenient.yaml"
    path.write_text(good_file.read_text() + "    colour: red\n")
    assert cli("validate", path).code == 2
    ran = cli("validate", path, "--lenient")
    assert ran.code == 0
    assert re.match(rf"{re.escape(str(path))}:10:5: warning: streams\[1\]\.colour: ", ran.err)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("gone.yaml", None, "there is no such file"),
        ("empty.yaml", "", "the file is empty"),
        ("pipeline.txt", "streams: []", "the format cannot be determined"),
        ("tab.yaml", "streams:\n\t- id: x\n", ":2:"),
    ],
)
def test_a_file_that_cannot_be_parsed_is_one_mistake(
    cli: Any, tmp_path: Path, name: str, text: str | None, told: str
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    ran = cli("validate", path)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert ran.err.endswith(f"1 mistake in {path}\n")


def test_explain_tells_of_every_job(cli: Any, good_file: Path) -> None:
    ran = cli("explain", good_file)
    assert ran.code == 0
    assert "numbers" in ran.out
    assert "silent" in ran.out
    for answer in (["--json"], ["--format", "json"]):
        told = json.loads(cli("explain", good_file, *answer).out)
        assert [job["job"] for job in told["jobs"]] == ["numbers", "silent"]
        assert told["jobs"][0]["mode"] == "ack"


@pytest.mark.parametrize(
    ("form", "first"), [("mermaid", "flowchart LR"), ("dot", "digraph jobs {")]
)
def test_explain_draws_every_job_in_one_diagram(
    cli: Any, good_file: Path, form: str, first: str
) -> None:
    ran = cli("explain", good_file, "--format", form)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == first
    assert "job numbers, ack mode" in ran.out
    assert "job silent, ack mode" in ran.out


def test_a_diagram_is_not_json(cli: Any, good_file: Path) -> None:
    ran = cli("explain", good_file, "--json", "--format", "dot")
    assert ran.code == 2
    assert "--json and --format dot exclude each other" in ran.err
