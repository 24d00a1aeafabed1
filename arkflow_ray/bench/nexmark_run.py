"""One query of Nexmark, measured on Ray, and on Flink beside it: its figures as data."""

import json
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from arkflow_ray.bench.flink import flink_command
from arkflow_ray.bench.nexmark_flink import FLINK_QUERIES, flink_statements
from arkflow_ray.bench.nexmark_jobs import CORRECTIONS, kinds_of, on_files, paced
from arkflow_ray.bench.nexmark_latency import EVENT_TIME, latencies
from arkflow_ray.bench.nexmark_tables import rows_of, written
from arkflow_ray.bench.ray_run import ray_command
from arkflow_ray.bench.results import Totals, differences, totals
from arkflow_ray.bench.steady_part import RunFailedError, Steady, measured

CHECKPOINT_EVERY: Final = "1 s"
"""On Flink, as in the files of the queries."""


EVENTS_WITHOUT_BIDS: Final = 10
"""So many times the events for a query that reads no bids, which are 23 of 25 events."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What to measure. `flink`: the interpreter of the peer, None without one.

    `rate` events a second for `seconds` make the latencies; 0 seconds: none. `folder` has the
    files of events, which are made if they are not there.
    """

    events: int
    folder: Path
    flink: Path | None = None
    rate: int = 10_000
    seconds: int = 40


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one query. None: was not measured, or has no meaning for it. Times in ms, sizes in bytes.

    `memory_bytes` is the peak of all chain actors together; that of Flink is its JVM's.
    Checkpoints are medians: bytes that one adds, and from its opening to the last answer.
    `result_rows` are equal on both sides, if both wrote files.
    """

    query: str
    rows: int
    rows_per_cpu_second: float
    rows_per_second: float
    memory_bytes: int
    checkpoints: int
    checkpoint_bytes: float | None
    checkpoint_ms: float | None
    pause_ms: float | None
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None
    latency_rows: int = 0
    result_rows: int | None = None
    flink_rows_per_cpu_second: float | None = None
    flink_rows_per_second: float | None = None
    flink_memory_bytes: int | None = None
    ratio: float | None = None


def figures_of(query: str, path: Path, asked: Asked) -> Figures:
    """Measure one query. RunFailedError if a run does not end well or the results differ."""
    kinds = kinds_of(path)
    events = asked.events if "bid" in kinds else asked.events * EVENTS_WITHOUT_BIDS
    tables = written(asked.folder, kinds, events)
    sources = {tables[kind]: rows_of(kind, events) for kind in tables}
    with tempfile.TemporaryDirectory(prefix="run-", dir=asked.folder) as name:
        folder = Path(name)
        ours = measured(ray_command(on_files(path, folder, tables)), sources)
        told = json.loads(ours.said.splitlines()[-1])
        found = {
            "query": query,
            "rows": sum(sources.values()),
            "rows_per_cpu_second": ours.rows_per_cpu_s,
            "rows_per_second": ours.rows_per_s,
            "memory_bytes": told["rss_peak_bytes"],
            **_checkpoints(told["checkpoints"]),
        }
        results = None if query in CORRECTIONS else totals(folder / "written")
        if results is not None:
            found["result_rows"] = results["rows"]
        if asked.flink is not None:
            peer = _on_flink(query, asked.flink, tables, sources, folder, results)
            found |= {
                "flink_rows_per_cpu_second": peer.rows_per_cpu_s,
                "flink_rows_per_second": peer.rows_per_s,
                "flink_memory_bytes": peer.java_bytes,
                "ratio": ours.rows_per_cpu_s / peer.rows_per_cpu_s,
            }
    return Figures(**found, **_latency(query, path, asked))


def _on_flink(
    query: str,
    flink: Path,
    tables: Mapping[str, Path],
    sources: Mapping[Path, int],
    folder: Path,
    results: Totals | None,
) -> Steady:
    """The same on Flink. RunFailedError if it wrote something else."""
    asked, out = FLINK_QUERIES[query], folder / "flink"
    command = flink_command(
        flink,
        flink_statements(asked, tables, out),
        folder / "flink-checkpoints",
        CHECKPOINT_EVERY,
        asked.settings,
    )
    peer = measured(command, sources)
    if results is not None:
        different = differences(results, totals(out))
        if different:
            raise RunFailedError(f"the results differ (ours and Flink's): {'; '.join(different)}")
    return peer


def _checkpoints(made: list[Mapping[str, int]]) -> dict[str, Any]:
    def middle(name: str) -> float | None:
        return statistics.median(each[name] for each in made) if made else None

    return {
        "checkpoints": len(made),
        "checkpoint_bytes": middle("new_bytes"),
        "checkpoint_ms": middle("took_ms"),
        "pause_ms": middle("pause_ms"),
    }


def _latency(query: str, path: Path, asked: Asked) -> dict[str, Any]:
    if query not in EVENT_TIME or asked.seconds == 0:
        return {}
    with tempfile.TemporaryDirectory(prefix="paced-", dir=asked.folder) as name:
        folder = Path(name)
        file = paced(path, folder, asked.rate, asked.seconds)
        found = latencies(query, ray_command(file), folder)
    if not len(found):
        return {}
    p50, p99 = (float(value) for value in np.percentile(found, [50, 99]))
    return {"latency_p50_ms": p50, "latency_p99_ms": p99, "latency_rows": len(found)}


__all__ = ["CHECKPOINT_EVERY", "Asked", "Figures", "figures_of"]
