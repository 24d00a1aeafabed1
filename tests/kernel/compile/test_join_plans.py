"""Joins as they are validated, planned and explained (J1, J3, J4, G1)."""

from collections.abc import Callable
from typing import Any

import pytest

from arkflow_kernel.explain import as_text, explain
from arkflow_kernel.explain_diagram import mermaid
from arkflow_kernel.graph import build_graph
from arkflow_kernel.job import JobSpec
from arkflow_kernel.job_validation import validate_job
from arkflow_kernel.plan import JoinPlan, JoinSidePlan, LatePolicy, VersionsPlan
from arkflow_kernel.testing.job_changes import (
    EVENT,
    WINDOW,
    Change,
    add_sink,
    all_of,
    as_join,
    set_at,
)

Jobs = Callable[..., JobSpec]


def _times(**time: Any) -> Change:
    return all_of(*(set_at("sources", n, "time", to=EVENT | time) for n in range(2)))


def test_a_join_is_planned_with_its_sides_and_a_state_of_both_keys(job: Jobs) -> None:
    graph = build_graph(
        job(as_join(join_type="right_outer", right_key="id", ttl_ms=7, max_per_key=3))
    )
    (plan,) = (each for chain in graph.chains for each in chain.operators if each.join)
    edges = {str(edge.source): edge.edge for edge in graph.edges if edge.target == "text"}
    assert plan.join == JoinPlan(
        JoinSidePlan(edges["gates"], "k", "at"),
        JoinSidePlan(edges["lamps"], "id", "at", outer=True),
        window_ms=5,
        ttl_ms=7,
        max_per_key=3,
        late=LatePolicy.DROP,
    )
    assert plan.state is not None
    assert plan.state.key_fields == ("k", "id")
    assert plan.state.shape == "right_outer join of rows at most 5 ms apart and 7 ms more"
    assert plan.timed


def test_only_a_sink_is_in_the_chain_of_a_join(job: Jobs) -> None:
    """A chain has one watermark, and that of a join is another behind it (J3)."""
    alone = build_graph(job(as_join()))
    assert [[op.operator for op in chain.operators] for chain in alone.chains if chain.inputs] == [
        ["text"]
    ]
    assert [len(chain.sinks) for chain in alone.chains if chain.inputs] == [1]

    def followed(entry: dict[str, Any]) -> None:
        entry["operators"].append({"id": "more", "kind": "map", "config": {"type": "sql"}})
        entry["edges"][1]["from"] = "more"
        entry["edges"].append({"id": "m", "from": "text", "to": "more"})

    graph = build_graph(job(all_of(as_join(), followed)))
    heads = [[op.operator for op in chain.operators] for chain in graph.chains if chain.inputs]
    assert sorted(heads) == [["more"], ["text"]]
    assert [chain.hold_ms for chain in graph.chains if chain.hold_ms] == [5]


def test_a_join_of_sources_without_event_time_is_refused(job: Jobs) -> None:
    wall = set_at("sources", 1, "time", to={"mode": "processing_time"})
    found = [issue for issue in validate_job(job(all_of(as_join(), wall))) if not issue.warning]
    texts = [issue.message for issue in found if "needs event time" in issue.message]
    assert len(texts) == 1
    assert "source 'lamps' has none" in texts[0]
    assert "`time.mode: event_time`" in texts[0]


@pytest.mark.parametrize(
    ("change", "path", "phrase"),
    [
        (
            as_join(left_timestamp="then"),
            "operators[1].config.left_timestamp",
            "left side from 'then', the watermark of source 'gates' follows 'at'",
        ),
        (
            all_of(as_join(), set_at("operators", 1, "key_field", to="k")),
            "operators[1].key_field",
            "its keys are `left_key` and `right_key`",
        ),
    ],
)
def test_what_misleads_is_a_warning(job: Jobs, change: Change, path: str, phrase: str) -> None:
    [issue] = validate_job(job(change))
    assert issue.warning
    assert issue.path == path
    assert phrase in issue.message


def test_a_join_behind_a_window_that_corrects_is_warned_of(job: Jobs) -> None:
    def windowed(entry: dict[str, Any]) -> None:
        entry["operators"].append({"id": "win", "kind": "window", "config": dict(WINDOW)})
        entry["operators"][1]["config"]["left_from"] = "win"
        entry["operators"][1]["config"]["left_timestamp"] = "window_end"
        entry["edges"][0]["to"] = "win"
        entry["edges"].append({"id": "w", "from": "win", "to": "text"})

    update = _times(late_event_policy="update", allowed_lateness_ms=10)
    found = validate_job(job(all_of(as_join(), windowed, update)))
    assert any(issue.warning and "corrections of 'win'" in issue.message for issue in found)
    assert not [issue for issue in found if not issue.warning]


def test_a_join_is_explained(job: Jobs) -> None:
    spec = job(
        all_of(
            as_join(join_type="full_outer", ttl_ms=2_000, on_overflow="evict_oldest"),
            add_sink("late"),
            _times(late_event_policy="route", late_event_route="late"),
        )
    )
    told = explain(spec, build_graph(spec))
    text = " ".join(as_text(told).split())
    for phrase in (
        "full outer join of rows at most 5 ms apart: gates by k with lamps by k, on event time at",
        "rows kept 2,000 ms longer",
        "its watermark is 2,005 ms behind that of its inputs",
        "late rows: go to late",
        "at most 10,000 rows of a key and side, then the oldest go",
    ):
        assert phrase in text
    assert "full outer join of rows at most 5 ms apart" in mermaid([told])


def as_temporal(**config: Any) -> Change:
    """The join of the job becomes a temporal one."""

    def changed(entry: dict[str, Any]) -> None:
        settings = entry["operators"][1]["config"]
        del settings["window_ms"]
        settings.update({"join_type": "temporal"} | config)

    return all_of(as_join(), changed)


def test_a_temporal_join_is_planned_with_its_versions_and_holds_no_watermark_back(
    job: Jobs,
) -> None:
    graph = build_graph(job(as_temporal(unmatched="keep", version_ttl_ms=60_000)))
    (plan,) = (each for chain in graph.chains for each in chain.operators if each.join)
    assert plan.join is not None
    assert plan.join.versions == VersionsPlan(60_000)
    assert (plan.join.left.outer, plan.join.right.outer, plan.join.hold_ms) == (True, False, 0)
    assert plan.state is not None
    assert plan.state.shape == "outer temporal join with versions that hold 60,000 ms"
    shapes = {
        each.state.shape
        for change in (as_join(), as_temporal(), as_temporal(unmatched="keep"))
        for chain in build_graph(job(change)).chains
        for each in chain.operators
        if each.state is not None
    }
    assert len(shapes) == 3


def test_a_temporal_join_is_explained(job: Jobs) -> None:
    spec = job(as_temporal(version_ttl_ms=60_000))
    told = explain(spec, build_graph(spec))
    text = " ".join(as_text(told).split())
    for phrase in (
        "temporal join with versions that hold 60,000 ms: gates by k with lamps by k",
        "a row leaves when the watermark has passed its time",
        "late rows of gates: dropped",
        "at most 10,000 rows of a key wait, more fail",
    ):
        assert phrase in text
    assert "temporal join with versions" in mermaid([told])


@pytest.mark.parametrize(
    ("config", "key", "phrase"),
    [
        ({"window_ms": 5}, "window_ms", "unknown key 'window_ms'; known: left_from"),
        ({"ttl_ms": 5}, "ttl_ms", "did you mean `version_ttl_ms`?"),
        ({"version_ttl_ms": 0}, "version_ttl_ms", "must be at least 1"),
        ({"unmatched": "nulls"}, "unmatched", "must be 'drop' or 'keep'"),
        ({"right_from": "gates"}, "right_from", "must be two operators"),
        ({"join_type": "temporel"}, "join_type", "did you mean 'temporal'?"),
    ],
)
def test_a_wrong_temporal_join_is_an_error_that_names_the_key(
    job: Jobs, config: dict[str, Any], key: str, phrase: str
) -> None:
    found = {i.path: i.message for i in validate_job(job(as_temporal(**config))) if not i.warning}
    assert phrase in found[f"operators[1].config.{key}"]


def test_corrections_of_a_window_may_be_versions(job: Jobs) -> None:
    """One takes the place of the result that it corrects: it has the same time, and comes last."""

    def windowed(entry: dict[str, Any]) -> None:
        entry["operators"].append({"id": "win", "kind": "window", "config": dict(WINDOW)})
        settings = entry["operators"][1]["config"]
        settings.update(right_from="win", right_timestamp="window_end")
        (edge,) = (each for each in entry["edges"] if each["from"] == "lamps")
        edge["to"] = "win"
        entry["edges"].append({"id": "w", "from": "win", "to": "text"})

    update = _times(late_event_policy="update", allowed_lateness_ms=10)
    assert not [
        issue.message
        for issue in validate_job(job(all_of(as_temporal(), windowed, update)))
        if "corrections of" in issue.message
    ]
