"""Windows, event time and buffers in a file: what is accepted, and where a mistake stands."""

import pytest
import yaml

from arkflow_ray.config.project import check_file
from tests.unit.config.sample_files import STREAM, Write, schema_errors

JOB = """
jobs:
  - id: j
    version: 1
    operators:
      - {id: in, kind: source}
      - id: w
        kind: window
        config:
          kind: tumbling
          size_ms: 1000
          timestamp_field: at
          key_field: shop
          aggregates:
            - {function: sum, field: price, as: total}
            - {function: count}
      - {id: out, kind: sink}
      - {id: late, kind: sink}
    edges:
      - {id: e, from: in, to: w}
      - {id: f, from: w, to: out}
    sources:
      - operator_id: in
        input_type: generate
        config: {context: x}
        codec: json
        time:
          mode: event_time
          timestamp_field: at
          watermark: {out_of_orderness_ms: 5, max_future_skew_ms: 9, split_order: time}
          late_event_policy: route
          late_event_route: late
    sinks:
      - {operator_id: out, output_type: stdout}
      - {operator_id: late, output_type: stdout}
    checkpoint: {object_store_uri: file:///tmp/x}
"""


def _buffered(buffer: str) -> str:
    return STREAM.replace("    pipeline:", f"    buffer: {buffer}\n    pipeline:")


def _errors(write: Write, text: str) -> list[str]:
    path = write(text)
    return [str(issue).replace(str(path), "F") for issue in check_file(path, env={}).errors]


def test_a_window_on_event_time_with_a_late_route_is_right(write: Write) -> None:
    checked = check_file(write(JOB), env={})
    assert checked.issues == []
    [job] = checked.jobs
    assert job.graph is not None
    assert [chain.late_output for chain in job.graph.chains] == ["late"]
    assert schema_errors(yaml.safe_load(JOB)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("size_ms: 1000", "unit: year"),
        ("size_ms: 1000", "sizems: 1000"),
        ("as: total", "name: total"),
        ("split_order: time", "split_order: size"),
        ("late_event_policy: route", "late_event_policy: keep"),
    ],
)
def test_editors_refuse_what_no_window_and_no_event_time_has(old: str, new: str) -> None:
    assert schema_errors(yaml.safe_load(JOB.replace(old, new, 1))) != []


def test_event_time_of_rows_that_nothing_has_parsed_is_refused(write: Write) -> None:
    bare = JOB.replace("        codec: json\n", "", 1)
    (message,) = _errors(write, bare)
    assert "sources[0].time.timestamp_field" in message
    assert "rows of input 'generate' are payloads" in message
    assert "`codec: json`" in message
    inside = JOB.replace("{context: x}", "{context: x, codec: json}").replace("codec: json\n", "\n")
    assert _errors(write, inside) == []
    meta = bare.replace("timestamp_field: at", "timestamp_field: __meta_timestamp")
    assert _errors(write, meta) == []


@pytest.mark.parametrize(
    "buffer",
    [
        "{type: tumbling_window, interval: 10s}",
        "{type: tumbling_window, size: 1m, time_field: at, key_field: k, aggregate_fields: [x, y]}",
        "{type: session_window, gap: 500ms, timestamp_field: at, value_fields: [x]}",
        "{type: memory, capacity: 5}",
    ],
)
def test_every_buffer_that_compiles_is_right_for_the_loader_and_for_editors(
    write: Write, buffer: str
) -> None:
    text = _buffered(buffer)
    assert _errors(write, text) == []
    assert schema_errors(yaml.safe_load(text)) == []


def test_a_stream_may_say_what_its_window_keeps(write: Write) -> None:
    text = _buffered("{type: tumbling_window, interval: 10s}").replace(
        "    output:", "    state: {backend: embedded_kv, max_bytes: 9}\n    output:"
    )
    checked = check_file(write(text), env={})
    assert checked.errors == []
    [job] = checked.jobs
    assert job.graph is not None
    [operator] = job.graph.chains[0].operators[:1]
    assert operator.state is not None
    assert operator.state.max_bytes == 9


@pytest.mark.parametrize(
    ("old", "new", "line", "phrase"),
    [
        ("size_ms: 1000", "unit: day\n          timezone: europe/berln", 12, "`Europe/Berlin`"),
        ("size_ms: 1000", "size_ms: 1s", 11, "size_ms"),
        ("as: total", "as: count", 16, "two columns 'count'"),
        ("function: sum", "function: summ", 15, "function"),
        ("out_of_orderness_ms", "out_of_orderness", 30, "did you mean 'out_of_orderness_ms'"),
        ("split_order: time", "split_order: yes", 30, "split_order"),
        ("max_future_skew_ms: 9", "max_drift_ms: 1s", 30, "max_drift_ms"),
        ("late_event_route: late", "late_event_route: lat", 32, "operator 'lat', which the job"),
        (
            "          timestamp_field: at\n          water",
            "          water",
            27,
            "timestamp_field",
        ),
    ],
)
def test_a_mistake_of_a_window_or_of_event_time_is_told_with_its_line(
    write: Write, old: str, new: str, line: int, phrase: str
) -> None:
    changed = JOB.replace(old, new, 1)
    assert changed != JOB
    told = _errors(write, changed)
    assert [text for text in told if text.startswith(f"F:{line}:") and phrase in text], told
