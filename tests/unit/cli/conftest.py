"""Runs the command line in this process and files for it to run."""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from arkflow_ray.cli.main import app


@dataclass(frozen=True)
class Ran:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Cli = Callable[..., Ran]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """`cli("validate", path)`: the command in this process, as its entry point runs it."""

    def run(*arguments: object) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            app([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return Ran(code, out, err)

    return run


GOOD = """\
streams:
  - id: numbers
    input: {type: memory, messages: ['{"a": 1}', '{"a": 2}', '{"a": 3}'], codec: json}
    pipeline: {processors: []}
    output: {type: stdout}
  - id: silent
    input: {type: memory, messages: ['{"a": 1}'], codec: json}
    pipeline: {processors: []}
    output: {type: drop}
"""

SIX_MISTAKES = """\
logging:
  level: loud
streams:
  - id: wrong
    input: {type: memroy, messages: ["x"]}
    pipeline:
      thread_num: 0
      processors:
        - {type: sql, query: "SELEC a FROM flow"}
    output: {type: file, path: /tmp/never, format: jsonl}
    colour: red
"""


@pytest.fixture
def good_file(tmp_path: Path) -> Path:
    """Two streams without mistakes: `numbers` prints three rows, `silent` drops one."""
    return _written(tmp_path / "good.yaml", GOOD)


@pytest.fixture
def bad_file(tmp_path: Path) -> Path:
    """Six different mistakes."""
    return _written(tmp_path / "bad.yaml", SIX_MISTAKES)


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


class Terminal(io.StringIO):
    """Keeps what a terminal would show: enough of it for a region that is erased and redrawn."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = [""]
        self.row = 0
        self.cursor_hidden = False

    def write(self, text: str) -> int:
        for part in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
            self._put(part)
        return len(text)

    def _put(self, part: str) -> None:
        if part.endswith("A") and part.startswith("\x1b"):
            self.row -= int(part[2:-1])
        elif part == "\x1b[J":
            self.lines = [*self.lines[: self.row], ""]
        elif part in ("\x1b[?25l", "\x1b[?25h"):
            self.cursor_hidden = part.endswith("l")
        elif part == "\n":
            self.row += 1
            if self.row == len(self.lines):
                self.lines.append("")
        elif part != "\r":
            self.lines[self.row] += part

    @property
    def shown(self) -> list[str]:
        return self.lines[:-1] if self.lines[-1] == "" else self.lines


@pytest.fixture
def terminal() -> Terminal:
    """An empty one."""
    return Terminal()
