"""Validation of edges and of the graph that they make (C.6 rules 8-10, 13; G2, G4)."""

from collections.abc import Callable

import pytest

from arkflow_kernel.job import JobSpec
from arkflow_kernel.job_validation import validate_job
from arkflow_kernel.testing.job_changes import (
    EVENT,
    Change,
    add_edge,
    add_operator,
    add_sink,
    add_source,
    all_of,
    as_window,
    set_at,
)

Jobs = Callable[..., JobSpec]

ERRORS: list[tuple[str, Change, str, str]] = [
    ("edge id", set_at("edges", 0, "id", to=""), "edges[0].id", "must not be empty"),
    ("edge id twice", set_at("edges", 0, "id", to="b"), "edges[1].id", "duplicate edge id 'b'"),
    (
        "unknown end",
        add_edge("text", "nowhere"),
        "edges[2].to",
        "'nowhere', which the job does not",
    ),
    (
        "unknown start",
        add_edge("nowhere", "text"),
        "edges[2].from",
        "operators: gates, text, totals",
    ),
    ("self loop", add_edge("text", "text"), "edges[2].to", "back to itself"),
    ("out of sink", add_edge("totals", "text"), "edges[2].from", "leaves sink 'totals'"),
    ("into source", add_edge("text", "gates"), "edges[2].to", "leads into source 'gates'"),
    ("edge twice", add_edge("gates", "text"), "edges[2]", "a second edge from 'gates' to 'text'"),
    (
        "partitioned and typed",
        all_of(
            set_at("edges", 0, "partitioned", to=True), set_at("edges", 0, "type", to="forward")
        ),
        "edges[0].type",
        "keep one of them",
    ),
    (
        "broadcast trap",
        set_at("operators", 1, "parallelism", to=2),
        "edges[0].type",
        "`type: rebalance` (in turn) or `type: broadcast` (copies)",
    ),
    (
        "forward to another number",
        all_of(
            set_at("operators", 1, "parallelism", to=2), set_at("edges", 0, "type", to="forward")
        ),
        "edges[0].type",
        "different parallelism (gates: 1, text: 2)",
    ),
    (
        "keyed without partition",
        all_of(as_window(), set_at("parallelism", to=2)),
        "edges[0].partitioned",
        "set `partitioned: true` on edge 'a'",
    ),
    (
        "errors into keyed subtasks",
        all_of(
            add_operator(id="m", kind="map", config={"type": "sql"}, stateful=True, key_field="k"),
            add_edge("text", "m", type="error"),
            add_edge("m", "totals"),
            set_at("parallelism", to=2),
        ),
        "edges[2].to",
        "error edge 'text-m' cannot be partitioned by key",
    ),
    (
        "errors into another number",
        all_of(
            add_sink("bad"),
            set_at("operators", 3, "parallelism", to=2),
            add_edge("text", "bad", type="error"),
        ),
        "edges[2].type",
        "give 'bad' parallelism 1",
    ),
    (
        "late rows into another number",
        all_of(
            add_sink("late"),
            set_at("operators", 3, "parallelism", to=2),
            set_at("sources", 0, "time", to=EVENT | {"late_event_route": "late"}),
        ),
        "sources[0].time.late_event_route",
        "(parallelism 1) cannot be led to 'late' (2)",
    ),
    (
        "edge named like a sink of its chain",
        all_of(
            add_sink("bad"),
            add_edge("gates", "bad", type="error"),
            set_at("edges", 1, "id", to="bad"),
            set_at("operators", 2, "chain", to=False),
        ),
        "edges[1].id",
        "is called 'bad', as is another output of the chain of 'gates'",
    ),
    (
        "edge named like a channel",
        all_of(add_sink("more"), add_edge("text", "more"), set_at("edges", 2, "id", to="b[0-0]")),
        "edges[1].id",
        "is called 'b[0-0]'",
    ),
    (
        "late route to nowhere",
        set_at("sources", 0, "time", to=EVENT | {"late_event_route": "x"}),
        "sources[0].time.late_event_route",
        "'x', which the job does not have",
    ),
    (
        "late route to itself",
        set_at("sources", 0, "time", to=EVENT | {"late_event_route": "gates"}),
        "sources[0].time.late_event_route",
        "is the source itself",
    ),
    (
        "late route along an edge",
        set_at("sources", 0, "time", to=EVENT | {"late_event_route": "text"}),
        "sources[0].time.late_event_route",
        "also the target of an edge from 'gates'",
    ),
    (
        "late route missing",
        set_at("sources", 0, "time", to=EVENT | {"late_event_policy": "route"}),
        "sources[0].time.late_event_route",
        "needs `late_event_route`",
    ),
    (
        "source to nowhere",
        add_source("more", {"mode": "processing_time"}),
        "operators[3]",
        "source 'more' does not reach a sink",
    ),
    ("sink from nowhere", add_sink("more"), "operators[3]", "sink 'more' is not reached from any"),
    (
        "map from nowhere",
        all_of(add_operator(id="m", kind="map", config={"type": "sql"}), add_edge("m", "totals")),
        "operators[3]",
        "operator 'm' gets no rows",
    ),
]


@pytest.mark.parametrize(("name", "change", "path", "phrase"), ERRORS)
def test_a_wrong_edge_is_one_error_at_its_place(
    job: Jobs, name: str, change: Change, path: str, phrase: str
) -> None:
    found = [i for i in validate_job(job(change)) if not i.warning and i.path == path]
    assert any(phrase in issue.message for issue in found), (name, validate_job(job(change)))


def test_a_circle_is_one_error_that_names_its_operators_only(job: Jobs) -> None:
    more = [add_operator(id=n, kind="map", config={"type": "sql"}) for n in ("x", "y")]
    change = all_of(*more, add_edge("text", "x"), add_edge("x", "y"), add_edge("y", "text"))
    [issue] = [i for i in validate_job(job(change)) if i.path == "edges"]
    assert "must be acyclic" in issue.message
    assert "in a circle: text, x, y." in issue.message


def test_a_late_link_counts_for_cycles_and_for_reachability(job: Jobs) -> None:
    time = EVENT | {"late_event_policy": "route", "late_event_route": "late"}
    base = all_of(as_window(), add_sink("rest"), set_at("sources", 0, "time", to=time))
    late = add_operator(id="late", kind="map", config={"type": "sql"})
    assert validate_job(job(all_of(base, late, add_edge("late", "rest")))) == []
    back = all_of(base, late, add_edge("late", "rest"), add_edge("late", "text"))
    assert [i.path for i in validate_job(job(back)) if "acyclic" in i.message] == ["edges"]


def test_error_edges_of_one_chain_lead_to_one_place(job: Jobs) -> None:
    sinks = all_of(add_sink("x"), add_sink("y"))
    edges = all_of(add_edge("gates", "x", type="error"), add_edge("text", "y", type="error"))
    [issue] = validate_job(job(all_of(sinks, edges)))
    assert issue.path == "operators[0]"
    assert "error edges to x, y" in issue.message
    apart = set_at("operators", 1, "chain", to=False)
    assert validate_job(job(all_of(sinks, edges, apart))) == []


def test_rows_that_a_window_releases_should_not_cross_to_another_chain(job: Jobs) -> None:
    """They reach the next operator as one batch only inside of the window's chain (B.4)."""
    more = add_operator(id="m", kind="map", config={"type": "sql", "query": "q"})
    way = all_of(set_at("edges", 1, "to", to="m"), more, add_edge("m", "totals"))
    window = all_of(as_window(legacy_payload=True), way)
    assert validate_job(job(window)) == []
    [issue] = validate_job(job(all_of(window, set_at("operators", 3, "chain", to=False))))
    assert (issue.path, issue.warning) == ("edges[1]", True)
    assert "the rows that window 'text' releases together reach it in pieces" in issue.message
    aggregates = all_of(as_window(), way, set_at("operators", 3, "chain", to=False))
    assert validate_job(job(aggregates)) == []
