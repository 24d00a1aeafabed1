"""TOML files as a located tree.

`tomllib` supplies the values and decides what is valid; `_Scanner` walks the same, then valid, text
a second time for the places, so that it may rely on every bracket and quote being closed.
"""

import datetime
import re
import tomllib
from typing import Any

from arkflow_ray.components.config_path import ConfigPath, render_path
from arkflow_ray.config.issues import Location
from arkflow_ray.config.tree import (
    DEPTH_MAX,
    INTEGER_LIMIT,
    Entry,
    Node,
    TreeBuilder,
    TreeError,
    position,
)

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|'
    r"'''.*?'{3,5}|"
    r'"(?:[^"\\\n]|\\.)*"|'
    r"'[^'\n]*'",
    re.DOTALL,
)
_OTHER = re.compile(r"[^,\]}#\n]*")


def parse_toml(text: str, builder: TreeBuilder) -> Node:
    """A TOML text as a tree. Raises `TreeError`."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(text, str(error)) from None
    except (RecursionError, ValueError):
        # ValueError: Python refuses to convert an integer of thousands of digits.
        message = f"nested deeper than {DEPTH_MAX} levels, or a number that is far too long"
        raise TreeError(message, Location(1, 1)) from None
    scanner = _Scanner(text.replace("\r\n", "\n"))
    scanner.scan()
    return _Converter(scanner, builder).node(values, (), 0, Location(1, 1))


def _syntax_error(text: str, message: str) -> TreeError:
    match = _PLACE.search(message)
    at = position(text, len(text))
    if match and match[1]:
        at = Location(int(match[1]), int(match[2]))
    problem = message[: match.start()] if match else message
    if problem.startswith("Cannot"):
        scanner = _Scanner(text.replace("\r\n", "\n"), until_line=at.line)
        scanner.scan()
        if scanner.repeated:
            path, first, again = scanner.repeated
            name = render_path(path)
            told = f"the key '{name}' stands twice; it is first at line {first.line}"
            return TreeError(told, again)
    return TreeError(f"not valid TOML: {problem[:1].lower()}{problem[1:]}", at)


class _Converter:
    """Joins the values of `tomllib` with the places of the scanner."""

    def __init__(self, scanner: "_Scanner", builder: TreeBuilder) -> None:
        self._scanner = scanner
        self._builder = builder

    def node(self, value: Any, path: ConfigPath, depth: int, parent: Location) -> Node:
        at = self._scanner.values.get(path, parent)
        self._builder.enter(depth, at)
        if isinstance(value, dict):
            entries: dict[str, Entry] = {}
            for key, item in value.items():
                below = (*path, key)
                key_at = self._scanner.keys.get(below, at)
                entries[key] = Entry(key_at, self.node(item, below, depth + 1, key_at))
            return Node(entries, at)
        if isinstance(value, list):
            items = enumerate(value)
            return Node([self.node(item, (*path, i), depth + 1, at) for i, item in items], at)
        if isinstance(value, datetime.date | datetime.time):
            raise TreeError("no field takes a date or a time; write it as text in quotes", at)
        if type(value) is int and not -(2**63) <= value < INTEGER_LIMIT:
            raise TreeError("an integer must lie in [-2^63, 2^64); write it as text in quotes", at)
        return Node(value, at)


class _Scanner:
    """Places of the keys and values of a TOML text that `tomllib` accepts.

    With `until_line` the text is valid only up to that line; `repeated` is then the first key that
    stands twice, with both places.
    """

    def __init__(self, text: str, until_line: int | None = None) -> None:
        self.keys: dict[ConfigPath, Location] = {}
        self.values: dict[ConfigPath, Location] = {}
        self.repeated: tuple[ConfigPath, Location, Location] | None = None
        self._text = text
        self._at = 0
        self._until = until_line
        self._tables: dict[ConfigPath, int] = {}
        self._headers: dict[ConfigPath, Location] = {}
        self._counted, self._line, self._line_start = 0, 1, 0

    def scan(self) -> None:
        prefix: ConfigPath = ()
        while True:
            self._skip(_BLANK)
            if self._at >= len(self._text):
                return
            if self._until is not None and self._here().line > self._until:
                return
            if self._text[self._at] == "[":
                prefix = self._header()
            else:
                self._pair(prefix)

    def _header(self) -> ConfigPath:
        at = self._here()
        array = self._text.startswith("[[", self._at)
        self._at += 2 if array else 1
        steps = self._key()
        self._at += 2 if array else 1
        path: ConfigPath = ()
        for number, step in enumerate(steps, start=1):
            path = (*path, step)
            last = number == len(steps)
            if not (last and not array and path in self._headers):
                self.keys.setdefault(path, at)
            self.values.setdefault(path, at)
            if last and array:
                self._tables[path] = self._tables.get(path, 0) + 1
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
                self.values.setdefault(path, at)
        if not array:
            self._note(self._headers, path, at)
        return path

    def _pair(self, prefix: ConfigPath) -> None:
        at = self._here()
        path = prefix
        steps = self._key()
        for step in steps[:-1]:
            path = (*path, step)
            self.keys.setdefault(path, at)
            self.values.setdefault(path, at)
        path = (*path, steps[-1])
        self._note(self.keys, path, at)
        self._skip(_SPACE)
        self._at += 1  # "="
        self._skip(_SPACE)
        self._value(path)

    def _note(self, places: dict[ConfigPath, Location], path: ConfigPath, at: Location) -> None:
        first = places.setdefault(path, at)
        if first != at and self.repeated is None:
            self.repeated = (path, first, at)

    def _value(self, path: ConfigPath) -> None:
        self.values[path] = self._here()
        char = self._text[self._at : self._at + 1]
        if char == "[":
            self._at += 1
            index = 0
            while not self._closes("]"):
                self._value((*path, index))
                index += 1
        elif char == "{":
            self._at += 1
            while not self._closes("}"):
                self._pair(path)
        elif match := _STRING.match(self._text, self._at):
            self._at = match.end()
        else:
            self._skip(_OTHER)

    def _closes(self, bracket: str) -> bool:
        """Skip blanks and commas; whether the collection ends here (or the text does)."""
        self._skip(_BLANK)
        if self._text.startswith(",", self._at):
            self._at += 1
            self._skip(_BLANK)
        if self._at >= len(self._text):
            return True
        closed = self._text.startswith(bracket, self._at)
        self._at += closed
        return closed

    def _key(self) -> list[str]:
        steps: list[str] = []
        while True:
            self._skip(_SPACE)
            if match := _BARE_KEY.match(self._text, self._at):
                steps.append(match[0])
            elif match := _STRING.match(self._text, self._at):
                steps.append(str(next(iter(tomllib.loads(f"{match[0]}=0")))))
            else:
                # Only in text that is not valid: leave the line, the caller has the error.
                self._at = len(self._text)
                return [*steps, ""]
            self._at = match.end()
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return steps
            self._at += 1

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _here(self) -> Location:
        newlines = self._text.count("\n", self._counted, self._at)
        if newlines:
            self._line += newlines
            self._line_start = self._text.rfind("\n", self._counted, self._at) + 1
        self._counted = self._at
        return Location(self._line, self._at - self._line_start + 1)


__all__ = ["parse_toml"]
