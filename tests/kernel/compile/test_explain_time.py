"""Explain (C7): event time, windows, and where a row is late, as text, data and diagrams."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from arkflow_kernel.explain import Explanation, as_text, explain
from arkflow_kernel.explain_diagram import dot, mermaid
from arkflow_kernel.graph import build_graph
from arkflow_kernel.job import JobSpec
from arkflow_kernel.testing.job_changes import (
    EVENT,
    Change,
    add_edge,
    add_operator,
    add_sink,
    all_of,
    as_window,
    set_at,
)

Jobs = Callable[..., JobSpec]


def _explained(job: JobSpec) -> Explanation:
    return explain(job, build_graph(job))


def _flowing(explanation: Explanation) -> str:
    """The text without its line breaks."""
    return " ".join(as_text(explanation).split())


def _event(**more: Any) -> Change:
    return set_at("sources", 0, "time", to=EVENT | more)


@pytest.mark.parametrize(
    ("watermark", "expected"),
    [
        (
            {"out_of_orderness_ms": 1500, "idle_timeout_ms": 30000},
            "event time at, at most 1,500 ms out of order, idle after 30,000 ms without a row",
        ),
        ({"strategy": "monotonous"}, "event time at, always rising, never idle"),
        (
            {"split_order": "time", "max_future_skew_ms": 5000, "max_drift_ms": 9000},
            "event time at, always rising, never idle, one split after the other in time, rows "
            "more than 5,000 ms ahead of the clock move no watermark, not read while 9,000 ms "
            "ahead of the slowest source",
        ),
    ],
)
def test_the_event_time_of_a_source_is_told(
    job: Jobs, watermark: dict[str, Any], expected: str
) -> None:
    told = _explained(job(all_of(as_window(), _event(watermark=watermark))))
    assert expected in _flowing(told)


SUM = [{"function": "sum", "field": "v", "as": "total"}, {"function": "count"}]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"value_fields": ["v"]}, "windows of 1,000 ms by k, on event time at makes count(v) as"),
        ({}, "makes count(*) as count late rows: dropped and counted"),
        ({"aggregates": SUM}, "makes sum(v) as total, count(*) as count"),
        (
            {"kind": "sliding", "slide_ms": 300, "offset_ms": -20},
            "windows of 1,000 ms every 300 ms from -20 ms on by k",
        ),
        ({"kind": "session", "size_ms": None, "gap_ms": 150}, "sessions with gaps up to 150 ms by"),
        (
            {"size_ms": None, "unit": "day", "timezone": "Europe/Berlin"},
            "windows of a day in Europe/Berlin by k",
        ),
        ({"key_field": "__arkflow_window_all"}, "windows of 1,000 ms over all rows, on"),
        (
            {"trigger": "processing_time", "legacy_payload": True},
            "by k, on the wall clock at which rows arrive releases the rows of each window together"
            " totals",
        ),
        ({"max_buffered_keys": 9}, "late rows: dropped and counted at most 9 keys, more fail"),
        (
            {"max_buffered_keys": 9, "on_overflow": "evict_oldest"},
            "at most 9 keys, then the oldest go",
        ),
    ],
)
def test_what_a_window_does_is_told(job: Jobs, config: dict[str, Any], expected: str) -> None:
    assert expected in _flowing(_explained(job(as_window(**config))))


def test_limits_of_its_state_are_told_of_a_window_without_a_count(job: Jobs) -> None:
    state = {"backend": "embedded_kv", "max_bytes": 5}
    text = _flowing(_explained(job(all_of(as_window(), set_at("state", to=state)))))
    assert "late rows: dropped and counted at most 5 bytes" in text
    assert "counts rows" not in text


def _routed() -> Change:
    time = _event(late_event_policy="route", late_event_route="late")
    return all_of(as_window(), time, add_sink("late"))


def test_late_rows_that_correct_or_leave_are_told_with_where_they_go(job: Jobs) -> None:
    correcting = all_of(as_window(allowed_lateness_ms=70), _event(late_event_policy="update"))
    assert (
        "late rows: correct their window until 70 ms after its end, dropped and counted from then"
        in _flowing(_explained(job(correcting)))
    )
    routed = _explained(job(_routed()))
    assert "late rows: go to late" in _flowing(routed)
    assert "an error fails the job, late rows to late" in _flowing(routed)
    assert "gates -> late: late, inside the chain" in _flowing(routed)
    assert routed.chains[0].late_output == "late"


def test_lateness_names_what_may_lose_the_mark_of_a_row(job: Jobs) -> None:
    between = all_of(
        as_window(),
        add_operator(id="m", kind="map", config={"type": "sql"}),
        set_at("edges", 0, "to", to="m"),
        add_edge("m", "text"),
    )
    assert _explained(job(between)).lateness == [
        "gates: judged row by row at text, policy drop; by its watermark alone where m rebuilds "
        "the columns"
    ]
    clock = as_window(trigger="processing_time")
    assert _explained(job(clock)).lateness == [
        "gates: event time, and no window on it and no join behind it: nothing is late"
    ]


def test_json_holds_the_time_and_the_window_of_operators(job: Jobs) -> None:
    change = all_of(_routed(), set_at("operators", 1, "config", "value_fields", to=["v"]))
    told = json.loads(json.dumps(asdict(_explained(job(change)))))
    source, window, sink, late = told["operators"]
    assert source["time"] == {
        "timestamp_field": "at",
        "bound_ms": 5,
        "idle_timeout_ms": None,
        "max_future_skew_ms": None,
        "max_drift_ms": None,
        "split_order": "none",
    }
    assert window["window"] == {
        "kind": "tumbling",
        "size_ms": 1000,
        "slide_ms": None,
        "gap_ms": None,
        "offset_ms": 0,
        "unit": None,
        "timezone": None,
        "time": "event",
        "timestamp_field": "at",
        "key_fields": ["k"],
        "aggregates": [
            {"function": name, "field": "v", "name": name}
            for name in ("count", "sum", "min", "max")
        ],
        "releases_rows": False,
        "late_policy": "route",
        "late_route": "late",
        "allowed_lateness_ms": 0,
        "max_buffered_keys": None,
        "on_overflow": "fail",
    }
    assert [each["window"] for each in (source, sink, late)] == [None] * 3
    assert [each["time"] for each in (window, sink, late)] == [None] * 3


@pytest.mark.parametrize("draw", [mermaid, dot])
def test_diagrams_show_event_time_windows_and_the_late_edge(
    job: Jobs, draw: Callable[[list[Explanation]], str]
) -> None:
    drawn = draw([_explained(job(_routed()))])
    assert "event time at" in drawn
    assert "windows of 1,000 ms" in drawn
    assert "late rows: route" in drawn
    arrow = "j0n0 -.->|" if draw is mermaid else 'j0n0 -> j0n3 [label="late", style=dashed];'
    assert arrow in drawn
