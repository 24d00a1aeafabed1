"""Streams become jobs (C1-C3): mapping, names, determinism, and where mistakes are reported."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.errors import ConfigError
from arkflow_kernel.job import JobSpec, StreamSpec
from arkflow_kernel.job_validation import validate_job
from arkflow_kernel.stream_compiler import WORKERS_KEY, compile_stream

Streams = Callable[..., StreamSpec]


def _errors(stream: StreamSpec) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as error:
        compile_stream(stream, 0)
    return [(issue.path, issue.message) for issue in error.value.issues]


def test_a_stream_becomes_one_line_of_operators(stream: Streams) -> None:
    compiled = compile_stream(stream(), 3)
    job = compiled.job
    assert [(o.id, o.kind) for o in job.operators] == [
        ("source", "source"),
        ("p0-sql", "map"),
        ("sink", "sink"),
    ]
    assert [(e.id, e.from_, e.to, e.type) for e in job.edges] == [
        ("edge-source-p0-sql", "source", "p0-sql", None),
        ("edge-p0-sql-sink", "p0-sql", "sink", None),
    ]
    assert (job.id, job.version, job.parallelism, job.max_parallelism) == ("bids", 1, 1, 1)
    assert job.sources[0].time.mode == "processing_time"
    assert compiled.warnings == []
    assert compiled.paths == {
        "source": "input",
        "p0-sql": "pipeline.processors[0]",
        "sink": "output",
    }


def test_what_a_stream_says_beside_its_components_travels_in_the_job(stream: Streams) -> None:
    extra = {
        "state": {"backend": "embedded_kv"},
        "checkpoint": {"object_store_uri": "file:///x"},
        "restart": {"strategy": "none"},
        "delivery": "best_effort",
    }
    spec = stream(**extra)
    job = compile_stream(spec, 0).job
    assert (job.state, job.checkpoint, job.restart, job.delivery) == (
        spec.state,
        spec.checkpoint,
        spec.restart,
        "best_effort",
    )


def test_components_keep_their_keys_codec_and_name(stream: Streams) -> None:
    spec = stream(
        input={"type": "file", "name": "in", "codec": "json", "rows_per_second": 5, "path": "p"},
        output={"type": "file", "codec": {"type": "json"}, "path": "${secret:OUT}"},
        pipeline={
            "thread_num": 4,
            "processors": [{"type": "python", "name": "f", "function": "g"}],
        },
    )
    job = compile_stream(spec, 0).job
    assert job.sources[0].config == {"name": "in", "rows_per_second": 5, "path": "p"}
    assert job.sources[0].codec == "json"
    assert job.sinks[0].codec == {"type": "json"}
    assert job.sinks[0].config == {"path": "${secret:OUT}"}
    assert job.operators[0].config == {WORKERS_KEY: 4}
    assert job.operators[1].config == {"type": "python", "name": "f", "function": "g"}


def test_an_error_output_takes_errors_of_the_source_and_of_every_processor(
    stream: Streams,
) -> None:
    processors = [{"type": "json_to_arrow"}, {"type": "sql", "query": "q"}]
    job = compile_stream(
        stream(error_output={"type": "drop"}, pipeline={"processors": processors}), 0
    ).job
    errors = [(e.from_, e.to) for e in job.edges if e.type == "error"]
    assert errors == [(n, "error-sink") for n in ("source", "p0-json_to_arrow", "p1-sql")]
    assert [s.operator_id for s in job.sinks] == ["sink", "error-sink"]
    assert validate_job(job) == []


@pytest.mark.parametrize("processors", [None, []])
def test_a_stream_without_processors_leads_from_source_to_sink(
    stream: Streams, processors: list[Any] | None
) -> None:
    spec = stream(pipeline={"processors": processors}, error_output={"type": "drop"})
    job = compile_stream(spec, 0).job
    assert [(e.from_, e.to, e.type) for e in job.edges] == [
        ("source", "sink", None),
        ("source", "error-sink", "error"),
    ]
    assert validate_job(job) == []


def test_a_unique_name_is_the_operators_id_and_any_other_is_warned_about(stream: Streams) -> None:
    names = ["enrich", "twice", "twice", "two words", "sink", "p0-sql", None]
    processors = [{"type": "sql", "query": "q"} | ({"name": n} if n else {}) for n in names]
    compiled = compile_stream(stream(pipeline={"processors": processors}), 0)
    ids = [operator.id for operator in compiled.job.operators[1:-1]]
    assert ids == ["enrich", "p1-sql", "p2-sql", "p3-sql", "p4-sql", "p5-sql", "p6-sql"]
    assert [issue.path for issue in compiled.warnings] == [
        f"pipeline.processors[{i}].name" for i in (1, 2, 3, 4, 5)
    ]
    assert all(issue.warning for issue in compiled.warnings)


def test_characters_that_an_id_cannot_hold_become_dashes(stream: Streams) -> None:
    compiled = compile_stream(stream(pipeline={"processors": [{"type": "my.own/udf"}]}), 0)
    assert compiled.job.operators[1].id == "p0-my-own-udf"


def test_a_stream_without_id_is_named_after_its_place_with_a_warning(stream: Streams) -> None:
    compiled = compile_stream(stream(id=None), 2)
    assert compiled.job.id == "stream-2"
    assert [(i.path, i.warning) for i in compiled.warnings] == [("id", True)]


@pytest.mark.parametrize("name", ["", "a b", "ä", "a/b", "x" * 129])
def test_an_invalid_stream_id_is_refused_in_arkflows_words(stream: Streams, name: str) -> None:
    [(path, message)] = _errors(stream(id=name))
    assert path == "id"
    assert message.startswith(f"Invalid stream id '{name}' at index 0; use non-empty letters")


def test_all_mistakes_of_a_stream_are_reported_at_once(stream: Streams) -> None:
    spec = stream(
        id="a b", buffer={"type": "tumbling_windw"}, pipeline={"processors": [{"type": ""}]}
    )
    assert [path for path, _ in _errors(spec)] == [
        "id",
        "pipeline.processors[0].type",
        "buffer.type",
    ]


def test_chain_false_of_a_pipeline_holds_for_every_operator(stream: Streams) -> None:
    spec = stream(
        pipeline={"chain": False, "processors": []},
        error_output={"type": "drop"},
    )
    assert [o.chain for o in compile_stream(spec, 0).job.operators] == [False] * 3


def test_a_window_and_the_processors_stay_in_one_chain(stream: Streams) -> None:
    """Or rows of one window would reach them in pieces (B.4)."""
    spec = stream(
        pipeline={"chain": False, "processors": [{"type": "sql"}, {"type": "drop"}]},
        buffer={"type": "session_window", "gap": "1s"},
    )
    compiled = compile_stream(spec, 0)
    chained = {operator.id: operator.chain for operator in compiled.job.operators}
    assert chained == {
        "source": False,
        "window": True,
        "p0-sql": True,
        "p1-drop": True,
        "sink": False,
    }
    (warning,) = compiled.warnings
    assert (warning.path, warning.warning) == ("pipeline.chain", True)
    assert "in pieces" in warning.message


def test_a_memory_buffer_compiles_to_nothing(stream: Streams) -> None:
    plain = compile_stream(stream(), 0)
    assert compile_stream(stream(buffer={"type": "memory", "capacity": 10}), 0) == plain


def test_a_window_buffer_becomes_an_operator_before_the_processors(stream: Streams) -> None:
    spec = stream(buffer={"type": "tumbling_window", "interval": "1.5s"})
    job = compile_stream(spec, 0).job
    assert [o.id for o in job.operators] == ["source", "window", "p0-sql", "sink"]
    window = job.operators[1]
    assert (window.kind, window.stateful, window.key_field) == (
        "window",
        True,
        "__arkflow_window_all",
    )
    assert window.config == {
        "kind": "tumbling",
        "size_ms": 1500,
        "timestamp_field": "__meta_timestamp",
        "key_field": "__arkflow_window_all",
        "value_fields": [],
        "trigger": "processing_time",
        "trigger_interval_ms": 1500,
        "legacy_payload": True,
    }
    assert [i.path for i in validate_job(job)] == ["state"]


def test_a_session_buffer_takes_its_columns_and_at_least_a_millisecond(stream: Streams) -> None:
    buffer = {
        "type": "session_window",
        "gap": "10us",
        "time_field": "at",
        "key_field": "k",
        "aggregate_fields": ["v"],
    }
    config = compile_stream(stream(buffer=buffer), 0).job.operators[1].config
    assert (config["kind"], config["gap_ms"], config["trigger_interval_ms"]) == ("session", 1, 1)
    assert (config["timestamp_field"], config["key_field"]) == ("at", "k")
    assert config["value_fields"] == ["v"]


def test_a_window_has_one_worker_and_says_so(stream: Streams) -> None:
    spec = stream(
        buffer={"type": "session_window", "gap": "1s"},
        pipeline={"thread_num": 4, "processors": []},
    )
    compiled = compile_stream(spec, 0)
    assert compiled.job.operators[0].config == {WORKERS_KEY: 1}
    assert [i.path for i in compiled.warnings] == ["pipeline.thread_num"]


@pytest.mark.parametrize(
    ("buffer", "path", "phrases"),
    [
        ({"type": "sliding_window"}, "buffer.type", ["stream 'bids'", "kind: sliding", "`jobs:`"]),
        (
            {"type": "session_window", "gap": "1s", "join": {"query": "q"}},
            "buffer.join",
            ["stream 'bids'", "operator of kind `join`"],
        ),
        (
            {"type": "tumbling", "interval": "1s"},
            "buffer.type",
            ["unknown buffer type 'tumbling' while compiling stream 'bids'", "`tumbling_window`"],
        ),
        (
            {"type": "tumbling_window"},
            "buffer.interval",
            ["buffer 'tumbling_window' requires a 'interval' duration (e.g. \"1s\")"],
        ),
        ({"type": "tumbling_window", "interval": "10"}, "buffer.interval", ["`1h30m`"]),
        ({"type": "tumbling_window", "interval": 10}, "buffer.interval", ["as text"]),
        ({"type": "session_window", "gap": "1s", "key": "k"}, "buffer.key", ["key_field"]),
        ({"type": "memory", "capactiy": 1}, "buffer.capactiy", ["did you mean `capacity`"]),
        ({"type": "memory", "codec": "json"}, "buffer.codec", ["input"]),
        ({"type": "session_window", "gap": "1s", "key_field": 1}, "buffer.key_field", ["column"]),
        (
            {"type": "session_window", "gap": "1s", "value_fields": "v"},
            "buffer.value_fields",
            ["list"],
        ),
    ],
)
def test_a_buffer_that_cannot_be_compiled_is_an_error_with_advice(
    stream: Streams, buffer: dict[str, Any], path: str, phrases: list[str]
) -> None:
    [(found, message)] = _errors(stream(buffer=buffer))
    assert found == path
    for phrase in phrases:
        assert phrase in message


def test_mistakes_of_the_job_are_located_in_the_stream(stream: Streams) -> None:
    processors = [{"type": "sql", "query": "q"}]
    spec = stream(error_output={"type": "drop"}, pipeline={"processors": processors})
    locate = compile_stream(spec, 0).locate
    expected = {
        "operators[1].config.query": "pipeline.processors[0].query",
        "operators[1].config": "pipeline.processors[0]",
        "operators[1].kind": "pipeline.processors[0]",
        "operators[1].chain": "pipeline.chain",
        f"operators[0].config.{WORKERS_KEY}": "pipeline.thread_num",
        "sources[0].config.rows_per_second": "input.rows_per_second",
        "sources[0].input_type": "input.type",
        "sources[0].codec.type": "input.codec.type",
        "sinks[1].config.path[0]": "error_output.path[0]",
        "checkpoint.interval_ms": "checkpoint.interval_ms",
        "edges[0].to": "",
        "max_parallelism": "",
    }
    assert {path: locate(path) for path in expected} == expected


_NAMES = st.one_of(
    st.none(), st.text("ab_- .p0ä", max_size=8), st.sampled_from(["a", "b", "sink", "p0-sql"])
)
_PROCESSORS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["sql", "python", "a.b"])},
        optional={"name": _NAMES, "options": st.dictionaries(st.text("abc"), st.integers())},
    ),
    max_size=6,
)


@given(_PROCESSORS, st.booleans(), st.integers(1, 8))
def test_any_stream_compiles_to_the_same_valid_bytes_twice(
    processors: list[dict[str, Any]], errors: bool, threads: int
) -> None:
    entry = {
        "id": "s",
        "input": {"type": "memory"},
        "pipeline": {"thread_num": threads, "processors": processors},
        "output": {"type": "drop"},
        "error_output": {"type": "drop"} if errors else None,
    }
    one = compile_stream(StreamSpec.model_validate(entry), 0)
    other = compile_stream(StreamSpec.model_validate(json.loads(json.dumps(entry))), 0)
    text = one.job.model_dump_json(by_alias=True)
    assert text == other.job.model_dump_json(by_alias=True)
    assert JobSpec.model_validate_json(text) == one.job
    assert set(one.paths) == {operator.id for operator in one.job.operators}
    assert validate_job(one.job) == []
