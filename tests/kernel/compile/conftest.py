"""Builders of streams and jobs for the tests of compile, validate, graph and explain."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from arkflow_kernel.job import JobSpec, StreamSpec


def _stream(**changes: Any) -> StreamSpec:
    entry: dict[str, Any] = {
        "id": "bids",
        "input": {"type": "generate", "context": "{}", "interval": "1s"},
        "pipeline": {"processors": [{"type": "sql", "query": "SELECT * FROM flow"}]},
        "output": {"type": "stdout"},
    }
    return StreamSpec.model_validate(entry | changes)


def _time(mode: str = "processing_time", **more: Any) -> dict[str, Any]:
    return {"mode": mode, **more}


_JOB: dict[str, Any] = {
    "id": "turnstiles",
    "version": 1,
    "operators": [
        {"id": "gates", "kind": "source"},
        {"id": "text", "kind": "map", "config": {"type": "arrow_to_json"}},
        {"id": "totals", "kind": "sink"},
    ],
    "edges": [
        {"id": "a", "from": "gates", "to": "text"},
        {"id": "b", "from": "text", "to": "totals"},
    ],
    "sources": [
        {"operator_id": "gates", "input_type": "memory", "time": {"mode": "processing_time"}}
    ],
    "sinks": [{"operator_id": "totals", "output_type": "stdout"}],
}


def _job(change: Callable[[dict[str, Any]], Any] | None = None) -> JobSpec:
    """A valid job of three operators, after a change of its dict in place."""
    entry = copy.deepcopy(_JOB)
    if change is not None:
        change(entry)
    return JobSpec.model_validate(entry)


@pytest.fixture
def stream() -> Callable[..., StreamSpec]:
    """A stream of one `sql` processor; keyword arguments replace its keys."""
    return _stream


@pytest.fixture
def job() -> Callable[..., JobSpec]:
    """A valid job `gates -> text -> totals`; the argument changes its dict in place."""
    return _job
