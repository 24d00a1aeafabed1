"""The queries of `examples/nexmark` as jobs that are measured: other sources, sinks and folders.

A wheel holds the queries as `cli/queries/nexmark`.
"""

import json
from pathlib import Path
from typing import Any, Final

from arkflow_ray.bench.nexmark_tables import WATERMARK_MS
from arkflow_ray.config.tree import plain, read_tree

_INSTALLED: Final = Path(__file__).parents[1] / "cli" / "queries" / "nexmark"
_CHECKOUT: Final = Path(__file__).parents[2] / "examples" / "nexmark"
_ON_EVENT_TIME: Final = ("q12",)
"""Queries of the wall clock, measured on event time: so their results are always the same."""

CORRECTIONS: Final = ("q17", "q18")
"""Queries that correct their rows: what they make is thrown away, as it is on the other side."""

_BATCH_ROWS: Final = 32_768
"""What docs/components.md advises where much is read."""

_RETENTION: Final = 1_000
"""So that the log still tells of each checkpoint when the run has ended."""

_CLOCK: Final = """
import time

class Clock:
    def __init__(self, path, column):
        self._out, self._column = open(path, "a"), column

    def __call__(self, batch):
        import pyarrow.compute as pc
        upto_ms = pc.max(batch.column(self._column).cast("int64")).as_py()
        print(time.time_ns() // 1_000_000, upto_ms, file=self._out, flush=True)
        return batch

    def close(self):
        self._out.close()
"""
"""Notes when a batch was read, and how far its event time goes."""


def queries() -> dict[str, Path]:
    """The files of the queries that there are, by name, in the order of their numbers."""
    folder = _INSTALLED if _INSTALLED.is_dir() else _CHECKOUT
    found = {path.stem: path for path in folder.glob("q*.yaml")}
    return dict(sorted(found.items(), key=lambda item: int(item[0][1:])))


def kinds_of(path: Path) -> list[str]:
    """The tables that a query reads."""
    return [source["config"]["kind"] for source in _job(path, Path())["sources"]]


def on_events(path: Path, folder: Path, events: int) -> Path:
    """The file of a query that makes so many events itself, and writes in `folder`."""
    job = _job(path, folder)
    for source in job["sources"]:
        source["config"]["events"] = events
    return _file(job, folder)


def on_files(path: Path, folder: Path, tables: dict[str, Path]) -> Path:
    """The file of a query that reads `tables` by kind; times in them are numbers."""
    job = _job(path, folder)
    event_time = path.stem in _ON_EVENT_TIME
    for source in job["sources"]:
        file = tables[source["config"]["kind"]]
        read = {"input_type": _json_file(file), "batch_rows": _BATCH_ROWS}
        source |= {"input_type": "file", "config": read}
        if event_time or source["time"]["mode"] == "event_time":
            source["time"] = _event_time(WATERMARK_MS)
    for operator in job["operators"]:
        config = operator.get("config", {})
        if event_time:
            config.pop("trigger", None)
        if "to_char(date_time," in config.get("query", ""):
            config["query"] = config["query"].replace(
                "to_char(date_time,", "to_char(to_timestamp_millis(date_time),"
            )
    if path.stem in CORRECTIONS:
        for sink in job["sinks"]:
            sink |= {"output_type": "drop", "config": {}}
    return _file(job, folder)


def paced(path: Path, folder: Path, rate: int, seconds: int) -> Path:
    """The file of a query that makes `rate` events a second, in order and as they are due.

    The clock of each source writes `read-KIND` in `folder`.
    """
    job = _job(path, folder)
    event_time = path.stem in _ON_EVENT_TIME
    for source in job["sources"]:
        config = source["config"]
        share = {"person": 1, "auction": 3, "bid": 46}[config["kind"]] / 50
        config |= {
            "events": rate * seconds,
            "inter_event_us": 1_000_000 // rate,
            "out_of_orderness_ms": 0,
            "splits": 1,
            "rows_per_second": rate * share,
            "batch_rows": max(1, int(rate * share) // 50),
        }
        if event_time:
            source["time"] = _event_time(WATERMARK_MS)
        _put_clock(job, source["operator_id"], folder / f"read-{config['kind']}")
    if event_time:
        for operator in job["operators"]:
            operator.get("config", {}).pop("trigger", None)
    return _file(job, folder)


def _put_clock(job: Any, source: str, file: Path) -> None:
    """A clock right behind a source."""
    clock = f"{source}-clock"
    init = {"path": str(file), "column": "date_time"}
    config = {"type": "python", "class": "Clock", "script": _CLOCK, "init": init}
    job["operators"].append({"id": clock, "kind": "udf", "config": config})
    for edge in job["edges"]:
        if edge["from"] == source:
            edge["from"] = clock
    for operator in job["operators"]:
        config = operator.get("config", {})
        for side in ("left_from", "right_from"):
            if config.get(side) == source:
                config[side] = clock
    job["edges"].append({"id": clock, "from": source, "to": clock})


def _json_file(path: Path) -> dict[str, str]:
    return {"type": "json", "path": str(path)}


def _event_time(behind_ms: int) -> dict[str, Any]:
    return {
        "mode": "event_time",
        "timestamp_field": "date_time",
        "watermark": {"out_of_orderness_ms": behind_ms},
    }


def _job(path: Path, folder: Path) -> Any:
    """The job of a query, which reads what lies beside it and writes in `folder`."""
    job: Any = json.loads(json.dumps(plain(read_tree(path)[0])))["jobs"][0]
    job["checkpoint"] |= {
        "object_store_uri": str(folder / "checkpoints"),
        "retention": _RETENTION,
    }
    for sink in job["sinks"]:
        sink["config"]["path"] = str(folder / sink["operator_id"])
    for operator in job["operators"]:
        table = operator.get("config", {}).get("table")
        if table is not None:
            table["path"] = str(path.parent / "data" / Path(table["path"]).name)
    return job


def _file(job: Any, folder: Path) -> Path:
    file = folder / "query.json"
    file.write_text(json.dumps({"jobs": [job]}))
    return file


__all__ = ["CORRECTIONS", "kinds_of", "on_events", "on_files", "paced", "queries"]
