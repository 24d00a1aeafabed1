"""Validation of windows, joins and their time (D.8, D.9, W6, N7)."""

from collections.abc import Callable

import pytest

from arkflow_kernel.job import JobSpec
from arkflow_kernel.job_validation import validate_job
from arkflow_kernel.testing.job_changes import (
    EVENT,
    STATE,
    WINDOW,
    Change,
    add_edge,
    add_operator,
    all_of,
    as_join,
    as_window,
    set_at,
)

Jobs = Callable[..., JobSpec]

OPERATOR_ERRORS: list[tuple[str, Change, str, str]] = [
    ("no size", as_window(size_ms=None), "config.size_ms", "a tumbling window needs `size_ms`"),
    ("size 0", as_window(size_ms=0), "config.size_ms", "greater than or equal to 1"),
    ("a gap too many", as_window(gap_ms=5), "config.gap_ms", "a tumbling window has no `gap_ms`"),
    ("no slide", as_window(kind="sliding"), "config.slide_ms", "needs `slide_ms`"),
    (
        "slide",
        as_window(kind="sliding", slide_ms=1001),
        "config.slide_ms",
        "must not exceed size_ms",
    ),
    (
        "panes",
        as_window(kind="sliding", size_ms=20_002, slide_ms=2),
        "config.slide_ms",
        "must not exceed 10000",
    ),
    (
        "legacy sliding",
        as_window(kind="sliding", slide_ms=10, legacy_payload=True),
        "config.legacy_payload",
        "cannot release",
    ),
    ("kind", as_window(kind="hopping"), "config.kind", "'tumbling', 'sliding' or 'session'"),
    ("no key", as_window(key_field=None), "config.key_field", "`key_field` is required"),
    (
        "empty field",
        as_window(timestamp_field=""),
        "config.timestamp_field",
        "at least 1 character",
    ),
    ("two keys", as_window(key_fields=["a"]), "config.key_fields", "not both"),
    ("interval", as_window(trigger_interval_ms=0), "config.trigger_interval_ms", "greater"),
    ("buffered", as_window(max_buffered_keys=0), "config.max_buffered_keys", "greater"),
    ("unknown", as_window(sizems=1), "config.sizems", "did you mean `size_ms`"),
    (
        "aggregate without field",
        as_window(aggregates=[{"function": "count"}, {"function": "sum"}]),
        "config.aggregates[1].field",
        "`sum` needs a `field`",
    ),
    (
        "aggregate key",
        as_window(aggregates=[{"function": "count", "feild": "x"}]),
        "config.aggregates[0].feild",
        "did you mean `field`",
    ),
    (
        "values beside aggregates",
        as_window(aggregates=[{"function": "count"}], value_fields=["v"]),
        "config.value_fields",
        "no effect",
    ),
    ("join window", as_join(window_ms=0), "config.window_ms", "greater than or equal to 1"),
    ("join key", as_join(left_key=None), "config.left_key", "valid string"),
    ("join side", as_join(left_from="x"), "config.left_from", "'x', which does not feed"),
    ("join itself", as_join(right_from="gates"), "config.right_from", "must be two operators"),
]


@pytest.mark.parametrize(("name", "change", "path", "phrase"), OPERATOR_ERRORS)
def test_a_wrong_window_or_join_is_one_error_that_names_it(
    job: Jobs, name: str, change: Change, path: str, phrase: str
) -> None:
    found = [issue for issue in validate_job(job(change)) if not issue.warning]
    assert [issue.path for issue in found] == [f"operators[1].{path}"], (name, found)
    assert phrase in found[0].message
    assert "operator 'text'" in found[0].message


def test_sources_of_one_join_agree_on_what_is_late(job: Jobs) -> None:
    other = {"mode": "event_time", "timestamp_field": "at", "watermark": {"out_of_orderness_ms": 9}}
    [issue] = validate_job(job(all_of(as_join(), set_at("sources", 1, "time", to=other))))
    assert issue.path == "operators[1]"
    assert "must agree on out_of_orderness_ms (5 and 9)" in issue.message


def test_lateness_of_window_and_source_is_given_once_or_alike(job: Jobs) -> None:
    window = as_window(allowed_lateness_ms=7)
    assert validate_job(job(window)) == []
    alike = set_at("sources", 0, "time", to=EVENT | {"allowed_lateness_ms": 7})
    assert validate_job(job(all_of(window, alike))) == []
    other = set_at("sources", 0, "time", to=EVENT | {"allowed_lateness_ms": 8})
    [issue] = validate_job(job(all_of(window, other)))
    assert issue.path == "operators[1].config.allowed_lateness_ms"


def test_a_window_on_window_start_behind_a_window_is_a_warning(job: Jobs) -> None:
    second = {
        "id": "second",
        "kind": "window",
        "config": WINDOW | {"timestamp_field": "window_start"},
    }
    change = all_of(as_window(), add_operator(**second), set_at("edges", 1, "to", to="second"))
    [issue] = validate_job(job(all_of(change, add_edge("second", "totals"))))
    assert (issue.path, issue.warning) == ("operators[3].config.timestamp_field", True)


def test_ephemeral_state_was_asked_for_and_needs_no_warning(job: Jobs) -> None:
    asked = set_at("state", to=STATE | {"durability": "ephemeral"})
    assert validate_job(job(all_of(as_window(), set_at("checkpoint", to=None), asked))) == []
