"""Tokens of SQL text, as far as a check before planning needs them. Not a parser.

Comments, string literals and quoted names are recognised, so that a `->` or a word inside them is
never taken for code. Text that ends inside one of them is one token to its end: DataFusion's own
parser reports it.
"""

import re
from dataclasses import dataclass
from enum import Enum

_TOKEN = re.compile(
    r"""
      (?P<skip>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
    | (?P<text>'(?:[^']|'')*(?:'|\Z))
    | (?P<quoted>"(?:[^"]|"")*(?:"|\Z))
    | (?P<word>[^\W\d]\w*)
    | (?P<number>\d[\w.]*)
    | (?P<symbol>->>|->|.)
    """,
    re.VERBOSE | re.DOTALL,
)


class TokenKind(Enum):
    """What a piece of SQL text is."""

    TEXT = "text"
    QUOTED = "quoted"
    WORD = "word"
    NUMBER = "number"
    SYMBOL = "symbol"


@dataclass(frozen=True, slots=True)
class Token:
    """One piece of SQL; `line` and `column` count from 1, as DataFusion's do."""

    kind: TokenKind
    text: str
    line: int
    column: int


def tokens(sql: str) -> list[Token]:
    """The tokens of `sql` in order, without blanks and comments."""
    found: list[Token] = []
    line, line_start = 1, 0
    for match in _TOKEN.finditer(sql):
        group = match.lastgroup or "skip"
        if group != "skip":
            column = match.start() - line_start + 1
            found.append(Token(TokenKind(group), match.group(), line, column))
        breaks = match.group().count("\n")
        if breaks:
            line += breaks
            line_start = match.start() + match.group().rindex("\n") + 1
    return found


__all__ = ["Token", "TokenKind", "tokens"]
