"""Validation of edges and of the graph that they make (C.6 rules 8-10, 13; G2, G4)."""

from collections.abc import Callable
from typing import Any

import pytest

from arkflow_kernel.job import JobSpec
from arkflow_kernel.job_validation import validate_job

Jobs = Callable[..., JobSpec]
Change = Callable[[dict[str, Any]], Any]

EVENT = {"mode": "event_time", "timestamp_field": "at", "watermark": {"out_of_orderness_ms": 5}}
WINDOW = {"kind": "tumbling", "size_ms": 1000, "timestamp_field": "at", "key_field": "k"}
CHECKPOINT = {"object_store_uri": "file:///tmp/x"}
STATE = {"backend": "embedded_kv"}


def _set(*path: str | int, to: Any) -> Change:
    """Set the value at a path of the job's dict."""

    def change(entry: dict[str, Any]) -> None:
        at: Any = entry
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = to

    return change


def _all(*changes: Change) -> Change:
    def change(entry: dict[str, Any]) -> None:
        for one in changes:
            one(entry)

    return change


def _operator(**spec: Any) -> Change:
    return lambda entry: entry["operators"].append(spec)


def _edge(start: str, end: str, **more: Any) -> Change:
    spec = {"id": f"{start}-{end}", "from": start, "to": end, **more}
    return lambda entry: entry["edges"].append(spec)


def _source(name: str, time: dict[str, Any]) -> Change:
    def change(entry: dict[str, Any]) -> None:
        entry["operators"].append({"id": name, "kind": "source"})
        entry["sources"].append({"operator_id": name, "input_type": "memory", "time": time})

    return change


def _sink(name: str) -> Change:
    def change(entry: dict[str, Any]) -> None:
        entry["operators"].append({"id": name, "kind": "sink"})
        entry["sinks"].append({"operator_id": name, "output_type": "drop"})

    return change


def _window(**config: Any) -> Change:
    """The map of the job becomes a window over event time, with a checkpoint."""
    spec = {"id": "text", "kind": "window", "config": WINDOW | config}
    return _all(
        _set("operators", 1, to=spec),
        _set("sources", 0, "time", to=EVENT),
        _set("state", to=STATE),
        _set("checkpoint", to=CHECKPOINT),
    )


ERRORS: list[tuple[str, Change, str, str]] = [
    ("edge id", _set("edges", 0, "id", to=""), "edges[0].id", "must not be empty"),
    ("edge id twice", _set("edges", 0, "id", to="b"), "edges[1].id", "duplicate edge id 'b'"),
    ("unknown end", _edge("text", "nowhere"), "edges[2].to", "'nowhere', which the job does not"),
    ("unknown start", _edge("nowhere", "text"), "edges[2].from", "operators: gates, text, totals"),
    ("self loop", _edge("text", "text"), "edges[2].to", "back to itself"),
    ("out of sink", _edge("totals", "text"), "edges[2].from", "leaves sink 'totals'"),
    ("into source", _edge("text", "gates"), "edges[2].to", "leads into source 'gates'"),
    ("edge twice", _edge("gates", "text"), "edges[2]", "a second edge from 'gates' to 'text'"),
    (
        "partitioned and typed",
        _all(_set("edges", 0, "partitioned", to=True), _set("edges", 0, "type", to="forward")),
        "edges[0].type",
        "keep one of them",
    ),
    (
        "broadcast trap",
        _set("operators", 1, "parallelism", to=2),
        "edges[0].type",
        "`type: rebalance` (in turn) or `type: broadcast` (copies)",
    ),
    (
        "forward to another number",
        _all(_set("operators", 1, "parallelism", to=2), _set("edges", 0, "type", to="forward")),
        "edges[0].type",
        "different parallelism (gates: 1, text: 2)",
    ),
    (
        "keyed without partition",
        _all(_window(), _set("parallelism", to=2)),
        "edges[0].partitioned",
        "set `partitioned: true` on edge 'a'",
    ),
    (
        "late route to nowhere",
        _set("sources", 0, "time", to=EVENT | {"late_event_route": "x"}),
        "sources[0].time.late_event_route",
        "'x', which the job does not have",
    ),
    (
        "late route to itself",
        _set("sources", 0, "time", to=EVENT | {"late_event_route": "gates"}),
        "sources[0].time.late_event_route",
        "is the source itself",
    ),
    (
        "late route along an edge",
        _set("sources", 0, "time", to=EVENT | {"late_event_route": "text"}),
        "sources[0].time.late_event_route",
        "also the target of an edge from 'gates'",
    ),
    (
        "late route missing",
        _set("sources", 0, "time", to=EVENT | {"late_event_policy": "route"}),
        "sources[0].time.late_event_route",
        "needs `late_event_route`",
    ),
    (
        "source to nowhere",
        _source("more", {"mode": "processing_time"}),
        "operators[3]",
        "source 'more' does not reach a sink",
    ),
    ("sink from nowhere", _sink("more"), "operators[3]", "sink 'more' is not reached from any"),
    (
        "map from nowhere",
        _all(_operator(id="m", kind="map", config={"type": "sql"}), _edge("m", "totals")),
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
    more = [_operator(id=n, kind="map", config={"type": "sql"}) for n in ("x", "y")]
    change = _all(*more, _edge("text", "x"), _edge("x", "y"), _edge("y", "text"))
    [issue] = [i for i in validate_job(job(change)) if i.path == "edges"]
    assert "must be acyclic" in issue.message
    assert "in a circle: text, x, y." in issue.message


def test_a_late_link_counts_for_cycles_and_for_reachability(job: Jobs) -> None:
    time = EVENT | {"late_event_policy": "route", "late_event_route": "late"}
    base = _all(_window(), _sink("rest"), _set("sources", 0, "time", to=time))
    late = _operator(id="late", kind="map", config={"type": "sql"})
    assert validate_job(job(_all(base, late, _edge("late", "rest")))) == []
    back = _all(base, late, _edge("late", "rest"), _edge("late", "text"))
    assert [i.path for i in validate_job(job(back)) if "acyclic" in i.message] == ["edges"]


def test_error_edges_of_one_chain_lead_to_one_place(job: Jobs) -> None:
    sinks = _all(_sink("x"), _sink("y"))
    edges = _all(_edge("gates", "x", type="error"), _edge("text", "y", type="error"))
    [issue] = validate_job(job(_all(sinks, edges)))
    assert issue.path == "operators[0]"
    assert "error edges to x, y" in issue.message
    apart = _set("operators", 1, "chain", to=False)
    assert validate_job(job(_all(sinks, edges, apart))) == []
