"""DataFusion's messages turned into ours: what, where, what to do. Only texts, no engine."""

import re
from collections.abc import Sequence

ARROW_SENTENCE = (
    "the operators -> and ->> of ArkFlow are not available here, the datafusion package has none; "
    "use json_get(column, 'key'), json_get_str, json_get_int, json_get_float or json_get_bool"
)

_PREFIXES = (
    "DataFusion error: ",
    "Arrow error: ",
    "Error during planning: ",
    "Execution error: ",
    "Schema error: ",
    "SQL error: ",
)
_PARSER = re.compile(r"""(?:Parser|Tokenizer)Error\((["'])(.*)\1\)\s*$""", re.DOTALL)
_NO_FIELD = re.compile(r"No field named (.+?)\.(?:\s|$)")
_NO_TABLE = re.compile(r"table '(?:datafusion\.(?:public\.)?)?([^']*)' not found")
_ARITY = re.compile(r"call to '(json_\w+)' function")


def plain_message(text: str) -> str:
    """The message without the names of the layers that it passed."""
    changed = True
    while changed:
        changed = False
        for prefix in _PREFIXES:
            if text.startswith(prefix):
                text, changed = text[len(prefix) :], True
    return text.strip()


def syntax_error(text: str) -> str | None:
    """The parser's complaint with its position, or None if `text` is none of the parser's."""
    match = _PARSER.search(text)
    if match is None:
        return None
    said = match.group(2).replace('\\"', '"').replace("\\'", "'").replace("\\n", " ")
    if "at Line:" not in said:
        said += " at the end of the query"
    return said


def missing_field(text: str) -> str | None:
    """The last part of the column name that DataFusion did not find, without quotes."""
    match = _NO_FIELD.search(text)
    return None if match is None else re.split(r"\.(?=[^.]*$)", match.group(1))[-1].strip('"')


def missing_table(text: str) -> str | None:
    """The table that DataFusion did not find."""
    match = _NO_TABLE.search(text)
    return None if match is None else match.group(1)


def json_arity(text: str) -> str | None:
    """The advice for a `json_` function with another number of arguments than it takes here."""
    match = _ARITY.search(text)
    if match is None:
        return None
    return (
        f"{match.group(1)} takes JSON text and one key here (json_length only the text); "
        "for a path nest the calls: json_get_str(json_get(column, 'a'), 'b')"
    )


def runtime_cause(text: str, columns: Sequence[str]) -> str:
    """The cause of a failed batch, with the columns it had where a column was not found."""
    field = missing_field(text)
    if field is None:
        return json_arity(text) or plain_message(text)
    listed = ", ".join(f'"{name}"' for name in columns)
    alike = [name for name in columns if name.casefold() == field.casefold()]
    if not alike:
        return f'no column "{field}"; the batch has {listed}'
    return (
        f'no column "{field}"; names without quotes are read in lower case: '
        f'write "{alike[0]}" in double quotes; the batch has {listed}'
    )


__all__ = [
    "ARROW_SENTENCE",
    "json_arity",
    "missing_field",
    "missing_table",
    "plain_message",
    "runtime_cause",
    "syntax_error",
]
