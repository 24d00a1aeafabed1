"""What can be said about a query before there is a batch: syntax, kind of statement, tables.

Columns are unknown here. Those that the query names are made up, without a type, so that planning
gets as far as possible; complaints that may come from the made-up types are left to the first
batch.
"""

import pyarrow as pa

from arkflow_ray.components.processors.sql_engine import new_session, read_only
from arkflow_ray.components.processors.sql_errors import (
    ARROW_SENTENCE,
    json_arity,
    missing_field,
    missing_table,
    plain_message,
    syntax_error,
)
from arkflow_ray.components.processors.sql_text import Token, TokenKind, tokens

_QUERY_WORDS = frozenset({"select", "with", "values", "from"})
_STATEMENT_WORDS = frozenset(
    {
        "alter", "analyze", "begin", "call", "commit", "copy", "create", "deallocate", "delete",
        "desc", "describe", "drop", "execute", "explain", "export", "grant", "insert", "load",
        "merge", "prepare", "replace", "reset", "revoke", "rollback", "set", "show", "start",
        "truncate", "update", "use", "vacuum",
    }
)  # fmt: skip
_COLUMNS_MAX = 256
_REFUSED = ("DDL not supported", "DML not supported", "Statement not supported", "No SQL statem")
_NOT_THERE = "This feature is not implemented"


def query_mistake(query: str, table_name: str) -> str | None:
    """What is certainly wrong with the query, in a sentence, or None."""
    code = tokens(query)
    return _statement_mistake(code) or _arrow_mistake(code) or _planning_mistake(query, table_name)


def _statement_mistake(code: list[Token]) -> str | None:
    first = next((token for token in code if token.text != "("), None)
    if first is None:
        return "the query is empty; write a SELECT"
    word = first.text.lower()
    if first.kind is not TokenKind.WORD or word not in _STATEMENT_WORDS:
        return None
    return (
        f"{word.upper()} is refused at Line: {first.line}, Column: {first.column}: "
        "this processor only reads; write a SELECT"
    )


def _arrow_mistake(code: list[Token]) -> str | None:
    for token in code:
        if token.kind is TokenKind.SYMBOL and token.text in {"->", "->>"}:
            where = f"operator {token.text} at Line: {token.line}, Column: {token.column}"
            return f"{where}: {ARROW_SENTENCE}"
    return None


def _planning_mistake(query: str, table_name: str) -> str | None:
    session = new_session()
    columns: list[str] = []
    while True:
        schema = pa.schema([pa.field(name, pa.null()) for name in columns])
        table = pa.RecordBatch.from_pylist([], schema=schema)
        session.register_record_batches(f'"{table_name}"', [[table]])
        try:
            session.sql_with_options(query, read_only())
        except Exception as error:  # noqa: BLE001 - ValueError and bare Exceptions come
            said = str(error)
        else:
            return None
        finally:
            session.deregister_table(f'"{table_name}"')
        field = missing_field(said)
        if field is None or field in columns or len(columns) >= _COLUMNS_MAX:
            return _certain_mistake(said, table_name, guessed=bool(columns))
        columns.append(field)


def _certain_mistake(said: str, table_name: str, *, guessed: bool) -> str | None:
    syntax = syntax_error(said)
    if syntax is not None:
        return f"SQL syntax error: {syntax}"
    table = missing_table(said)
    if table is not None:
        return f"there is no table '{table}'; the batch is the table '{table_name}'"
    if any(mark in said for mark in _REFUSED):
        return f"{plain_message(said)}; this processor takes one read-only query"
    # With made-up columns this may only mean that a made-up type does not fit.
    if "Invalid function" in said or (_NOT_THERE in said and not guessed):
        return plain_message(said).replace("\n", " ")
    return json_arity(said)


__all__ = ["query_mistake"]
