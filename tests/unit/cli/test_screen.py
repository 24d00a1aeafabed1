"""The terminal's owner: rows come out byte for byte, whatever is drawn around them."""

import io
import re

import pytest

from arkflow_ray.observability import screen as screen_module
from arkflow_ray.observability.screen import Screen


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


def rows(screen: Screen, terminal: Terminal, text: str) -> None:
    with screen.writing_rows(text.encode()):
        terminal.write(text)


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def shared(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setattr(screen_module, "REDRAW_S", 0.0)
    return Screen(terminal, live=True, shared=True)


def test_the_region_is_replaced_in_place(terminal: Terminal, shared: Screen) -> None:
    shared.draw(["one", "two"])
    shared.draw(["three"])
    assert terminal.shown == ["three"]
    assert terminal.cursor_hidden


def test_rows_stand_above_the_region(terminal: Terminal, shared: Screen) -> None:
    shared.draw(["status 1"])
    rows(shared, terminal, "a\nb\n")
    assert terminal.shown == ["a", "b", "status 1"]
    shared.draw(["status 2"])
    rows(shared, terminal, "c\n")
    assert terminal.shown == ["a", "b", "c", "status 2"]


def test_log_lines_stand_above_the_region(terminal: Terminal, shared: Screen) -> None:
    shared.draw(["status"])
    shared.print("a note\n")
    assert terminal.shown == ["a note", "status"]


def test_the_region_waits_for_the_end_of_a_row(terminal: Terminal, shared: Screen) -> None:
    shared.draw(["status"])
    rows(shared, terminal, "half")
    shared.draw(["status"])
    assert terminal.shown == ["half"]
    rows(shared, terminal, " a row\n")
    shared.draw(["status"])
    assert terminal.shown == ["half a row", "status"]


def test_a_log_line_never_continues_a_row(terminal: Terminal, shared: Screen) -> None:
    rows(shared, terminal, "half")
    shared.print("a note\n")
    assert terminal.shown == ["half", "a note"]


def test_the_region_leaves_nothing_behind(terminal: Terminal, shared: Screen) -> None:
    shared.draw(["status"])
    rows(shared, terminal, "a\n")
    shared.clear()
    assert terminal.shown == ["a"]
    assert not terminal.cursor_hidden


def test_many_rows_do_not_redraw_the_region_each_time(terminal: Terminal) -> None:
    screen = Screen(terminal, live=True, shared=True)
    screen.draw(["status"])
    for number in range(100):
        rows(screen, terminal, f"{number}\n")
    screen.draw(["status"])
    assert terminal.shown == [*map(str, range(100)), "status"]


def test_rows_elsewhere_leave_the_region_alone(terminal: Terminal) -> None:
    screen = Screen(terminal, live=True, shared=False)
    screen.draw(["status"])
    with screen.writing_rows(b"to a file, no newline"):
        pass
    screen.draw(["status"])
    assert terminal.shown == ["status"]


def test_without_a_terminal_nothing_is_drawn() -> None:
    stderr = io.StringIO()
    screen = Screen(stderr, live=False, shared=False)
    screen.draw(["status"])
    screen.print("a line\n")
    screen.clear()
    assert stderr.getvalue() == "a line\n"


def test_a_closed_stderr_does_not_end_the_job() -> None:
    stderr = io.StringIO()
    screen = Screen(stderr, live=True, shared=False)
    stderr.close()
    screen.print("nobody hears this\n")
    assert not screen.live
