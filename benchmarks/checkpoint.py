"""What checkpoints cost a job with a large state: throughput, bytes, the lane's pause (M7, S6).

    python benchmarks/checkpoint.py --pairs 3

A parquet file is read, counted by key and dropped, on Ray. Its first million rows set up a million
keys (about 100 MB of state); then keys are drawn from a window of 1 % of them that moves on once
per checkpoint interval, or uniformly. The same job runs without checkpoints (an interval of an
hour) and with one every second, in pairs. A last run with more barriers gives the pause from the
cut to the next item that the lane has done, and the bytes that each checkpoint adds.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

KEYS = 1_000_000
KEY_BYTES = 84
TOUCHED = 0.01
GROUP_ROWS = 65_536
NEVER_MS = 3_600_000
GOAL_COST = 0.10
GOAL_PAUSE_MS = 50
GOAL_M7 = 0.05


@dataclass(frozen=True)
class Run:
    """One run: seconds from running to the end, CPU seconds of its actor, what its records say."""

    wall_s: float
    cpu_s: float
    pauses_ms: list[int]
    new_bytes: list[int]
    total_bytes: int


def write_file(path: pathlib.Path, rows: int, per_window: int, *, uniform: bool) -> None:
    """Every key once, in random order, then `rows` rows of windows of keys."""
    dice = np.random.default_rng(7)
    names = pa.array([f"{key:0{KEY_BYTES}d}" for key in range(KEYS)])
    fields: list[pa.Field[Any]] = [pa.field("k", pa.string()), pa.field("n", pa.int64())]
    schema = pa.schema(fields)
    window = int(KEYS * TOUCHED)
    with pq.ParquetWriter(path, schema, use_dictionary=True) as out:
        order = dice.permutation(KEYS)
        for start in range(0, KEYS + rows, GROUP_ROWS):
            at = np.arange(start, min(start + GROUP_ROWS, KEYS + rows))
            first, later = at[at < KEYS], at[at >= KEYS] - KEYS
            drawn = dice.integers(0, KEYS if uniform else window, len(later))
            moved = drawn if uniform else (drawn + later // per_window * window) % KEYS
            keys = np.concatenate([order[first], order[moved]])
            out.write_table(pa.table([names.take(pa.array(keys)), pa.array(at)], schema=schema))


def job(source: pathlib.Path, root: pathlib.Path, interval_ms: int) -> dict[str, Any]:
    """Read, count, drop, in one chain."""
    return {
        "jobs": [
            {
                "id": "counted",
                "version": 1,
                "operators": [
                    {"id": "read", "kind": "source"},
                    {
                        "id": "count",
                        "kind": "map",
                        "stateful": True,
                        "key_field": "k",
                        "config": {"type": "sql", "query": "SELECT * FROM flow"},
                    },
                    {"id": "write", "kind": "sink"},
                ],
                "edges": [
                    {"id": "in", "from": "read", "to": "count"},
                    {"id": "out", "from": "count", "to": "write"},
                ],
                "sources": [
                    {
                        "operator_id": "read",
                        "input_type": "file",
                        "config": {"input_type": {"type": "parquet", "path": str(source)}},
                        "time": {"mode": "processing_time"},
                    }
                ],
                "sinks": [{"operator_id": "write", "output_type": "drop"}],
                "checkpoint": {
                    "object_store_uri": f"file://{root}",
                    "interval_ms": interval_ms,
                    "retention": 100_000,
                },
            }
        ]
    }


def run(folder: pathlib.Path, source: pathlib.Path, interval_ms: int) -> Run:
    """Run the job to its end, from nothing."""
    from arkflow_kernel.log_view import read_log
    from arkflow_kernel.protocol import JobState, OutcomeKind
    from arkflow_ray.checkpoint.open import open_files
    from arkflow_ray.config.project import check_file
    from arkflow_ray.observability.rows import StdoutRows
    from arkflow_ray.runtime.launch import RunSettings, launch

    root = folder / "checkpoints"
    shutil.rmtree(root, ignore_errors=True)
    config = folder / "job.json"
    config.write_text(json.dumps(job(source, root, interval_ms)))
    checked = check_file(config)
    assert checked.ok, checked.issues
    jobs = launch(checked.jobs, RunSettings(), StdoutRows(), lambda _: None)
    try:
        (running,) = jobs.jobs.values()
        while running.status().state in (JobState.CREATED, JobState.DEPLOYING):
            jobs.wait(0.01)
        began = time.monotonic()
        while not jobs.wait(0.05):
            pass
        wall_s = time.monotonic() - began
        (outcome,) = jobs.outcomes().values()
        assert outcome.kind is OutcomeKind.FINISHED, outcome
        (usage,) = running.status().usage.values()
    finally:
        jobs.close()
    view = read_log(open_files(f"file://{root}", "counted"))
    records = [slot.record for slot in view.slots if slot.record is not None]
    timed = records[1:-2]  # neither the first, which writes all, nor those of the end
    return Run(
        wall_s,
        usage.cpu_ms / 1000,
        [record.phases.pause_ms for record in timed],
        [record.new_bytes for record in timed],
        max((record.total_bytes for record in records), default=0),
    )


def compared(
    folder: pathlib.Path, rows: int, per_window: int, pairs: int, *, uniform: bool
) -> dict[str, Any]:
    """Runs with and without checkpoints, in alternating pairs; what is left of the throughput."""
    source, only_keys = folder / "rows.parquet", folder / "keys.parquet"
    write_file(source, rows, per_window, uniform=uniform)
    write_file(only_keys, 0, per_window, uniform=uniform)
    setup = run(folder, only_keys, NEVER_MS)
    walls, cpus = [], []
    rate = 0.0
    for _ in range(pairs):
        without = run(folder, source, NEVER_MS)
        with_them = run(folder, source, 1_000)
        rate = rows / (without.wall_s - setup.wall_s)
        walls.append((without.wall_s - setup.wall_s) / (with_them.wall_s - setup.wall_s))
        cpus.append((without.cpu_s - setup.cpu_s) / (with_them.cpu_s - setup.cpu_s))
        print(f"    {rate:,.0f} rows/s; left {walls[-1]:.2f}, per CPU second {cpus[-1]:.2f}")
    return {
        "rows_per_s": rate,
        "left": statistics.median(walls),
        "left_cpu": statistics.median(cpus),
        "checkpoints": len(with_them.pauses_ms) + 3,
        "pause_max_ms": max(with_them.pauses_ms, default=0),
        "state_bytes": with_them.total_bytes,
    }


def paused(folder: pathlib.Path, rate: float, barriers: int, interval_ms: int) -> dict[str, float]:
    """One run with many barriers: pauses, and the bytes that each checkpoint adds (M7)."""
    per_window = int(rate * interval_ms / 1000)
    source = folder / "rows.parquet"
    write_file(source, per_window * (barriers + 20), per_window, uniform=False)
    found = run(folder, source, interval_ms)
    pauses = sorted(found.pauses_ms)
    return {
        "barriers": len(pauses),
        "pause_p50_ms": statistics.median(pauses),
        "pause_p99_ms": pauses[int(len(pauses) * 0.99)],
        "pause_max_ms": pauses[-1],
        "new_share": statistics.mean(found.new_bytes) / found.total_bytes,
    }


def main() -> None:
    """Run everything and print what it says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--rows-per-window", type=int, default=300_000)
    parser.add_argument("--barriers", type=int, default=200)
    parser.add_argument("--barrier-interval-ms", type=int, default=250)
    asked = parser.parse_args()
    report: dict[str, Any] = {
        "benchmark": "checkpoint",
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "rows": asked.rows,
    }
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = pathlib.Path(name)
        for label, uniform in (("moving window of 1 %", False), ("uniform keys", True)):
            print(f"  {label}: a checkpoint every second against none")
            found = compared(
                folder, asked.rows, asked.rows_per_window, asked.pairs, uniform=uniform
            )
            report["uniform" if uniform else "moving"] = found
            print(
                f"  {label}: {found['left']:.0%} of the throughput is left "
                f"({found['left_cpu']:.0%} per CPU second), {found['checkpoints']} checkpoints, "
                f"{found['state_bytes'] / 1e6:,.0f} MB of state"
            )
        rate = report["moving"]["rows_per_s"]
        found = paused(folder, rate, asked.barriers, asked.barrier_interval_ms)
        report["pause"] = found
        print(
            f"  {found['barriers']:.0f} barriers: pause p50 {found['pause_p50_ms']:.0f}, "
            f"p99 {found['pause_p99_ms']:.0f}, max {found['pause_max_ms']:.0f} ms; a checkpoint "
            f"adds {found['new_share']:.1%} of the full state on average"
        )
    met = {
        "cost": 1 - report["moving"]["left"] <= GOAL_COST,
        "pause": report["pause"]["pause_p99_ms"] < GOAL_PAUSE_MS,
        "m7": report["pause"]["new_share"] <= GOAL_M7,
    }
    report["met"] = met
    print("  " + ", ".join(f"{goal}: {'met' if ok else 'missed'}" for goal, ok in met.items()))
    results = pathlib.Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    (results / "checkpoint.json").write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
