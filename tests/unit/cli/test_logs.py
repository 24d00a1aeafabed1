"""The `logging:` section: level, format, file, and what happens when the file cannot be had."""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from arkflow_kernel.errors import ConfigError
from arkflow_ray.observability.logs import LEVELS, TRACE, Logging, level_number, start_logging

_log = logging.getLogger("arkflow_ray.test")

Start = Callable[..., Logging]


@pytest.fixture
def written() -> list[str]:
    return []


@pytest.fixture
def start(written: list[str]) -> Iterator[Start]:
    """`start_logging` into `written`, closed at the end."""
    started = []

    def run(**options: Any) -> Logging:
        started.append(start_logging(written.append, **options))
        return started[-1]

    yield run
    for each in reversed(started):
        each.close()


def test_plain_lines_carry_time_level_and_message(start: Start, written: list[str]) -> None:
    start()
    _log.warning("hello %s", "there")
    _log.debug("not at info")
    (line,) = written
    time, rest = line.split(" ", 1)
    assert rest == "WARN  hello there\n"
    assert time.endswith("Z")
    assert len(time) == len("2026-01-31T23:59:59.123Z")


def test_json_lines_carry_the_figures(start: Start, written: list[str]) -> None:
    start(form="json", level="trace")
    _log.log(TRACE, "seen", extra={"fields": {"rows_read": 3}})
    told = json.loads(written[0])
    assert (told["level"], told["message"], told["rows_read"]) == ("trace", "seen", 3)
    assert told["logger"] == "arkflow_ray.test"


def test_an_exception_is_on_the_line(start: Start, written: list[str]) -> None:
    start(form="json")
    try:
        raise ValueError("broken")
    except ValueError:
        _log.exception("it went wrong")
    assert "ValueError: broken" in json.loads(written[0])["message"]


@pytest.mark.parametrize("word", LEVELS)
def test_each_level_shows_itself_and_what_is_above(
    word: str, start: Start, written: list[str]
) -> None:
    start(level=word)
    for number in LEVELS.values():
        _log.log(number, "x")
    assert len(written) == sum(number >= LEVELS[word] for number in LEVELS.values())


@pytest.mark.parametrize("word", ["loud", "INFO", "warning", ""])
def test_an_unknown_level_is_an_error_with_the_words(word: str) -> None:
    with pytest.raises(ConfigError, match="say one of trace, debug, info, warn, error"):
        level_number(word)


def test_a_file_gets_the_lines_its_parents_are_made_and_it_is_added_to(
    start: Start, written: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "logs" / "deep" / "run.log"
    for text in ("first", "second"):
        logs = start(file_path=str(path))
        assert logs.note is None
        _log.info(text)
        logs.close()
    assert [line.split()[-1] for line in path.read_text().splitlines()] == ["first", "second"]
    assert written == []


def test_a_file_that_cannot_be_had_falls_back_to_stderr_with_a_note(
    start: Start, written: list[str], tmp_path: Path
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    logs = start(file_path=str(in_the_way / "run.log"))
    _log.info("all the same")
    assert logs.note is not None
    assert logs.note.endswith("logging to stderr instead")
    assert written[0].endswith("all the same\n")


def test_closing_leaves_the_logger_as_it_was(start: Start, written: list[str]) -> None:
    logger = logging.getLogger("arkflow_ray")
    before = (logger.level, logger.propagate, list(logger.handlers))
    start(level="debug").close()
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
    _log.error("not ours any more")
    assert written == []
