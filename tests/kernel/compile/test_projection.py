"""Columns of a source that those right behind it ask for: those that are read, and its fields."""

from collections.abc import Callable
from typing import Any

import pytest

from arkflow_kernel.job import JobSpec
from arkflow_kernel.job_validation import validate_job
from arkflow_kernel.projection import named_fields, read_columns
from arkflow_kernel.testing.job_changes import (
    EVENT,
    Change,
    add_edge,
    add_operator,
    add_sink,
    add_source,
    all_of,
    as_join,
    as_window,
    set_at,
)
from arkflow_kernel.topology import Topology

Jobs = Callable[..., JobSpec]

SUMS = [{"function": "sum", "field": "price"}, {"function": "count"}]


def _columns(job: JobSpec, source: str = "gates") -> tuple[str, ...] | None:
    assert [issue for issue in validate_job(job) if not issue.warning] == []
    return read_columns(Topology(job), source)


def test_time_keys_and_aggregated_fields_are_read(job: Jobs) -> None:
    assert _columns(job(as_window())) == ("at", "k")
    assert _columns(job(as_window(value_fields=["v"]))) == ("at", "k", "v")
    keys = {"key_fields": ["a", "b"], "aggregates": SUMS}
    window = all_of(as_window(**keys), set_at("operators", 1, "config", "key_field", to=None))
    assert _columns(job(window)) == ("a", "at", "b", "price")


def test_two_windows_behind_one_source_read_what_either_looks_at(job: Jobs) -> None:
    config = {"kind": "sliding", "size_ms": 10, "slide_ms": 5, "timestamp_field": "at"}
    other = add_operator(
        id="w", kind="window", config={**config, "key_field": "j", "value_fields": ["x"]}
    )
    both = all_of(
        as_window(), other, add_edge("gates", "w"), add_sink("rest"), add_edge("w", "rest")
    )
    assert _columns(job(both)) == ("at", "j", "k", "x")


def test_the_time_of_the_source_counts_also_where_the_window_has_another(job: Jobs) -> None:
    time = set_at("sources", 0, "time", to=EVENT | {"timestamp_field": "seen"})
    window = all_of(as_window(trigger="processing_time"), time)
    assert _columns(job(window)) == ("at", "k", "seen")


def test_rows_that_may_be_results_of_a_window_keep_what_says_so(job: Jobs) -> None:
    time = set_at("sources", 0, "time", to=EVENT | {"timestamp_field": "window_end"})
    columns = _columns(job(all_of(as_window(timestamp_field="window_end"), time)))
    assert columns == ("__arkflow_window_update", "k", "window_end", "window_start")


ROUTE = EVENT | {"late_event_policy": "route", "late_event_route": "late"}


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: None,  # a map
        as_window(legacy_payload=True),
        as_join(),
        all_of(as_window(), add_sink("copy"), add_edge("gates", "copy")),
        all_of(as_window(), add_sink("late"), set_at("sources", 0, "time", to=ROUTE)),
        all_of(as_window(), add_sink("bad"), add_edge("gates", "bad", type="error")),
        all_of(as_window(), add_sink("bad"), add_edge("text", "bad", type="error")),
    ],
    ids=["map", "releases", "join", "copy", "late", "errors-of-source", "errors-of-window"],
)
def test_every_column_is_read_where_anything_else_may_look_at_rows(
    change: Change, job: Jobs
) -> None:
    assert read_columns(Topology(job(change)), "gates") is None


def test_each_source_reads_for_itself(job: Jobs) -> None:
    """A window of two sources; the other source has a sink of its own, too."""
    two = all_of(
        as_window(), add_source("lamps", EVENT), add_edge("lamps", "text"),
        add_sink("copy"), add_edge("lamps", "copy"),
    )  # fmt: skip
    spec: Any = job(two)
    assert (_columns(spec), _columns(spec, "lamps")) == (("at", "k"), None)


def _fields(job: JobSpec, source: str = "gates") -> tuple[str, ...]:
    return named_fields(Topology(job), source)


def test_keys_and_values_right_behind_a_source_are_its_fields_and_its_time_is_not(
    job: Jobs,
) -> None:
    assert _fields(job(as_window())) == ("k",)
    assert _fields(job(as_window(aggregates=SUMS, key_field="at"))) == ("price",)
    assert _fields(job(as_window(legacy_payload=True))) == ("k",)
    assert _fields(job(all_of(as_window(value_fields=["v"]), add_sink("bad")))) == ("k", "v")
    assert _fields(job(as_join(right_key="j")), "lamps") == ("j",)
    assert _fields(job(lambda entry: None)) == ()
    best = {"id": "text", "kind": "top_n", "config": {"key_field": "k", "by": "v", "n": 1}}
    assert _fields(job(set_at("operators", 1, to=best))) == ("k", "v")
    sums = {"id": "text", "kind": "aggregate", "config": {"key_field": "k", "aggregates": SUMS}}
    assert _fields(job(set_at("operators", 1, to=sums))) == ("k", "price")
