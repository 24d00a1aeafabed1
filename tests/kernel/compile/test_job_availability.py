"""What this release does not run: each feature is refused once, with what brings it."""

from collections.abc import Callable
from typing import Any

import pytest

from arkflow_kernel.job import JobSpec, StreamSpec
from arkflow_kernel.job_validation import UNAVAILABLE, unavailable
from arkflow_kernel.stream_compiler import compile_stream

Jobs = Callable[..., JobSpec]
WINDOW = {"kind": "tumbling", "size_ms": 1000, "timestamp_field": "at", "key_field": "k"}


def _with(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda entry: entry.update(keys)


def _map(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda entry: entry["operators"][1].update(keys)


def _edge(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda entry: entry["edges"][0].update(keys)


def _time(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda entry: entry["sources"][0].update(time=keys)


CASES = [
    (_map(kind="window", config=WINDOW), "operators[1].kind", "event time and windows"),
    (_time(mode="event_time"), "sources[0].time.mode", "event time and windows"),
    (
        _time(mode="processing_time", late_event_route="totals"),
        "sources[0].time.late_event_route",
        "event time and windows",
    ),
    (_map(kind="join", config={}), "operators[1].kind", "joins and aggregates"),
    (
        _map(kind="aggregate", key_field="k", config={"aggregates": []}),
        "operators[1].kind",
        "joins and aggregates",
    ),
    (_map(stateful=True, key_field="k"), "operators[1].stateful", "many chains"),
    (_with(checkpoint={"object_store_uri": "file:///x"}), "checkpoint", "checkpoints and recovery"),
    (_with(recovery="fail"), "recovery", "checkpoints and recovery"),
    (
        lambda entry: entry["sinks"][0].update(config={"exactly_once": True}),
        "sinks[0].config.exactly_once",
        "checkpoints and recovery",
    ),
    (_with(parallelism=2), "parallelism", "many chains"),
    (_map(parallelism=2), "operators[1].parallelism", "many chains"),
    (_edge(partitioned=True), "edges[0].partitioned", "many chains"),
    (_edge(type="broadcast"), "edges[0].type", "many chains"),
    (_edge(type="rebalance"), "edges[0].type", "many chains"),
    (_map(chain=False), "operators[1].chain", "many chains"),
    (_with(restart={"strategy": "fixed"}), "restart", "many chains"),
    (_with(channel={"capacity": 1}), "channel", "many chains"),
    (_map(resources={"num_gpus": 1.0}), "operators[1].resources", "clusters"),
    (_with(resources={"num_cpus": 1.0}), "resources", "clusters"),
    (_with(placement="split"), "placement", "clusters"),
    (_with(placement={"strategy": "spread"}), "placement", "clusters"),
    (_with(rescale=True), "rescale", "clusters"),
    (_with(rebalance={"mode": "auto"}), "rebalance", "clusters"),
    (_with(node_ids=["a"]), "node_ids", "clusters"),
    (_with(transport="ray"), "transport", "clusters"),
]


@pytest.mark.parametrize(("change", "path", "comes_with"), CASES)
def test_a_feature_of_a_later_release_is_refused_once_with_what_brings_it(
    job: Jobs, change: Callable[[dict[str, Any]], None], path: str, comes_with: str
) -> None:
    [issue] = unavailable(job(change))
    assert issue.path == path
    ending = f" is not available in this release; it comes with {comes_with}"
    assert issue.message.endswith(ending)
    assert not issue.warning


def test_every_row_of_the_table_is_tested(job: Jobs) -> None:
    features = {message for change, _, _ in CASES for message in _messages(job(change))}
    assert features == {row.message() for row in UNAVAILABLE}


def _messages(spec: JobSpec) -> list[str]:
    return [issue.message for issue in unavailable(spec)]


@pytest.mark.parametrize(
    "change",
    [
        _with(),
        _with(restart={"strategy": "none"}, transport="auto", rebalance={"mode": "off"}),
        _with(delivery="best_effort"),
        _map(kind="aggregate", config={"type": "sql"}),
        _edge(type="forward"),
    ],
)
def test_what_runs_is_not_refused(job: Jobs, change: Callable[[dict[str, Any]], None]) -> None:
    assert unavailable(job(change)) == []


def test_a_key_that_feeds_a_later_operator_is_reported_with_the_operator_only(job: Jobs) -> None:
    def change(entry: dict[str, Any]) -> None:
        entry["operators"][1].update(kind="window", config=WINDOW)
        entry["edges"][0]["partitioned"] = True

    assert [issue.path for issue in unavailable(job(change))] == ["operators[1].kind"]


def test_a_fork_is_refused_at_its_edges(job: Jobs) -> None:
    def change(entry: dict[str, Any]) -> None:
        entry["operators"].append({"id": "more", "kind": "sink"})
        entry["sinks"].append({"operator_id": "more", "output_type": "drop"})
        entry["edges"].append({"id": "c", "from": "text", "to": "more"})

    issues = unavailable(job(change))
    assert [issue.path for issue in issues] == ["edges[1]", "edges[2]"]
    assert issues[0].message.endswith("it comes with many chains")


def test_chain_false_of_a_stream_is_refused_once_at_the_pipeline(
    stream: Callable[..., StreamSpec],
) -> None:
    compiled = compile_stream(stream(pipeline={"chain": False, "processors": []}), 0)
    paths = [compiled.locate(issue.path) for issue in unavailable(compiled.job)]
    assert paths == ["pipeline.chain"]


def test_a_stream_of_this_release_is_not_refused(stream: Callable[..., StreamSpec]) -> None:
    spec = stream(error_output={"type": "drop"}, buffer={"type": "memory"})
    assert unavailable(compile_stream(spec, 0).job) == []
