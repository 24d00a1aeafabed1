"""The program on a Ray that it starts itself, and the Python API on a Ray that is there."""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import arkflow_ray
from arkflow_ray.attached import CLOSED_NOTE, STARTING_NOTE, STOPPING_NOTE
from tests.integration.processes import command_line, in_session

ENDLESS = """\
streams:
  - id: endless
    input: {type: generate, context: '{"a": 1}', interval: 10ms, codec: json}
    pipeline: {processors: []}
    output: {type: stdout}
"""

FINITE = """\
streams:
  - id: numbers
    input: {type: memory, messages: ['{"a": 1}', '{"a": 2}'], codec: json}
    pipeline: {processors: []}
    output: {type: stdout}
"""

ONE_DIES = (
    FINITE
    + """\
  - id: dies
    input: {type: memory, messages: ['{"a": 1}'], codec: json}
    pipeline:
      processors:
        - {type: python, function: f, script: "import os\\ndef f(batch): os._exit(3)"}
    output: {type: stdout}
    restart: {strategy: fixed, initial_ms: 1, max_attempts: 1}
"""
)

Program = subprocess.Popen[str]
Start = Callable[[str], Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """The program in a process group of its own, as a shell starts it; killed whole at the end."""
    started: list[Program] = []

    def run(text: str) -> Program:
        path = tmp_path / "pipeline.yaml"
        path.write_text(text)
        command = [sys.executable, "-m", "arkflow_ray.cli.main", "run", str(path)]
        program = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(program)
        return program

    yield run
    for program in started:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def printed(program: Program) -> str:
    """The next row on stdout; no byte beyond it is taken, so `communicate` gets all the rest."""
    assert program.stdout is not None
    row = b""
    while not row.endswith(b"\n") and (byte := os.read(program.stdout.fileno(), 1)):
        row += byte
    return row.decode()


def running(program: Program) -> list[str]:
    """Command lines of what runs in the program's session."""
    found = map(command_line, in_session(program.pid))
    return [line for line in found if line is not None]


def until(condition: Callable[[], bool]) -> None:
    """Return when it holds; fail after 30 s."""
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s, "it does not happen"
        select.select([], [], [], 0.02)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("pipeline", ["processors: []", "processors: [], chain: false"])
def test_a_terminals_ctrl_c_stops_a_run_on_ray_in_order(start: Start, pipeline: str) -> None:
    program = start(ENDLESS.replace("processors: []", pipeline))
    assert printed(program) == '{"a":1}\n'
    # A terminal sends it to every process of the foreground group, Ray's included.
    os.killpg(program.pid, signal.SIGINT)
    out, err = program.communicate()
    assert program.returncode == 0, err
    assert STOPPING_NOTE in err
    assert f"  read     {1 + out.count('{'):,} row" in err
    assert "starting Ray" in err
    assert "Traceback" not in err
    # Ray's agents notice within seconds that the raylet has gone.
    until(lambda: running(program) == [])


@pytest.mark.timeout(240)
def test_a_reader_that_goes_away_ends_a_run_on_ray_quietly(start: Start) -> None:
    program = start(ENDLESS)
    assert printed(program) == '{"a":1}\n'
    assert program.stdout is not None
    program.stdout.close()
    assert program.stderr is not None
    err = program.stderr.read()
    assert program.wait() == 0, err
    assert CLOSED_NOTE in err
    assert "endless: cancelled after " in err
    assert "Traceback" not in err


@pytest.mark.timeout(240)
@pytest.mark.parametrize("started", ["gcs_server", "raylet"])
def test_a_ctrl_c_while_ray_starts_leaves_nothing_behind(
    start: Start, monkeypatch: pytest.MonkeyPatch, started: str
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(folder))
    program = start(ENDLESS)
    assert program.stderr is not None
    for line in program.stderr:
        if "starting Ray" in line:
            break
    until(lambda: program.poll() is not None or any(started in each for each in running(program)))
    os.killpg(program.pid, signal.SIGINT)
    out, err = program.communicate()
    assert (program.returncode, out) == (130, "")
    assert STARTING_NOTE in err
    assert err.endswith("cancelled\n")
    assert "Traceback" not in err
    until(lambda: running(program) == [])
    assert list(folder.iterdir()) == []
    folder.rmdir()


@pytest.mark.timeout(240)
def test_a_process_that_dies_is_told_in_log_lines_and_never_between_the_rows(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(ONE_DIES)
    command = [sys.executable, "-m", "arkflow_ray.cli.main", "run", "--json", str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, '{"a":1}\n{"a":2}\n')
    *lines, last = [json.loads(line) for line in ran.stderr.splitlines()]
    assert [job["outcome"] for job in last["jobs"]] == ["finished", "failed"]
    assert last["jobs"][1]["error"]["type"] == "ActorLostError"
    assert last["jobs"][1]["restarts"] == 1
    told = [line["message"] for line in lines]
    assert sum("the process of chain 'source-0' died" in text for text in told) == 2
    assert sum("restart 1: source 'source' starts at its beginning" in text for text in told) == 1


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("shared_ray")
def test_a_notebook_runs_on_the_ray_that_it_has(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(FINITE)

    async def cell() -> arkflow_ray.RunResult:
        return arkflow_ray.load(path).run()

    result = asyncio.run(cell())["numbers"]
    assert (result.outcome, result.rows_read) == ("finished", 2)
    assert capfd.readouterr().out == '{"a":1}\n{"a":2}\n'

    import ray

    assert ray.is_initialized()
