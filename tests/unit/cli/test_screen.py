"""The terminal's owner: rows come out byte for byte, whatever is drawn around them."""

import io
from typing import Any

import pytest

from arkflow_ray.observability import screen as screen_module
from arkflow_ray.observability.screen import Screen


def rows(screen: Screen, terminal: Any, text: str) -> None:
    with screen.writing_rows(text.encode()):
        terminal.write(text)


@pytest.fixture
def shared(terminal: Any, monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setattr(screen_module, "REDRAW_S", 0.0)
    return Screen(terminal, live=True, shared=True)


def test_the_region_is_replaced_in_place(terminal: Any, shared: Screen) -> None:
    shared.draw(["one", "two"])
    shared.draw(["three"])
    assert terminal.shown == ["three"]
    assert terminal.cursor_hidden


def test_rows_stand_above_the_region(terminal: Any, shared: Screen) -> None:
    shared.draw(["status 1"])
    rows(shared, terminal, "a\nb\n")
    assert terminal.shown == ["a", "b", "status 1"]
    shared.draw(["status 2"])
    rows(shared, terminal, "c\n")
    assert terminal.shown == ["a", "b", "c", "status 2"]


def test_log_lines_stand_above_the_region(terminal: Any, shared: Screen) -> None:
    shared.draw(["status"])
    shared.print("a note\n")
    assert terminal.shown == ["a note", "status"]


def test_the_region_waits_for_the_end_of_a_row(terminal: Any, shared: Screen) -> None:
    shared.draw(["status"])
    rows(shared, terminal, "half")
    shared.draw(["status"])
    assert terminal.shown == ["half"]
    rows(shared, terminal, " a row\n")
    shared.draw(["status"])
    assert terminal.shown == ["half a row", "status"]


def test_a_log_line_never_continues_a_row(terminal: Any, shared: Screen) -> None:
    rows(shared, terminal, "half")
    shared.print("a note\n")
    assert terminal.shown == ["half", "a note"]


def test_the_region_leaves_nothing_behind(terminal: Any, shared: Screen) -> None:
    shared.draw(["status"])
    rows(shared, terminal, "a\n")
    shared.clear()
    assert terminal.shown == ["a"]
    assert not terminal.cursor_hidden


def test_many_rows_do_not_redraw_the_region_each_time(terminal: Any) -> None:
    screen = Screen(terminal, live=True, shared=True)
    screen.draw(["status"])
    for number in range(100):
        rows(screen, terminal, f"{number}\n")
    screen.draw(["status"])
    assert terminal.shown == [*map(str, range(100)), "status"]


def test_rows_elsewhere_leave_the_region_alone(terminal: Any) -> None:
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
