"""Jobs in checkpoint mode on a real Ray lose processes and go on: every row once, every count right
(D2, D3, D6, D7, P8, F0)."""

import os
import pathlib
import signal
from collections import Counter

import pytest

from arkflow_kernel.errors import ActorLostError, FencedError
from arkflow_kernel.metrics import Wait
from arkflow_kernel.protocol import JobState, OutcomeKind
from arkflow_kernel.snapshot import RestoreChoice
from arkflow_ray.runtime import coordinator_process
from arkflow_ray.runtime.ephemeral_root import PREFIX
from tests.integration.numbered_rows import FILES, expected, write_input, written
from tests.integration.running_jobs import DEADLINE_S, Running, Start, alive, causes

pytestmark = [pytest.mark.usefixtures("shared_ray"), pytest.mark.timeout(300)]

CHAINS = ("rows-0", "numbered-0", "numbered-1", "kept-0")
ROWS, KEYS = 3_000, 7

COUNTED = (
    """
jobs:
  - id: counted
    version: 1
    operators:
      - {{id: rows, kind: source}}
      - id: numbered
        kind: map
        parallelism: 2
        stateful: true
        key_field: k
        config: {{type: sql, query: "SELECT n, k, place FROM flow", state_output_field: place}}
      - {{id: kept, kind: sink}}
    edges:
      - {{id: by-key, from: rows, to: numbered, partitioned: true}}
      - {{id: to-file, from: numbered, to: kept}}
    state: {{backend: embedded_kv, durability: {durability}}}
    {checkpoint}
"""
    + FILES
)


@pytest.fixture
def counted(tmp_path: pathlib.Path) -> str:
    """A job that numbers the rows of each key, from file to file, exactly once; with its input."""
    return text(tmp_path, stored(tmp_path))


@pytest.fixture
def slow(tmp_path: pathlib.Path) -> str:
    """The same; it takes longer than another run of it needs to come up."""
    return text(tmp_path, stored(tmp_path), rate=75)


def stored(folder: pathlib.Path) -> str:
    return f"checkpoint: {{object_store_uri: {folder}/store, interval_ms: 500}}"


def text(
    folder: pathlib.Path, checkpoint: str, durability: str = "durable", rate: int = 300
) -> str:
    write_input(folder, ROWS, KEYS)
    return COUNTED.format(folder=folder, checkpoint=checkpoint, durability=durability, rate=rate)


EXPECTED = expected(ROWS, KEYS)


def assert_exactly_once(folder: pathlib.Path) -> None:
    rows = written(folder)
    repeated = [row for row, count in Counter(rows).items() if count > 1]
    assert repeated == []
    assert sorted(rows) == EXPECTED


def waits(running: Running) -> list[Wait]:
    return [wait for each in running.status.waits.values() for wait in each]


def assert_finished(running: Running, folder: pathlib.Path) -> None:
    running.ended(OutcomeKind.FINISHED)
    assert_exactly_once(folder)


@pytest.mark.parametrize("chain", CHAINS)
def test_a_killed_process_of_any_chain_costs_and_repeats_no_row(
    chain: str, start: Start, counted: str, tmp_path: pathlib.Path
) -> None:
    running = start(counted)
    os.kill(running.until_restorable()[chain], signal.SIGKILL)
    running.until_at_work(1)
    told = running.status.checkpoints
    assert told is not None
    assert (told.restored or "").startswith("checkpoint ")
    assert_finished(running, tmp_path)


def test_a_killed_coordinator_has_a_successor_that_goes_on(
    start: Start, counted: str, tmp_path: pathlib.Path
) -> None:
    """P8."""
    running = start(counted)
    before = running.until_restorable()
    killed = running.coordinator_pid
    os.kill(killed, signal.SIGKILL)
    after = running.until_at_work(1)
    assert not set(before.values()) & set(after.values())
    assert not any(alive(pid) for pid in before.values())
    assert running.coordinator_pid != killed
    told = causes(running.status)
    assert "the coordinator of job 'counted' died" in told
    assert "another one takes its place at once" in told
    assert_finished(running, tmp_path)


def test_a_coordinator_and_a_chain_that_are_killed_together_cost_and_repeat_no_row(
    start: Start, counted: str, tmp_path: pathlib.Path
) -> None:
    running = start(counted)
    os.kill(running.until_restorable()["numbered-1"], signal.SIGKILL)
    os.kill(running.coordinator_pid, signal.SIGKILL)
    running.until_at_work(1)
    assert_finished(running, tmp_path)


def test_a_stop_that_was_asked_of_a_coordinator_that_dies_is_carried_out_by_its_successor(
    start: Start, counted: str, tmp_path: pathlib.Path
) -> None:
    """D5: the next run continues where the stop was."""
    running = start(counted)
    running.until_restorable()
    pid = running.coordinator_pid
    os.kill(pid, signal.SIGSTOP)  # it does not hear of the stop
    running.jobs.stop()
    os.kill(pid, signal.SIGKILL)
    running.ended(OutcomeKind.STOPPED)
    rows = written(tmp_path)
    assert 0 < len(rows) < ROWS
    again = start(counted, choice=RestoreChoice(must_exist=True))
    assert_finished(again, tmp_path)


def test_a_cancel_ends_a_stop_whose_publication_fails_and_the_next_run_publishes(
    start: Start, counted: str, tmp_path: pathlib.Path
) -> None:
    """D5, X1: a file stands where the output's folder was; what waited is in the checkpoint."""
    running = start(counted)
    running.until_restorable()
    shown = (tmp_path / "out").rename(tmp_path / "shown")
    (tmp_path / "out").touch()
    running.jobs.stop()
    running.until(lambda: any("publishing fails" in wait.detail for wait in waits(running)))
    assert running.job.outcome is None
    running.jobs.cancel()
    running.ended(OutcomeKind.CANCELLED)
    (tmp_path / "out").unlink()
    shown.rename(tmp_path / "out")
    assert_finished(start(counted, choice=RestoreChoice(must_exist=True)), tmp_path)


def test_the_later_of_two_runs_of_a_job_wins_and_the_earlier_one_ends(
    start: Start, slow: str, tmp_path: pathlib.Path
) -> None:
    """D7."""
    earlier = start(slow)
    earlier.until_restorable()
    later = start(slow)
    job = earlier.end()
    assert job.outcome is not None
    assert job.outcome.kind is OutcomeKind.FAILED
    assert isinstance(job.outcome.error, FencedError), job.outcome
    assert "job 'counted' is run by another coordinator" in job.outcome.error.message
    assert_finished(later, tmp_path)


def test_a_coordinator_that_was_stopped_while_another_took_over_finds_itself_fenced(
    start: Start, slow: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7."""
    # Its own driver shall not be the one that ends it.
    monkeypatch.setattr(coordinator_process, "ANSWER_TIMEOUT_S", 2 * DEADLINE_S)
    earlier = start(slow)
    chains = earlier.until_restorable()
    stopped = earlier.coordinator_pid
    os.kill(stopped, signal.SIGSTOP)
    later = start(slow)
    later.until(lambda: later.status.state is JobState.RUNNING)
    os.kill(stopped, signal.SIGCONT)
    job = earlier.end()
    assert job.outcome is not None
    assert isinstance(job.outcome.error, FencedError), (job.outcome, causes(job.status()))
    earlier.until(lambda: not any(alive(pid) for pid in chains.values()))
    assert_finished(later, tmp_path)


def test_a_coordinator_that_hangs_is_given_up_and_its_chains_do_not_outlive_their_lease(
    start: Start, counted: str, tmp_path: pathlib.Path
) -> None:
    """D6: they end long before the driver finds out that the coordinator does not answer."""
    running = start(counted)
    before = running.until_restorable()
    stopped = running.coordinator_pid
    os.kill(stopped, signal.SIGSTOP)
    running.until(lambda: not any(alive(pid) for pid in before.values()))
    assert alive(stopped)
    assert running.status.state is JobState.RUNNING, "the driver knew before the chains did"
    running.until_at_work(1)
    assert not alive(stopped)
    assert "did not answer for 30 s" in causes(running.status)
    assert_finished(running, tmp_path)


def test_a_job_in_ack_mode_ends_with_its_coordinator_and_leaves_no_process(start: Start) -> None:
    running = start(
        """
streams:
  - id: ticks
    input: {type: generate, context: '{"n": 1}', interval: 10ms, codec: json}
    pipeline: {chain: false, processors: [{type: sql, query: "SELECT n FROM flow"}]}
    output: {type: stdout}
"""
    )
    chains = running.until_at_work()
    os.kill(running.coordinator_pid, signal.SIGKILL)
    outcome = running.end().outcome
    assert outcome is not None
    assert isinstance(outcome.error, ActorLostError), outcome
    assert "the coordinator of job 'ticks' died" in outcome.error.message
    assert not any(alive(pid) for pid in chains.values())


def test_checkpoints_without_a_place_serve_the_run_and_end_with_it(
    start: Start, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F0."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    running = start(text(tmp_path, "", durability="ephemeral"))
    pids = running.until_at_work()
    (folder,) = tmp_path.glob(f"{PREFIX}*")
    running.until(lambda: running.completed > 0)
    os.kill(pids["numbered-0"], signal.SIGKILL)
    job = running.ended(OutcomeKind.FINISHED)
    assert "continues from checkpoint 1" in causes(job.status())
    assert set(written(tmp_path)) == set(EXPECTED)  # this sink is not an exactly-once one
    assert not folder.exists()
