"""Signals around a start and a run, with jobs that only pretend."""

import io
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import arkflow_ray
from arkflow_kernel.errors import ResourceError
from arkflow_kernel.protocol import JobOutcome
from arkflow_ray.attached import STARTING_NOTE, GivenUp, StopSignals, run_attached
from arkflow_ray.observability.display import LogDisplay
from arkflow_ray.observability.rows import StdoutRows
from arkflow_ray.runtime.running import RunningJobs

ENDLESS = """\
streams:
  - id: endless
    input: {type: generate, context: '{"a": 1}', interval: 1ms, codec: json}
    pipeline: {processors: []}
    output: {type: stdout}
"""


class Jobs:
    """No jobs; over when it was told to stop `stops` times or to cancel."""

    jobs: dict[str, Any]
    cancel_asked = False

    def __init__(self, *signals_in_wait: signal.Signals, in_close: int = 0) -> None:
        self.jobs = {}
        self.calls: list[str] = []
        self._signals = list(signals_in_wait)
        self._in_close = in_close

    def wait(self, timeout_s: float) -> bool:
        assert timeout_s < 1
        if self._signals:
            signal.raise_signal(self._signals.pop(0))
            return False
        return True

    def outcomes(self) -> dict[str, JobOutcome]:
        return {}

    def stop(self) -> None:
        self.calls.append("stop")

    def cancel(self) -> None:
        self.calls.append("cancel")

    def close(self) -> None:
        self.calls.append("close")
        for _ in range(self._in_close):
            signal.raise_signal(signal.SIGINT)


def attach(jobs: Jobs, start: Callable[[], object] | None = None) -> None:
    def started() -> RunningJobs:
        if start is not None:
            start()
        return cast("RunningJobs", jobs)

    assert run_attached(started, StopSignals(), LogDisplay(), StdoutRows()) == []


def interrupt(times: int = 1, number: signal.Signals = signal.SIGINT) -> Callable[[], None]:
    def send() -> None:
        for _ in range(times):
            signal.raise_signal(number)

    return send


def test_without_signals_jobs_are_closed_once() -> None:
    jobs = Jobs()
    attach(jobs)
    assert jobs.calls == ["close"]


@pytest.mark.parametrize(
    ("signals", "calls"),
    [
        ([signal.SIGINT], ["stop", "close"]),
        ([signal.SIGTERM], ["stop", "close"]),
        ([signal.SIGTERM, signal.SIGTERM], ["stop", "close"]),
        ([signal.SIGINT, signal.SIGTERM], ["stop", "cancel", "close"]),
        ([signal.SIGTERM, signal.SIGINT], ["stop", "cancel", "close"]),
        ([signal.SIGINT, signal.SIGINT], ["stop", "cancel", "close"]),
    ],
)
def test_the_first_signal_stops_and_a_second_ctrl_c_cancels(
    signals: list[signal.Signals], calls: list[str]
) -> None:
    jobs = Jobs(*signals)
    attach(jobs)
    assert jobs.calls == calls


def test_a_cancel_that_another_process_has_asked_for_frees_what_waits_for_a_reader() -> None:
    jobs, rows = Jobs(), StdoutRows()
    jobs.cancel_asked = True
    run_attached(lambda: cast("RunningJobs", jobs), StopSignals(), LogDisplay(), rows)
    assert rows.given_up
    assert jobs.calls == ["cancel", "close"]


def test_the_third_ctrl_c_closes_nothing() -> None:
    jobs = Jobs(*[signal.SIGINT] * 3)
    with pytest.raises(GivenUp):
        attach(jobs)
    assert jobs.calls == ["stop", "cancel"]


def test_the_third_ctrl_c_may_come_while_jobs_are_closed() -> None:
    jobs = Jobs(signal.SIGINT, in_close=2)
    with pytest.raises(GivenUp):
        attach(jobs)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_start_undoes_it(
    number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "arkflow_ray")
    jobs = Jobs()

    def start() -> None:
        signal.raise_signal(number)
        # The note comes from a thread of its own.
        while STARTING_NOTE not in caplog.messages:
            pass

    with pytest.raises(KeyboardInterrupt):
        attach(jobs, start)
    assert jobs.calls == ["close"]


def test_a_second_ctrl_c_during_the_start_waits_for_nothing() -> None:
    with pytest.raises(GivenUp):
        attach(Jobs(), interrupt(2))


def test_a_start_that_fails_because_it_was_interrupted_is_an_interrupt() -> None:
    def start() -> None:
        signal.raise_signal(signal.SIGINT)
        raise ResourceError("Ray did not start")

    with pytest.raises(KeyboardInterrupt):
        attach(Jobs(), start)


def test_a_start_that_fails_tells_why() -> None:
    def start() -> None:
        raise ResourceError("Ray did not start")

    with pytest.raises(ResourceError, match="Ray did not start"):
        attach(Jobs(), start)


def test_handlers_that_ray_sets_are_replaced() -> None:
    before = signal.getsignal(signal.SIGTERM)
    jobs = Jobs(signal.SIGTERM)
    attach(jobs, lambda: signal.signal(signal.SIGTERM, lambda *_: sys.exit(15)))
    assert jobs.calls == ["stop", "close"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_ctrl_c_in_a_program_stops_in_order_and_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupting(io.StringIO):
        def write(self, text: str) -> int:
            if not self.getvalue():
                os.kill(os.getpid(), signal.SIGINT)
            return super().write(text)

    path = tmp_path / "endless.yaml"
    path.write_text(ENDLESS)
    printed = Interrupting()
    monkeypatch.setattr(sys, "stdout", printed)
    with pytest.raises(KeyboardInterrupt):
        arkflow_ray.load(path).run(inline=True)
    assert set(printed.getvalue().splitlines()) == {'{"a":1}'}
