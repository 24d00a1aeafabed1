"""Plans of event time and windows (W1, W6, N2-N4): what each setting of a job becomes."""

from collections.abc import Callable
from typing import Any

import pytest

from arkflow_kernel.graph import build_graph
from arkflow_kernel.job import JobSpec, StreamSpec
from arkflow_kernel.job_validation import unavailable, validate_job
from arkflow_kernel.plan import (
    AggregatePlan,
    ChainPlan,
    EdgeKind,
    ExecutionGraph,
    LatePolicy,
    StatePlan,
    TimePlan,
    WindowKind,
    WindowPlan,
)
from arkflow_kernel.stream_compiler import compile_stream
from arkflow_kernel.testing.job_changes import (
    EVENT,
    WINDOW,
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


def _planned(job: JobSpec) -> ExecutionGraph:
    wrong = [i for i in (*validate_job(job), *unavailable(job)) if not i.warning]
    assert wrong == []
    return build_graph(job)


def _window(graph: ExecutionGraph, name: str = "text") -> WindowPlan:
    found = {op.operator: op.window for chain in graph.chains for op in chain.operators}
    window = {str(key): value for key, value in found.items()}[name]
    assert window is not None
    return window


def _time(graph: ExecutionGraph) -> TimePlan | None:
    assert graph.chains[0].source is not None
    return graph.chains[0].source.time


def _event(**more: Any) -> Change:
    return set_at("sources", 0, "time", to=EVENT | more)


def _watermark(**more: Any) -> Change:
    return _event(watermark=more)


def test_a_source_in_processing_time_has_no_event_time(job: Jobs) -> None:
    assert _time(_planned(job())) is None


@pytest.mark.parametrize(
    ("watermark", "expected"),
    [
        ({"out_of_orderness_ms": 7}, {"bound_ms": 7}),
        ({"strategy": "monotonous"}, {}),
        ({"strategy": "monotonous", "out_of_orderness_ms": 7}, {}),
        (
            {"idle_timeout_ms": 0, "max_future_skew_ms": 9, "split_order": "time"},
            {"idle_timeout_ms": 0, "max_future_skew_ms": 9, "ordered_splits": True},
        ),
    ],
)
def test_the_watermark_of_a_source_is_planned(
    job: Jobs, watermark: dict[str, Any], expected: dict[str, Any]
) -> None:
    graph = _planned(job(all_of(as_window(), _watermark(**watermark))))
    assert _time(graph) == TimePlan("at", **expected)


def _behind(**config: Any) -> Change:
    """A second window between `text` and `totals`."""
    second = {"id": "second", "kind": "window", "config": WINDOW | config}
    return all_of(
        add_operator(**second),
        set_at("edges", 1, "to", to="second"),
        add_edge("second", "totals"),
    )


@pytest.mark.parametrize(
    ("change", "stamps"),
    [
        (_event(), False),
        (as_window(), True),
        (all_of(_event(), _behind()), True),
        (as_window(trigger="processing_time"), False),
        (all_of(as_window(trigger="processing_time"), _behind()), False),
    ],
)
def test_rows_are_stamped_exactly_where_a_window_judges_them(
    job: Jobs, change: Change, stamps: bool
) -> None:
    time = _time(_planned(job(change)))
    assert time is not None
    assert time.stamps is stamps


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {"kind": WindowKind.TUMBLING, "size_ms": 1000, "slide_ms": 1000}),
        (
            {"kind": "sliding", "slide_ms": 300, "offset_ms": -5},
            {"kind": WindowKind.SLIDING, "size_ms": 1000, "slide_ms": 300, "offset_ms": -5},
        ),
        (
            {"kind": "session", "size_ms": None, "gap_ms": 9},
            {"kind": WindowKind.SESSION, "gap_ms": 9},
        ),
        (
            {"size_ms": None, "unit": "week", "timezone": "Europe/Berlin"},
            {"kind": WindowKind.CALENDAR, "unit": "week", "timezone": "Europe/Berlin"},
        ),
        (
            {"size_ms": None, "unit": "day"},
            {"kind": WindowKind.CALENDAR, "unit": "day", "timezone": "UTC"},
        ),
        (
            {"trigger": "processing_time", "overflow": None, "max_buffered_keys": 5},
            {
                "kind": WindowKind.TUMBLING,
                "size_ms": 1000,
                "slide_ms": 1000,
                "event_time": False,
                "null_on_overflow": True,
                "max_buffered_keys": 5,
            },
        ),
        (
            {"max_buffered_keys": 5, "on_overflow": "evict_oldest"},
            {
                "kind": WindowKind.TUMBLING,
                "size_ms": 1000,
                "slide_ms": 1000,
                "max_buffered_keys": 5,
                "evicts_oldest": True,
            },
        ),
    ],
)
def test_the_settings_of_a_window_are_planned(
    job: Jobs, config: dict[str, Any], expected: dict[str, Any]
) -> None:
    count = (AggregatePlan("count", None, "count"),)
    window = _window(_planned(job(as_window(**config))))
    assert window == WindowPlan(timestamp_field="at", aggregates=count, **expected)


@pytest.mark.parametrize(
    ("config", "plain", "expected"),
    [
        ({}, True, [("count", None, "count")]),
        (
            {"value_fields": ["price"]},
            True,
            [(name, "price", name) for name in ("count", "sum", "min", "max")],
        ),
        ({"key_field": None, "key_fields": ["a", "b"]}, False, [("count", None, "count")]),
        (
            {
                "aggregates": [
                    {"function": "count"},
                    {"function": "count", "field": "price"},
                    {"function": "avg", "field": "price", "as": "mean"},
                ]
            },
            False,
            [
                ("count", None, "count"),
                ("count", "price", "count_price"),
                ("avg", "price", "mean"),
            ],
        ),
        ({"legacy_payload": True, "value_fields": ["price"]}, True, []),
    ],
)
def test_the_aggregates_of_a_window_are_planned_with_their_columns(
    job: Jobs, config: dict[str, Any], plain: bool, expected: list[tuple[str, str | None, str]]
) -> None:
    window = _window(_planned(job(as_window(**config))))
    assert window.aggregates == tuple(AggregatePlan(*each) for each in expected)
    assert (window.plain, window.releases_rows) == (plain, "legacy_payload" in config)


@pytest.mark.parametrize(
    ("time", "own", "expected"),
    [
        ({}, None, (LatePolicy.DROP, 0)),
        ({"allowed_lateness_ms": 5}, None, (LatePolicy.DROP, 0)),
        ({}, 5, (LatePolicy.DROP, 0)),
        ({"late_event_policy": "update"}, None, (LatePolicy.UPDATE, 0)),
        ({"late_event_policy": "update"}, 5, (LatePolicy.UPDATE, 5)),
        ({"late_event_policy": "update", "allowed_lateness_ms": 7}, None, (LatePolicy.UPDATE, 7)),
        ({"late_event_policy": "route", "late_event_route": "late"}, 7, (LatePolicy.ROUTE, 0)),
    ],
)
def test_lateness_is_the_windows_own_or_its_sources(
    job: Jobs, time: dict[str, Any], own: int | None, expected: tuple[LatePolicy, int]
) -> None:
    route = [add_sink("late")] if "late_event_route" in time else []
    change = all_of(as_window(allowed_lateness_ms=own), _event(**time), *route)
    window = _window(_planned(job(change)))
    assert (window.late, window.allowed_lateness_ms) == expected


def test_a_window_behind_a_window_drops_what_is_late(job: Jobs) -> None:
    change = all_of(as_window(), _event(late_event_policy="update"), _behind())
    graph = _planned(job(change))
    assert [_window(graph, name).late for name in ("text", "second")] == [
        LatePolicy.UPDATE,
        LatePolicy.DROP,
    ]


def test_a_window_keeps_state_under_its_keys_without_a_ttl(job: Jobs) -> None:
    state = {"backend": "embedded_kv", "namespace": "n", "ttl_ms": 5, "max_bytes": 6}
    change = all_of(as_window(key_field=None, key_fields=["a", "b"]), set_at("state", to=state))
    [operator] = _planned(job(change)).chains[0].operators
    shape = "tumbling windows of 1,000 ms by event time: count(*)"
    assert operator.state == StatePlan("n", ("a", "b"), max_bytes=6, shape=shape)
    assert operator.timeout_ms is None


SHAPES: dict[str, dict[str, Any]] = {
    "tumbling windows of 1,000 ms by event time: count(*)": {},
    "tumbling windows of 1,000 ms from -5 ms on by event time: count(*)": {"offset_ms": -5},
    "tumbling windows of 1,000 ms by the wall clock: count(*)": {"trigger": "processing_time"},
    "tumbling windows of 1,000 ms by event time: count(v), sum(v), min(v), max(v)": {
        "value_fields": ["v"]
    },
    "sliding windows of 1,000 ms every 300 ms by event time: count(*)": {
        "kind": "sliding",
        "slide_ms": 300,
    },
    "sessions with gaps up to 9 ms by event time: avg(v), count_distinct(u) as users": {
        "kind": "session",
        "size_ms": None,
        "gap_ms": 9,
        "aggregates": [
            {"function": "avg", "field": "v", "as": "mean"},
            {"function": "count_distinct", "field": "u", "as": "users"},
        ],
    },
    "windows of a day in Europe/Berlin by event time: count(*)": {
        "size_ms": None,
        "unit": "day",
        "timezone": "Europe/Berlin",
    },
    "tumbling windows of 1,000 ms by event time: count(*), rows counted": {
        "max_buffered_keys": 5,
        "on_overflow": "evict_oldest",
    },
    "rows of windows by event time": {"legacy_payload": True},
    "rows of sessions by event time": {
        "kind": "session",
        "size_ms": None,
        "gap_ms": 9,
        "legacy_payload": True,
    },
}


@pytest.mark.parametrize(("shape", "config"), SHAPES.items())
def test_what_a_window_keeps_has_a_shape_that_a_record_holds(
    job: Jobs, shape: str, config: dict[str, Any]
) -> None:
    [operator] = _planned(job(as_window(**config))).chains[0].operators
    assert operator.state is not None
    assert operator.state.shape == shape


@pytest.mark.parametrize(
    "config",
    [
        {"max_buffered_keys": 7},
        {"overflow": None},
        {"aggregates": [{"function": "count", "as": "rows"}]},
        {"trigger_interval_ms": 9},
    ],
)
def test_what_changes_no_kept_value_changes_no_shape(job: Jobs, config: dict[str, Any]) -> None:
    shapes = []
    for each in ({}, config):
        [operator] = _planned(job(as_window(**each))).chains[0].operators
        assert operator.state is not None
        shapes.append(operator.state.shape)
    assert shapes[0] == shapes[1]


def test_rows_that_leave_as_they_came_may_get_windows_of_another_size(job: Jobs) -> None:
    shapes = set()
    for size_ms in (1_000, 2_000):
        window = as_window(legacy_payload=True, size_ms=size_ms)
        [operator] = _planned(job(window)).chains[0].operators
        assert operator.state is not None
        shapes.add(operator.state.shape)
    assert len(shapes) == 1


def _routed(*changes: Change) -> Change:
    time = {"late_event_policy": "route", "late_event_route": "late"}
    return all_of(as_window(), _event(**time), add_sink("late"), *changes)


def _late(graph: ExecutionGraph) -> dict[str, str | None]:
    return {chain.chain: chain.late_output for chain in graph.chains}


def test_late_rows_go_to_the_side_sink_of_their_chain(job: Jobs) -> None:
    assert _late(_planned(job(_routed()))) == {"gates-0": "late"}


def test_late_rows_of_parallel_windows_leave_by_the_late_edge_of_each(job: Jobs) -> None:
    parallel = all_of(
        set_at("operators", 1, "parallelism", to=2), set_at("edges", 0, "partitioned", to=True)
    )
    graph = _planned(job(_routed(parallel)))
    assert _late(graph) == {
        "gates-0": "late-gates-late",
        "text-0": "late-text-late",
        "text-1": "late-text-late",
        "totals-0": None,
        "late-0": None,
    }
    kinds = {o.output: o.kind for chain in graph.chains for o in chain.outlets}
    assert kinds["late-text-late"] is EdgeKind.LATE  # type: ignore[index]
    assert [chain.timed for chain in graph.chains] == [False, True, True, False, False]


def test_two_sources_of_one_window_share_its_late_route(job: Jobs) -> None:
    time = EVENT | {"late_event_policy": "route", "late_event_route": "late"}
    graph = _planned(job(_routed(add_source("lamps", time), add_edge("lamps", "text"))))
    assert _late(graph) == {
        "gates-0": "late-gates-late",
        "text-0": "late-text-late",
        "late-0": None,
        "lamps-0": "late-lamps-late",
    }


def test_a_single_window_shares_the_chain_of_its_source_unless_its_edge_is_partitioned(
    job: Jobs,
) -> None:
    alone = _planned(job(as_window()))
    assert [chain.tasks for chain in alone.chains] == [("gates-0", "text-0", "totals-0")]
    keyed = _planned(job(all_of(as_window(), set_at("edges", 0, "partitioned", to=True))))
    assert [chain.tasks for chain in keyed.chains] == [("gates-0",), ("text-0", "totals-0")]


def _streamed(stream: Callable[..., StreamSpec], **buffer: Any) -> ChainPlan:
    [chain] = _planned(compile_stream(stream(buffer=buffer), 0).job).chains
    return chain


def test_a_buffer_of_a_stream_is_a_window_of_one_chain_that_releases_its_rows(
    stream: Callable[..., StreamSpec],
) -> None:
    chain = _streamed(stream, type="tumbling_window", interval="2s", key_field="k")
    assert chain.operators[0].window == WindowPlan(
        kind=WindowKind.TUMBLING,
        timestamp_field="__meta_timestamp",
        size_ms=2000,
        slide_ms=2000,
        event_time=False,
        releases_rows=True,
    )
    rows = "rows of windows by the wall clock"
    assert chain.operators[0].state == StatePlan("default", ("k",), max_parallelism=1, shape=rows)
    session = _streamed(stream, type="session_window", gap="1s").operators[0]
    assert session.window is not None
    assert (session.window.kind, session.window.gap_ms) == (WindowKind.SESSION, 1000)
    assert session.state is not None
    assert session.state.key_fields == ()
