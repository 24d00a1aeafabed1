"""Rows on the program's stdout: pipes, notebooks, readers that go away."""

import array
import fcntl
import io
import os
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def piped(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """stdout is a pipe; its reading end, for the test."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        yield reader
    os.close(reader)


def test_a_slow_reader_gets_every_byte_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    with piped(monkeypatch) as pipe:
        rows = b"".join(b'{"n":%d}\n' % n for n in range(50_000))
        got = bytearray()

        def read() -> None:
            while len(got) < len(rows) + 6:
                got.extend(os.read(pipe, 1_000))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        print("mine", end=" ")
        StdoutRows().put(rows)
        StdoutRows().put(b"\n")
        reader.join(10)
        assert bytes(got) == b"mine " + rows + b"\n"


def test_a_reader_that_does_not_read_is_waited_for_until_the_run_gives_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with piped(monkeypatch) as pipe:
        rows = StdoutRows()
        told: list[str] = []

        def fill() -> None:
            with pytest.raises(SinkError) as caught:
                rows.put(b"x\n" * 1_000_000)
            assert rows.caused(caught.value)
            told.append(caught.value.message)

        writer = threading.Thread(target=fill, daemon=True)
        writer.start()
        until_full(pipe)
        assert writer.is_alive()
        rows.give_up()
        writer.join(10)
        assert told == ["stdout: its reader does not read, and the run is cancelled"]
        assert not rows.closed


def until_full(pipe: int) -> None:
    """Return when what waits in the pipe has stopped to grow."""
    room = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
    held = array.array("i", [0])
    while held[0] < room:
        fcntl.ioctl(pipe, termios.FIONREAD, held)


def test_giving_up_does_not_keep_rows_from_a_reader_that_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with piped(monkeypatch) as pipe:
        rows = StdoutRows()
        rows.give_up()
        rows.put(b"a\n")
        assert os.read(pipe, 10) == b"a\n"


def test_only_an_error_of_stdout_is_its_own() -> None:
    rows = StdoutRows()
    assert rows.caused(SinkError(f"output 'print': {STDOUT_CLOSED}"))
    assert not rows.caused(SinkError("output 'file': the disk is full"))
    assert not rows.caused(BadRowError("x", "y", where="z", row="r"))
    assert not rows.caused(None)
