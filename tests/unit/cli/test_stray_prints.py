"""What is printed while rows go to stdout becomes log lines."""

import logging
import sys

import pytest

from arkflow_ray.observability.rows import StdoutRows
from arkflow_ray.observability.stray import stray_prints_logged


def test_prints_are_logged_and_rows_alone_are_on_stdout(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = StdoutRows()
    with caplog.at_level(logging.WARNING), stray_prints_logged():
        print("\x1b[33m(raylet)\x1b[0m A worker died\n")
        rows.put(b'{"a":1}\n')
        print("never ", end="")
        print("ended", end="")
    print("mine again")
    assert capfd.readouterr().out == '{"a":1}\nmine again\n'
    assert caplog.messages == ["(raylet) A worker died", "never ended"]


def test_stdout_is_given_back_after_a_failure() -> None:
    before = sys.stdout
    with pytest.raises(ValueError, match="x"), stray_prints_logged():
        raise ValueError("x")
    assert sys.stdout is before
