"""Rows on the program's stdout: pipes, notebooks, readers that go away."""

import io
import os
import sys

import pytest

from arkflow_kernel.errors import BadRowError, SinkError
from arkflow_ray.observability.rows import STDOUT_CLOSED, StdoutRows


def test_rows_are_written_byte_for_byte(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    StdoutRows().put(b"a\xff\n")
    assert capfdbinary.readouterr().out == b"a\xff\n"


def test_a_text_only_stdout_gets_text(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = io.StringIO()
    monkeypatch.setattr(sys, "stdout", cell)
    StdoutRows().put("grüße\n".encode())
    assert cell.getvalue() == "grüße\n"


def test_a_reader_that_has_gone_is_noticed_once_and_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        rows = StdoutRows()
        for _ in range(2):
            with pytest.raises(SinkError, match="nobody reads it any more"):
                rows.put(b"a\n")
        assert rows.closed
        # What Python still holds goes nowhere instead of failing when the program ends.
        stream.flush()


def test_a_full_disk_behind_stdout_is_an_error_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open("/dev/full", "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        rows = StdoutRows()
        with pytest.raises(SinkError, match="cannot be written: No space left on device"):
            rows.put(b"a\n")
        assert not rows.closed


def test_only_an_error_of_stdout_is_its_own() -> None:
    rows = StdoutRows()
    assert rows.caused(SinkError(f"output 'print': {STDOUT_CLOSED}"))
    assert not rows.caused(SinkError("output 'file': the disk is full"))
    assert not rows.caused(BadRowError("x", "y", where="z", row="r"))
    assert not rows.caused(None)
