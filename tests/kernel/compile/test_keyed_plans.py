"""Operators that keep something per key without windows: mistakes, plans, explanations (J5-J7)."""

from collections.abc import Callable
from typing import Any

import pytest

from arkflow_kernel.explain import as_text, explain
from arkflow_kernel.graph import build_graph
from arkflow_kernel.job import JobSpec
from arkflow_kernel.job_validation import validate_job
from arkflow_kernel.plan import (
    AggregatePlan,
    ContinuousPlan,
    DeduplicatePlan,
    Mode,
    OperatorPlan,
    TopNPlan,
)
from arkflow_kernel.testing.job_changes import CHECKPOINT, Change, all_of, set_at

Jobs = Callable[..., JobSpec]
SUM = {"function": "sum", "field": "v", "as": "total"}
COUNT = {"function": "count"}


def keyed(kind: str, operator: dict[str, Any] | None = None, **config: Any) -> Change:
    """The job's second operator of a kind, with a checkpoint block."""
    spec = {"id": "text", "kind": kind, **(operator or {}), "config": config}
    return all_of(set_at("operators", 1, to=spec), set_at("checkpoint", to=CHECKPOINT))


def planned(spec: JobSpec) -> OperatorPlan:
    """The second operator's plan."""
    plans = [each for chain in build_graph(spec).chains for each in chain.operators]
    return next(each for each in plans if each.operator == "text")


@pytest.mark.parametrize(
    ("config", "path", "words"),
    [
        ({"aggregates": [COUNT]}, "key_field", "`key_field` is required"),
        ({"key_field": "k"}, "aggregates", "`aggregates` is required"),
        ({"key_field": "k", "aggregates": []}, "aggregates", "must not be empty"),
        (
            {"key_field": "k", "aggregates": [{"function": "sum"}]},
            "aggregates[0].field",
            "`sum` needs a `field`",
        ),
        (
            {"key_field": "k", "key_fields": ["k"], "aggregates": [COUNT]},
            "key_fields",
            "give one of `key_field` and `key_fields`",
        ),
        (
            {"key_fields": ["a", "b", "a"], "aggregates": [COUNT]},
            "key_fields[2]",
            "names 'a' twice",
        ),
        (
            {"key_field": "__arkflow_window_all", "aggregates": [COUNT]},
            "key_field",
            "only a window may be of all rows",
        ),
        (
            {"key_field": "count", "aggregates": [COUNT]},
            "aggregates[0]",
            "two columns 'count': this one, and one that is a key; name it with `as:`",
        ),
        (
            {"key_field": "k", "aggregates": [SUM, SUM]},
            "aggregates[1].as",
            "two columns 'total': this one, and one of aggregates[0]",
        ),
        (
            {"key_field": "k", "aggregates": [{"function": "last", "field": "v"}]},
            "timestamp_field",
            "`last` needs `timestamp_field`",
        ),
        (
            {"key_field": "k", "aggregates": [COUNT], "emit_interval_ms": 10, "ttl_ms": 10},
            "emit_interval_ms",
            "must be below ttl_ms (10)",
        ),
        ({"key_field": "k", "aggregates": [COUNT], "ttl": 5}, "ttl", "did you mean `ttl_ms`?"),
        ({"key_field": "k", "aggregates": [COUNT], "ttl_ms": 0}, "ttl_ms", "at least 1"),
    ],
)
def test_a_wrong_aggregate_is_told_what_is_wrong_and_where(
    job: Jobs, config: dict[str, Any], path: str, words: str
) -> None:
    [issue] = validate_job(job(keyed("aggregate", **config)))
    assert issue.path == f"operators[1].config.{path}"
    assert words in issue.message
    assert not issue.warning


def test_a_key_may_stand_at_the_operator_and_then_nowhere_else(job: Jobs) -> None:
    right = keyed("aggregate", {"key_field": "k"}, aggregates=[COUNT])
    assert validate_job(job(right)) == []
    twice = keyed("aggregate", {"key_field": "k"}, aggregates=[COUNT], key_fields=["a"])
    [issue] = validate_job(job(twice))
    assert issue.path == "operators[1].config.key_fields"


def test_a_time_column_without_first_and_last_is_warned_about(job: Jobs) -> None:
    [issue] = validate_job(
        job(keyed("aggregate", key_field="k", aggregates=[COUNT], timestamp_field="at"))
    )
    assert (issue.path, issue.warning) == ("operators[1].config.timestamp_field", True)


def test_several_subtasks_need_rows_by_key(job: Jobs) -> None:
    two = keyed("aggregate", {"parallelism": 2}, key_fields=["k"], aggregates=[COUNT])
    [issue] = [each for each in validate_job(job(two)) if "partitioned" in each.path]
    assert "keeps state per key and has parallelism 2" in issue.message
    by_key = job(all_of(two, set_at("edges", 0, "partitioned", to=True)))
    edge = build_graph(by_key).edges[0]
    assert edge.key_fields == ("k",)


def test_an_aggregate_is_planned_with_its_state(job: Jobs) -> None:
    spec = job(
        all_of(
            keyed(
                "aggregate",
                key_fields=["a", "b"],
                aggregates=[SUM, COUNT],
                emit_interval_ms=500,
                overflow=None,
            ),
            set_at("state", to={"backend": "embedded_kv", "ttl_ms": 900, "max_bytes": 7}),
        )
    )
    graph = build_graph(spec)
    assert graph.mode is Mode.CHECKPOINT
    plan = planned(spec)
    aggregates = (AggregatePlan("sum", "v", "total"), AggregatePlan("count", None, "count"))
    assert plan.keyed == ContinuousPlan(aggregates, None, 500, null_on_overflow=True)
    assert plan.timed
    state = plan.state
    assert state is not None
    assert state.key_fields == ("a", "b")
    assert (state.ttl_ms, state.max_bytes, state.count_field) == (900, 7, None)
    assert state.shape == "aggregates of all rows: sum(v), count(*)"


def test_the_operators_own_ttl_goes_before_that_of_the_job(job: Jobs) -> None:
    state = set_at("state", to={"backend": "embedded_kv", "ttl_ms": 900})
    own = keyed("aggregate", key_field="k", aggregates=[COUNT], ttl_ms=30)
    plan = planned(job(all_of(own, state)))
    assert plan.state is not None
    assert plan.state.ttl_ms == 30
    assert not plan.timed


@pytest.mark.parametrize(
    ("kind", "config", "path", "words"),
    [
        ("deduplicate", {}, "key_field", "`key_field` is required"),
        ("deduplicate", {"key_field": "k", "n": 1}, "n", "unknown key 'n'"),
        ("top_n", {"key_field": "k", "n": 1}, "by", "`by` is required"),
        ("top_n", {"key_field": "k", "by": "v", "n": 0}, "n", "must be at least 1"),
        (
            "top_n",
            {"key_field": "k", "by": "v", "n": 1, "order": "dsc"},
            "order",
            "did you mean 'desc'?",
        ),
    ],
)
def test_a_wrong_first_or_best_row_is_told_what_is_wrong(
    job: Jobs, kind: str, config: dict[str, Any], path: str, words: str
) -> None:
    [issue] = validate_job(job(keyed(kind, **config)))
    assert issue.path == f"operators[1].config.{path}"
    assert words in issue.message


def test_first_and_best_rows_are_planned_with_their_state(job: Jobs) -> None:
    first = planned(job(keyed("deduplicate", {"key_field": "k"}, ttl_ms=70)))
    assert first.keyed == DeduplicatePlan()
    assert first.state is not None
    assert (first.state.key_fields, first.state.ttl_ms) == (("k",), 70)
    config: dict[str, Any] = {
        "key_fields": ["a", "b"],
        "by": "v",
        "n": 3,
        "order": "asc",
        "rank_field": "place",
    }
    best = planned(job(keyed("top_n", **config)))
    assert best.keyed == TopNPlan("v", 3, descending=False, rank_field="place")
    assert best.state is not None
    assert best.state.key_fields == ("a", "b")
    assert not best.timed


def test_with_a_type_it_is_a_processor_as_before(job: Jobs) -> None:
    plan = planned(job(keyed("aggregate", type="sql", query="SELECT 1")))
    assert plan.keyed is None
    assert plan.component.type == "sql"


@pytest.mark.parametrize(
    ("kind", "config", "expected"),
    [
        ("deduplicate", {}, "passes the first row by k, drops the others"),
        ("top_n", {"by": "v", "n": 3}, "keeps the 3 rows with the greatest v by k"),
        (
            "aggregate",
            {"aggregates": [SUM]},
            "of all rows so far by k, after each batch makes sum(v) as total",
        ),
        (
            "aggregate",
            {"aggregates": [COUNT], "emit_interval_ms": 1_500, "ttl_ms": 9_000},
            "by k, every 1,500 ms makes count(*) as count a key forgotten after 9,000 ms",
        ),
        (
            "aggregate",
            {"aggregates": [{"function": "last", "field": "v"}], "timestamp_field": "at"},
            "makes last(v) as last_v first and last by the time at",
        ),
    ],
)
def test_what_such_an_operator_does_is_told(
    job: Jobs, kind: str, config: dict[str, Any], expected: str
) -> None:
    spec = job(keyed(kind, key_field="k", **config))
    told = " ".join(as_text(explain(spec, build_graph(spec))).split())
    assert expected in told
