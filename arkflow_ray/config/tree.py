"""A configuration file as a tree in which every value and key knows where it stands.

Reading only: the parsers of the three formats are in `yaml_tree`, `json_tree` and `toml_tree`, the
meaning of the values in `loader`. Invariant: a tree holds text, int, float, bool, None, lists and
mappings with text keys, nothing else, is at most `DEPTH_MAX` deep and holds at most `NODES_MAX`
values.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from arkflow_ray.components.config_path import ConfigPath
from arkflow_ray.config.issues import LoadError, LocatedIssue, Location

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""A larger file is data that was named by mistake."""

DEPTH_MAX: Final = 64
"""Nesting of a file. Real ones stay below 12; the limit keeps recursion far from Python's own."""

NODES_MAX: Final = 200_000
"""Values of a file after its aliases are expanded: the bound on alias bombs."""

INTEGER_LIMIT: Final = 2**64
"""Integers of a file are below this."""

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Node:
    """A value and the place of its first character."""

    value: "Scalar | list[Node] | dict[str, Entry]"
    at: Location


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of a mapping, the place of the key, and its value."""

    at: Location
    node: Node


class TreeError(Exception):
    """The file cannot be parsed. Holds what is wrong and where."""

    def __init__(self, message: str, at: Location) -> None:
        super().__init__(message)
        self.message = message
        self.at = at


@dataclass(slots=True)
class TreeBuilder:
    """Counts nodes, checks depth and collects the mistakes that do not stop the parser."""

    issues: list[TreeError] = field(default_factory=list)
    nodes: int = 0

    def enter(self, depth: int, at: Location, weight: int = 1) -> None:
        """One more node (or `weight` of them) at this depth. `TreeError` beyond a limit."""
        self.nodes += weight
        if self.nodes > NODES_MAX:
            raise TreeError(f"more than {NODES_MAX:,} values, aliases expanded", at)
        if depth > DEPTH_MAX:
            raise TreeError(f"nested deeper than {DEPTH_MAX} levels", at)

    def add(self, entries: dict[str, Entry], key: str, entry: Entry) -> None:
        """Put a key into a mapping; a repetition is a collected mistake that shows both lines."""
        first = entries.get(key)
        if first is None:
            entries[key] = entry
            return
        message = f"the key '{key}' stands twice; it is first at line {first.at.line}"
        self.issues.append(TreeError(message, entry.at))


def plain(node: Node) -> Any:
    """The value without places, as new lists and dicts."""
    if isinstance(node.value, dict):
        return {key: plain(entry.node) for key, entry in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


def child(node: Node, step: str | int) -> Node | None:
    """The value under a key or index, or None."""
    if isinstance(node.value, dict) and isinstance(step, str):
        entry = node.value.get(step)
        return entry.node if entry else None
    if isinstance(node.value, list) and isinstance(step, int) and 0 <= step < len(node.value):
        return node.value[step]
    return None


def find(root: Node, path: ConfigPath) -> Node | None:
    """The value at a path, or None."""
    node: Node | None = root
    for step in path:
        node = child(node, step) if node else None
    return node


def locate(root: Node, path: ConfigPath, *, key: bool = False) -> Location:
    """Where a path stands: its value, or with `key` its key; else its nearest existing parent.

    A missing key is shown at the parent that lacks it.
    """
    node, at = root, root.at
    for number, step in enumerate(path, start=1):
        below = child(node, step)
        if below is None:
            return at
        entry = node.value[step] if isinstance(node.value, dict) and isinstance(step, str) else None
        # A block collection starts a line below its key, where nobody looks for it.
        of_key = entry and (entry.at.line != below.at.line or (key and number == len(path)))
        at = entry.at if entry and of_key else below.at
        node = below
    return at


def integer(digits: str, base: int, at: Location) -> int:
    """An integer of the file. `TreeError` outside [-2^63, 2^64), where no field takes it."""
    # The length is checked first: Python refuses to convert very long texts in its own words.
    value = int(digits, base) if len(digits) <= 80 else INTEGER_LIMIT
    if not -(2**63) <= value < INTEGER_LIMIT:
        raise TreeError("an integer must lie in [-2^63, 2^64); write it as text in quotes", at)
    return value


def check_text(value: Scalar, at: Location) -> Scalar:
    """The value; `TreeError` for text that cannot be written as UTF-8 (half a surrogate pair)."""
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise TreeError("half of a surrogate pair is not text", at)
    return value


def position(text: str, offset: int) -> Location:
    """Line and column (1-based) of a character offset; CRLF and LF count as one line break."""
    line = text.count("\n", 0, offset) + 1
    start = text.rfind("\n", 0, offset) + 1
    return Location(line, offset - start + 1)


def read_tree(path: Path) -> tuple[Node, list[LocatedIssue]]:
    """Parse a file by its extension. Collected mistakes (duplicate keys) are returned.

    Raises `LoadError` if the file cannot be read or parsed.
    """
    name = str(path)
    builder = TreeBuilder()
    try:
        suffix = _format(path)
        root = _parse(suffix, _read_text(path), builder)
    except TreeError as error:
        builder.issues.append(error)
        raise LoadError([_located(name, e) for e in builder.issues]) from None
    return root, [_located(name, e) for e in builder.issues]


def _located(file: str, error: TreeError) -> LocatedIssue:
    return LocatedIssue(file, error.at.line, error.at.column, "", error.message)


_START = Location(1, 1)


def _format(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in {".yaml", ".yml", ".json", ".toml"}:
        raise TreeError(
            "the format cannot be determined; name the file .yaml, .yml, .json or .toml", _START
        )
    return suffix


def _parse(suffix: str, text: str, builder: TreeBuilder) -> Node:
    if not text.strip():
        raise TreeError("the file is empty; it needs `streams:` or `jobs:`", _START)
    if suffix == ".json":
        from arkflow_ray.config.json_tree import parse_json

        return parse_json(text, builder)
    if suffix == ".toml":
        from arkflow_ray.config.toml_tree import parse_toml

        return parse_toml(text, builder)
    from arkflow_ray.config.yaml_tree import parse_yaml

    return parse_yaml(text, builder)


def _read_text(path: Path) -> str:
    try:
        if path.is_dir():
            raise TreeError("is a folder; name a file in it", _START)
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise TreeError("there is no such file", _START) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise TreeError(f"cannot be read: {reason}", _START) from None
    if len(data) > FILE_BYTES_MAX:
        limit = FILE_BYTES_MAX // (1024 * 1024)
        raise TreeError(f"is larger than {limit} MiB; is it a data file?", _START)
    return _decode(data)


def _decode(data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        at = position(before, len(before))
        raise TreeError(f"byte 0x{data[error.start]:02x} is not valid UTF-8", at) from None
    nul = text.find("\0")
    if nul >= 0:
        raise TreeError("a NUL character; the file is not text", position(text, nul))
    return text


__all__ = [
    "DEPTH_MAX",
    "FILE_BYTES_MAX",
    "INTEGER_LIMIT",
    "NODES_MAX",
    "Entry",
    "Node",
    "Scalar",
    "TreeBuilder",
    "TreeError",
    "check_text",
    "child",
    "find",
    "integer",
    "locate",
    "plain",
    "position",
    "read_tree",
]
