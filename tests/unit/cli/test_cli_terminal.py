"""`run` on a real terminal (a pty): rows stay whole between the pictures of the live display."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

PIPELINE = """\
streams:
  - id: rows
    input: {type: generate, context: '{"a": 1}', interval: 5ms, count: 100, codec: json}
    pipeline: {processors: []}
    output: {type: stdout}
"""


def shown_on_a_terminal(path: Path) -> tuple[int, str]:
    """Exit code and everything that the program wrote to a terminal of 80 x 24."""
    controller, device = pty.openpty()
    fcntl.ioctl(device, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "arkflow_ray.cli.main", "run", "--inline", str(path)]
    with subprocess.Popen(
        command, stdin=device, stdout=device, stderr=device, env={**os.environ, "TERM": "xterm"}
    ) as program:
        os.close(device)
        written = bytearray()
        try:
            while data := os.read(controller, 65_536):
                written += data
        except OSError:
            pass  # how Linux says that the program has closed its side
        os.close(controller)
    return program.returncode, written.decode()


def test_rows_stay_whole_around_the_live_display(tmp_path: Path, terminal: Any) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE)
    code, written = shown_on_a_terminal(path)
    assert code == 0
    assert "rows read" in written, "the live display was drawn"
    terminal.write(written)
    *rows, first, second, third = terminal.shown
    assert rows == ['{"a":1}'] * 100
    assert first.startswith("rows: finished after ")
    assert second.startswith("  read     100 rows, ")
    assert third.startswith("  written  100 rows to ")
    assert not terminal.cursor_hidden
