"""`run --inline` in this process: rows, results and exit codes."""

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from arkflow_ray.cli import run as command
from arkflow_ray.runtime.launch import launch

HALF_FAILS = """\
streams:
  - id: fails
    input: {type: memory, messages: ['{"a": 1}', 'not json'], codec: json}
    pipeline: {processors: []}
    output: {type: drop}
  - id: works
    input: {type: memory, messages: ['{"a": 1}'], codec: json}
    pipeline: {processors: []}
    output: {type: stdout}
"""

KEEPS_BAD_ROWS = """\
streams:
  - id: keeps
    input: {type: memory, messages: ['{"a": 1}', 'not json'], codec: json}
    pipeline: {processors: []}
    output: {type: stdout}
    error_output: {type: drop}
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_rows_alone_are_on_stdout_and_all_else_on_stderr(cli: Any, good_file: Path) -> None:
    ran = cli("run", "--inline", good_file)
    assert ran.code == 0
    assert ran.out == '{"a":1}\n{"a":2}\n{"a":3}\n'
    assert "numbers: finished after " in ran.err
    assert "  read     3 rows, " in ran.err
    assert "  written  3 rows to sink (stdout)\n" in ran.err


def test_the_option_of_arkflow_names_the_file(cli: Any, good_file: Path) -> None:
    ran = cli("run", "--inline", "--config", good_file)
    assert (ran.code, ran.out.count("\n")) == (0, 3)


def test_with_json_every_line_of_stderr_is_json_and_the_last_is_the_result(
    cli: Any, good_file: Path
) -> None:
    ran = cli("run", "--inline", "--json", good_file)
    told = [json.loads(line) for line in ran.err.splitlines()]
    assert ran.code == told[-1]["exit_code"] == 0
    numbers, silent = told[-1]["jobs"]
    assert numbers["job"] == "numbers"
    assert (numbers["rows_read"], sum(numbers["rows_written"].values())) == (3, 3)
    assert (silent["outcome"], silent["bad_rows"], silent["error"]) == ("finished", 0, None)


def test_with_json_warnings_and_notes_are_json_too(cli: Any, good_file: Path) -> None:
    text = good_file.read_text().replace("pipeline: {", "pipeline: {colour: red, ", 1)
    good_file.write_text("logging: {file_path: /dev/null/x}\n" + text)
    ran = cli("run", "--inline", "--json", "--lenient", good_file)
    told = [json.loads(line) for line in ran.err.splitlines()]
    assert [line["level"] for line in told[:2]] == ["warn", "warn"]
    assert "cannot log to /dev/null/x" in told[0]["message"]
    assert ": warning: " in told[1]["message"]
    assert "colour" in told[1]["message"]


def test_with_json_a_run_that_is_interrupted_before_a_job_runs_ends_with_a_result(
    cli: Any, good_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)  # this thread's own: its handler runs here
        return launch(*arguments)

    monkeypatch.setattr(command, "launch", interrupted)
    ran = cli("run", "--inline", "--json", good_file)
    told = [json.loads(line) for line in ran.err.splitlines()]
    assert ran.code == told[-1]["exit_code"] == 130
    assert told[-1]["error"]["type"] == "Cancelled"


def test_only_runs_the_jobs_that_it_names(cli: Any, good_file: Path) -> None:
    ran = cli("run", "--inline", good_file, "--only", "silent")
    assert (ran.code, ran.out) == (0, "")
    assert "numbers" not in ran.err
    assert cli("run", "--inline", good_file, "--only", "silent", "--only", "numbers").out


def test_only_refuses_an_id_that_is_none(cli: Any, good_file: Path) -> None:
    ran = cli("run", "--inline", good_file, "--only", "sil")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "no job has the id 'sil'; there are: numbers, silent\n"


def test_one_failed_job_is_the_exit_code_and_the_others_finish(cli: Any, tmp_path: Path) -> None:
    path = written(tmp_path / "half.yaml", HALF_FAILS)
    ran = cli("run", "--inline", path)
    assert (ran.code, ran.out) == (1, '{"a":1}\n')
    assert "fails: failed after " in ran.err
    assert "  error    bad row at " in ran.err
    assert "works: finished after " in ran.err
    told = json.loads(cli("run", "--inline", "--json", path).err.splitlines()[-1])
    assert [job["outcome"] for job in told["jobs"]] == ["failed", "finished"]
    assert told["jobs"][0]["error"]["type"] == "BadRowError"
    assert told["exit_code"] == 1


def test_bad_rows_that_are_kept_aside_are_counted(cli: Any, tmp_path: Path) -> None:
    ran = cli("run", "--inline", written(tmp_path / "keeps.yaml", KEEPS_BAD_ROWS))
    assert (ran.code, ran.out) == (0, '{"a":1}\n')
    assert "  read     2 rows, " in ran.err
    assert "  bad      1 row\n" in ran.err


def test_the_logging_section_is_honoured(cli: Any, good_file: Path, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "run.log"
    section = f"logging: {{level: info, format: json, file_path: {log}}}\n"
    path = written(tmp_path / "logs.yaml", section + good_file.read_text())
    ran = cli("run", "--inline", path)
    assert ran.code == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {"job numbers is finished", "job silent is finished"} <= {e["message"] for e in lines}
    assert "is finished" not in ran.err
    assert "numbers: finished after " in ran.err


def test_a_log_file_that_cannot_be_had_is_noted(cli: Any, good_file: Path, tmp_path: Path) -> None:
    section = f"logging: {{level: info, file_path: {good_file}/run.log}}\n"
    ran = cli("run", "--inline", written(tmp_path / "logs.yaml", section + good_file.read_text()))
    assert ran.code == 0
    assert f"cannot log to {good_file}/run.log: " in ran.err
    assert "job numbers is finished" in ran.err


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://[::1]:{}", "localhost:99999999"])
def test_a_cluster_that_is_not_there_is_exit_code_3_at_once(
    cli: Any, good_file: Path, address: str
) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        # The port is taken and nobody listens on it.
        address = address.format(held.getsockname()[1])
        ran = cli("run", good_file, "--address", address)
        told = cli("run", good_file, "--address", address, "--json")
    assert (ran.code, ran.out) == (3, "")
    assert f"cannot reach Ray at '{address}': " in ran.err
    result = json.loads(told.err.splitlines()[-1])
    assert (result["exit_code"], result["error"]["type"]) == (3, "ClusterError")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_handlers_are_put_back(cli: Any, good_file: Path, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    assert cli("run", "--inline", good_file).code == 0
    assert signal.getsignal(number) is before
