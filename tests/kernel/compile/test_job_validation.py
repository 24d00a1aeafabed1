"""Validation (C6): each rule by one mistake in a valid job, and all of them at once."""

from collections.abc import Callable

import pytest

from arkflow_kernel.job import JobSpec
from arkflow_kernel.job_validation import validate_job
from arkflow_kernel.testing.job_changes import (
    CHECKPOINT,
    EVENT,
    STATE,
    Change,
    add_edge,
    add_operator,
    add_sink,
    all_of,
    as_join,
    as_window,
    set_at,
)

Jobs = Callable[..., JobSpec]

COUNT = {"id": "text", "kind": "map", "stateful": True, "key_field": "k"}

ERRORS: list[tuple[str, Change, str, str]] = [
    ("job id", set_at("id", to="a b"), "id", "invalid Job id 'a b'; use 1-128 letters"),
    ("no source spec", set_at("sources", to=[]), "sources", "at least one executable source"),
    ("no sink spec", set_at("sinks", to=[]), "sinks", "at least one executable sink"),
    ("key groups", set_at("max_parallelism", to=0), "max_parallelism", "must be positive"),
    (
        "parallelism",
        set_at("parallelism", to=129),
        "parallelism",
        "Job 'turnstiles' parallelism must be between 1 and max_parallelism",
    ),
    ("parallelism 0", set_at("parallelism", to=0), "parallelism", "must be between 1"),
    (
        "operator parallelism",
        all_of(
            set_at("operators", 1, "parallelism", to=200),
            set_at("edges", 0, "type", to="rebalance"),
        ),
        "operators[1].parallelism",
        "must be between 1 and max_parallelism",
    ),
    (
        "pending transactions",
        all_of(as_window(), set_at("state", to=STATE | {"max_pending_transactions": 0})),
        "state.max_pending_transactions",
        "state.max_pending_transactions must be positive",
    ),
    (
        "backend",
        all_of(as_window(), set_at("state", to={"backend": "rocksdb"})),
        "state.backend",
        "local Job state backend 'rocksdb' is not supported; use embedded_kv",
    ),
    ("root", all_of(as_window(), set_at("state", to=STATE | {"root": ""})), "state.root", "empty"),
    (
        "format version",
        all_of(as_window(), set_at("state", to=STATE | {"format_version": 0})),
        "state.format_version",
        "must be 1",
    ),
    (
        "max bytes",
        all_of(as_window(), set_at("state", to=STATE | {"max_bytes": 0})),
        "state.max_bytes",
        "must be positive",
    ),
    (
        "interval",
        set_at("checkpoint", to=CHECKPOINT | {"interval_ms": 0}),
        "checkpoint.interval_ms",
        "must be positive",
    ),
    (
        "retention",
        set_at("checkpoint", to=CHECKPOINT | {"retention": 0}),
        "checkpoint.retention",
        "must be positive",
    ),
    (
        "uri",
        set_at("checkpoint", to={"object_store_uri": " "}),
        "checkpoint.object_store_uri",
        "must not be empty",
    ),
    (
        "exactly-once without checkpoint",
        set_at("sinks", 0, "config", to={"exactly_once": True}),
        "sinks[0].config.exactly_once",
        "needs a `checkpoint:` block",
    ),
    ("empty id", add_operator(id="", kind="sink"), "operators[3].id", "must not be empty"),
    (
        "repeated id",
        add_operator(id="text", kind="map", config={"type": "sql"}),
        "operators[3].id",
        "duplicate operator id 'text'",
    ),
    (
        "no type",
        set_at("operators", 1, "config", to={}),
        "operators[1].config.type",
        "operator 'text' requires config.type",
    ),
    (
        "type no text",
        set_at("operators", 1, "config", to={"type": 7}),
        "operators[1].config.type",
        "as text",
    ),
    (
        "stateful without key",
        all_of(set_at("operators", 1, "stateful", to=True), set_at("checkpoint", to=CHECKPOINT)),
        "operators[1].key_field",
        "stateful operator 'text' requires key_field",
    ),
    (
        "stateful source",
        set_at("operators", 0, "stateful", to=True),
        "operators[0].stateful",
        "cannot be stateful",
    ),
    (
        "config of a source operator",
        set_at("operators", 0, "config", to={"path": "x"}),
        "operators[0].config.path",
        "stands in its entry under `sources`",
    ),
    (
        "source spec of a map",
        set_at("sources", 0, "operator_id", to="text"),
        "sources[0].operator_id",
        "'text' is an operator of kind map; name a source operator",
    ),
    (
        "sink spec of nothing",
        set_at("sinks", 0, "operator_id", to="x"),
        "sinks[0].operator_id",
        "'x' is no operator of the job",
    ),
    (
        "source without spec",
        all_of(add_operator(id="more", kind="source"), add_edge("more", "totals")),
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
        set_at("sinks", 0, "config", to={"type": "drop"}),
        "sinks[0].config.type",
        "config.type 'drop' differs from output_type 'stdout'",
    ),
    ("empty type", set_at("sinks", 0, "output_type", to=""), "sinks[0].output_type", "empty"),
    ("codec without type", set_at("sinks", 0, "codec", to={}), "sinks[0].codec", "with `type`"),
    (
        "two codecs",
        all_of(
            set_at("sinks", 0, "codec", to="json"),
            set_at("sinks", 0, "config", to={"codec": "avro"}),
        ),
        "sinks[0].config.codec",
        "keep one",
    ),
    (
        "no timestamp field",
        set_at("sources", 0, "time", to={"mode": "event_time", "watermark": {}}),
        "sources[0].time.timestamp_field",
        "needs `timestamp_field`",
    ),
    (
        "no watermark",
        set_at("sources", 0, "time", to={"mode": "event_time", "timestamp_field": "at"}),
        "sources[0].time.watermark",
        "needs `watermark`",
    ),
    (
        "watermark of processing time",
        set_at("sources", 0, "time", to={"mode": "processing_time", "watermark": {}}),
        "sources[0].time.watermark",
        "has no watermark",
    ),
    ("placement", set_at("placement", to={"strategy": "x"}), "placement.strategy", "strict_spread"),
    ("placement key", set_at("placement", to={"x": 1}), "placement.x", "known: strategy, labels"),
    ("multiplier", set_at("restart", to={"multiplier": 0.5}), "restart.multiplier", "at least 1"),
    *[
        (
            f"multiplier {number}",
            set_at("restart", to={"multiplier": number}),
            "restart.multiplier",
            "at least 1",
        )
        for number in (float("nan"), float("inf"), -2.0)
    ],
    ("back-off", set_at("restart", to={"max_ms": 1}), "restart.max_ms", "not be below"),
    (
        "count field",
        set_at("operators", 1, to=COUNT | {"config": {"type": "sql", "state_output_field": ""}}),
        "operators[1].config.state_output_field",
        "leave it out for __arkflow_state_count",
    ),
    (
        "count field is the key",
        set_at("operators", 1, to=COUNT | {"config": {"type": "sql", "state_output_field": "k"}}),
        "operators[1].config.state_output_field",
        "would replace the key of 'text'",
    ),
    (
        "pinned and moved",
        all_of(set_at("node_ids", to=["a"]), set_at("rebalance", to={"mode": "auto"})),
        "node_ids",
        "keep one",
    ),
    *[
        (
            f"rate {rate}",
            set_at("sources", 0, "config", to={"rows_per_second": rate}),
            "sources[0].config.rows_per_second",
            "must be a positive number",
        )
        for rate in (0, -1.5, "10", True, float("inf"), float("nan"))
    ],
    (
        "workers",
        set_at("operators", 0, "config", to={"__arkflow_processor_parallelism": 0}),
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
        all_of(),
        as_window(),
        as_window(value_fields=["a"]),
        as_window(size_ms=None, unit="month", timezone="Europe/Berlin", offset_ms=-3_600_000),
        as_window(key_field="window_start", value_fields=["a"]),
        as_window(kind="sliding", size_ms=10_000, slide_ms=1),
        as_window(kind="sliding", size_ms=10_000, slide_ms=4_000),
        as_window(key_field=None, key_fields=["a", "b"], aggregates=[{"function": "count"}]),
        as_window(aggregates=[{"function": "sum", "field": "v", "as": "total"}], overflow=None),
        all_of(
            as_window(),
            set_at("operators", 1, "parallelism", to=4),
            set_at("edges", 0, "partitioned", to=True),
        ),
        as_join(),
        all_of(
            as_join(),
            set_at("parallelism", to=2),
            set_at("operators", 0, "parallelism", to=1),
            set_at("edges", 0, "partitioned", to=True),
            set_at("edges", 2, "partitioned", to=True),
        ),
        all_of(set_at("parallelism", to=3), set_at("operators", 2, "parallelism", to=1)),
        all_of(
            add_sink("late"),
            set_at("sources", 0, "time", to=EVENT | {"late_event_route": "late"}),
        ),
        all_of(add_sink("bad"), *[add_edge(n, "bad", type="error") for n in ("gates", "text")]),
        set_at("sources", 0, "codec", to={"type": "json", "on_error": "skip"}),
        set_at("restart", to={"strategy": "fixed", "initial_ms": 120_000}),
        set_at("channel", to={"capacity": 1, "chain_bytes": 1}),
        all_of(
            set_at("operators", 1, "key_field", to="k"),
            set_at("operators", 1, "parallelism", to=2),
            set_at("edges", 0, "partitioned", to=True),
        ),
        all_of(
            set_at("operators", 1, to={"id": "text", "kind": "aggregate", "key_field": "k",
                                     "config": {"aggregates": [{"function": "count"}]}}),
            set_at("checkpoint", to=CHECKPOINT),
        ),
    ],
)  # fmt: skip
def test_a_right_job_has_no_issues(job: Jobs, change: Change) -> None:
    assert validate_job(job(change)) == []


@pytest.mark.parametrize(
    ("change", "path", "phrase"),
    [
        (
            set_at("operators", 1, to=COUNT | {"config": {"type": "sql"}}),
            "state",
            "operator 'text' is stateful",
        ),
        (
            set_at("operators", 1, "key_field", to="k"),
            "operators[1].key_field",
            "key_field of 'text' has no effect",
        ),
        (
            set_at("channel", to={"capacity_bytes": 5, "chain_bytes": 5}),
            "channel.chain_bytes",
            "`capacity_bytes` says what each channel gets",
        ),
        (set_at("state", to=STATE), "state", "no operator keeps any"),
        (
            all_of(as_window(), set_at("state", to=STATE | {"max_pending_transactions": 9})),
            "state.max_pending_transactions",
            "has no effect here",
        ),
        (
            all_of(as_window(), set_at("sources", 0, "time", to={"mode": "processing_time"})),
            "operators[1].config.trigger",
            "`trigger: processing_time`",
        ),
        (
            all_of(
                set_at("parallelism", to=2),
                set_at("edges", 0, "partitioned", to=True),
            ),
            "edges[0].partitioned",
            "subtask 0",
        ),
        (
            all_of(
                add_operator(id="m", kind="udf", config={"type": "python"}), add_edge("gates", "m")
            ),
            "operators[3]",
            "its rows are discarded",
        ),
        (
            all_of(add_sink("bad"), add_edge("text", "bad", type="error")),
            "operators[0]",
            "what fails in gates goes to 'bad' too",
        ),
        (
            set_at("sources", 0, "time", to=EVENT
                 | {"watermark": {"strategy": "monotonous", "out_of_orderness_ms": 5}}),
            "sources[0].time.watermark.out_of_orderness_ms",
            "no effect",
        ),
        (as_window(on_overflow="evict_oldest"), "operators[1].config.on_overflow", "no effect"),
    ],
)  # fmt: skip
def test_a_doubtful_job_has_one_warning(job: Jobs, change: Change, path: str, phrase: str) -> None:
    [issue] = validate_job(job(change))
    assert issue.warning
    assert (issue.path, phrase in issue.message) == (path, True)


def test_all_mistakes_of_a_job_are_reported_at_once(job: Jobs) -> None:
    change = all_of(
        set_at("id", to="a b"),
        set_at("checkpoint", to=CHECKPOINT | {"interval_ms": 0}),
        set_at("operators", 1, "config", to={}),
        add_edge("text", "nowhere"),
        set_at("sources", 0, "time", to={"mode": "event_time"}),
        set_at("sinks", 0, "codec", to=""),
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
