"""Signals and a closed stdout, against the program itself, without Ray."""

import array
import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arkflow_ray.attached import CANCELLING_NOTE, CLOSED_NOTE, STOPPING_NOTE, TERMINATED_NOTE

ENDLESS = """\
streams:
  - id: endless
    input: {type: generate, context: '{"a": 1}', interval: 10ms, codec: json}
    pipeline: {processors: []}
    output: {type: stdout}
"""

HANGS = """\
streams:
  - id: hangs
    input: {{type: generate, context: '{{"a": 1}}', interval: 10ms, codec: json}}
    pipeline:
      processors:
        - type: python
          function: wait
          script: |
            import pathlib, sys, time
            def wait(batch):
                sys.stderr.write("the processor hangs\\n")
                sys.stderr.flush()
                while not pathlib.Path("{release}").exists():
                    time.sleep(0.01)
                return batch
    output: {{type: drop}}
"""

UNPUBLISHED = """\
jobs:
  - id: shown
    version: 1
    operators:
      - {{id: rows, kind: source}}
      - {{id: out, kind: sink}}
    edges: [{{id: e, from: rows, to: out}}]
    checkpoint: {{object_store_uri: "file://{folder}/store", interval_ms: 100}}
    sources:
      - operator_id: rows
        input_type: file
        config:
          input_type: {{type: json, path: "{folder}/in.jsonl"}}
          batch_rows: 10
          rows_per_second: {rate}
        time: {{mode: processing_time}}
    sinks:
      - {{operator_id: out, output_type: file, config: {{path: "{folder}/out", format: json}}}}
"""
ROWS = 600

Program = subprocess.Popen[str]
Start = Callable[[str], Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """The program on a file of this text, killed at the end if it is still there."""
    started: list[Program] = []

    def run(text: str) -> Program:
        path = tmp_path / "pipeline.yaml"
        path.write_text(text)
        command = [sys.executable, "-m", "arkflow_ray.cli.main", "run", "--inline", str(path)]
        program = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(program)
        return program

    yield run
    for program in started:
        program.kill()
        program.communicate()


def heard(program: Program, text: str) -> None:
    """Return when the program has said this on stderr."""
    assert program.stderr is not None
    for line in program.stderr:
        if text in line:
            return
    pytest.fail(f"the program ended without saying: {text}")


def until(condition: Callable[[], bool]) -> None:
    """Return when a condition holds that the program will fulfil."""
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def until_full(pipe: int) -> None:
    """Return when a pipe takes nothing more."""
    room = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
    held = array.array("i", [0])
    while held[0] < room:
        fcntl.ioctl(pipe, termios.FIONREAD, held)
        select.select([], [], [], 0.01)


def printed(program: Program) -> str:
    """The next row on stdout; no byte beyond it is taken, so `communicate` gets all the rest."""
    assert program.stdout is not None
    row = b""
    while not row.endswith(b"\n") and (byte := os.read(program.stdout.fileno(), 1)):
        row += byte
    return row.decode()


@pytest.mark.parametrize(
    ("number", "note"), [(signal.SIGINT, STOPPING_NOTE), (signal.SIGTERM, TERMINATED_NOTE)]
)
def test_one_signal_stops_in_order(start: Start, number: signal.Signals, note: str) -> None:
    program = start(ENDLESS)
    assert printed(program) == '{"a":1}\n'
    program.send_signal(number)
    out, err = program.communicate()
    assert program.returncode == 0
    assert note in err
    assert "endless: stopped after " in err
    rows = 1 + out.count('{"a":1}\n')
    assert f"  read     {rows:,} row" in err
    assert "Traceback" not in err


def test_a_second_ctrl_c_cancels(start: Start, tmp_path: Path) -> None:
    release = tmp_path / "release"
    program = start(HANGS.format(release=release))
    heard(program, "the processor hangs")
    program.send_signal(signal.SIGINT)
    heard(program, STOPPING_NOTE)
    program.send_signal(signal.SIGINT)
    heard(program, CANCELLING_NOTE)
    release.touch()
    _, err = program.communicate()
    assert program.returncode == 130
    assert "hangs: cancelled after " in err
    assert "Traceback" not in err


def test_a_second_ctrl_c_cancels_although_nobody_reads_the_rows(start: Start) -> None:
    program = start(ENDLESS.replace("10ms", "0s"))
    heard(program, "endless is running")
    # The pipe holds some thousand rows; this test reads none.
    assert program.stdout is not None
    until_full(program.stdout.fileno())
    program.send_signal(signal.SIGINT)
    heard(program, STOPPING_NOTE)
    program.send_signal(signal.SIGINT)
    heard(program, "endless: cancelled after ")
    assert program.wait() == 130


def test_a_ctrl_c_after_sigterm_cancels(start: Start, tmp_path: Path) -> None:
    release = tmp_path / "release"
    program = start(HANGS.format(release=release))
    heard(program, "the processor hangs")
    program.send_signal(signal.SIGTERM)
    heard(program, TERMINATED_NOTE)
    program.send_signal(signal.SIGINT)
    heard(program, CANCELLING_NOTE)
    release.touch()
    program.communicate()
    assert program.returncode == 130


def replaced_by_file(folder: Path) -> list[Path]:
    """Where the folder is now: a sink that publishes meanwhile makes it anew, which moves, too."""
    moved: list[Path] = []
    while True:
        moved.append(folder.rename(folder.with_name(f"moved-{len(moved)}")))
        with contextlib.suppress(FileExistsError):
            folder.touch(exist_ok=False)
            return moved


def test_a_second_ctrl_c_ends_a_stop_whose_publication_fails_and_the_next_run_publishes(
    start: Start, tmp_path: Path
) -> None:
    """D5, X1: a file stands where the output's folder was; what waited is in the checkpoint."""
    rows = [json.dumps({"n": n}, separators=(",", ":")) for n in range(ROWS)]
    (tmp_path / "in.jsonl").write_text("\n".join(rows))
    out = tmp_path / "out"
    program = start(UNPUBLISHED.format(folder=tmp_path, rate=100))
    until(lambda: any(out.glob("part-*")))
    moved = replaced_by_file(out)
    program.send_signal(signal.SIGINT)
    heard(program, STOPPING_NOTE)
    heard(program, "publishing fails")
    program.send_signal(signal.SIGINT)
    _, err = program.communicate()
    assert program.returncode == 130
    assert "shown: cancelled after " in err
    out.unlink()
    out.mkdir()
    for path in (path for folder in moved for path in folder.iterdir()):
        path.rename(out / path.name)
    again = start(UNPUBLISHED.format(folder=tmp_path, rate=100_000))
    _, err = again.communicate()
    assert again.returncode == 0, err
    written = [line for part in sorted(out.iterdir()) for line in part.read_text().splitlines()]
    assert written == rows


def test_a_third_ctrl_c_waits_for_nothing(start: Start, tmp_path: Path) -> None:
    program = start(HANGS.format(release=tmp_path / "never"))
    heard(program, "the processor hangs")
    for note in (STOPPING_NOTE, CANCELLING_NOTE):
        program.send_signal(signal.SIGINT)
        heard(program, note)
    program.send_signal(signal.SIGINT)
    _, err = program.communicate()
    assert program.returncode == 130
    assert err.startswith("given up without waiting")
    assert "Traceback" not in err


def test_a_reader_of_stdout_that_goes_away_ends_the_run_quietly(start: Start) -> None:
    program = start(ENDLESS)
    assert printed(program) == '{"a":1}\n'
    assert program.stdout is not None
    program.stdout.close()
    assert program.stderr is not None
    err = program.stderr.read()
    assert program.wait() == 0
    assert err.count(CLOSED_NOTE) == 1
    assert "endless: cancelled after " in err
    assert "Traceback" not in err
    assert "Exception ignored" not in err


def test_head_takes_what_it_wants(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(ENDLESS)
    line = f'"{sys.executable}" -m arkflow_ray.cli.main run --inline "{path}" | head -n 2'
    script = f"set -o pipefail; {line}; exit ${{PIPESTATUS[0]}}"
    ran = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, env=os.environ
    )
    assert (ran.returncode, ran.stdout) == (0, '{"a":1}\n{"a":1}\n')
    assert "Traceback" not in ran.stderr
    assert "Exception ignored" not in ran.stderr


@pytest.mark.parametrize(("closed", "code"), [(">&-", 1), ("2>&-", 0)])
def test_a_program_without_a_stream_says_so_or_runs(tmp_path: Path, closed: str, code: int) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(ENDLESS.replace("interval: 10ms", "interval: 0s, count: 3"))
    line = f'"{sys.executable}" -m arkflow_ray.cli.main run --inline "{path}" {closed}'
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    assert ran.returncode == code, ran.stderr
    assert "Traceback" not in ran.stderr
    assert (ran.stdout == '{"a":1}\n' * 3) is (code == 0)
    assert ("started without one" in ran.stderr) is (code == 1)


@pytest.mark.parametrize("command", ["explain", "schema"])
def test_results_of_other_commands_may_be_cut_short_too(command: str, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(ENDLESS)
    arguments = [command, str(path)] if command == "explain" else [command]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "arkflow_ray.cli.main", *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    finally:
        os.close(writer)
    assert ran.stderr == ""
    assert ran.returncode == 0
