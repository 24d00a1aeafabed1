"""What this release does not run: each feature is refused once, with what brings it."""

from collections.abc import Callable
from typing import Any

import pytest

from arkflow_kernel.job import JobSpec, StreamSpec
from arkflow_kernel.job_validation import UNAVAILABLE, unavailable
from arkflow_kernel.stream_compiler import compile_stream
from arkflow_kernel.topology import Topology

Jobs = Callable[..., JobSpec]
WINDOW = {"kind": "tumbling", "size_ms": 1000, "timestamp_field": "at", "key_field": "k"}


def _with(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda entry: entry.update(keys)


def _operator(index: int, **keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda entry: entry["operators"][index].update(keys)


def _map(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return _operator(1, **keys)


def _edge(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda entry: entry["edges"][0].update(keys)


def _time(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda entry: entry["sources"][0].update(time=keys)


CASES = [
    (_with(rebalance={"mode": "auto"}), "rebalance", "clusters"),
    (_with(node_ids=["a"]), "node_ids", "clusters"),
]


@pytest.mark.parametrize(("change", "path", "comes_with"), CASES)
def test_a_feature_of_a_later_release_is_refused_once_with_what_brings_it(
    job: Jobs, change: Callable[[dict[str, Any]], None], path: str, comes_with: str
) -> None:
    [issue] = unavailable(job(change))
    assert issue.path == path
    assert f" is not available in this release; it comes with {comes_with}" in issue.message
    assert not issue.warning


def test_every_row_of_the_table_is_tested(job: Jobs) -> None:
    specs = [Topology(job(change)) for change, _, _ in CASES]
    unseen = [row.feature for row in UNAVAILABLE if not any([*row.find(t)] for t in specs)]
    assert unseen == []


@pytest.mark.parametrize(
    "change",
    [
        _with(),
        _with(restart={"strategy": "none"}, transport="auto", rebalance={"mode": "off"}),
        _with(transport="ray"),
        _with(delivery="best_effort"),
        _map(kind="aggregate", config={"type": "sql"}),
        _map(kind="join", config={}),
        _map(kind="aggregate", key_field="k", config={"aggregates": [{"function": "count"}]}),
        _edge(type="forward"),
        _edge(type="broadcast"),
        _edge(type="rebalance"),
        _edge(partitioned=True),
        _map(parallelism=2),
        _operator(2, parallelism=2),
        _operator(0, parallelism=2),
        _with(parallelism=2),
        _map(stateful=True, key_field="k"),
        _map(chain=False),
        _map(kind="window", config=WINDOW),
        _time(mode="event_time", timestamp_field="at", watermark={}, late_event_route="totals"),
        _time(mode="event_time", timestamp_field="at", watermark={"max_drift_ms": 5}),
        _with(restart={"strategy": "fixed"}),
        _with(restart={}),
        _with(channel={"capacity": 1}),
        _with(state={"backend": "embedded_kv"}),
        _with(checkpoint={"object_store_uri": "file:///x"}),
        _with(recovery="fail"),
        _with(resources={"num_cpus": 1.0}),
        _map(resources={"num_gpus": 1.0}),
        _with(placement="split"),
        _with(placement={"strategy": "spread", "labels": {"zone": "a"}}),
        _with(recovery="latest_savepoint"),
        lambda entry: entry["sinks"][0].update(config={"exactly_once": True}),
    ],
)
def test_what_runs_is_not_refused(job: Jobs, change: Callable[[dict[str, Any]], None]) -> None:
    assert unavailable(job(change)) == []


def test_a_fork_is_not_refused(job: Jobs) -> None:
    def change(entry: dict[str, Any]) -> None:
        entry["operators"].append({"id": "more", "kind": "sink"})
        entry["sinks"].append({"operator_id": "more", "output_type": "drop"})
        entry["edges"].append({"id": "c", "from": "text", "to": "more"})

    assert unavailable(job(change)) == []


def test_a_stream_of_this_release_is_not_refused(stream: Callable[..., StreamSpec]) -> None:
    pipeline = {"chain": False, "processors": []}
    buffer = {"type": "tumbling_window", "interval": "1s"}
    spec = stream(error_output={"type": "drop"}, buffer=buffer, pipeline=pipeline)
    assert unavailable(compile_stream(spec, 0).job) == []
