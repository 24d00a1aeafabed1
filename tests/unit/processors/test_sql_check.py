"""What the check before the first batch finds in a query, and what it leaves alone."""

from typing import Any

import pytest

from arkflow_kernel.errors import ConfigError
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.processors.sql import build
from arkflow_ray.components.processors.sql_config import SqlConfig
from arkflow_ray.components.processors.sql_text import TokenKind, tokens


def mistakes(query: str, **fields: Any) -> list[tuple[str, str]]:
    try:
        build(SqlConfig.model_validate({"query": query, **fields}), BuildContext("q"))
    except ConfigError as error:
        return [(issue.path, issue.message) for issue in error.issues]
    return []


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM flow",
        "select userId, \"Other\" from flow f where f.x > 1 and lower(s) = 'a' order by 2",
        "WITH t AS (SELECT a, sum(b) AS s FROM flow GROUP BY a) SELECT * FROM t WHERE s > 1",
        "(SELECT a FROM flow) UNION ALL (SELECT b FROM flow)",
        "SELECT a.x FROM flow a JOIN flow b ON a.k = b.k",
        "SELECT '-> create', \"->\" -- ->>\n FROM flow /* DROP */",
        "SELECT json_get_str(j, 'a'), json_get(j, 0), json_length(j) FROM flow",
        "VALUES (1), (2)",
        "SELECT a.b['c'] FROM flow",
        "SELECT sum(a) OVER (PARTITION BY k ORDER BY t) FROM flow;",
        "SELECT CASE WHEN a IS NULL THEN b END, CAST(c AS DOUBLE), d[1] FROM flow",
    ],
)
def test_a_query_that_may_be_right_passes(query: str) -> None:
    assert mistakes(query) == []


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELEC a FROM flow", "found: SELEC at Line: 1, Column: 1"),
        ("SELECT a\nFROM flow\nWHERE x >> > 1", "at Line: 3, Column: 12"),
        ("SELECT a, FROM flow WHERE", "at the end of the query"),
        ("SELECT 'open FROM flow", "Unterminated string literal at Line: 1, Column: 8"),
    ],
)
def test_a_syntax_error_has_its_position(query: str, told: str) -> None:
    [(path, message)] = mistakes(query)
    assert path == "query"
    assert message.startswith("SQL syntax error: ")
    assert told in message


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t AS SELECT 1",
        "CREATE VIEW v AS SELECT a FROM flow",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
        "DROP TABLE flow",
        "INSERT INTO flow VALUES (1)",
        "UPDATE flow SET a = 1",
        "DELETE FROM flow",
        "SET datafusion.execution.batch_size = 1",
        "COPY flow TO '/tmp/x.parquet'",
        "EXPLAIN SELECT a FROM flow",
        "EXPLAIN ANALYZE SELECT a FROM flow",
        "DESCRIBE flow",
        "SHOW TABLES",
        "PREPARE p AS SELECT 1",
        "EXECUTE p",
        "BEGIN",
        "-- first a comment\n  drop table flow",
    ],
)
def test_anything_but_a_query_is_refused_in_a_sentence(statement: str) -> None:
    [(path, message)] = mistakes(statement)
    assert path == "query"
    assert "is refused at Line: " in message
    assert "this processor only reads; write a SELECT" in message


def test_a_write_behind_a_with_is_refused() -> None:
    assert mistakes("WITH x AS (SELECT 1) INSERT INTO flow SELECT * FROM x") != []


def test_two_statements_are_refused() -> None:
    [(_, message)] = mistakes("SELECT a FROM flow; SELECT b FROM flow")
    assert "single SQL statement" in message


@pytest.mark.parametrize("query", [" ", "-- nothing", ";"])
def test_an_empty_query_is_refused(query: str) -> None:
    assert len(mistakes(query)) == 1


def test_no_query_at_all_is_refused_by_the_model() -> None:
    with pytest.raises(ValueError, match="at least 1 character"):
        SqlConfig(query="")


@pytest.mark.parametrize("operator", ["->", "->>"])
def test_arrow_operators_are_refused_with_the_functions_to_use(operator: str) -> None:
    [(path, message)] = mistakes(f"SELECT a,\n  j{operator}'k' FROM flow")
    assert path == "query"
    assert message.startswith(f"operator {operator} at Line: 2, Column: 4: ")
    assert "use json_get(column, 'key')" in message


def test_an_unknown_function_is_found_although_columns_are_unknown() -> None:
    [(_, message)] = mistakes("SELECT a, b, uper(c) FROM flow")
    assert "Invalid function 'uper'" in message
    assert "upper" in message


@pytest.mark.parametrize(
    "table", ["nope", "other.flow", "information_schema.tables", "'/etc/a.csv'"]
)
def test_another_table_is_found(table: str) -> None:
    [(_, message)] = mistakes(f"SELECT * FROM {table}", table_name="events")
    assert message == f"there is no table '{table.strip(chr(39))}'; the batch is the table 'events'"


def test_a_json_path_of_several_keys_gets_the_advice_to_nest() -> None:
    [(_, message)] = mistakes("SELECT json_get(j, 'a', 'b') FROM flow")
    assert "nest the calls" in message


def test_temporaries_come_later_and_the_other_mistakes_are_told_too() -> None:
    found = mistakes("SELEC 1", temporary_list=[{"name": "t", "table_name": "x", "key": {}}])
    assert [path for path, _ in found] == ["temporary_list", "query"]
    assert "come later" in found[0][1]
    assert mistakes("SELECT 1", temporary_list=[]) == []


def test_tokens_know_their_kind_and_place() -> None:
    found = [(t.kind, t.text, t.line, t.column) for t in tokens("a -- x\n'it''s'->>\"q\"/*\n*/1.5")]
    assert found == [
        (TokenKind.WORD, "a", 1, 1),
        (TokenKind.TEXT, "'it''s'", 2, 1),
        (TokenKind.SYMBOL, "->>", 2, 8),
        (TokenKind.QUOTED, '"q"', 2, 11),
        (TokenKind.NUMBER, "1.5", 3, 3),
    ]
