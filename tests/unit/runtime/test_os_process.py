"""A process is told apart from another with its number, and its end is waited for (D4)."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from arkflow_ray.runtime.os_process import OsProcess, started_ticks, this_process


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for its standard input to end."""
    program = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert program.stdout is not None
    program.stdout.readline()
    yield program
    program.kill()
    program.communicate()


def test_this_process_is_alive_and_one_that_began_at_another_time_is_not() -> None:
    here = this_process()
    assert here.pid == os.getpid()
    assert here.is_alive()
    assert not replace(here, started=here.started + 1).is_alive()


def test_a_stopped_process_is_alive_until_it_is_ended(sleeper: subprocess.Popen[bytes]) -> None:
    process = OsProcess(sleeper.pid, started_ticks(sleeper.pid))
    os.kill(sleeper.pid, signal.SIGSTOP)
    assert process.is_alive()
    assert asyncio.run(process.end(10.0))
    assert not process.is_alive()


def test_a_process_that_took_over_the_number_is_left_alone(
    sleeper: subprocess.Popen[bytes],
) -> None:
    gone = OsProcess(sleeper.pid, started_ticks(sleeper.pid) - 1)
    assert asyncio.run(gone.end(0.0))
    assert sleeper.poll() is None
