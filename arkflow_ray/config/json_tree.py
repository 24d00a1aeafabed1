"""JSON files as a located tree.

Strict JSON (RFC 8259): no comments, no trailing commas, no NaN. Duplicate keys are collected.
"""

import json
import re
from typing import NoReturn

from arkflow_ray.config.issues import Location
from arkflow_ray.config.tree import (
    Entry,
    Node,
    Scalar,
    TreeBuilder,
    TreeError,
    check_text,
    integer,
    position,
)

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z]+")
_WORDS: dict[str, Scalar] = {"true": True, "false": False, "null": None}


def parse_json(text: str, builder: TreeBuilder) -> Node:
    """The one value of a JSON text. Raises `TreeError`; duplicate keys are collected."""
    reader = _Reader(text, builder)
    root = reader.value(0)
    reader.end()
    return root


class _Reader:
    def __init__(self, text: str, builder: TreeBuilder) -> None:
        self._text = text
        self._at = 0
        self._builder = builder
        self._line, self._line_start, self._counted = 1, 0, 0

    def value(self, depth: int) -> Node:
        char = self._peek()
        at = self._here()
        self._builder.enter(depth, at)
        if char == "{":
            return Node(self._mapping(depth), at)
        if char == "[":
            return Node(self._sequence(depth), at)
        if char == '"':
            return Node(self._string(), at)
        if char and char in "-0123456789":
            return Node(self._number(), at)
        word = _WORD.match(self._text, self._at)
        if word is None or word[0] not in _WORDS:
            self._fail("a value was expected")
        self._at = word.end()
        return Node(_WORDS[word[0]], at)

    def end(self) -> None:
        if self._peek():
            self._fail("text after the end of the value")

    def _mapping(self, depth: int) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        self._at += 1
        if self._take("}"):
            return entries
        while True:
            if self._peek() != '"':
                self._fail("a key in double quotes was expected")
            at = self._here()
            key = self._string()
            if not self._take(":"):
                self._fail("':' was expected")
            self._builder.add(entries, key, Entry(at, self.value(depth + 1)))
            if self._take("}"):
                return entries
            if not self._take(","):
                self._fail("',' or '}' was expected")

    def _sequence(self, depth: int) -> list[Node]:
        items: list[Node] = []
        self._at += 1
        if self._take("]"):
            return items
        while True:
            items.append(self.value(depth + 1))
            if self._take("]"):
                return items
            if not self._take(","):
                self._fail("',' or ']' was expected")

    def _string(self) -> str:
        match = _STRING.match(self._text, self._at)
        if match is None:
            self._fail("text without its end, or with an escape or control character JSON lacks")
        at = self._here()
        self._at = match.end()
        return str(check_text(json.loads(match[0]), at))

    def _number(self) -> int | float:
        match = _NUMBER.match(self._text, self._at)
        if match is None:
            self._fail("not a number of JSON")
        at = self._here()
        self._at = match.end()
        if self._at < len(self._text) and self._text[self._at] not in " \t\r\n,]}":
            self._fail("not a number of JSON")
        fraction, exponent = match.groups()
        whole = fraction is None and exponent is None
        return integer(match[0], 10, at) if whole else float(match[0])

    def _peek(self) -> str:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._text[self._at : self._at + 1]

    def _take(self, char: str) -> bool:
        found = self._peek() == char
        self._at += found
        return found

    def _here(self) -> Location:
        newlines = self._text.count("\n", self._counted, self._at)
        if newlines:
            self._line += newlines
            self._line_start = self._text.rfind("\n", self._counted, self._at) + 1
        self._counted = self._at
        return Location(self._line, self._at - self._line_start + 1)

    def _fail(self, message: str) -> NoReturn:
        raise TreeError(f"not valid JSON: {message}", position(self._text, self._at))


__all__ = ["parse_json"]
