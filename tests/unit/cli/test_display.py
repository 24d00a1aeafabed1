"""What a run shows: log lines without a terminal, a table on one."""

import io
import logging
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from arkflow_kernel.ids import ChainId, ChannelId
from arkflow_kernel.metrics import ChannelStatistics
from arkflow_kernel.protocol import JobState
from arkflow_ray.observability.display import LiveDisplay, LogDisplay
from arkflow_ray.observability.figures import JobFigures, ProcessFigures
from arkflow_ray.observability.frame import jobs_frame
from arkflow_ray.observability.screen import Screen

_ANSI = re.compile(r"\x1b\[[?\d;]*[A-Za-z]")


class Clock:
    """Seconds that a test moves."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "arkflow_ray")
    return caplog


def figures(state: JobState, read: int = 0, ready: int = 0, job: str = "orders") -> JobFigures:
    return JobFigures(job, state, "", 3, ready, read, {"out": read // 2}, 0, 0)


def test_phases_and_states_are_logged_once(clock: Clock, said: pytest.LogCaptureFixture) -> None:
    display = LogDisplay(clock)
    display.phase("starting Ray")
    for state in [JobState.DEPLOYING] * 3 + [JobState.RUNNING] * 3 + [JobState.FINISHED]:
        display.update([figures(state)])
    assert said.messages == [
        "starting Ray",
        "job orders is deploying: 0 of 3 chains are up",
        "job orders is running, 3 of 3 chains are up",
        "job orders is finished",
    ]


def test_channels_stand_in_the_fields_of_log_lines(
    clock: Clock, said: pytest.LogCaptureFixture
) -> None:
    channel = ChannelStatistics(ChannelId("e[0-1]"), 9, 7, 5, 30, 20)
    LogDisplay(clock).update([replace(figures(JobState.RUNNING), channels=(channel,))])
    assert vars(said.records[0])["fields"]["channels"] == {
        "e[0-1]": {
            "sent": 9,
            "taken": 7,
            "settled": 5,
            "waiting_bytes": 30,
            "outstanding_bytes": 20,
        }
    }


def test_processes_stand_in_the_fields_of_log_lines(
    clock: Clock, said: pytest.LogCaptureFixture
) -> None:
    process = ProcessFigures(ChainId("a-0"), 3, 9, 7, 5, 2, 1, 6)
    LogDisplay(clock).update([replace(figures(JobState.RUNNING), processes=(process,))])
    assert vars(said.records[0])["fields"]["processes"] == {
        "a-0": {
            "pid": 3,
            "held_bytes": 9,
            "rss_peak_bytes": 7,
            "cpu_ms": 5,
            "loop_lag_ms": 2,
            "refused_peers": 1,
            "throttled_ms": 6,
        }
    }


def test_why_a_job_is_stopping_is_logged(clock: Clock, said: pytest.LogCaptureFixture) -> None:
    job = replace(figures(JobState.STOPPING), cause="a stop was requested")
    LogDisplay(clock).update([job])
    assert said.messages == ["job orders is stopping: a stop was requested"]
    assert vars(said.records[0])["fields"]["cause"] == "a stop was requested"


def test_progress_is_logged_every_ten_seconds(clock: Clock, said: pytest.LogCaptureFixture) -> None:
    display = LogDisplay(clock)
    for second in range(25):
        clock.now_s = 100.0 + second
        display.update([figures(JobState.RUNNING, read=second * 1000)])
    assert said.messages[1:] == [
        "job orders: running, 10,000 rows read, 5,000 written, 1,000 rows/s, 0 bad",
        "job orders: running, 20,000 rows read, 10,000 written, 1,000 rows/s, 0 bad",
    ]
    assert vars(said.records[1])["fields"]["rows_read"] == 10_000


def test_a_note_is_a_warning(clock: Clock, said: pytest.LogCaptureFixture) -> None:
    LogDisplay(clock).note("stopping")
    assert [(record.levelname, record.message) for record in said.records] == [
        ("WARNING", "stopping")
    ]


@pytest.fixture
def live(clock: Clock) -> Iterator[LiveDisplay]:
    display = LiveDisplay(Screen(io.StringIO(), live=True, shared=False), clock)
    yield display
    display.close()


def frame(display: LiveDisplay, columns: int = 100) -> list[str]:
    return [_ANSI.sub("", line).rstrip() for line in display.frame(columns, 24)]


def test_the_start_is_shown_with_its_time(clock: Clock, live: LiveDisplay) -> None:
    live.phase("starting Ray")
    clock.now_s += 2.5
    assert frame(live) == ["starting Ray  2.5 s"]


def test_a_sentence_about_the_start_stays_on_the_screen(clock: Clock) -> None:
    stderr = io.StringIO()
    display = LiveDisplay(Screen(stderr, live=True, shared=False), clock)
    sentence = "/dev/shm has 1 MiB free, 160 are needed: Ray's object store goes to a folder"
    display.phase("starting Ray")
    display.phase(sentence)
    assert frame(display) == ["starting Ray  0.0 s"]
    display.close()
    assert f"{sentence}\n" in stderr.getvalue()


def test_jobs_are_shown_as_a_table(clock: Clock, live: LiveDisplay) -> None:
    live.update([figures(JobState.RUNNING, read=1000)])
    clock.now_s += 1
    live.update([figures(JobState.RUNNING, read=51_000), figures(JobState.DEPLOYING, job="b")])
    header, orders, other = frame(live)
    assert " ".join(header.split()) == "job state rows read written rows/s bad 1.0 s"
    assert " ".join(orders.split()) == "orders running 51,000 25,500 50,000 0"
    assert " ".join(other.split()) == "b deploying 0/3 chains 0 0 0 0"


def test_a_frame_fits_the_terminal() -> None:
    jobs = [figures(JobState.RUNNING, job=f"a-rather-long-name-{n}") for n in range(30)]
    lines = [_ANSI.sub("", line) for line in jobs_frame(jobs, {}, 1.0, (60, 10))]
    assert len(lines) == 9
    assert lines[-1] == "… and 23 more jobs"
    assert max(map(len, lines)) < 60


def test_closing_takes_the_table_away(clock: Clock) -> None:
    stderr = io.StringIO()
    display = LiveDisplay(Screen(stderr, live=True, shared=False), clock)
    display.close()
    display.close()
    assert stderr.getvalue().endswith("\x1b[?25h")
