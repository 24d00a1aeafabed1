"""`${env:X}`, `${file:/path}`, `${secret:X}` and `$${…}` in the values of a tree (reference A.5).

One pass: what a reference gives is never read as a reference again. Secrets are only checked and
stay references. Invariant: no issue holds a value; `Redactor` takes values out of the messages of
others (a SQL parser quotes its input).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from arkflow_ray.components.config_path import ConfigPath
from arkflow_ray.config.secrets import VARIABLE_PREFIX, escape_literal, resolve_reference
from arkflow_ray.config.tree import Entry, Node

FILE_REFERENCE_BYTES_MAX: Final = 1024 * 1024
"""A `${file:…}` above this is not a setting but data."""

WORD_REDACTED_MIN: Final = 4
"""Shorter words of a value are not looked for one by one: they would blot out whole messages."""

_PRIVATE_USE: Final = 0xF0000
_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"\$\$\{|\$\{(env|file|secret):([^}]*)\}")
_SECRET_FREE_KEYS = frozenset({"type", "name"})
_STREAM_COMPONENTS = frozenset(
    {"input", "output", "error_output", "buffer", "temporary", "durability", "pipeline"}
)


class UnresolvedError(Exception):
    """A reference has no value. The message names the reference, never a value."""


class Redactor:
    """Takes the values of references out of texts.

    While it works, references stand in the text as single characters of the private-use area, so
    that what was put in is not looked at again.
    """

    def __init__(self) -> None:
        self._pieces: dict[str, str] = {}
        self._words: dict[str, str] = {}
        self._marks: dict[str, str] = {}

    def learn(self, value: str, reference: str) -> None:
        """`value`, its lines, and its longer words, are from now on shown as `reference`."""
        mark = self._marks.setdefault(reference, chr(_PRIVATE_USE + len(self._marks)))
        for piece in (value, repr(value)[1:-1], *value.splitlines()):
            if piece.strip():
                self._pieces.setdefault(piece.strip(), mark)
        for word in _WORD.findall(value):
            if len(word) >= WORD_REDACTED_MIN:
                self._words.setdefault(word, mark)

    def redact(self, text: str) -> str:
        """`text` without what was learnt. Short values only as whole words."""
        for piece in sorted((p for p in self._pieces if p in text), key=len, reverse=True):
            if len(piece) >= WORD_REDACTED_MIN:
                text = text.replace(piece, self._pieces[piece])
            else:
                whole = rf"(?<!\w){re.escape(piece)}(?!\w)"
                text = re.sub(whole, self._pieces[piece], text)
        text = _WORD.sub(lambda match: self._words.get(match[0], match[0]), text)
        for reference, mark in self._marks.items():
            text = text.replace(mark, reference)
        return text


@dataclass(slots=True)
class Resolution:
    """What became of a tree: the new one, the mistakes, and what is known of the references.

    `values` maps the path of a text to what its references gave: (value, reference) pairs.
    """

    root: Node
    issues: list[tuple[ConfigPath, str]] = field(default_factory=list)
    values: dict[ConfigPath, list[tuple[str, str]]] = field(default_factory=dict, repr=False)

    def redactor(self, below: ConfigPath) -> Redactor:
        """Takes what references at or below a path gave out of messages about that part."""
        redactor = Redactor()
        for path, pairs in self.values.items():
            if path[: len(below)] == below:
                for value, reference in pairs:
                    redactor.learn(value, reference)
        return redactor


def resolve_references(root: Node, env: Mapping[str, str]) -> Resolution:
    """A copy of the tree with `env` and `file` references replaced and secrets checked."""
    walk = _Walk(Resolution(root), env)
    walk.result.root = walk.node(root, ())
    return walk.result


class _Walk:
    def __init__(self, result: Resolution, env: Mapping[str, str]) -> None:
        self.result = result
        self._env = env

    def node(self, node: Node, path: ConfigPath) -> Node:
        value = node.value
        if isinstance(value, dict):
            entries = {
                key: Entry(entry.at, self.node(entry.node, (*path, key)))
                for key, entry in value.items()
            }
            return Node(entries, node.at)
        if isinstance(value, list):
            return Node([self.node(v, (*path, i)) for i, v in enumerate(value)], node.at)
        if isinstance(value, str) and "${" in value:
            return Node(self._text(value, path), node.at)
        return node

    def _text(self, text: str, path: ConfigPath) -> str:
        """Literal text is gathered up to the next secret, then escaped as a whole: two pieces
        may only together look like a reference."""
        done, literal, position = "", "", 0
        for match in _TOKEN.finditer(text):
            literal += text[position : match.start()]
            position = match.end()
            scheme, body = match.groups()
            if scheme is None:
                literal += "${"
                continue
            try:
                value = self._value(scheme, body, path, _shown(match[0]))
            except UnresolvedError as error:
                self.result.issues.append((path, str(error)))
                continue
            if scheme == "secret":
                done += escape_literal(literal, before_reference=True) + match[0]
                literal = ""
            else:
                literal += value
        return done + escape_literal(literal + text[position:])

    def _value(self, scheme: str, body: str, path: ConfigPath, shown: str) -> str:
        name = body if scheme == "file" else body.partition(":-")[0]
        if not name.strip() or "$" in name:
            raise UnresolvedError(f"the reference {shown} names nothing")
        if scheme == "file":
            value = _file(name, shown)
        elif scheme == "env":
            value = self._variable(body, name, shown)
        else:
            if not _secret_allowed(path):
                raise UnresolvedError(
                    f"the secret {shown} cannot stand here, only in the settings of a component"
                )
            value = self._secret(body, name, shown)
        default = "" if scheme == "file" else body.partition(":-")[2]
        # A default stands in the file for all to read; an empty pair still marks the text.
        pair = ("" if value == default else value, shown)
        self.result.values.setdefault(path, []).append(pair)
        return value

    def _variable(self, body: str, name: str, shown: str) -> str:
        _, separator, default = body.partition(":-")
        value = self._env.get(name)
        if separator and not value:
            return default
        if value is None:
            raise UnresolvedError(_unset(name, shown, f"${{env:{name}:-text}}"))
        return value

    def _secret(self, body: str, name: str, shown: str) -> str:
        value = resolve_reference(body, self._env)
        if value is None:
            raise UnresolvedError(
                _unset(VARIABLE_PREFIX + name, shown, f"${{secret:{name}:-text}}")
            )
        return value


def _unset(variable: str, shown: str, with_default: str) -> str:
    return (
        f"environment variable '{variable}' is not set (reference: {shown}); "
        f"set it, or give a default: {with_default}"
    )


def _shown(reference: str) -> str:
    """A reference as messages show it: a default may be long, and may be a value that hides."""
    head, separator, _ = reference.partition(":-")
    return f"{head}:-…}}" if separator and not reference.startswith("${file:") else reference


def _file(name: str, shown: str) -> str:
    try:
        with Path(name).open("rb") as file:
            data = file.read(FILE_REFERENCE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise UnresolvedError(f"the file cannot be read: {reason} (reference: {shown})") from None
    if len(data) > FILE_REFERENCE_BYTES_MAX:
        raise UnresolvedError(f"the file is larger than 1 MiB (reference: {shown})")
    try:
        return data.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise UnresolvedError(f"the file is not UTF-8 text (reference: {shown})") from None


def _secret_allowed(path: ConfigPath) -> bool:
    """Whether the text at `path` is given to a component, which resolves secrets when built."""
    if path[0] == "health_check":
        return path[-1] in {"api_token", "node_token"}
    if len(path) < 4 or path[-1] in _SECRET_FREE_KEYS:
        return False
    if path[0] == "streams":
        return path[2] in _STREAM_COMPONENTS
    return path[0] == "jobs" and ("config" in path[4:] or "codec" in path[4:])


__all__ = [
    "FILE_REFERENCE_BYTES_MAX",
    "Redactor",
    "Resolution",
    "resolve_references",
]
