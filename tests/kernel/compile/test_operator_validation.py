"""Validation of windows, joins and their time (D.8, D.9, W6, N7)."""

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


def _window(**config: Any) -> Change:
    """The map of the job becomes a window over event time, with a checkpoint."""
    spec = {"id": "text", "kind": "window", "config": WINDOW | config}
    return _all(
        _set("operators", 1, to=spec),
        _set("sources", 0, "time", to=EVENT),
        _set("state", to=STATE),
        _set("checkpoint", to=CHECKPOINT),
    )


def _join(**config: Any) -> Change:
    """The map of the job becomes a join of `gates` and a second source `lamps`."""
    sides = {"left_from": "gates", "right_from": "lamps", "left_key": "k", "right_key": "k"}
    spec = {"id": "text", "kind": "join", "config": {**sides, "window_ms": 5} | config}
    return _all(
        _window(), _set("operators", 1, to=spec), _source("lamps", EVENT), _edge("lamps", "text")
    )


OPERATOR_ERRORS: list[tuple[str, Change, str, str]] = [
    ("no size", _window(size_ms=None), "config.size_ms", "a tumbling window needs `size_ms`"),
    ("size 0", _window(size_ms=0), "config.size_ms", "greater than or equal to 1"),
    ("a gap too many", _window(gap_ms=5), "config.gap_ms", "a tumbling window has no `gap_ms`"),
    ("no slide", _window(kind="sliding"), "config.slide_ms", "needs `slide_ms`"),
    ("slide", _window(kind="sliding", slide_ms=1001), "config.slide_ms", "must not exceed size_ms"),
    (
        "panes",
        _window(kind="sliding", size_ms=20_002, slide_ms=2),
        "config.slide_ms",
        "must not exceed 10000",
    ),
    (
        "legacy sliding",
        _window(kind="sliding", slide_ms=10, legacy_payload=True),
        "config.legacy_payload",
        "cannot release",
    ),
    ("kind", _window(kind="hopping"), "config.kind", "'tumbling', 'sliding' or 'session'"),
    ("no key", _window(key_field=None), "config.key_field", "`key_field` is required"),
    ("empty field", _window(timestamp_field=""), "config.timestamp_field", "at least 1 character"),
    ("two keys", _window(key_fields=["a"]), "config.key_fields", "not both"),
    ("interval", _window(trigger_interval_ms=0), "config.trigger_interval_ms", "greater"),
    ("buffered", _window(max_buffered_keys=0), "config.max_buffered_keys", "greater"),
    ("unknown", _window(sizems=1), "config.sizems", "did you mean `size_ms`"),
    (
        "aggregate without field",
        _window(aggregates=[{"function": "count"}, {"function": "sum"}]),
        "config.aggregates[1].field",
        "`sum` needs a `field`",
    ),
    (
        "aggregate key",
        _window(aggregates=[{"function": "count", "feild": "x"}]),
        "config.aggregates[0].feild",
        "did you mean `field`",
    ),
    (
        "values beside aggregates",
        _window(aggregates=[{"function": "count"}], value_fields=["v"]),
        "config.value_fields",
        "no effect",
    ),
    ("join window", _join(window_ms=0), "config.window_ms", "greater than or equal to 1"),
    ("join key", _join(left_key=None), "config.left_key", "valid string"),
    ("join side", _join(left_from="x"), "config.left_from", "'x', which does not feed"),
    ("join itself", _join(right_from="gates"), "config.right_from", "must be two operators"),
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
    [issue] = validate_job(job(_all(_join(), _set("sources", 1, "time", to=other))))
    assert issue.path == "operators[1]"
    assert "must agree on out_of_orderness_ms (5 and 9)" in issue.message


def test_lateness_of_window_and_source_is_given_once_or_alike(job: Jobs) -> None:
    window = _window(allowed_lateness_ms=7)
    assert validate_job(job(window)) == []
    alike = _set("sources", 0, "time", to=EVENT | {"allowed_lateness_ms": 7})
    assert validate_job(job(_all(window, alike))) == []
    other = _set("sources", 0, "time", to=EVENT | {"allowed_lateness_ms": 8})
    [issue] = validate_job(job(_all(window, other)))
    assert issue.path == "operators[1].config.allowed_lateness_ms"


def test_a_window_on_window_start_behind_a_window_is_a_warning(job: Jobs) -> None:
    second = {
        "id": "second",
        "kind": "window",
        "config": WINDOW | {"timestamp_field": "window_start"},
    }
    change = _all(_window(), _operator(**second), _set("edges", 1, "to", to="second"))
    [issue] = validate_job(job(_all(change, _edge("second", "totals"))))
    assert (issue.path, issue.warning) == ("operators[3].config.timestamp_field", True)


def test_ephemeral_state_was_asked_for_and_gives_no_warning(job: Jobs) -> None:
    asked = _set("state", to=STATE | {"durability": "ephemeral"})
    assert validate_job(job(_all(_window(), _set("checkpoint", to=None), asked))) == []
