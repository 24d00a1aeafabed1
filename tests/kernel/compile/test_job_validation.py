"""Validation (C6): each rule by one mistake in a valid job, and all of them at once."""

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


def _join(**config: Any) -> Change:
    """The map of the job becomes a join of `gates` and a second source `lamps`."""
    sides = {"left_from": "gates", "right_from": "lamps", "left_key": "k", "right_key": "k"}
    spec = {"id": "text", "kind": "join", "config": {**sides, "window_ms": 5} | config}
    return _all(
        _window(), _set("operators", 1, to=spec), _source("lamps", EVENT), _edge("lamps", "text")
    )


ERRORS: list[tuple[str, Change, str, str]] = [
    ("job id", _set("id", to="a b"), "id", "invalid Job id 'a b'; use 1-128 letters"),
    ("no source spec", _set("sources", to=[]), "sources", "at least one executable source"),
    ("no sink spec", _set("sinks", to=[]), "sinks", "at least one executable sink"),
    ("key groups", _set("max_parallelism", to=0), "max_parallelism", "must be positive"),
    (
        "parallelism",
        _set("parallelism", to=129),
        "parallelism",
        "Job 'turnstiles' parallelism must be between 1 and max_parallelism",
    ),
    ("parallelism 0", _set("parallelism", to=0), "parallelism", "must be between 1"),
    (
        "operator parallelism",
        _all(_set("operators", 1, "parallelism", to=200), _set("edges", 0, "type", to="rebalance")),
        "operators[1].parallelism",
        "must be between 1 and max_parallelism",
    ),
    (
        "pending transactions",
        _all(_window(), _set("state", to=STATE | {"max_pending_transactions": 0})),
        "state.max_pending_transactions",
        "state.max_pending_transactions must be positive",
    ),
    (
        "backend",
        _all(_window(), _set("state", to={"backend": "rocksdb"})),
        "state.backend",
        "local Job state backend 'rocksdb' is not supported; use embedded_kv",
    ),
    ("root", _all(_window(), _set("state", to=STATE | {"root": ""})), "state.root", "empty"),
    (
        "format version",
        _all(_window(), _set("state", to=STATE | {"format_version": 0})),
        "state.format_version",
        "must be positive",
    ),
    (
        "max bytes",
        _all(_window(), _set("state", to=STATE | {"max_bytes": 0})),
        "state.max_bytes",
        "must be positive",
    ),
    (
        "interval",
        _set("checkpoint", to=CHECKPOINT | {"interval_ms": 0}),
        "checkpoint.interval_ms",
        "must be positive",
    ),
    (
        "retention",
        _set("checkpoint", to=CHECKPOINT | {"retention": 0}),
        "checkpoint.retention",
        "must be positive",
    ),
    (
        "uri",
        _set("checkpoint", to={"object_store_uri": " "}),
        "checkpoint.object_store_uri",
        "must not be empty",
    ),
    (
        "exactly-once without checkpoint",
        _set("sinks", 0, "config", to={"exactly_once": True}),
        "sinks[0].config.exactly_once",
        "needs a `checkpoint:` block",
    ),
    ("empty id", _operator(id="", kind="sink"), "operators[3].id", "must not be empty"),
    (
        "repeated id",
        _operator(id="text", kind="map", config={"type": "sql"}),
        "operators[3].id",
        "duplicate operator id 'text'",
    ),
    (
        "no type",
        _set("operators", 1, "config", to={}),
        "operators[1].config.type",
        "operator 'text' requires config.type",
    ),
    (
        "type no text",
        _set("operators", 1, "config", to={"type": 7}),
        "operators[1].config.type",
        "as text",
    ),
    (
        "stateful without key",
        _all(_set("operators", 1, "stateful", to=True), _set("checkpoint", to=CHECKPOINT)),
        "operators[1].key_field",
        "stateful operator 'text' requires key_field",
    ),
    (
        "stateful source",
        _set("operators", 0, "stateful", to=True),
        "operators[0].stateful",
        "cannot be stateful",
    ),
    (
        "config of a source operator",
        _set("operators", 0, "config", to={"path": "x"}),
        "operators[0].config.path",
        "stands in its entry under `sources`",
    ),
    (
        "source spec of a map",
        _set("sources", 0, "operator_id", to="text"),
        "sources[0].operator_id",
        "'text' is an operator of kind map; name a source operator",
    ),
    (
        "sink spec of nothing",
        _set("sinks", 0, "operator_id", to="x"),
        "sinks[0].operator_id",
        "'x' is no operator of the job",
    ),
    (
        "source without spec",
        _all(_operator(id="more", kind="source"), _edge("more", "totals")),
        "operators[3]",
        "source operator 'more' has no entry under `sources`",
    ),
    (
        "sink spec twice",
        lambda entry: entry["sinks"].append(dict(entry["sinks"][0])),
        "sinks[1].operator_id",
        "a second entry for 'totals'",
    ),
    (
        "two types",
        _set("sinks", 0, "config", to={"type": "drop"}),
        "sinks[0].config.type",
        "config.type 'drop' differs from output_type 'stdout'",
    ),
    ("empty type", _set("sinks", 0, "output_type", to=""), "sinks[0].output_type", "empty"),
    ("codec without type", _set("sinks", 0, "codec", to={}), "sinks[0].codec", "with `type`"),
    (
        "two codecs",
        _all(
            _set("sinks", 0, "codec", to="json"), _set("sinks", 0, "config", to={"codec": "avro"})
        ),
        "sinks[0].config.codec",
        "keep one",
    ),
    (
        "no timestamp field",
        _set("sources", 0, "time", to={"mode": "event_time", "watermark": {}}),
        "sources[0].time.timestamp_field",
        "needs `timestamp_field`",
    ),
    (
        "no watermark",
        _set("sources", 0, "time", to={"mode": "event_time", "timestamp_field": "at"}),
        "sources[0].time.watermark",
        "needs `watermark`",
    ),
    (
        "watermark of processing time",
        _set("sources", 0, "time", to={"mode": "processing_time", "watermark": {}}),
        "sources[0].time.watermark",
        "has no watermark",
    ),
    (
        "channel capacity",
        _set("channel", to={"capacity": 0}),
        "channel.capacity",
        "must be a positive integer",
    ),
    ("channel key", _set("channel", to={"size": 1}), "channel.size", "unknown key 'size'"),
    ("placement", _set("placement", to={"strategy": "x"}), "placement.strategy", "strict_spread"),
    ("placement key", _set("placement", to={"x": 1}), "placement.x", "known: strategy, labels"),
    ("multiplier", _set("restart", to={"multiplier": 0.5}), "restart.multiplier", "at least 1"),
    ("back-off", _set("restart", to={"max_ms": 1}), "restart.max_ms", "not be below"),
    (
        "pinned and moved",
        _all(_set("node_ids", to=["a"]), _set("rebalance", to={"mode": "auto"})),
        "node_ids",
        "keep one",
    ),
    *[
        (
            f"rate {rate}",
            _set("sources", 0, "config", to={"rows_per_second": rate}),
            "sources[0].config.rows_per_second",
            "must be a positive number",
        )
        for rate in (0, -1.5, "10", True, float("inf"), float("nan"))
    ],
    (
        "workers",
        _set("operators", 0, "config", to={"__arkflow_processor_parallelism": 0}),
        "operators[0].config.__arkflow_processor_parallelism",
        "must be an integer from 1",
    ),
]


@pytest.mark.parametrize(("name", "change", "path", "phrase"), ERRORS)
def test_a_mistake_is_one_error_at_its_place(
    job: Jobs, name: str, change: Change, path: str, phrase: str
) -> None:
    found = [i for i in validate_job(job(change)) if not i.warning and i.path == path]
    assert any(phrase in issue.message for issue in found), (name, validate_job(job(change)))


@pytest.mark.parametrize(
    "change",
    [
        _all(),
        _window(),
        _window(value_fields=["a", "b"]),
        _window(kind="sliding", size_ms=10_000, slide_ms=1),
        _window(kind="sliding", size_ms=10_000, slide_ms=4_000),
        _window(key_field=None, key_fields=["a", "b"], aggregates=[{"function": "count"}]),
        _window(aggregates=[{"function": "sum", "field": "v", "as": "total"}], overflow=None),
        _all(
            _window(),
            _set("operators", 1, "parallelism", to=4),
            _set("edges", 0, "partitioned", to=True),
        ),
        _join(),
        _all(
            _join(),
            _set("parallelism", to=2),
            _set("operators", 0, "parallelism", to=1),
            _set("edges", 0, "partitioned", to=True),
            _set("edges", 2, "partitioned", to=True),
        ),
        _all(_set("parallelism", to=3), _set("operators", 2, "parallelism", to=1)),
        _all(_sink("late"), _set("sources", 0, "time", to=EVENT | {"late_event_route": "late"})),
        _all(_sink("bad"), *[_edge(n, "bad", type="error") for n in ("gates", "text")]),
        _set("sources", 0, "codec", to={"type": "json", "on_error": "skip"}),
        _all(
            _set("operators", 1, to={"id": "text", "kind": "aggregate", "key_field": "k",
                                     "config": {"aggregates": []}}),
            _set("checkpoint", to=CHECKPOINT),
        ),
    ],
)  # fmt: skip
def test_a_right_job_has_no_issues(job: Jobs, change: Change) -> None:
    assert validate_job(job(change)) == []


@pytest.mark.parametrize(
    ("change", "path", "phrase"),
    [
        (
            _all(_window(), _set("checkpoint", to=None)),
            "state",
            "its state ends with the run",
        ),
        (_set("state", to=STATE), "state", "no operator keeps any"),
        (
            _all(_window(), _set("state", to=STATE | {"max_pending_transactions": 9})),
            "state.max_pending_transactions",
            "has no effect here",
        ),
        (
            _all(_window(), _set("sources", 0, "time", to={"mode": "processing_time"})),
            "operators[1].config.trigger",
            "`trigger: processing_time`",
        ),
        (
            _all(
                _set("parallelism", to=2),
                _set("edges", 0, "partitioned", to=True),
            ),
            "edges[0].partitioned",
            "subtask 0",
        ),
        (
            _all(
                _operator(id="m", kind="udf", config={"type": "python"}), _edge("gates", "m")
            ),
            "operators[3]",
            "its rows are discarded",
        ),
        (
            _all(_sink("bad"), _edge("text", "bad", type="error")),
            "operators[0]",
            "what fails in gates goes to 'bad' too",
        ),
        (
            _set("sources", 0, "time", to=EVENT
                 | {"watermark": {"strategy": "monotonous", "out_of_orderness_ms": 5}}),
            "sources[0].time.watermark.out_of_orderness_ms",
            "no effect",
        ),
        (_window(on_overflow="evict_oldest"), "operators[1].config.on_overflow", "no effect"),
    ],
)  # fmt: skip
def test_a_doubtful_job_has_one_warning(job: Jobs, change: Change, path: str, phrase: str) -> None:
    [issue] = validate_job(job(change))
    assert issue.warning
    assert (issue.path, phrase in issue.message) == (path, True)


def test_all_mistakes_of_a_job_are_reported_at_once(job: Jobs) -> None:
    change = _all(
        _set("id", to="a b"),
        _set("checkpoint", to=CHECKPOINT | {"interval_ms": 0}),
        _set("operators", 1, "config", to={}),
        _edge("text", "nowhere"),
        _set("sources", 0, "time", to={"mode": "event_time"}),
        _set("sinks", 0, "codec", to=""),
    )
    assert [issue.path for issue in validate_job(job(change))] == [
        "id",
        "checkpoint.interval_ms",
        "operators[1].config.type",
        "sinks[0].codec",
        "edges[2].to",
        "sources[0].time.timestamp_field",
        "sources[0].time.watermark",
    ]
