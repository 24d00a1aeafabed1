"""Explain (C7): what it says, that it fits 80 columns, and that it holds no configuration."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from arkflow_kernel.explain import as_text, explain, references
from arkflow_kernel.graph import build_graph
from arkflow_kernel.job import JobSpec, StreamSpec
from arkflow_kernel.stream_compiler import compile_stream

STREAM: dict[str, Any] = {
    "id": "dear-bids",
    "input": {"type": "file", "codec": "json", "path": "${env:DATA:-/tmp/hidden}/bids"},
    "pipeline": {
        "thread_num": 4,
        "processors": [
            {"type": "sql", "query": "SELECT secret_column FROM flow"},
            {"type": "python", "name": "enrich", "function": "f", "token": "${secret:TOKEN}"},
        ],
    },
    "output": {"type": "stdout"},
    "error_output": {"type": "file", "path": "errors"},
}

TEXT = """\
job dear-bids, version 1
  mode         ack: no operator keeps anything across batches, and there is no
               `checkpoint:` block
  state        none
  checkpoints  none: a source's position follows the writes that its sinks
               confirmed
  restart      exponential: at once, then after 1,000 ms, times 2 each up to
               60,000 ms; at once again after 600,000 ms without a failure
  placement    colocated: 1 chain, one actor each
  lateness     source: processing time: nothing is late

operators
  source      source file
      uses ${env:DATA}
  p0-sql      map sql
  enrich      map python
      uses ${secret:TOKEN}
  sink        sink stdout
  error-sink  sink file

chains (key groups: 1)
  source-0: 4 workers, order kept, errors to error-sink, holds at most 152 MiB
      source-0, p0-sql-0, enrich-0, sink-0, error-sink-0

edges
  source -> p0-sql: forward, inside the chain
  p0-sql -> enrich: forward, inside the chain
  enrich -> sink: forward, inside the chain
  source -> error-sink: error, inside the chain
  p0-sql -> error-sink: error, inside the chain
  enrich -> error-sink: error, inside the chain
"""


def _stream() -> JobSpec:
    return compile_stream(StreamSpec.model_validate(STREAM), 0).job


def _window(entry: dict[str, Any]) -> None:
    """`gates -> text -> per-gate x2 -> totals` over event time, with checkpoints."""
    entry["operators"].append(
        {
            "id": "per-gate",
            "kind": "window",
            "parallelism": 2,
            "config": {
                "kind": "tumbling",
                "size_ms": 10,
                "timestamp_field": "at",
                "key_field": "gate",
            },
        }
    )
    entry["edges"][1]["to"] = "per-gate"
    entry["edges"][1]["partitioned"] = True
    entry["edges"].append({"id": "c", "from": "per-gate", "to": "totals"})
    entry["sources"][0]["time"] = {
        "mode": "event_time",
        "timestamp_field": "at",
        "watermark": {},
    }
    entry["checkpoint"] = {"object_store_uri": "s3://key:hunter2@bucket/x", "interval_ms": 500}


def test_the_text_of_a_stream_of_five_operators() -> None:
    job = _stream()
    assert as_text(explain(job, build_graph(job))) == TEXT


def test_a_keyed_job_shows_modes_key_groups_edges_and_where_lateness_is_judged(
    job: Callable[..., JobSpec],
) -> None:
    spec = job(_window)
    text = as_text(explain(spec, build_graph(spec)))
    for line in (
        "  mode         checkpoint: operator 'per-gate' is a window",
        "  state        per-gate: in the memory of its process, and in checkpoints",
        "  checkpoints  every 500 ms to s3://bucket/x, the newest 3 kept",
        "  placement    colocated: 4 chains, one actor each",
        "  per-gate  window tumbling x2",
        "  per-gate-0: key groups 0-63, an error fails the job, holds at most 96 MiB",
        "  per-gate-1: key groups 64-127, an error fails the job, holds at most 96 MiB",
        "  text -> per-gate: partitioned by gate, in 2 channels, each with at most 1,024",
        "      batches and 32 MiB",
    ):
        assert line in text.splitlines()
    assert "gates: judged row by row at per-gate, policy drop" in " ".join(text.split())
    assert "where text rebuilds the columns" in " ".join(text.split())


def _counting(entry: dict[str, Any]) -> None:
    """`gates -> text x2 -> totals`, text counting by gate; errors of both into one sink."""
    entry["operators"][1] |= {"stateful": True, "key_field": "gate", "parallelism": 2}
    entry["operators"].append({"id": "bad", "kind": "sink"})
    entry["sinks"].append({"operator_id": "bad", "output_type": "drop"})
    entry["edges"][0]["partitioned"] = True
    entry["edges"] += [
        {"id": "x", "from": "gates", "to": "bad", "type": "error"},
        {"id": "y", "from": "text", "to": "bad", "type": "error"},
    ]
    entry["state"] = {"backend": "embedded_kv", "max_bytes": 5, "ttl_ms": 1_000}
    entry["channel"] = {"capacity": 8, "capacity_bytes": 1_000}


def test_a_counting_job_shows_channels_and_that_its_state_ends_with_the_run(
    job: Callable[..., JobSpec],
) -> None:
    spec = job(_counting)
    lines = as_text(explain(spec, build_graph(spec))).splitlines()
    for line in (
        "  mode         checkpoint: operator 'text' is stateful",
        "  state        text: in the memory of its process, and in checkpoints, which end",
        "               with the run",
        "  checkpoints  every 10,000 ms to a folder that ends with the run: a restart",
        "               continues, a new run begins anew",
        "      at least once: there is no `checkpoint:` block",
        "  text    map arrow_to_json x2",
        "      counts rows by gate into __arkflow_state_count, at most 5 bytes, a key",
        "      forgotten after 1,000 ms",
        "  text-1: key groups 64-127, errors to y, holds at most 96 MiB",
        "  gates -> bad: error, in 1 channel, with at most 8 batches and 1,000 bytes",
    ):
        assert line in lines


def test_json_shows_channels_per_edge_their_bounds_and_state(job: Callable[..., JobSpec]) -> None:
    spec = job(_counting)
    told = asdict(explain(spec, build_graph(spec)))
    edges = {edge["id"]: edge for edge in told["edges"]}
    counts = {name: edge["channels"] for name, edge in edges.items()}
    assert counts == {"a": 2, "b": 2, "x": 1, "y": 2}
    assert {(e["capacity"], e["capacity_bytes"]) for e in edges.values()} == {(8, 1_000)}
    chains = {chain["id"]: chain for chain in told["chains"]}
    assert chains["bad-0"]["inputs"] == ["x[0-0]", "y[0-0]", "y[1-0]"]
    [text] = [o for o in told["operators"] if o["id"] == "text"]
    assert text["key_groups"] == [[0, 63], [64, 127]]
    assert text["state"] == {
        "key_fields": ["gate"],
        "count_field": "__arkflow_state_count",
        "max_bytes": 5,
        "ttl_ms": 1_000,
    }


def _published(entry: dict[str, Any]) -> None:
    """A stateless job with checkpoints and sinks for rows, for other rows, and for errors."""
    entry["checkpoint"] = {"object_store_uri": "file:///ckpt", "timeout_ms": 9, "retention": 2}
    entry["recovery"] = "fail"
    entry["sinks"][0]["output_type"] = "file"
    for name, output, config in (
        ("again", "file", {"exactly_once": False}),
        ("shown", "stdout", {}),
        ("bad", "file", {}),
    ):
        entry["operators"].append({"id": name, "kind": "sink"})
        entry["sinks"].append({"operator_id": name, "output_type": output, "config": config})
    entry["edges"] += [
        {"id": "c", "from": "text", "to": "again"},
        {"id": "d", "from": "text", "to": "shown"},
        {"id": "x", "from": "gates", "to": "bad", "type": "error"},
    ]


def test_sinks_say_whether_they_are_exactly_once_and_why(job: Callable[..., JobSpec]) -> None:
    spec = job(_published)
    told = explain(spec, build_graph(spec, lambda sink: sink.output_type == "file"))
    sinks = {o.id: (o.exactly_once, o.guarantee) for o in told.operators if o.kind == "sink"}
    once = (True, "exactly once: rows are published with the checkpoint that follows them")
    assert sinks == {
        "totals": once,
        "again": (False, "at least once: its config says `exactly_once: false`"),
        "shown": (
            False,
            "at least once: output 'stdout' cannot hold rows back until a checkpoint",
        ),
        "bad": once,
    }
    assert {o.exactly_once for o in told.operators if o.kind != "sink"} == {None}
    lines = as_text(told).splitlines()
    assert "      exactly once: rows are published with the checkpoint that follows them" in lines
    assert "      at least once: its config says `exactly_once: false`" in lines


def test_json_shows_the_policy_of_checkpoints_without_credentials(
    job: Callable[..., JobSpec],
) -> None:
    spec = job(_published)
    told = explain(spec, build_graph(spec))
    assert asdict(told)["checkpoint"] == {
        "root": "file:///ckpt",
        "interval_ms": 30_000,
        "retention": 2,
        "timeout_ms": 9,
        "tolerable_failures": 10,
        "recovery": "fail",
    }
    assert told.checkpoints.endswith("with several nodes all of them must share that folder")
    remote = job(_window)
    shown = explain(remote, build_graph(remote)).checkpoint
    assert shown is not None
    assert shown.root == "s3://bucket/x"
    assert asdict(explain(_stream(), build_graph(_stream())))["checkpoint"] is None


def test_edges_that_share_an_outlet_say_whose_channels_carry_them(
    job: Callable[..., JobSpec],
) -> None:
    def change(entry: dict[str, Any]) -> None:
        _counting(entry)
        entry["operators"][1] = {"id": "text", "kind": "map", "config": {"type": "sql"}}
        entry["edges"][0]["partitioned"] = False
        entry["operators"][3]["chain"] = False

    spec = job(change)
    told = explain(spec, build_graph(spec))
    assert {e.id: e.outlet for e in told.edges} == {"a": None, "b": None, "x": "x", "y": "x"}
    assert "  text -> bad: error, in the channels of x" in as_text(told).splitlines()


@pytest.mark.parametrize(
    ("restart", "expected"),
    [
        ({"strategy": "none"}, "none: the first failure ends the job"),
        (
            {"strategy": "fixed", "initial_ms": 9, "max_attempts": 2},
            "fixed: at once, then after 9 ms; at once again after 600,000 ms without a failure; "
            "at most 2 in a row",
        ),
    ],
)
def test_the_restart_strategy_is_told(
    job: Callable[..., JobSpec], restart: dict[str, Any], expected: str
) -> None:
    spec = job(lambda entry: entry.update(restart=restart))
    assert explain(spec, build_graph(spec)).restart == expected


def test_no_line_is_wider_than_a_terminal_unless_a_name_is(job: Callable[..., JobSpec]) -> None:
    def change(entry: dict[str, Any]) -> None:
        _window(entry)
        entry["operators"][1]["id"] = entry["edges"][0]["to"] = entry["edges"][1]["from"] = "x" * 60

    spec = job(change)
    lines = as_text(explain(spec, build_graph(spec))).splitlines()
    assert max(len(line) for line in lines) <= 80
    assert "x" * 60 in "\n".join(lines)


def test_an_explanation_holds_references_and_no_configuration(
    job: Callable[..., JobSpec],
) -> None:
    stream, keyed = _stream(), job(_window)
    told = [explain(spec, build_graph(spec)) for spec in (stream, keyed)]
    everything = "".join(as_text(one) + repr(asdict(one)) for one in told)
    assert "${secret:TOKEN}" in everything
    for hidden in ("secret_column", "/tmp/hidden", "hunter2", "errors/"):
        assert hidden not in everything


def test_json_holds_what_the_text_says() -> None:
    job = _stream()
    told = json.loads(json.dumps(asdict(explain(job, build_graph(job)))))
    assert (told["job"], told["mode"], told["max_parallelism"]) == ("dear-bids", "ack", 1)
    assert [o["id"] for o in told["operators"]] == [o.id for o in job.operators]
    assert {o["chain"] for o in told["operators"]} == {"source"}
    assert told["chains"][0]["workers"] == 4
    assert told["chains"][0]["key_groups"] is None
    assert len(told["edges"]) == 6


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${secret:A}-${env:B:-c}", ["${env:B}", "${secret:A}"]),
        ({"x": ["${file:/p}", 5, {"y": "${secret:A}"}]}, ["${file:/p}", "${secret:A}"]),
        ("$${secret:A} ${NAME} ${other:X}", []),
        (None, []),
    ],
)
def test_references_are_found_at_any_depth_without_their_defaults(
    value: Any, expected: list[str]
) -> None:
    assert references(value) == expected
