"""Jobs of many chains on a real Ray: order, restarts after lost and hung processes, stop, cancel
(P1, P2, D2, D3, D4, D5, E5, H1)."""

import json
import os
import pathlib
import re
import signal

import pytest

from arkflow_kernel.errors import ProcessingError, ResourceError
from arkflow_kernel.ids import ChainId
from arkflow_kernel.protocol import JobState, OutcomeKind
from arkflow_ray.runtime import ray_session
from arkflow_ray.runtime.channel_folder import channel_folder_path
from tests.integration.running_jobs import Printed, Start, alive, causes

pytestmark = [pytest.mark.usefixtures("shared_ray"), pytest.mark.timeout(240)]

CHAINS = ("source-0", "p0-sql-0", "sink-0")
ROWS = 3_000
ROWS_PER_SECOND = 400

FILE_TO_FILE = """
streams:
  - id: files
    input:
      type: file
      input_type: {{type: json, path: {folder}/in.jsonl}}
      batch_rows: 20
      rows_per_second: 400
    pipeline:
      chain: false
      processors: [{{type: sql, query: "SELECT n, n * 2 AS twice FROM flow"}}]
    output: {{type: file, path: {folder}/out, format: json}}
    restart: {{strategy: fixed, initial_ms: 10}}
"""

ENDLESS = """
streams:
  - id: ticks
    input: {type: generate, context: '{"n": 1}', interval: 10ms, codec: json}
    pipeline:
      chain: false
      processors: [{type: sql, query: "SELECT n FROM flow"}]
    output: {type: stdout}
"""


@pytest.fixture
def files(tmp_path: pathlib.Path) -> str:
    """A job from file to file over three chains, with its input."""
    rows = (json.dumps({"n": n}) + "\n" for n in range(ROWS))
    (tmp_path / "in.jsonl").write_text("".join(rows))
    return FILE_TO_FILE.format(folder=tmp_path)


def written(folder: pathlib.Path) -> list[int]:
    """The numbers of all rows in a folder of published parts, part by part."""
    lines: list[str] = []
    for part in sorted(path for path in folder.rglob("*.json*") if path.is_file()):
        lines += part.read_text().splitlines()
    return [json.loads(line)["n"] for line in lines]


def test_rows_keep_their_order_over_three_chains(start: Start, tmp_path: pathlib.Path) -> None:
    printed = Printed()
    messages = ", ".join(f"'{{\"n\": {n}}}'" for n in range(500))
    job = start(
        f"""
streams:
  - id: numbers
    input: {{type: memory, messages: [{messages}], batch_rows: 7, codec: json}}
    pipeline:
      chain: false
      thread_num: 3
      processors: [{{type: sql, query: "SELECT n FROM flow WHERE n % 2 = 0"}}]
    output: {{type: stdout}}
""",
        printed,
    ).end()
    assert job.outcome is not None
    assert job.outcome.kind is OutcomeKind.FINISHED, job.outcome
    assert printed.lines == [f'{{"n":{n}}}'.encode() for n in range(0, 500, 2)]


def test_a_killed_process_of_any_chain_restarts_the_job_and_no_row_is_lost(
    start: Start, files: str, tmp_path: pathlib.Path
) -> None:
    running = start(files)
    for killed_before, chain in enumerate(CHAINS):
        before = running.until_at_work(killed_before)
        os.kill(before[chain], signal.SIGKILL)
        after = running.until_at_work(killed_before + 1)
        survived = {other for other in CHAINS if after[other] == before[other]}
        assert survived == set(CHAINS) - {chain}
    job = running.end()
    assert job.outcome is not None
    assert job.outcome.kind is OutcomeKind.FINISHED, job.outcome
    assert set(written(tmp_path / "out")) == set(range(ROWS))
    told = causes(job.status())
    assert "the process of chain 'sink-0' died" in told
    assert "restart 3: source 'source' " in told


@pytest.mark.parametrize("chain", CHAINS)
def test_a_restart_repeats_at_most_what_was_in_flight_since_the_last_report(
    chain: str, start: Start, files: str, tmp_path: pathlib.Path
) -> None:
    """Of rows that are read at a known rate: those since the told positions, and one second more
    for what was being read and written when they were told."""
    out = tmp_path / "out"
    quick = "output: {type: file, roll: {interval: 100ms},"
    running = start(files.replace("output: {type: file,", quick))
    running.until(lambda: out.is_dir() and len(written(out)) > ROWS // 2)
    os.kill(running.until_at_work()[chain], signal.SIGKILL)
    job = running.end()
    assert job.outcome is not None
    assert job.outcome.kind is OutcomeKind.FINISHED, job.outcome
    rows = written(out)
    assert set(rows) == set(range(ROWS))
    told = re.search(r"positions that it reported ([0-9.]+) s before", causes(job.status()))
    assert told is not None, causes(job.status())
    assert len(rows) - ROWS <= ROWS_PER_SECOND * (float(told[1]) + 1)


def test_a_process_that_only_hangs_is_killed_and_the_job_goes_on(
    start: Start, files: str, tmp_path: pathlib.Path
) -> None:
    running = start(files)
    before = running.until_at_work()
    os.kill(before["p0-sql-0"], signal.SIGSTOP)
    running.until(lambda: running.status.restarts == 1)
    assert not alive(before["p0-sql-0"])
    job = running.end()
    assert job.outcome is not None
    assert job.outcome.kind is OutcomeKind.FINISHED, job.outcome
    assert "'p0-sql-0' did not answer for 10 s" in causes(job.status())
    assert set(written(tmp_path / "out")) == set(range(ROWS))


def test_rows_go_on_being_printed_after_their_process_died(start: Start) -> None:
    printed = Printed()
    running = start(ENDLESS, printed)
    before = running.until_at_work()
    os.kill(before["sink-0"], signal.SIGKILL)
    running.until_at_work(1)
    printed.wait_for(len(printed.lines) + 50)
    running.jobs.stop()
    outcome = running.end().outcome
    assert outcome is not None
    assert outcome.kind is OutcomeKind.STOPPED
    assert set(printed.lines) == {b'{"n":1}'}


def test_an_operator_that_fails_three_times_alike_ends_the_job(start: Start) -> None:
    job = start(
        """
streams:
  - id: failing
    input: {type: memory, messages: ['{"n": 1}'], codec: json}
    pipeline:
      chain: false
      processors:
        - {type: python, name: bad, function: f, script: "def f(batch): raise ValueError('no')"}
    output: {type: drop}
    restart: {strategy: fixed, initial_ms: 1}
"""
    ).end()
    assert job.outcome is not None
    error = job.outcome.error
    assert isinstance(error, ProcessingError), job.outcome
    assert error.operator == "bad"
    assert "'bad' ended 3 attempts in a row with the same error" in "".join(error.__notes__)
    assert job.status().restarts == 2


def test_stop_ends_all_chains_in_order_and_everything_is_written(start: Start) -> None:
    printed = Printed()
    running = start(ENDLESS, printed)
    printed.wait_for(20)
    running.jobs.stop()
    job = running.end()
    assert job.outcome is not None
    assert job.outcome.kind is OutcomeKind.STOPPED, job.outcome
    chains = job.status().chains
    assert len(printed.lines) == chains[ChainId("source-0")].rows_in
    assert {chain.rows_in for chain in chains.values()} == {len(printed.lines)}


def test_cancel_leaves_no_process_and_no_folder(start: Start) -> None:
    running = start(ENDLESS)
    pids = running.until_at_work().values()
    name: str = running.job._handle._settings.channel_folder  # type: ignore[attr-defined]
    folder = pathlib.Path(channel_folder_path(name))
    assert not folder.exists()  # it is needed while chains connect: a killed job leaves none
    running.jobs.cancel()
    outcome = running.end().outcome
    assert outcome is not None
    assert outcome.kind is OutcomeKind.CANCELLED
    assert not folder.exists()
    running.until(lambda: not any(alive(pid) for pid in pids))


def test_a_sink_that_stands_still_is_told_and_the_job_goes_on_when_it_moves(start: Start) -> None:
    printed = Printed()
    running = start(ENDLESS, printed)
    running.until_at_work()
    printed.free.clear()
    running.until(lambda: "sink-0" in running.status.waits)
    (wait, *_) = running.status.waits[ChainId("sink-0")]
    assert wait.on == "sink 'sink'"
    assert wait.waited_ms >= 30_000
    held = len(printed.lines)
    printed.free.set()
    printed.wait_for(held + 100)
    running.until(lambda: not running.status.waits)
    assert (running.status.state, running.status.restarts) == (JobState.RUNNING, 0)


def test_a_job_that_cannot_be_placed_says_what_the_cluster_lacks_for_all_of_its_chains(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P6."""
    monkeypatch.setattr(ray_session, "CPUS_PER_CHAIN_CLUSTER", 1_000.0)
    outcome = start(ENDLESS + "    restart: {strategy: none}\n").end().outcome
    assert outcome is not None
    assert isinstance(outcome.error, ResourceError), outcome
    assert "cannot be placed: it needs 3000 CPU, and of the " in outcome.error.message
