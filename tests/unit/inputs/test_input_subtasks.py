"""How many subtasks the inputs can have, as a job is checked (K5)."""

import json
from pathlib import Path
from typing import Any

import pytest

from arkflow_ray.config.project import check_file

MEMORY = ("memory", {"messages": ["{}"]})
GENERATE: dict[str, Any] = {"context": "{}", "interval": "1s"}
FILE = ("file", {"input_type": {"type": "json", "path": "/data"}, "split_bytes": "64MiB"})


def errors(folder: Path, input_: tuple[str, dict[str, Any]], **keys: Any) -> dict[str, str]:
    """What is wrong with a job of a source and a sink behind it; `keys` are the job's."""
    source = {"id": "in", "kind": "source"} | keys.pop("source", {})
    job = {
        "id": "j",
        "version": 1,
        "operators": [source, {"id": "out", "kind": "sink", "parallelism": 1}],
        "edges": [{"id": "e", "from": "in", "to": "out", "type": "rebalance"}],
        "sources": [
            {
                "operator_id": "in",
                "input_type": input_[0],
                "config": input_[1],
                "time": {"mode": "processing_time"},
            }
        ],
        "sinks": [{"operator_id": "out", "output_type": "drop"}],
        **keys,
    }
    path = folder / "job.yaml"
    path.write_text(json.dumps({"jobs": [job]}), encoding="utf-8")
    return {issue.path: issue.message for issue in check_file(path, env={}).errors}


@pytest.mark.parametrize(
    ("input_", "told"),
    [
        (MEMORY, "input 'memory', as it is configured, can only be read by one subtask"),
        (("generate", GENERATE), "input 'generate', as it is configured, can only be read by one"),
        (("generate", GENERATE | {"splits": 2}), "its input can be shared by 2: set it to 2 at"),
        (("generate", GENERATE | {"splits": 3}), None),
        (FILE, None),
    ],
)
def test_a_source_has_no_more_subtasks_than_its_input_can_have(
    tmp_path: Path, input_: tuple[str, dict[str, Any]], told: str | None
) -> None:
    own = errors(tmp_path, input_, source={"parallelism": 3})
    inherited = errors(tmp_path, input_, parallelism=3)
    if told is None:
        assert own == inherited == {}
        return
    place = "jobs[0].operators[0].parallelism"
    assert list(own) == list(inherited) == [place]
    assert told in own[place]
    assert told in inherited[place]
    assert errors(tmp_path, input_, source={"parallelism": 1}, parallelism=3) == {}
