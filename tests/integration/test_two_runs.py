"""Two runs of one job at once, each a process with a Ray of its own: the later claim wins (M1, D7).

What the earlier one wrote and published before stands; after the later claim it adds nothing.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.processes import command_line, family

pytestmark = pytest.mark.timeout(400)

DEADLINE_S: Final = 150.0
LOOK_S: Final = 0.1
ROWS, KEYS = 6_000, 7
SLOW, FAST = 40, 1_000
"""Rows a second: the earlier run cannot come to its end before the later one is up."""

FENCED: Final = "job 'counted' is run by another coordinator"

JOB: Final = """
jobs:
  - id: counted
    version: 1
    operators:
      - {{id: rows, kind: source}}
      - {{id: numbered, kind: map, stateful: true, key_field: k,
         config: {{type: sql, query: "SELECT n, k, place FROM flow", state_output_field: place}}}}
      - {{id: kept, kind: sink}}
    edges:
      - {{id: by-key, from: rows, to: numbered, partitioned: true}}
      - {{id: to-file, from: numbered, to: kept}}
    checkpoint: {{object_store_uri: "file://{folder}/store", interval_ms: 500, retention: 1000}}
    restart: {{strategy: fixed, initial_ms: 10}}
    sources:
      - operator_id: rows
        input_type: file
        config:
          input_type: {{type: json, path: {folder}/in.jsonl}}
          batch_rows: 10
          rows_per_second: {rate}
        time: {{mode: processing_time}}
    sinks:
      - {{operator_id: kept, output_type: file, config: {{path: {folder}/out, format: json}}}}
"""

PLAIN: Final = "from arkflow_ray.cli.main import main; main()"
PATIENT: Final = f"""
from arkflow_ray.runtime import coordinator_process
coordinator_process.ANSWER_TIMEOUT_S = 1000.0
{PLAIN}
"""

Program = subprocess.Popen[str]


class Place:
    """A job's folder, and the programs that run it there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rows = (json.dumps({"n": n, "k": n % KEYS}) + "\n" for n in range(ROWS))
        (folder / "in.jsonl").write_text("".join(rows))
        self._programs: list[Program] = []

    def run(self, rate: int, *, patient: bool = False) -> Program:
        """Start the job, as a user does. `patient`: it does not give up a coordinator that hangs,
        as it would after 30 s, which is too little for another run to come up on a slow machine.
        """
        (self.folder / f"job-{rate}.yaml").write_text(JOB.format(folder=self.folder, rate=rate))
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.folder)}
        program = subprocess.Popen(
            [sys.executable, "-c", PATIENT if patient else PLAIN, "run", "--json",
             f"job-{rate}.yaml"],
            cwd=self.folder, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._programs.append(program)
        return program

    def log(self) -> list[dict[str, Any]]:
        """Every entry of the job's log, slot by slot."""
        slots = sorted((self.folder / "store/counted/log").glob("*.json"))
        return [json.loads(slot.read_bytes()) for slot in slots]

    def records(self, generation: int) -> int:
        """How many checkpoints a generation completed."""
        return sum(
            entry["entry"] == "checkpoint" and entry["generation"] == generation
            for entry in self.log()
        )

    def parts(self) -> dict[str, bytes]:
        """What is published, by name."""
        return {path.name: path.read_bytes() for path in (self.folder / "out").glob("part-*")}

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition, with a deadline."""
        end_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < end_s:
            if condition():
                return
            time.sleep(LOOK_S)
        told = Counter((entry["entry"], entry["generation"]) for entry in self.log())
        raise AssertionError(told)

    def close(self) -> None:
        """End what is left, each program with its Ray."""
        for program in self._programs:
            if program.poll() is None:
                program.send_signal(signal.SIGINT)
                program.send_signal(signal.SIGINT)
            try:
                program.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                program.kill()
                program.communicate()


@pytest.fixture
def place() -> Iterator[Place]:
    """Its path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="two-", dir="/tmp") as folder:
        place = Place(Path(folder))
        yield place
        place.close()


def processes_of(program: Program) -> dict[int, str]:
    """Processes below a program, and their titles."""
    found = {pid: command_line(pid) for pid in family(program.pid)}
    return {pid: title for pid, title in found.items() if title is not None}


def coordinator_of(program: Program) -> int:
    """The process of its coordinator, once it runs the job."""
    found = [pid for pid, title in processes_of(program).items() if "CoordinatorActor" in title]
    assert len(found) == 1, processes_of(program)
    return found[0]


def assert_fenced(program: Program) -> None:
    """It ends by itself, and says why."""
    out, err = program.communicate(timeout=DEADLINE_S)
    assert program.returncode == 1, err
    result = json.loads(err.splitlines()[-1])
    assert FENCED in json.dumps(result), result
    assert out == ""


def assert_no_older_record_after(place: Place, generation: int) -> None:
    """M1: behind a claim, older generations have no record."""
    entries = [(entry["entry"], entry["generation"]) for entry in place.log()]
    behind = entries[entries.index(("claim", generation)) :]
    assert all(later >= generation for _, later in behind), entries


def assert_exact(place: Place) -> None:
    lines: list[str] = []
    for _, part in sorted(place.parts().items()):
        lines += part.decode().splitlines()
    rows = [(row["n"], row["k"], row["place"]) for row in map(json.loads, lines)]
    expected = [(n, n % KEYS, n // KEYS + 1) for n in range(ROWS)]
    assert [row for row, times in Counter(rows).items() if times > 1] == []
    assert rows == expected


def assert_finishes(program: Program) -> None:
    _, err = program.communicate(timeout=DEADLINE_S)
    assert program.returncode == 0, err


def test_the_later_run_wins_and_the_earlier_one_ends_with_why(place: Place) -> None:
    earlier = place.run(SLOW)
    place.until(lambda: place.records(1) >= 2)
    later = place.run(FAST)
    assert_fenced(earlier)
    (generation,) = {e["generation"] for e in place.log() if e["generation"] > 1}
    assert_finishes(later)
    assert_no_older_record_after(place, generation)
    assert_exact(place)


@pytest.mark.parametrize("then", [signal.SIGCONT, signal.SIGKILL])
def test_a_coordinator_that_was_succeeded_while_it_was_stopped_changes_nothing(
    place: Place, then: signal.Signals
) -> None:
    """It wakes up, or dies and its driver makes another one: neither takes the job back."""
    earlier = place.run(SLOW, patient=True)
    place.until(lambda: place.records(1) >= 2)
    stopped = coordinator_of(earlier)
    os.kill(stopped, signal.SIGSTOP)
    try:
        later = place.run(FAST)
        # Two of its own: the first one was restored from what the stopped one had completed.
        place.until(lambda: place.records(2) >= 2)
        published = place.parts()
        before = [entry for entry in place.log() if entry["generation"] == 1]
    finally:
        with suppress(ProcessLookupError):
            os.kill(stopped, then)
    assert_fenced(earlier)
    assert [entry for entry in place.log() if entry["generation"] == 1] == before
    assert published.items() <= place.parts().items(), "a published file was changed"
    assert_finishes(later)
    assert_no_older_record_after(place, 2)
    assert published.items() <= place.parts().items(), "a published file was changed"
    assert_exact(place)
