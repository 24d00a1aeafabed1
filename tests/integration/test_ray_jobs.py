"""Jobs on a real Ray: rows, order, stop, and what a user sees when a process dies
or hangs (P1, P9, D2, D5)."""

import os
import pathlib
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from arkflow_kernel.errors import ActorLostError, OperatorTimeoutError, SinkError
from arkflow_kernel.ids import JobId
from arkflow_kernel.protocol import JobState, OutcomeKind
from arkflow_ray.config.project import check_file
from arkflow_ray.runtime.launch import RunSettings, launch
from arkflow_ray.runtime.os_process import OsProcess, started_ticks
from arkflow_ray.runtime.running import RunningJob, RunningJobs

pytestmark = [pytest.mark.usefixtures("shared_ray"), pytest.mark.timeout(90)]

DEADLINE_S = 60.0


class Printed:
    """The driver's stdout: keeps lines, and lets a test wait for them."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.lines: list[bytes] = []
        self._fail_after = fail_after
        self._changed = threading.Condition()

    def put(self, lines: bytes) -> None:
        with self._changed:
            if self._fail_after is not None and len(self.lines) >= self._fail_after:
                raise SinkError("stdout was closed")
            self.lines += lines.splitlines()
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.lines) >= count, DEADLINE_S)


Start = Callable[..., RunningJobs]


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Start]:
    """Start the jobs of a YAML text on the shared Ray; closed at the end of the test."""
    started: list[RunningJobs] = []

    def begin(text: str, printed: Printed) -> RunningJobs:
        path = tmp_path / "pipeline.yaml"
        path.write_text(text)
        project = check_file(path)
        assert project.ok, "\n".join(str(issue) for issue in project.issues)
        jobs = launch(project.jobs, RunSettings(), printed, lambda _: None)
        started.append(jobs)
        return jobs

    yield begin
    for jobs in started:
        jobs.close()


def finished(jobs: RunningJobs) -> RunningJob:
    """The only job, after its end."""
    assert jobs.wait(DEADLINE_S), [job.status() for job in jobs.jobs.values()]
    (job,) = jobs.jobs.values()
    return job


def wait_until(condition: Callable[[], bool], jobs: RunningJobs) -> None:
    """Wait for a condition that the job's status will fulfil, with a deadline."""
    for _ in range(int(DEADLINE_S / 0.1)):
        if condition():
            return
        jobs.wait(0.1)
    raise AssertionError([job.status() for job in jobs.jobs.values()])


def chain_pid(jobs: RunningJobs) -> int:
    """The process of the only chain, once it has reported."""
    (job,) = jobs.jobs.values()
    wait_until(lambda: any(usage.pid for usage in job.status().usage.values()), jobs)
    (usage,) = job.status().usage.values()
    return usage.pid


ENDLESS = """
streams:
  - id: ticks
    input: {type: generate, context: '{"n": 1}', interval: 20ms, codec: {type: json}}
    pipeline: {processors: []}
    output: {type: stdout}
"""


NOT_RESTARTED = (
    ENDLESS
    + """
    restart: {strategy: none}
"""
)


def test_rows_arrive_in_order_and_the_job_reports_its_counts(start: Start) -> None:
    printed = Printed()
    messages = ", ".join(f"'{{\"n\": {n}}}'" for n in range(50))
    jobs = start(
        f"""
streams:
  - id: numbers
    input: {{type: memory, messages: [{messages}], codec: {{type: json}}}}
    pipeline:
      thread_num: 3
      processors: [{{type: sql, query: "SELECT n, n * n AS square FROM flow WHERE n % 2 = 0"}}]
    output: {{type: stdout}}
""",
        printed,
    )
    job = finished(jobs)
    assert job.outcome is not None
    assert job.outcome.kind is OutcomeKind.FINISHED, job.outcome
    expected = [f'{{"n":{n},"square":{n * n}}}'.encode() for n in range(0, 50, 2)]
    assert printed.lines == expected
    (statistics,) = job.status().chains.values()
    assert (statistics.rows_in, statistics.rows_out) == (50, 25)
    assert job.status().state is JobState.FINISHED


def test_stop_ends_an_endless_job_in_order(start: Start) -> None:
    printed = Printed()
    jobs = start(ENDLESS, printed)
    printed.wait_for(5)
    jobs.stop()
    job = finished(jobs)
    assert job.outcome is not None
    assert job.outcome.kind is OutcomeKind.STOPPED
    (statistics,) = job.status().chains.values()
    assert len(printed.lines) == statistics.rows_in == statistics.rows_out


def test_cancel_ends_an_endless_job(start: Start) -> None:
    printed = Printed()
    jobs = start(ENDLESS, printed)
    printed.wait_for(1)
    jobs.cancel()
    outcome = finished(jobs).outcome
    assert outcome is not None
    assert outcome.kind is OutcomeKind.CANCELLED


def test_a_killed_chain_process_fails_a_job_that_is_not_restarted_and_names_the_chain(
    start: Start,
) -> None:
    printed = Printed()
    jobs = start(NOT_RESTARTED, printed)
    printed.wait_for(1)
    os.kill(chain_pid(jobs), signal.SIGKILL)
    outcome = finished(jobs).outcome
    assert outcome is not None
    assert isinstance(outcome.error, ActorLostError)
    assert "'source-0'" in str(outcome.error)


def test_an_operator_that_hangs_fails_the_job_and_its_process_is_gone(start: Start) -> None:
    jobs = start(
        """
streams:
  - id: hanging
    input: {type: memory, messages: ['{"n": 1}'], codec: {type: json}}
    pipeline:
      processors:
        - type: python
          name: sleeper
          function: work
          timeout_ms: 300
          script: |
            import threading
            def work(batch):
                threading.Event().wait()
    output: {type: stdout}
    restart: {strategy: none}
""",
        Printed(),
    )
    job = finished(jobs)
    assert job.outcome is not None
    assert isinstance(job.outcome.error, OperatorTimeoutError), job.outcome
    assert "'sleeper'" in str(job.outcome.error)
    assert "300 ms" in str(job.outcome.error)
    (usage,) = job.status().usage.values()
    wait_until(lambda: not alive(usage.pid), jobs)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    return OsProcess(pid, started_ticks(pid)).is_alive()


def test_a_reader_that_goes_away_fails_the_writes_and_ends_the_job(start: Start) -> None:
    printed = Printed(fail_after=2)
    outcome = finished(start(ENDLESS, printed)).outcome
    assert outcome is not None
    assert isinstance(outcome.error, SinkError)
    assert len(printed.lines) == 2


def test_all_streams_of_a_file_run_and_one_failure_leaves_the_other_alone(start: Start) -> None:
    printed = Printed()
    jobs = start(
        """
streams:
  - id: good
    input: {type: memory, messages: ['{"n": 1}', '{"n": 2}'], codec: {type: json}}
    pipeline: {processors: []}
    output: {type: stdout}
  - id: bad
    input: {type: memory, messages: ['{"n": 1}', 'oops'], codec: {type: json}}
    pipeline: {processors: []}
    output: {type: drop}
""",
        printed,
    )
    assert jobs.wait(DEADLINE_S)
    kinds = {name: outcome.kind for name, outcome in jobs.outcomes().items()}
    assert kinds == {"good": OutcomeKind.FINISHED, "bad": OutcomeKind.FAILED}
    assert printed.lines == [b'{"n":1}', b'{"n":2}']
    assert "oops" in str(jobs.outcomes()[JobId("bad")].error)
