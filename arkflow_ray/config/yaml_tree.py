"""YAML files as a located tree, by the YAML 1.2 core schema.

PyYAML supplies the events; what plain scalars mean is decided here, because its own rules are
those of YAML 1.1, in which `NO` is false and `010` is 8. As in ArkFlow's parser, digits that
start with a zero are text. Anchors, aliases and `<<` merges work, expanded within the limits of
`tree`; tags other than those of the core schema are refused.
"""

import re
import sys
from collections.abc import Iterator

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from arkflow_ray.config.issues import Location
from arkflow_ray.config.tree import (
    DEPTH_MAX,
    Entry,
    Node,
    Scalar,
    TreeBuilder,
    TreeError,
    check_text,
    integer,
    position,
)

_CORE = "tag:yaml.org,2002:"
_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"([-+]?)\.(inf|Inf|INF)")
_ESCAPE = re.compile(r"\\U([0-9a-fA-F]{8})")
_NOT_A_NUMBER = {".nan", ".NaN", ".NAN"}


def parse_yaml(text: str, builder: TreeBuilder) -> Node:
    """The one document of a YAML text. Raises `TreeError`; duplicate keys are collected."""
    try:
        return _Composer(text, builder).document()
    except yaml.reader.ReaderError as error:
        at = position(text, int(error.position))
        raise TreeError(f"the character {error.character!r} is not allowed in YAML", at) from None
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error) from None
    except ValueError:
        # PyYAML converts the digits of an escape without looking at their range.
        raise TreeError("an escape above \\U0010FFFF", _bad_escape(text)) from None


def _bad_escape(text: str) -> Location:
    for match in _ESCAPE.finditer(text):
        if int(match[1], 16) > sys.maxunicode:
            return position(text, match.start())
    return Location(1, 1)


def _syntax_error(error: yaml.MarkedYAMLError) -> TreeError:
    mark = error.problem_mark or error.context_mark
    at = Location(mark.line + 1, mark.column + 1) if mark else Location(1, 1)
    problem = error.problem or "unknown problem"
    if "'\\t'" in problem:
        return TreeError("a tab; YAML is indented and separated by spaces only", at)
    context = ""
    if error.context and error.context_mark:
        context = f", {error.context} that starts at line {error.context_mark.line + 1}"
    return TreeError(f"not valid YAML: {problem}{context}", at)


def resolve_plain(text: str, at: Location) -> Scalar:
    """What an unquoted scalar means in the core schema; `TreeError` for a huge integer."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _LEADING_ZERO.fullmatch(text):
        return text
    if _INT.fullmatch(text):
        return integer(text, 10, at)
    if _OCTAL.fullmatch(text):
        return integer(text[2:], 8, at)
    if _HEX.fullmatch(text):
        return integer(text[2:], 16, at)
    if _FLOAT.fullmatch(text):
        return float(text)
    if match := _INFINITE.fullmatch(text):
        return float(f"{match[1]}inf")
    return float("nan") if text in _NOT_A_NUMBER else text


class _Composer:
    """Builds the tree from PyYAML's events."""

    def __init__(self, text: str, builder: TreeBuilder) -> None:
        self._events: Iterator[Event] = iter(yaml.parse(text, Loader=yaml.SafeLoader))
        self._builder = builder
        self._anchors: dict[str, tuple[Node, int, int]] = {}
        self._heights: dict[int, int] = {}

    def document(self) -> Node:
        root: Node | None = None
        for event in self._events:
            if not isinstance(event, DocumentStartEvent):
                continue
            if root is not None:
                raise TreeError("a second document; put everything into one", _at(event))
            root = self._node(next(self._events), 0)
        if root is None or root.value is None:
            message = "the file is empty; it needs `streams:` or `jobs:`"
            raise TreeError(message, Location(1, 1))
        return root

    def _node(self, event: Event, depth: int) -> Node:
        if isinstance(event, AliasEvent):
            return self._alias(event, depth)
        before = self._builder.nodes
        self._builder.enter(depth, _at(event))
        if isinstance(event, SequenceStartEvent):
            node = self._sequence(event, depth)
        elif isinstance(event, MappingStartEvent):
            node = self._mapping(event, depth)
        else:
            assert isinstance(event, ScalarEvent)
            node = Node(check_text(_scalar(event), _at(event)), _at(event))
        if event.anchor is not None:
            size = self._builder.nodes - before
            self._anchors[event.anchor] = (node, size, self._height(node))
        return node

    def _alias(self, event: AliasEvent, depth: int) -> Node:
        known = self._anchors.get(event.anchor or "")
        if known is None:
            raise TreeError(f"no anchor '&{event.anchor}' is complete above this", _at(event))
        node, size, height = known
        self._builder.enter(depth + height, _at(event), size)
        return node

    def _height(self, node: Node) -> int:
        """Levels below a node. Remembered for anchored nodes, so that each is walked once."""
        known = self._heights.get(id(node))
        if known is not None:
            return known
        below: list[Node] = []
        if isinstance(node.value, list):
            below = node.value
        elif isinstance(node.value, dict):
            below = [entry.node for entry in node.value.values()]
        height = 1 + max((self._height(item) for item in below), default=-1)
        assert height <= DEPTH_MAX
        self._heights[id(node)] = height
        return height

    def _sequence(self, start: SequenceStartEvent, depth: int) -> Node:
        _check_tag(start, "seq")
        items: list[Node] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        return Node(items, _at(start))

    def _mapping(self, start: MappingStartEvent, depth: int) -> Node:
        _check_tag(start, "map")
        entries: dict[str, Entry] = {}
        merged: list[Node] = []
        while not isinstance(event := next(self._events), MappingEndEvent):
            if not isinstance(event, ScalarEvent):
                raise TreeError("a key must be text", _at(event))
            entry = Entry(_at(event), self._node(next(self._events), depth + 1))
            if event.value == "<<" and event.style is None:
                merged.extend(_mappings_to_merge(entry))
            else:
                self._builder.add(entries, event.value, entry)
        for node in merged:
            assert isinstance(node.value, dict)
            for key, entry in node.value.items():
                entries.setdefault(key, entry)
        return Node(entries, _at(start))


def _mappings_to_merge(entry: Entry) -> list[Node]:
    value = entry.node.value
    nodes = value if isinstance(value, list) else [entry.node]
    if not all(isinstance(node.value, dict) for node in nodes):
        raise TreeError("`<<` merges a mapping or a list of mappings", entry.at)
    return nodes


def _scalar(event: ScalarEvent) -> Scalar:
    tag, at = event.tag, _at(event)
    if tag in (None, "!"):
        plain = tag is None and event.style is None
        return resolve_plain(event.value, at) if plain else str(event.value)
    kind = str(tag).removeprefix(_CORE)
    if kind == "str":
        return str(event.value)
    value = resolve_plain(event.value, at)
    if kind == "float" and type(value) is int:
        return float(value)
    wanted = {"int": int, "float": float, "bool": bool, "null": type(None)}.get(kind)
    if wanted is None:
        raise TreeError(f"the tag '{tag}' is not supported; leave it out", at)
    if type(value) is not wanted:
        raise TreeError(f"the text does not fit the tag '!!{kind}'", at)
    return value


def _check_tag(event: MappingStartEvent | SequenceStartEvent, kind: str) -> None:
    if event.tag not in (None, "!", _CORE + kind):
        message = f"the tag '{event.tag}' is not supported; write `name: value` instead of a tag"
        raise TreeError(message, _at(event))


def _at(event: Event) -> Location:
    mark = event.start_mark
    assert mark is not None  # only events made by hand have none
    return Location(mark.line + 1, mark.column + 1)


__all__ = ["parse_yaml", "resolve_plain"]
