"""The `logging:` section of a configuration (A.3), through the standard library.

Only the logger `arkflow_ray` and those below it are touched, and only between `start_logging` and
`close`: the logging of a program that embeds us is its own. Log lines never go to stdout, which
belongs to the rows of `stdout` sinks (P9).
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from arkflow_kernel.errors import ConfigError, Issue

LOGGER_NAME: Final = "arkflow_ray"
TRACE: Final = 5
"""Below DEBUG: ArkFlow's `trace`."""

LEVELS: Final[Mapping[str, int]] = {
    "trace": TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}
_WORDS: Final = {number: word for word, number in LEVELS.items()}

Format = Literal["plain", "json"]


def level_number(word: str) -> int:
    """The level that a word of A.3 names. `ConfigError` for any other: never a silent `info`."""
    if word not in LEVELS:
        allowed = ", ".join(LEVELS)
        message = f"unknown level '{word}'; say one of {allowed}"
        raise ConfigError([Issue("logging.level", message)])
    return LEVELS[word]


class LineFormatter(logging.Formatter):
    """One line per record, in UTC: for people, or one JSON object."""

    def __init__(self, form: Format) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line; an exception's text follows its message."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": _WORDS.get(record.levelno, record.levelname.lower()),
            "logger": record.name,
            "message": self._message(record),
        }
        if self._form == "json":
            return json.dumps(fields | _extra(record), ensure_ascii=False)
        return f"{fields['time']} {fields['level'].upper():5} {fields['message']}"

    def _message(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if record.exc_info:
            message = f"{message}\n{self.formatException(record.exc_info)}"
        return message


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields


class LineHandler(logging.Handler):
    """Hands finished lines to whoever owns stderr (a live display redraws around them)."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line; the standard library's rule for a failing log applies."""
        try:
            self._write(self.format(record) + "\n")
        except Exception:  # noqa: BLE001 - logging must not end the job; handleError reports it
            self.handleError(record)


class Logging:
    """The handler that is in place, and the way back."""

    def __init__(self, handler: logging.Handler, level: int, note: str | None = None) -> None:
        self.note = note
        self._handler = handler
        self._logger = logging.getLogger(LOGGER_NAME)
        self._before = (self._logger.level, self._logger.propagate)
        self._logger.setLevel(level)
        self._logger.propagate = False
        self._logger.addHandler(handler)

    def close(self) -> None:
        """Take the handler out and restore the logger. May be called again."""
        self._logger.removeHandler(self._handler)
        self._handler.close()
        level, self._logger.propagate = self._before
        self._logger.setLevel(level)


def start_logging(
    write: Callable[[str], None],
    *,
    level: str = "info",
    form: Format = "plain",
    file_path: str | None = None,
) -> Logging:
    """Log to `file_path` (parents created, appended), else through `write` to stderr.

    A file that cannot be opened falls back to stderr; `note` of the result says why. Raises
    `ConfigError` for an unknown level word.
    """
    number = level_number(level)
    logging.addLevelName(TRACE, "TRACE")
    handler, note = _handler(write, file_path)
    handler.setFormatter(LineFormatter(form))
    return Logging(handler, number, note)


def _handler(
    write: Callable[[str], None], file_path: str | None
) -> tuple[logging.Handler, str | None]:
    if file_path is None:
        return LineHandler(write), None
    path = Path(file_path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return logging.FileHandler(path, mode="a", encoding="utf-8"), None
    except OSError as error:
        reason = error.strerror or str(error)
        note = f"cannot log to {path}: {reason}; logging to stderr instead"
        return LineHandler(write), note


__all__ = [
    "LEVELS",
    "LOGGER_NAME",
    "TRACE",
    "LineFormatter",
    "LineHandler",
    "Logging",
    "level_number",
    "start_logging",
]
