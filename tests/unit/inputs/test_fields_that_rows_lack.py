"""Fields that rows of JSON lack: null for a window, whichever rows share a batch (W9)."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import arkflow_ray

ROWS = [
    {"at": 1},
    {"at": 2, "shop": None},
    {"at": 3, "shop": "a", "euros": 5},
    {"at": 4},
    {"at": 5, "euros": 2},
    {"at": 15, "shop": "b"},
]
RIGHT = {(0, None): (4, 1, 2), (0, "a"): (1, 1, 5), (10, "b"): (1, 0, None)}
"""Rows, values and sum of each window and shop."""

AGGREGATES = [
    {"function": "count"},
    {"function": "count", "field": "euros"},
    {"function": "sum", "field": "euros"},
]


def _job(source: dict[str, Any], out: Path, aside: bool) -> dict[str, Any]:
    window = {
        "kind": "tumbling", "size_ms": 10, "timestamp_field": "at",
        "key_field": "shop", "aggregates": AGGREGATES,
    }  # fmt: skip
    time = {"mode": "event_time", "timestamp_field": "at", "watermark": {"out_of_orderness_ms": 50}}
    sinks = [{"operator_id": "out", "output_type": "file", "config": _files(out)}]
    edges: list[dict[str, Any]] = [
        {"id": "a", "from": "in", "to": "w"},
        {"id": "b", "from": "w", "to": "out"},
    ]
    if aside:
        sinks.append({"operator_id": "bad", "output_type": "drop"})
        edges.append({"id": "c", "from": "w", "to": "bad", "type": "error"})
    return {
        "id": "lacking", "version": 1,
        "state": {"backend": "embedded_kv", "durability": "ephemeral"},
        "operators": [
            {"id": "in", "kind": "source"},
            {"id": "w", "kind": "window", "config": window},
            *({"id": sink["operator_id"], "kind": "sink"} for sink in sinks),
        ],
        "edges": edges,
        "sources": [{"operator_id": "in", "time": time} | source],
        "sinks": sinks,
    }  # fmt: skip


def _files(path: Path) -> dict[str, str]:
    return {"path": str(path), "format": "json"}


def _results(tmp_path: Path, source: dict[str, Any], *, aside: bool) -> dict[Any, Any]:
    out, pipeline = tmp_path / "out", tmp_path / "job.yaml"
    pipeline.write_text(yaml.safe_dump({"jobs": [_job(source, out, aside)]}))
    arkflow_ray.load(pipeline).run(inline=True)
    lines = [line for part in out.rglob("*.jsonl") for line in part.read_text().splitlines()]
    rows = [json.loads(line) for line in lines]
    assert len(rows) == len(RIGHT)
    return {
        (row["window_start"], row.get("shop")): (
            row["count"],
            row["count_euros"],
            row.get("sum_euros"),
        )
        for row in rows
    }


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 100])
@pytest.mark.parametrize("aside", [False, True], ids=["few-columns", "all-columns"])
def test_messages_give_the_same_results_however_they_are_cut(
    batch_rows: int, aside: bool, tmp_path: Path
) -> None:
    config = {"messages": [json.dumps(row) for row in ROWS], "batch_rows": batch_rows}
    source = {"input_type": "memory", "codec": {"type": "json"}, "config": config}
    assert _results(tmp_path, source, aside=aside) == RIGHT


@pytest.mark.parametrize("cut", range(len(ROWS)))
def test_each_file_may_begin_with_rows_that_lack_them(cut: int, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, rows in (("1.jsonl", ROWS[:cut]), ("2.jsonl", ROWS[cut:])):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {"input_type": {"type": "json", "path": str(folder)}, "batch_rows": 1}
    source = {"input_type": "file", "config": config}
    assert _results(tmp_path, source, aside=False) == RIGHT
