"""How a `python` operator asks to be called, in a plan: chains, workers, channels (E9, G1, T2)."""

from typing import Any

import pytest

from arkflow_kernel.graph import build_graph
from arkflow_kernel.job import JobSpec, StreamSpec
from arkflow_kernel.job_validation import validate_job
from arkflow_kernel.limits import SLICE_ROWS_MAX
from arkflow_kernel.plan import ExecutionGraph
from arkflow_kernel.stream_compiler import compile_stream

SQL = {"type": "sql", "query": "SELECT * FROM flow"}


def _stream(*processors: dict[str, Any], **pipeline: Any) -> JobSpec:
    entry = {
        "id": "s",
        "input": {"type": "memory"},
        "pipeline": {"processors": list(processors), **pipeline},
        "output": {"type": "drop"},
    }
    return compile_stream(StreamSpec.model_validate(entry), 0).job


def _python(name: str = "py", **keys: Any) -> dict[str, Any]:
    return {"type": "python", "name": name, "function": "f"} | keys


def _object(name: str = "py", **keys: Any) -> dict[str, Any]:
    return {"type": "python", "name": name, "class": "Model"} | keys


def _workers(graph: ExecutionGraph) -> dict[str, int]:
    return {str(chain.chain): chain.workers for chain in graph.chains}


def test_an_operator_that_asks_for_batches_begins_a_chain_and_its_channel_makes_them() -> None:
    graph = build_graph(_stream(SQL, _python(max_batch_rows=32, max_wait_ms=20), SQL))
    assert list(_workers(graph)) == ["source-0", "py-0"]
    (channel,) = graph.chains[0].channels
    assert (channel.batch_rows, channel.batch_wait_ms) == (32, 20)
    assert graph.chains[1].inputs == (channel,)


@pytest.mark.parametrize(
    ("asked", "batch_rows", "wait_ms"),
    [
        ({"max_batch_rows": 1}, 1, None),
        ({"max_wait_ms": 5}, SLICE_ROWS_MAX, 5),
        ({"max_batch_rows": 10**9, "max_wait_ms": 5}, SLICE_ROWS_MAX, 5),
    ],
)
def test_one_of_both_keys_is_enough(
    asked: dict[str, Any], batch_rows: int, wait_ms: int | None
) -> None:
    (channel,) = build_graph(_stream(_python(**asked))).chains[0].channels
    assert (channel.batch_rows, channel.batch_wait_ms) == (batch_rows, wait_ms)


def test_channels_to_other_operators_have_no_batches_made() -> None:
    job = _stream(_python(max_batch_rows=32), SQL, chain=False)
    found = [(c.batch_rows, c.batch_wait_ms) for p in build_graph(job).chains for c in p.channels]
    assert found == [(32, None), (SLICE_ROWS_MAX, None), (SLICE_ROWS_MAX, None)]


def test_an_object_is_called_once_at_a_time_whatever_thread_num_says() -> None:
    assert _workers(build_graph(_stream(_object(), thread_num=4))) == {"source-0": 1}
    assert _workers(build_graph(_stream(_python(), thread_num=4))) == {"source-0": 4}


def test_concurrency_is_the_number_of_workers_of_a_chain_of_its_own() -> None:
    graph = build_graph(_stream(SQL, _object(concurrency=3), SQL, thread_num=2))
    assert _workers(graph) == {"source-0": 2, "py-0": 3, "p2-sql-0": 2}


def test_with_concurrency_source_and_sink_may_be_in_the_chain() -> None:
    assert _workers(build_graph(_stream(_python(concurrency=3)))) == {"source-0": 3}


def test_operators_with_different_concurrency_share_no_chain() -> None:
    job = _stream(_python("a", concurrency=2), _object("b", concurrency=5))
    assert _workers(build_graph(job)) == {"source-0": 2, "b-0": 5}


def test_concurrency_of_an_operator_that_keeps_state_is_a_mistake() -> None:
    job = _stream(_python(concurrency=2)).model_dump(by_alias=True)
    (operator,) = [each for each in job["operators"] if each["id"] == "py"]
    operator |= {"stateful": True, "key_field": "k"}
    found = [i for i in validate_job(JobSpec.model_validate(job)) if not i.warning]
    assert [issue.path for issue in found] == ["operators[1].config.concurrency"]
    assert "works on one batch at a time" in found[0].message
    operator["config"]["concurrency"] = 1
    assert [i for i in validate_job(JobSpec.model_validate(job)) if not i.warning] == []


@pytest.mark.parametrize("value", [0, -1, True, "3", 1.5, None])
def test_what_the_component_refuses_does_not_disturb_the_plan(value: Any) -> None:
    keys = dict.fromkeys(("max_batch_rows", "max_wait_ms", "concurrency"), value)
    assert _workers(build_graph(_stream(_python(**keys)))) == {"source-0": 1}


def test_keys_of_that_name_mean_nothing_to_other_operators() -> None:
    asked = {"max_batch_rows": 1, "max_wait_ms": 1, "concurrency": 9, "class": "C"}
    assert _workers(build_graph(_stream({**SQL, **asked}, thread_num=2))) == {"source-0": 2}
