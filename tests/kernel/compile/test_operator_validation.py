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
    add_source,
    all_of,
    as_join,
    as_window,
    set_at,
)

Jobs = Callable[..., JobSpec]

OPERATOR_ERRORS: list[tuple[str, Change, str, str]] = [
    ("no size", as_window(size_ms=None), "config.size_ms", "needs `size_ms`, or a `unit`"),
    ("no gap", as_window(kind="session", size_ms=None), "config.gap_ms", "needs `gap_ms`"),
    ("endless", as_window(size_ms=10**16), "config.size_ms", "must be at most 1000000000000000"),
    ("size and unit", as_window(unit="day"), "config.size_ms", "or a `unit: day`; remove one"),
    (
        "sliding days",
        as_window(kind="sliding", slide_ms=10, unit="day"),
        "config.unit",
        "choose `kind: tumbling`",
    ),
    ("zone alone", as_window(timezone="UTC"), "config.timezone", "no effect without `unit`"),
    (
        "unknown zone",
        as_window(size_ms=None, unit="day", timezone="europe/Berln"),
        "config.timezone",
        "no time zone 'europe/Berln' in the IANA database; did you mean `Europe/Berlin`",
    ),
    (
        "city as a zone",
        as_window(size_ms=None, unit="day", timezone="new york"),
        "config.timezone",
        "`America/New_York`",
    ),
    (
        "folder of zones",
        as_window(size_ms=None, unit="day", timezone="Europe"),
        "config.timezone",
        "no time zone 'Europe'",
    ),
    (
        "zone outside of the database",
        as_window(size_ms=None, unit="day", timezone="../passwd"),
        "config.timezone",
        "no time zone '../passwd'",
    ),
    (
        "offset of a session",
        as_window(kind="session", size_ms=None, gap_ms=5, offset_ms=1),
        "config.offset_ms",
        "begins with its first row",
    ),
    ("offset", as_window(offset_ms=-1000), "config.offset_ms", "by less than one of them (1000 ms"),
    (
        "offset of a slide",
        as_window(kind="sliding", slide_ms=10, offset_ms=10),
        "config.offset_ms",
        "(10 ms here)",
    ),
    (
        "two values",
        as_window(value_fields=["a", "b"]),
        "config.value_fields",
        "exactly one value field, got 2; for several say `aggregates: [{function: sum, field: a}",
    ),
    (
        "bound of sessions",
        as_window(kind="session", size_ms=None, gap_ms=5, max_buffered_keys=5),
        "config.max_buffered_keys",
        "of sessions is not available in this release; remove it",
    ),
    (
        "key twice",
        as_window(key_field=None, key_fields=["a", "a"]),
        "config.key_fields[1]",
        "names 'a' twice",
    ),
    (
        "all rows as one of several keys",
        as_window(key_field=None, key_fields=["__arkflow_window_all"]),
        "config.key_fields[0]",
        "is no column",
    ),
    (
        "key that is a column of the result",
        as_window(key_field=None, key_fields=["a", "window_end"]),
        "config.key_fields[1]",
        "also a column of every window's result; rename it before",
    ),
    (
        "key that is a column of the result beside a value field",
        as_window(key_field=None, key_fields=["a", "max"], value_fields=["v"]),
        "config.key_fields[1]",
        "key 'max' is also a column of a window's result without `aggregates`; rename it before",
    ),
    (
        "key called as the count of rows",
        as_window(key_field=None, key_fields=["count"]),
        "config.key_fields[0]",
        "rename it before",
    ),
    (
        "key beside aggregates that is a column of the result",
        as_window(key_field="window_end", aggregates=[{"function": "count"}]),
        "config.key_field",
        "rename it before",
    ),
    (
        "aggregate twice",
        as_window(aggregates=[{"function": "count"}, {"function": "count"}]),
        "config.aggregates[1]",
        "two columns 'count': this one, and one of aggregates[0]; name it with `as:`",
    ),
    (
        "aggregate called as the key",
        as_window(aggregates=[{"function": "sum", "field": "v", "as": "k"}]),
        "config.aggregates[0].as",
        "two columns 'k': this one, and one that is a key",
    ),
    (
        "aggregate called as a default name",
        as_window(
            aggregates=[
                {"function": "max", "field": "v"},
                {"function": "sum", "field": "v", "as": "max_v"},
            ]
        ),
        "config.aggregates[1].as",
        "one of aggregates[0]",
    ),
    (
        "aggregate called as the start",
        as_window(aggregates=[{"function": "count", "as": "window_start"}]),
        "config.aggregates[0].as",
        "one of every window's result",
    ),
    ("size 0", as_window(size_ms=0), "config.size_ms", "must be at least 1"),
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
    (
        "legacy keys",
        as_window(legacy_payload=True, max_buffered_keys=9),
        "config.max_buffered_keys",
        "counts no keys",
    ),
    ("kind", as_window(kind="hopping"), "config.kind", "'tumbling', 'sliding' or 'session'"),
    (
        "near kind",
        as_window(kind="tumbing"),
        "config.kind",
        "`kind` must be 'tumbling', 'sliding' or 'session'; did you mean 'tumbling'?",
    ),
    ("text as a size", as_window(size_ms="1s"), "config.size_ms", "`size_ms` must be an integer"),
    ("no keys", as_window(key_fields=[]), "config.key_fields", "must not be empty"),
    ("text as a flag", as_window(legacy_payload="no"), "config.legacy_payload", "true or false"),
    ("text as a list", as_window(value_fields="v"), "config.value_fields", "must be a list"),
    (
        "text as an aggregate",
        as_window(aggregates=["count"]),
        "config.aggregates[0]",
        "`config.aggregates[0]` must be a mapping",
    ),
    ("no key", as_window(key_field=None), "config.key_field", "`key_field` is required"),
    (
        "key outside",
        all_of(as_window(key_field=None), set_at("operators", 1, "key_field", to="k")),
        "config.key_field",
        "the operator's `key_field: k` must stand here, too",
    ),
    (
        "empty field",
        as_window(timestamp_field=""),
        "config.timestamp_field",
        "must not be empty",
    ),
    ("two keys", as_window(key_fields=["a"]), "config.key_fields", "not both"),
    (
        "interval",
        as_window(trigger_interval_ms=0),
        "config.trigger_interval_ms",
        "must be at least 1",
    ),
    ("buffered", as_window(max_buffered_keys=0), "config.max_buffered_keys", "must be at least 1"),
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
    ("join window", as_join(window_ms=0), "config.window_ms", "must be at least 1"),
    ("join key", as_join(left_key=None), "config.left_key", "must be text"),
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


def _updating(**more: object) -> Change:
    return set_at("sources", 0, "time", to=EVENT | {"late_event_policy": "update"} | more)


def test_lateness_of_window_and_source_is_given_once_or_alike(job: Jobs) -> None:
    window = as_window(allowed_lateness_ms=7)
    assert validate_job(job(all_of(window, _updating()))) == []
    assert validate_job(job(all_of(window, _updating(allowed_lateness_ms=7)))) == []
    [issue] = validate_job(job(all_of(window, _updating(allowed_lateness_ms=8))))
    assert issue.path == "operators[1].config.allowed_lateness_ms"
    assert not issue.warning


def test_lateness_that_the_policy_never_uses_is_a_warning(job: Jobs) -> None:
    [issue] = validate_job(job(as_window(allowed_lateness_ms=7)))
    assert (issue.path, issue.warning) == ("operators[1].config.allowed_lateness_ms", True)
    assert "the policy of source 'gates' is `drop`" in issue.message
    [issue] = validate_job(job(as_window(trigger="processing_time", allowed_lateness_ms=7)))
    assert (issue.path, issue.warning) == ("operators[1].config.allowed_lateness_ms", True)
    assert "nothing is late" in issue.message


def test_a_policy_that_corrects_nothing_is_a_warning(job: Jobs) -> None:
    [issue] = validate_job(job(all_of(as_window(), _updating())))
    assert (issue.path, issue.warning) == ("operators[1].config.allowed_lateness_ms", True)
    assert "corrects nothing in window 'text'" in issue.message
    assert validate_job(job(all_of(as_window(), _updating(allowed_lateness_ms=1)))) == []


def test_a_window_that_releases_its_rows_cannot_correct_a_result(job: Jobs) -> None:
    window = as_window(legacy_payload=True)
    assert validate_job(job(window)) == []
    [issue] = validate_job(job(all_of(window, _updating())))
    assert (issue.path, issue.warning) == ("operators[1].config.legacy_payload", False)
    assert "choose `late_event_policy: drop` or `route` on source 'gates'" in issue.message


def test_a_window_on_another_time_than_its_source_is_a_warning(job: Jobs) -> None:
    [issue] = validate_job(job(as_window(timestamp_field="other")))
    assert (issue.path, issue.warning) == ("operators[1].config.timestamp_field", True)
    assert "takes its time from 'other'" in issue.message
    assert validate_job(job(as_window(timestamp_field="x", trigger="processing_time"))) == []


def test_a_window_has_its_key_in_one_place(job: Jobs) -> None:
    several = as_window(key_field=None, key_fields=["a", "b"])
    [issue] = validate_job(job(all_of(several, set_at("operators", 1, "key_field", to="a"))))
    assert (issue.path, issue.warning) == ("operators[1].key_field", False)


@pytest.mark.parametrize("key", ["timestamp_field", "allowed_lateness_ms", "late_event_policy"])
def test_what_processing_time_does_not_use_is_a_warning(job: Jobs, key: str) -> None:
    values = {"timestamp_field": "at", "allowed_lateness_ms": 5, "late_event_policy": "update"}
    time = {"mode": "processing_time", key: values[key]}
    [issue] = validate_job(job(set_at("sources", 0, "time", to=time)))
    assert (issue.path, issue.warning) == (f"sources[0].time.{key}", True)
    assert "source 'gates' has processing time" in issue.message


def test_windows_on_processing_time_need_no_agreement_of_their_sources(job: Jobs) -> None:
    lamps = [add_source("lamps", {"mode": "processing_time"}), add_edge("lamps", "text")]
    assert validate_job(job(all_of(as_window(trigger="processing_time"), *lamps))) == []
    [issue, *_] = validate_job(job(all_of(as_window(), *lamps)))
    assert "must agree on mode (event_time and processing_time)" in issue.message


def test_a_window_on_window_start_behind_a_window_is_a_warning(job: Jobs) -> None:
    second = {
        "id": "second",
        "kind": "window",
        "config": WINDOW | {"timestamp_field": "window_start"},
    }
    change = all_of(as_window(), add_operator(**second), set_at("edges", 1, "to", to="second"))
    [issue] = validate_job(job(all_of(change, add_edge("second", "totals"))))
    assert (issue.path, issue.warning) == ("operators[3].config.timestamp_field", True)


def test_a_window_behind_one_that_corrects_its_results_is_a_warning(job: Jobs) -> None:
    second = {"id": "second", "kind": "window", "config": WINDOW | {"timestamp_field": "end"}}
    change = all_of(as_window(), add_operator(**second), set_at("edges", 1, "to", to="second"))
    change = all_of(change, add_edge("second", "totals"))
    assert validate_job(job(change)) == []
    updating = _updating(allowed_lateness_ms=7)
    [issue] = validate_job(job(all_of(change, updating)))
    assert (issue.path, issue.warning) == ("operators[3].config", True)
    assert "would count corrections of 'text'" in issue.message


def test_ephemeral_state_was_asked_for_and_needs_no_warning(job: Jobs) -> None:
    asked = set_at("state", to=STATE | {"durability": "ephemeral"})
    assert validate_job(job(all_of(as_window(), set_at("checkpoint", to=None), asked))) == []
