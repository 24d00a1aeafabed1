"""What checkpoints cost a job with a large state: throughput, bytes, the lane's pause (M7, S6).

    python benchmarks/checkpoint.py --pairs 3

A parquet file is read, counted by key and dropped, on Ray. Its first million rows set up a million
keys (about 100 MB of state), and a checkpoint that all runs continue from; then keys are drawn from
a window of 1 % of them that moves on once per checkpoint interval, or uniformly. The same job runs
without checkpoints (an interval of an hour) and with one every second, in pairs. A last run with
more barriers gives the longest time between two batches of the lane around each cut, and the bytes
that each checkpoint adds.
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
from collections.abc import Callable
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
WAIT_S = 300.0
GOAL_COST = 0.10
GOAL_PAUSE_MS = 50
GOAL_M7 = 0.05


@dataclass(frozen=True)
class Run:
    """One run: rows, seconds from running to the end, CPU seconds of its actor, its records."""

    rows: int
    wall_s: float
    cpu_s: float
    pauses_ms: list[int]
    new_bytes: list[int]
    total_bytes: int

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.wall_s

    @property
    def cpu_rate(self) -> float:
        """Rows per CPU second."""
        return self.rows / self.cpu_s


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


def launched(folder: pathlib.Path, spec: dict[str, Any], lines: Any = None) -> Any:
    """Start a job on Ray; what controls it."""
    from arkflow_ray.config.project import check_file
    from arkflow_ray.observability.rows import StdoutRows
    from arkflow_ray.runtime.launch import RunSettings, launch

    config = folder / "job.json"
    config.write_text(json.dumps(spec))
    checked = check_file(config)
    assert checked.ok, checked.issues
    return launch(checked.jobs, RunSettings(), lines or StdoutRows(), lambda _: None)


def wait_for(what: str, test: Callable[[], bool]) -> None:
    """Until it is so; an error after `WAIT_S`."""
    give_up = time.monotonic() + WAIT_S
    while not test():
        if time.monotonic() > give_up:
            raise TimeoutError(what)
        time.sleep(0.01)


def set_up(folder: pathlib.Path, spec: dict[str, Any]) -> None:
    """Run until every key is there, and stop in order: later runs continue from that checkpoint."""
    jobs = launched(folder, spec)
    try:
        (running,) = jobs.jobs.values()

        def counted() -> bool:
            return any(c.rows_in >= KEYS for c in running.status().chains.values() if c.operators)

        wait_for("every key", counted)
        jobs.stop()
        wait_for("the stop", lambda: bool(jobs.wait(0.1)))
        (outcome,) = jobs.outcomes().values()
        assert outcome.kind.value == "stopped", outcome
    finally:
        jobs.close()


def run(folder: pathlib.Path, source: pathlib.Path, interval_ms: int) -> Run:
    """Continue from the state that was set up, to the end of the data."""
    from arkflow_kernel.log_view import read_log
    from arkflow_kernel.protocol import JobState
    from arkflow_ray.checkpoint.open import open_files

    root = folder / "checkpoints"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(folder / "set-up", root)
    jobs = launched(folder, job(source, root, interval_ms))
    try:
        (running,) = jobs.jobs.values()
        while running.status().state in (JobState.CREATED, JobState.DEPLOYING):
            jobs.wait(0.01)
        began = time.monotonic()
        while not jobs.wait(0.05):
            pass
        wall_s = time.monotonic() - began
        (outcome,) = jobs.outcomes().values()
        assert outcome.kind.value == "finished", outcome
        (usage,) = running.status().usage.values()
        (counted,) = running.status().chains.values()
    finally:
        jobs.close()
    view = read_log(open_files(f"file://{root}", "counted"))
    records = [slot.record for slot in view.slots if slot.record is not None]
    timed = [r for r in records if r.generation > 1][:-2]  # without those of the end
    return Run(
        counted.rows_in,
        wall_s,
        usage.cpu_ms / 1000,
        [record.phases.pause_ms for record in timed],
        [record.new_bytes for record in timed],
        max(record.total_bytes for record in records),
    )


def prepared(folder: pathlib.Path, rows: int, per_window: int, *, uniform: bool) -> pathlib.Path:
    """The file, and the checkpoint that runs over it continue from."""
    source, root = folder / "rows.parquet", folder / "set-up"
    write_file(source, rows, per_window, uniform=uniform)
    shutil.rmtree(root, ignore_errors=True)
    set_up(folder, job(source, root, NEVER_MS))
    return source


def compared(
    folder: pathlib.Path, rows: int, per_window: int, pairs: int, *, uniform: bool
) -> dict[str, Any]:
    """Runs with and without checkpoints, in alternating pairs; what is left of the throughput."""
    source = prepared(folder, rows, per_window, uniform=uniform)
    walls, cpus, rates = [], [], []
    for _ in range(pairs):
        without, with_them = run(folder, source, NEVER_MS), run(folder, source, 1_000)
        rates.append(without.rate)
        walls.append(with_them.rate / without.rate)
        cpus.append(with_them.cpu_rate / without.cpu_rate)
        pause = max(with_them.pauses_ms, default=0)
        print(
            f"    {without.rate:,.0f} rows/s without, {with_them.rate:,.0f} with; left "
            f"{walls[-1]:.2f}, per CPU second {cpus[-1]:.2f}; longest pause {pause} ms"
        )
    return {
        "rows_per_s": statistics.median(rates),
        "left": statistics.median(walls),
        "left_cpu": statistics.median(cpus),
        "checkpoints": len(with_them.pauses_ms),
        "state_bytes": with_them.total_bytes,
    }


def paused(folder: pathlib.Path, rate: float, barriers: int, interval_ms: int) -> dict[str, float]:
    """One run with many barriers: pauses, and the bytes that each checkpoint adds (M7)."""
    per_window = int(rate * interval_ms / 1000)
    source = prepared(folder, per_window * (barriers + 20), per_window, uniform=False)
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
